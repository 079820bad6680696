/**
 * The guard of one x402 client: it decides before a payment is signed, and looks again before it
 * is sent. Whatever goes wrong in between refuses.
 *
 * The client's hooks see the offer and not the URL; other hooks may change the offer after ours;
 * and a failure hook may put another payment in place of ours. So the URL comes from the transport
 * (AsyncLocalStorage ties it to the hooks), and the transport has the last word.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { type AxiosLike, guardAxios, type WrapAxios } from "./axios.js";
import { type Call, newCall, PaymentRefused, type SentPayment } from "./call.js";
import {
  type Ask,
  type Code,
  decide,
  overBudget,
  readTerms,
  refuse,
  type Refuse,
  type Spent,
} from "./decision.js";
import { type Fetch, guardFetch, type WrapFetch } from "./fetch.js";
import { freeze } from "./freeze.js";
import { type Entry, Journal, type Outcome } from "./journal.js";
import { members } from "./json.js";
import { guardMcp, type McpLike, type SigningClient } from "./mcp.js";
import { type Offer, readOffer, type Terms } from "./offer.js";
import { difference, PAYMENT_HEADERS, paymentInHeader, readPayment } from "./payment.js";
import { type Policy, policyOf } from "./policy.js";
import { parseResource } from "./resource.js";
import { fateOf } from "./settlement.js";
import { type BundleLocation, BundleSource, type PinnedKey } from "./source.js";
import type { Header, PayingClient, TransportGuard } from "./transport.js";
import { isSamePayment, UnclearPayments } from "./unclear.js";

/** A payment that somebody has to agree to. */
export interface Question {
  readonly code: Code;
  readonly reason: string;
  /** The URL that asks to be paid. */
  readonly url: string;
  readonly terms: Terms;
}

export interface GuardOptions {
  readonly bundle: BundleLocation;
  readonly key: PinnedKey;
  /** What differs from `DEFAULT_POLICY`. */
  readonly policy?: Partial<Policy>;
  /** Who is asked; without it, a payment that needs consent is refused. */
  readonly ask?: (question: Question) => boolean | Promise<boolean>;
  /** The file of the journal, of one process alone; without it, the journal is in memory. */
  readonly journal?: string;
  /** A file that keeps the last good bundle for times without a network. */
  readonly cache?: string;
  /** The most milliseconds that a payment waits for the first bundle: 5000 by default. */
  readonly bundleTimeoutMs?: number;
}

/** The call that this code runs in: a guard leaves the calls of another one of its client alone. */
const CALLS = new AsyncLocalStorage<
  { readonly guard: Guard<PayingClient>; readonly call: Call } | undefined
>();
const UNREADABLE = "The payment is no transfer that the guard can read.";
const NOTHING_SPENT: Spent = { hostDay: 0n, day: 0n, repeats: 0 };

/**
 * Adds the guard to a client. Throws TypeError for options that cannot be used, and JournalError
 * for a journal that cannot be read.
 */
export function guarded<Client extends PayingClient>(
  client: Client,
  options: GuardOptions,
): Guard<Client> {
  return new Guard(client, options);
}

export class Guard<Client extends PayingClient = PayingClient> implements TransportGuard<Client> {
  readonly client: Client;
  readonly #policy: Policy;
  readonly #journal: Journal;
  readonly #source: BundleSource;
  readonly #ask: NonNullable<GuardOptions["ask"]>;
  readonly #unclear = new UnclearPayments();

