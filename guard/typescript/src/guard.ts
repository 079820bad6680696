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
import { type Allowed, type Call, newCall, PaymentRefused, type SentPayment } from "./call.js";
import {
  type Ask,
  decide,
  overBudget,
  refuse,
  type Refuse,
  type Situation,
  type Spent,
} from "./decision.js";
import { type Fetch, guardFetch, type WrapFetch } from "./fetch.js";
import { freeze } from "./freeze.js";
import { type Entry, Journal, type Outcome, type Reservation } from "./journal.js";
import { members } from "./json.js";
import { guardMcp, type McpLike, type SigningClient } from "./mcp.js";
import { readOffer } from "./offer.js";
import type { GuardOptions } from "./options.js";
import {
  difference,
  PAYMENT_HEADERS,
  paymentInHeader,
  readPayment,
  type SignedPayment,
} from "./payment.js";
import { type Policy, policyOf } from "./policy.js";
import { offerFor, Purchases, type ResolveOptions } from "./purchase.js";
import { knownOf } from "./inherited.js";
import { parseResource } from "./resource.js";
import { type Fate, fateOf } from "./settlement.js";
import { BundleSource } from "./source.js";
import { accountOf } from "./spending.js";
import type { Header, PayingClient, TransportGuard } from "./transport.js";
import { payerOf, payersOf } from "./wallet.js";

/** The call that this code runs in: a guard leaves the calls of another one of its client alone. */
const CALLS = new AsyncLocalStorage<
  { readonly guard: Guard<PayingClient>; readonly call: Call } | undefined
