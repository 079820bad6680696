/** The guard of one x402 client, as programs and transports use it. */

import { lowerAddress } from "./address.js";
import { type AxiosLike, guardAxios, type WrapAxios } from "./axios.js";
import { type Call, type CallOptions, newCall, type SentPayment } from "./call.js";
import { refuse } from "./decision.js";
import { guardFetch, type WrapFetch } from "./fetch.js";
import { guardMcp, type McpLike } from "./mcp.js";
import type { GuardOptions } from "./options.js";
import { type Event, type Payment, receiptTransaction } from "./payment-state.js";
import { accountId, givenKey } from "./purchase-key.js";
import { resolvePayment } from "./purchase.js";
import { describeQuote, fetchOffers, type Quote } from "./quote.js";
import { readChallenge, SIGN_IN, signInHeader } from "./sign-in.js";
import { checkOffers } from "./signed-offers.js";
import { PAYMENT_HEADERS, payloadInHeader } from "./signed.js";
import { CALLS, OPTIONS, PAID_ALREADY, PaymentSteps, UNREADABLE } from "./steps.js";
import type { Fetch, Header, IsAnswer, PayingClient, TransportGuard } from "./transport.js";
import { walletsOf } from "./wallet.js";

/**
 * Adds a guard to a client. Throws TypeError for options that are not valid, and JournalError for a
 * journal that cannot be read.
 */
export function guarded<Client extends PayingClient>(
  client: Client,
  options: GuardOptions,
): Guard<Client> {
  return new Guard(client, options);
}

/**
 * Names the purchase of the calls in `work`, or tightens the policy for them. Throws TypeError for
 * options that are not valid.
 */
export function paying<T>(options: CallOptions, work: () => T): T {
  const { purchase, maxAmount } = options;
  if (purchase !== undefined) givenKey(purchase);
  if (maxAmount !== undefined && (typeof maxAmount !== "bigint" || maxAmount < 0n)) {
    throw new TypeError("maxAmount must be a BigInt of micro-dollars; 10_000n is a cent.");
  }
  return OPTIONS.run({ ...options }, work);
}