  constructor(client: Client, options: GuardOptions) {
    const { bundle, key, policy = {}, ask = () => false, journal = null, cache = null } = options;
    this.client = client;
    this.#policy = policyOf(policy);
    this.#ask = ask;
    this.#source = new BundleSource(bundle, key, cache, options.bundleTimeoutMs ?? 5000);
    this.#journal = new Journal(journal, seconds());
    client.onBeforePaymentCreation(async (context) => {
      if (this.#isOfAnother) return undefined;
      const refused = await this.#judge(context.selectedRequirements, context.paymentRequired);
      return refused === null ? undefined : { abort: true, reason: refused.message };
    });
    client.onAfterPaymentCreation(async (context) => {
      if (!this.#isOfAnother) this.#checkSigned(context.paymentPayload);
    });
  }

  /** A `fetch` that pays what the guard allows: `guard.fetch(wrapFetchWithPayment)`. */
  fetch(wrap: WrapFetch<Client>, fetch: Fetch = globalThis.fetch): Fetch {
    return guardFetch(this, wrap, fetch);
  }

  /** The instance, which pays what the guard allows: `guard.axios(wrapAxiosWithPayment, axios)`. */
  axios<Instance extends AxiosLike>(
    wrap: WrapAxios<Client, Instance>,
    instance: Instance,
  ): Instance {
    return guardAxios(this, wrap, instance);
  }

  /**
   * `callTool` of an MCP client that pays what the guard allows: `guard.mcp(client, serverUrl)`.
   * `server` is null for one that is no web server; then nothing is known of it.
   */
  mcp<Mcp extends McpLike>(
    this: Guard<Client & SigningClient>,
    client: Mcp,
    server: string | null,
  ): Mcp["callTool"] {
    return guardMcp(this, client, server);
  }

  /**
   * Payments that were signed and got no receipt, oldest first. With the payer and the nonce
   * anybody can ask the chain, or the service's payment trace, whether one was taken.
   */
  unsettled(): Entry[] {
    return this.#journal.unsettled();
  }

  /**
   * Says what the chain shows of a payment. One that was not taken, and no longer can be, counts as
   * spent no longer. Throws JournalError, also for a payment that is not among `unsettled()`.
   */
  resolve(nonce: string, fate: "taken" | "not-taken"): void {
    this.#journal.resolve(nonce.toLowerCase(), seconds(), fate);
  }

  async run<T>(work: (call: Call) => Promise<T>): Promise<T> {
    const call = newCall();
    try {
      return await CALLS.run({ guard: this, call }, () => work(call));
    } catch (error) {
      throw call.refused ?? error;
    } finally {
      for (const { reservation, nonce } of call.allowed.splice(0)) {
        if (nonce === null) this.#journal.release(reservation);
      }
    }
  }

  get call(): Call | null {
    const running = CALLS.getStore();
    return running?.guard === (this as object) ? running.call : null;
  }

  /** Whether this code runs in a call of another guard of the same client, which judges it. */
  get #isOfAnother(): boolean {
    const guard = CALLS.getStore()?.guard;
    return guard !== undefined && guard !== (this as object) && guard.client === this.client;
  }

  admit(header: Header): SentPayment | null {
    const present = PAYMENT_HEADERS.filter((name) => header(name) !== null);
    const [name] = present;
    if (name === undefined) return null;
    const value = header(name) ?? "";
    const payment = present.length === 1 ? paymentInHeader(value) : null;
    if (payment === null) throw this.#differs(UNREADABLE);
    const allowed = this.call?.allowed.find(
      (one) => one.nonce === null || one.nonce === payment.nonce,
    );
    if (allowed === undefined) throw this.#differs("Nobody allowed this payment.");
    const { reservation, again } = allowed;
    const differs = difference(payment, reservation.terms, seconds());
    if (differs !== null) throw this.#differs(differs);
    if (again !== null) return again;
    if (allowed.nonce === null) this.#journal.recordSigned(reservation, payment);
    allowed.nonce = payment.nonce;
    const { terms, request, resource } = reservation;
    const { nonce, validBefore } = payment;
    return { header: name, value, nonce, validBefore, terms, request, resource };
  }

  answered(sent: SentPayment, status: number, header: Header): void {
    this.#conclude(sent, { at: seconds(), status, ...fateOf(status, header) });
  }

  unanswered(sent: SentPayment): void {
    this.#conclude(sent, { at: seconds(), status: null, fate: "unknown", transaction: null });
  }

  #conclude(sent: SentPayment, outcome: Outcome): void {
    this.#unclear.answered(sent, outcome.fate);
    try {
      this.#journal.recordOutcome(sent.nonce, outcome);
    } catch {
      // The answer was paid for: the caller gets it even where the disk is full.
    }
  }