>();
const UNREADABLE = "The payment is no transfer that the guard can read.";
const PAID_ALREADY = "The call was paid already, and is not paid a second time.";
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
  readonly #purchases: Purchases;

  constructor(client: Client, options: GuardOptions) {
    const { bundle, key, policy = {}, ask = () => false, journal = null, cache = null } = options;
    this.client = client;
    this.#policy = policyOf(policy);
    this.#ask = ask;
    this.#source = new BundleSource(bundle, key, cache, options.bundleTimeoutMs ?? 5000);
    this.#journal = new Journal(journal, seconds());
    this.#purchases = new Purchases(this.#journal, options.nodes ?? {});
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
   * Payments of the client's wallets that were signed and got no receipt, oldest first. With the
   * payer and the nonce the chain, or the service's payment trace, says whether one was taken.
   */
  unsettled(): Entry[] {
    return this.#journal.unsettled(payersOf(this.client));
  }

  /**
   * Payments of the client's wallets after which no other one is signed for the same purchase,
   * oldest first.
   */
  unresolved(): Entry[] {
    return this.#journal.unresolved(payersOf(this.client));
  }

  /**
   * Asks a node (by default the one of `nodes`) what became of a payment, and writes it down.
   * `writeOff` is your consent to pay for the same purchase again. Returns the payment's state,
   * null while its answer is not complete. Throws JournalError, also for a payment that is final.
   */
  resolve(nonce: string, options: ResolveOptions = {}): Promise<Fate | null> {
    return this.#purchases.resolve(nonce.toLowerCase(), options, seconds);
  }

  async run<T>(work: (call: Call) => Promise<T>): Promise<T> {
    const call = newCall();
    const within = <R>(step: () => Promise<R>) => CALLS.run({ guard: this, call }, step);
    try {
      const answer = await within(() => work(call));
      return call.again === null || call.sent !== null
        ? answer
        : ((await within(() => this.#sendAgain(call))) as T);
    } catch (error) {
      if (call.sent === null && call.again !== null) {
        return (await within(() => this.#sendAgain(call))) as T;
      }
      // The client tried to pay a second time: its caller gets what the seller answered.
      if (call.answer !== null && call.refused !== null) return call.answer() as T;
      throw call.refused ?? error;
    } finally {
      if (call.sent === null) {
        if (call.allowed !== null) this.#journal.release(call.allowed.reservation);
        call.endTurn?.();
      }
      call.allowed = null;
    }
  }

  /** Sends an earlier payment of the purchase instead of another one. */
  #sendAgain(call: Call): Promise<unknown> {
    const { again, send } = call;
    const kept = again === null ? null : this.#journal.sent(again.nonce);
    if (again === null || kept === null || send === null) throw this.#differs(UNREADABLE);
    if (!this.#purchases.isSendable(again, seconds())) {
      call.again = null;
      call.refused = this.#purchases.unresolved(again.resource, again, seconds());
      throw call.refused;
    }
    return send(this.#leaves(call, { ...kept, nonce: again.nonce, call }));
  }

  #leaves(call: Call, sent: SentPayment): SentPayment {
    call.sent = sent;
    this.#purchases.setInFlight(sent.nonce, true);
    return sent;
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
    const { call } = this;
    if (call === null || call.allowed === null) throw this.#differs("Nobody allowed this payment.");
    if (call.sent !== null) throw this.#differs(PAID_ALREADY);
    const { reservation } = call.allowed;
    const differs = this.#difference(payment, call.allowed);
    if (differs !== null) throw this.#differs(differs);
    if (this.#journal.entry(payment.nonce) !== null) throw this.#differs(PAID_ALREADY);
    this.#journal.recordSigned(reservation, payment, { header: name, value }, seconds());
    return this.#leaves(call, { header: name, value, nonce: payment.nonce, call });
  }

  answered(sent: SentPayment, status: number, header: Header, isConditional = false): void {
    this.#conclude(sent, { at: seconds(), status, ...fateOf(status, header, isConditional) });
  }

  unanswered(sent: SentPayment, header: Header = () => null): void {
    const { transaction } = fateOf(0, header);
    this.#conclude(sent, { at: seconds(), status: null, fate: "open", transaction });
  }

  #conclude(sent: SentPayment, outcome: Outcome): void {
    this.#purchases.setInFlight(sent.nonce, false);
    try {
      const isKept = this.#journal.sent(sent.nonce) !== null;
      if (isKept) this.#journal.recordOutcome(sent.nonce, outcome);
    } catch {
      // The answer was paid for: the caller gets it even where the disk is full.
    }
    sent.call.endTurn?.();
  }

  /** Why an offer must not be paid; null where money was set aside for it. */
  async #judge(requirements: unknown, paymentRequired: unknown): Promise<PaymentRefused | null> {
    const { call } = this;
    const refusal =
      call === null
        ? refuse("resource-mismatch", "The client was not called through the guard.")
        : await this.#begin(call, requirements, members(paymentRequired));
    if (refusal === null) return null;
    const isError = refusal instanceof PaymentRefused;
    const refused = isError ? refusal : new PaymentRefused(refusal.code, refusal.reason);
    if (call !== null) call.refused = refused;
    return refused;
  }

  /** Waits for identical calls, and for what became of an earlier payment of the purchase. */
  async #begin(
    call: Call,
    requirements: unknown,
    required: ReturnType<typeof members>,
  ): Promise<Refuse | PaymentRefused | null> {
    if (call.obstacle !== null) return refuse("resource-mismatch", call.obstacle);
    if (call.endTurn !== null) return refuse("retry-storm", PAID_ALREADY);
    const payers = payersOf(this.client);
    const find = (): Entry | null => this.#journal.unresolvedFor(call.request, payers);
    const resource = parseResource(call.url)?.url ?? "";
    call.endTurn = await this.#purchases.turn(call.request);
    if (call.endTurn === null) {
      call.endTurn = () => undefined;
      const entry = find();
      if (this.#purchases.isBlocked(entry, seconds())) {
        return this.#purchases.unresolved(resource, entry, seconds());
      }
    }
    for (let entry = find(); entry !== null; entry = find()) {
      const isSame = entry.resource === resource && this.#purchases.isSendable(entry, seconds());
      const offer = isSame ? offerFor(entry, required, this.#policy) : undefined;
      if (offer !== undefined) return this.#again(call, entry, offer, required);
      if (!(await this.#purchases.makeWay(entry, seconds))) {
        return this.#purchases.unresolved(resource, find(), seconds());
      }
    }
    return this.#reserve(call, requirements, required);
  }

  /** Allows an earlier payment to be sent again, after a decision of its own. */
  async #again(
    call: Call,
    entry: Entry,
    entryOffer: unknown,
    required: ReturnType<typeof members>,
  ): Promise<Refuse | PaymentRefused> {
    const offer = this.#offer(call, entryOffer, required);
    const situation = await this.#situation(call);
    const decision = decide(offer, { ...situation, spent: NOTHING_SPENT }, this.#policy);
    if (decision.decision === "refuse") return this.#explained(decision);
    if (decision.decision === "ask") {
      const refusal = await this.#consent(decision, call.url ?? "");
      if (refusal !== null) return refusal;
    }
    call.again = entry;
    return this.#purchases.unresolved(entry.resource, entry, seconds());
  }

  async #reserve(
    call: Call,
    requirements: unknown,
    required: ReturnType<typeof members>,
  ): Promise<Refuse | null> {
    // The token and its chain are in the signature and not in the payment: no later hook may change
    // them for the time of signing.
    if (!freeze(requirements)) return refuse("signed-differs", "The offer is no plain data.");
    const payer = payerOf(this.client, required["x402Version"], requirements);
    if (payer === null) {
      return refuse("signed-differs", "The guard cannot read which account would sign.");
    }
    const offer = this.#offer(call, requirements, required);
    const { host, url: resource } = parseResource(call.url) ?? { host: "", url: "" };
    const situation = await this.#situation(call);
    const account = accountOf(payer, String(offer.network), String(offer.asset).toLowerCase());
    const { request } = call;
    const spent = (): Spent => this.#journal.spent({ account, host, request }, seconds());
    const decision = decide(offer, { ...situation, spent: spent() }, this.#policy);
    if (decision.decision === "refuse") return this.#explained(decision);
    const { terms } = decision;
    if (decision.decision === "ask") {
      const refusal = await this.#consent(decision, call.url ?? "");
      const late = refusal ?? overBudget(terms.microUsd, spent(), this.#policy);
      if (late !== null) return late;
    }
    // Nothing is awaited since the look at the budgets, so that the next look sees this payment.
    const { microUsd } = terms;
    const claim = { account, host, request, at: seconds(), microUsd };
    const reservation: Reservation = { ...claim, terms, payer, resource };
    this.#journal.reserve(reservation);
    call.allowed = { requirements, reservation };
    return null;
  }

  /** What is known of the URL that answered 402, and of those that led to it. */
  async #situation({ url, hops }: Call): Promise<Omit<Situation, "spent">> {
    const now = seconds();
    const bundle = await this.#source.current(now);
    const known = bundle === null ? null : knownOf(bundle, url, hops);
    const { record = null, inherited = [] } = known ?? {};
    return { requestUrl: url, record, inherited, bundleAsOf: bundle?.header.asOf ?? null, now };
  }

  #offer(
    call: Call,
    entry: unknown,
    { x402Version, resource: named }: ReturnType<typeof members>,
  ): ReturnType<typeof readOffer> {
    const { url: claimed } = members(named);
    const isAlias = call.alias !== null && claimed === call.alias;
    return readOffer(entry, isAlias ? call.url : claimed, x402Version);
  }

  async #consent({ code, reason, terms }: Ask, url: string): Promise<Refuse | null> {
    // Who is asked runs outside the call: what it pays is another payment.
    const question = { code, reason, url, terms };
    const agreed: unknown = await CALLS.run(undefined, () => this.#ask(question));
    return agreed === true ? null : refuse(code, `${reason} Nobody agreed to it.`);
  }

  /** A refusal for want of a bundle, with the reason why there is none. */
  #explained(refusal: Refuse): Refuse {
    const { problem } = this.#source;
    if (refusal.code !== "bundle-old" || problem === null) return refusal;
    return { ...refusal, reason: `${refusal.reason} ${problem}` };
  }

  #checkSigned(payload: unknown): void {
    const payment = readPayment(payload);
    const allowed = this.call?.allowed ?? null;
    if (payment === null || allowed === null) throw this.#differs(UNREADABLE);
    // An earlier hook may have shown us another offer than the client signs.
    const isJudged =
      payment.asset === null || members(payload)["accepted"] === allowed.requirements;
    if (!isJudged) throw this.#differs("Another offer was signed than the one that was judged.");
    const differs = this.#difference(payment, allowed);
    if (differs !== null) throw this.#differs(differs);
  }

  #difference(payment: SignedPayment, { reservation }: Allowed): string | null {
    const { payer, terms } = reservation;
    if (payment.payer !== payer) return `It is paid by ${payment.payer}, not by ${payer}.`;
    return difference(payment, terms, seconds());
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