export class Guard<Client extends PayingClient = PayingClient>
  extends PaymentSteps<Client>
  implements TransportGuard<Client>
{
  readonly isAnswer: IsAnswer | null = this.options.isAnswer ?? null;
  /** Handles of payments by the response or error that a caller got. */
  readonly #named = new WeakMap<object, string>();

  /** A `fetch` that makes allowed payments: `guard.fetch(wrapFetchWithPayment)`. */
  fetch(wrap: WrapFetch<Client>, fetch: Fetch = globalThis.fetch): Fetch {
    return guardFetch(this, wrap, fetch);
  }

  /** The instance, which makes allowed payments: `guard.axios(wrapAxiosWithPayment, axios)`. */
  axios<Instance extends AxiosLike>(
    wrap: WrapAxios<Client, Instance>,
    instance: Instance,
  ): Instance {
    return guardAxios(this, wrap, instance);
  }

  /**
   * `callTool` of an MCP client that makes allowed payments: `guard.mcp(client, serverUrl)`.
   * `server` is null for a server without a URL, which the bundle does not list.
   */
  mcp<Mcp extends McpLike>(client: Mcp, server: string | null): Mcp["callTool"] {
    return guardMcp(this, client, server);
  }

  /** Refuses every payment from now on, also those that were signed and have not left. */
  stop(): void {
    this.isStopped = true;
  }

  /** The payments of the client's wallets that block their purchase, oldest first. */
  unresolved(): Payment[] {
    return this.journal.unresolved(accountId(walletsOf(this.client)));
  }

  /** The payment that a response answers, or after which an error was thrown; null without one. */
  payment(subject: unknown): Payment | null {
    const handle = isObject(subject) ? this.#named.get(subject) : undefined;
    return handle === undefined ? null : this.journal.find(handle);
  }

  /**
   * Reads from the owner's nodes, or from `node`, what happened to a payment, by its handle or nonce,
   * and records it. Throws JournalError.
   */
  resolve(name: string, { node }: { readonly node?: string } = {}): Promise<Payment> {
    return resolvePayment(this, name, node === undefined ? {} : { node });
  }

  /**
   * The owner's consent to pay for the same purchase again, if the payment is unresolved after the
   * chain was read; its exposure stays counted. Throws JournalError.
   */
  payAgain(name: string): Promise<Payment> {
    return resolvePayment(this, name, { close: "pay-again" });
  }

  /**
   * Closes a payment that is unresolved after the chain was read; its exposure stays counted. The
   * same call is a new purchase. Throws JournalError.
   */
  writeOff(name: string): Promise<Payment> {
    return resolvePayment(this, name, { close: "write-off" });
  }

  /**
   * Fetches a 402 without paying, and decides about each of its offers. Throws TypeError for an
   * answer that is not a 402.
   */
  async quote(url: string, init: RequestInit = {}, fetch: Fetch = globalThis.fetch): Promise<Quote[]> {
    const call = newCall(OPTIONS.getStore() ?? {});
    call.bundle = await this.source.current(this.now());
    const offers = await fetchOffers(call, new Request(url, init), fetch);
    call.contradicted = await checkOffers(call.required, call.url);
    call.purchase = this.judge.purchase(call);
    return offers.map((entry) => {
      const offer = this.judge.offer(call, entry);
      return describeQuote(offer, this.judge.decide(call, offer, this.isStopped, this.now()));
    });
  }

  /** Closes the journal. After that, nothing can be paid. */
  close(): void {
    this.stop();
    this.journal.file.close();
  }

  async run<T>(work: (call: Call) => Promise<T>): Promise<T> {
    const call = newCall(OPTIONS.getStore() ?? {});
    try {
      return await CALLS.run({ guard: this, call }, () => work(call));
    } catch (error) {
      // The client tried to pay a second time: its caller gets the seller's answer.
      if (call.answer !== null && call.refused !== null) return call.answer() as T;
      throw call.refused ?? error;
    } finally {
      this.giveUp(call);
    }
  }

  admit(header: Header): SentPayment | null {
    const present = PAYMENT_HEADERS.filter((name) => header(name) !== null);
    const [name] = present;
    if (name === undefined) return null;
    const value = present.length === 1 ? (header(name) ?? "") : "";
    const call = this.call;
    const isSealed = call?.sealed?.value === value;
    if (!isSealed && payloadInHeader(value) === null) throw this.differs(UNREADABLE);
    if (call?.sealed == null) throw this.differs("The guard did not allow this payment.");
    if (call.sent !== null) throw this.fail(call, refuse("paid-already", PAID_ALREADY));
    const { sealed } = call;
    if (!isSamePayload(value, sealed.value) || name !== sealed.header) {
      throw this.differs("The payment is not the one that was recorded.");
    }
    if (this.isStopped) throw this.fail(call, refuse("stopped", "Payments were stopped."));
    if (sealed.isNew && !this.journal.change(sealed.id, "send", this.now(), "signed")) {
      throw this.differs("The payment was changed by another process.");
    }
    call.sent = { ...sealed, call };
    return call.sent;
  }

  async signIn(call: Call, required: string | null): Promise<SentPayment | null> {
    const { signIn: account } = this.options;
    if (account === undefined || call.obstacle !== null || this.isStopped) return null;
    const purchase = this.judge.purchase(call);
    if (purchase === null) return null;
    try {
      const payment = this.journal.unfinished(purchase);
      const isPaid = payment?.state === "open" || payment?.state === "paid-unanswered";
      const isSame = payment?.urlDigest === purchase.urlDigest;
      const isOwn = payment?.payer === (lowerAddress(account.address) ?? account.address);
      if (payment === null || !isPaid || !isSame || !isOwn) return null;
      if (this.policy.deny.includes(purchase.host)) return null;
      const challenge = readChallenge(required, call.url ?? "", account.address, payment.network);
      if (challenge === null) return null;
      const value = await signInHeader(account, challenge);
      return { id: payment.id, handle: payment.handle, header: SIGN_IN, value, isNew: false, call };
    } catch {
      return null;
    }
  }

  conclude(
    sent: SentPayment,
    event: Event,
    status: number | null = null,
    header: Header = () => null,
  ): void {
    const settlement = receiptTransaction(header);
    const hint = {
      ...(status === null ? {} : { status }),
      ...(settlement === null ? {} : { settlement }),
    };
    try {
      const isChanged = this.journal.change(sent.id, event, this.now(), null, hint);
      if (isChanged) this.report(sent.id, event);
    } catch {
      // The answer was paid for: the caller gets it, and the journal has the payment as in flight.
    }
  }

  name(subject: unknown, sent: SentPayment): void {
    if (isObject(subject)) this.#named.set(subject, sent.handle);
  }
}

function isSamePayload(value: string, sealed: string): boolean {
  if (value === sealed) return true;
  return JSON.stringify(payloadInHeader(value)) === JSON.stringify(payloadInHeader(sealed));
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}