  /** Why an offer must not be paid; null where money was set aside for it. */
  async #judge(requirements: unknown, paymentRequired: unknown): Promise<PaymentRefused | null> {
    const { call } = this;
    const refusal =
      call === null
        ? refuse("resource-mismatch", "The client was not called through the guard.")
        : await this.#reserve(call, requirements, members(paymentRequired));
    if (refusal === null) return null;
    const refused = new PaymentRefused(refusal.code, refusal.reason);
    if (call !== null) call.refused = refused;
    return refused;
  }

  async #reserve(
    call: Call,
    requirements: unknown,
    { x402Version, resource: named }: ReturnType<typeof members>,
  ): Promise<Refuse | null> {
    if (call.obstacle !== null) return refuse("resource-mismatch", call.obstacle);
    // The token and its chain are in the signature and not in the payment: no later hook may change
    // them for the time of signing.
    if (!freeze(requirements)) return refuse("signed-differs", "The offer is no plain data.");
    const bundle = await this.#source.current(seconds());
    const asked = parseResource(call.url);
    const { host, url: resource } = asked ?? { host: "", url: "" };
    const record = asked === null ? null : (bundle?.find(asked) ?? null);
    const bundleAsOf = bundle?.header.asOf ?? null;
    const { url: claimed } = members(named);
    const isAlias = call.alias !== null && claimed === call.alias;
    const offer = readOffer(requirements, isAlias ? call.url : claimed, x402Version);
    const again = this.#again(call, offer, resource);
    const spent = (): Spent =>
      again === null ? this.#journal.spent(host, call.request, seconds()) : NOTHING_SPENT;
    const situation = { requestUrl: call.url, record, bundleAsOf, spent: spent(), now: seconds() };
    const decision = decide(offer, situation, this.#policy);
    if (decision.decision === "refuse") return this.#explained(decision);
    const { terms } = decision;
    if (decision.decision === "ask") {
      const refusal = await this.#consent(decision, call.url ?? "");
      const late = refusal ?? overBudget(terms.microUsd, spent(), this.#policy);
      if (late !== null) return late;
    }
    // Nothing is awaited since the look at the budgets, so that the next look sees this payment.
    const reservation = { terms, host, resource, request: call.request, at: seconds() };
    if (again === null) this.#journal.reserve(reservation);
    call.allowed.push({ requirements, reservation, again, nonce: null });
    return null;
  }

  async #consent({ code, reason, terms }: Ask, url: string): Promise<Refuse | null> {
    // Who is asked runs outside the call: what it pays is another payment.
    const question = { code, reason, url, terms };
    const agreed: unknown = await CALLS.run(undefined, () => this.#ask(question));
    return agreed === true ? null : refuse(code, `${reason} Nobody agreed to it.`);
  }

  /** The payment that is sent again instead of one for this offer. */
  #again(call: Call, offer: Offer, resource: string): SentPayment | null {
    const sent = this.#unclear.find(call.request, resource, seconds());
    if (sent === null) return null;
    const terms = readTerms(offer, call.url, this.#policy);
    return !("decision" in terms) && isSamePayment(sent.terms, terms) ? sent : null;
  }

  /** A refusal for want of a bundle, with the reason why there is none. */
  #explained(refusal: Refuse): Refuse {
    const { problem } = this.#source;
    if (refusal.code !== "bundle-old" || problem === null) return refusal;
    return { ...refusal, reason: `${refusal.reason} ${problem}` };
  }

  #checkSigned(payload: unknown): void {
    const payment = readPayment(payload);
    const allowed = this.call?.allowed.at(-1);
    if (payment === null || allowed === undefined) throw this.#differs(UNREADABLE);
    // An earlier hook may have shown us another offer than the client signs.
    const isJudged =
      payment.asset === null || members(payload)["accepted"] === allowed.requirements;
    if (!isJudged) throw this.#differs("Another offer was signed than the one that was judged.");
    const differs = difference(payment, allowed.reservation.terms, seconds());
    if (differs !== null) throw this.#differs(differs);
  }

  #differs(reason: string): PaymentRefused {
    const refused = new PaymentRefused("signed-differs", reason);
    if (this.call !== null) this.call.refused = refused;
    return refused;
  }
}

function seconds(): number {
  return Math.floor(Date.now() / 1000);
}
