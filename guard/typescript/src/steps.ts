/**
 * The guard of one x402 client: decides about each payment, reserves it, and checks the signed and
 * the outgoing payload.
 *
 * The client's hooks do not see the URL; it comes from the transport by AsyncLocalStorage. Other hooks
 * may change the offer or replace the payment. A failure in any of these steps refuses the payment:
 *
 * 1. `makeWay`: no earlier payment of the same purchase may still be taken
 * 2. `filter`: offers that would be refused are removed from the client's selection
 * 3. `before`: the selected offer is decided again, and its exposure is reserved
 * 4. `after`: the signed payment is the allowed one
 * 5. `seal`: the payload is still the one that was checked, and is recorded
 * 6. `admit`: the outgoing payment is the sealed one, and is recorded as in flight
 * 7. `conclude`: the outcome
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes } from "node:crypto";
import { ApprovalQueue } from "./approval.js";
import { type Attempt, type Call, type CallOptions, PaymentRefused } from "./call.js";
import { type Ask, type Decision, furthest, refuse, type Refuse } from "./decision.js";
import { cacheFolder, journalFile } from "./defaults.js";
import { freeze } from "./freeze.js";
import { JournalError } from "./journal-file.js";
import { type Changes, Journal } from "./journal.js";
import { members } from "./json.js";
import { Judge } from "./judge.js";
import { NodeReader } from "./nodes.js";
import { changedExtensions, type Offer, partOfExposure, withPaymentId } from "./offer.js";
import { askPreflight } from "./opinion.js";
import type { GuardOptions } from "./options.js";
import type { Event, Payment } from "./payment-state.js";
import { type Policy, policyOf } from "./policy.js";
import { accountId } from "./purchase-key.js";
import { askToPayAgain, lossText, makeWay, type Payer, unresolved } from "./purchase.js";
import { parseResource } from "./resource.js";
import { checkOffers } from "./signed-offers.js";
import { type Authorization } from "./authorization.js";
import { difference, headerOf, payloadInHeader, paymentIdOf, readSigned } from "./signed.js";
import { BundleSource } from "./source.js";
import { inSpan } from "./telemetry.js";
import type { PayingClient } from "./transport.js";
import { payerOf, walletsOf } from "./wallet.js";

/** The call that this code runs in: a guard ignores the calls of another one of its client. */
export const CALLS = new AsyncLocalStorage<
  { readonly guard: PaymentSteps<PayingClient>; readonly call: Call } | undefined
>();
export const OPTIONS = new AsyncLocalStorage<CallOptions>();
const NOT_CALLED = "The client was not called through the guard.";
export const UNREADABLE = "The payment is not one that the guard can read.";
export const PAID_ALREADY = "The call was paid already, and is not paid a second time.";

/** The part of a guard that the hooks of an x402 client and the steps of a payment share. */
export abstract class PaymentSteps<Client extends PayingClient> implements Payer {
  readonly client: Client;
  readonly policy: Policy;
  readonly journal: Journal;
  readonly nodes: NodeReader;
  protected readonly options: GuardOptions;
  protected readonly source: BundleSource;
  protected readonly judge: Judge;
  protected readonly queue: ApprovalQueue | null;
  protected isStopped = false;

  constructor(client: Client, options: GuardOptions) {
    const { bundle, key, policy = {}, cache = cacheFolder() } = options;
    this.client = client;
    this.options = options;
    this.policy = policyOf(policy);
    this.source = new BundleSource(bundle, key, cache, options.bundleTimeoutMs ?? 5000);
    this.nodes = new NodeReader(options.nodes);
    this.journal = new Journal(options.journal ?? journalFile(), options.durable);
    const { approver } = options;
    this.queue = approver === undefined ? null : new ApprovalQueue(this.journal.file, approver);
    const session = randomBytes(9).toString("base64url");
    this.judge = new Judge(client, this.source, this.journal, this.policy, session);
    const create = client.createPaymentPayload.bind(client);
    client.createPaymentPayload = (required: unknown) =>
      this.isOfAnother ? create(required) : this.create(required, create);
    client.registerPolicy((version, accepts) =>
      this.isOfAnother ? accepts : this.filter(version, accepts),
    );
    client.onBeforePaymentCreation(async (context) => {
      if (this.isOfAnother) return undefined;
      const refused = await this.before(context.selectedRequirements);
      return refused === null ? undefined : { abort: true, reason: refused.message };
    });
    client.onAfterPaymentCreation(async (context) => {
      if (!this.isOfAnother) this.after(context.paymentPayload);
    });
  }

  get hasApprover(): boolean {
    return this.options.ask !== undefined || this.queue !== null;
  }

  now(): number {
    return Math.floor(Date.now() / 1000);
  }

  change(payment: Payment, event: Event, changes: Changes = {}): boolean {
    if (!this.journal.change(payment.id, event, this.now(), payment.state, changes)) return false;
    if (event === "window-over") process.emitWarning(lossText(payment), "PaymentLapsed");
    this.report(payment.id, event);
    return true;
  }

  async judgeAgain(offer: Offer, payment: Payment): Promise<Decision> {
    const call = this.call!;
    const decision = this.judge.decide(call, offer, this.isStopped, this.now(), payment);
    if (decision.decision !== "ask") return decision;
    return (await this.consent(decision, call)) ?? { decision: "allow", terms: decision.terms };
  }

  async askAgain(payment: Payment): Promise<boolean> {
    return (await this.consent(askToPayAgain(payment), this.call!)) === null;
  }

  get call(): Call | null {
    const running = CALLS.getStore();
    return running?.guard === (this as object) ? running.call : null;
  }

  /** Whether this code runs in a call of another guard of the same client, which judges it. */
  protected get isOfAnother(): boolean {
    const guard = CALLS.getStore()?.guard;
    return guard !== undefined && guard !== (this as object) && guard.client === this.client;
  }

  /** Creates the payload of a call: that of an earlier payment of its purchase, or a new one. */
  protected async create(
    required: unknown,
    create: (required: unknown) => Promise<unknown>,
  ): Promise<unknown> {
    const { call } = this;
    if (call === null) {
      throw new PaymentRefused(refuse("resource-mismatch", NOT_CALLED));
    }
    return inSpan(call, () => this.createIn(call, required, create));
  }

  protected async createIn(
    call: Call,
    required: unknown,
    create: (required: unknown) => Promise<unknown>,
  ): Promise<unknown> {
    try {
      for (;;) {
        const earlier = await this.begin(call, required);
        if (earlier !== null) return earlier;
        try {
          const payload = await create(call.required);
          if (call.refused !== null) throw call.refused;
          await this.seal(call, payload);
          return payload;
        } catch (error) {
          this.giveUp(call);
          // Another call reserved a payment for the same purchase at the same time: queue for it.
          if (!call.isBehind) throw error;
        }
      }
    } catch (error) {
      throw this.explain(call, error);
    }
  }

  /** Starts to pay; returns the payload of an earlier payment that is sent again, or null. */
  protected async begin(call: Call, required: unknown): Promise<unknown> {
    const earlier = call.sent ?? call.sealed ?? call.attempt;
    if (earlier !== null) throw new PaymentRefused(refuse("paid-already", PAID_ALREADY));
    Object.assign(call, { required, isBehind: false, refused: null, dropped: [], hasOffers: false });
    call.spent = null;
    if (call.obstacle !== null) throw new PaymentRefused(refuse("resource-mismatch", call.obstacle));
    call.bundle = await this.source.current(this.now());
    call.contradicted = await checkOffers(required, call.url);
    call.purchase = this.judge.purchase(call);
    if (call.purchase === null) return null; // the decision explains it
    const { accepts } = members(required);
    const entries = Array.isArray(accepts) ? (accepts as unknown[]) : [];
    const readOffers = (): Offer[] => entries.map((entry) => this.judge.offer(call, entry));
    const payment = await makeWay(this, call.purchase, readOffers);
    if (payment === null) {
      call.required = withPaymentId(required, () => this.journal.paymentId(call.purchase!));
      return null;
    }
    const { id, handle } = payment;
    const value = String(payment.payload);
    const payload = payloadInHeader(value);
    call.sealed = { id, handle, header: headerOf(payload), value, isNew: false };
    return payload;
  }

  /** Removes the offers that would be refused; the order of the rest stays. */
  protected filter(_version: number, accepts: readonly any[]): any[] {
    const { call } = this;
    if (call === null) return [...accepts];
    const kept = accepts.filter((entry) => {
      const offer = this.judge.offer(call, entry);
      const decision = this.judge.decide(call, offer, this.isStopped, this.now());
      if (decision.decision === "refuse") call.dropped.push(decision);
      return decision.decision !== "refuse";
    });
    call.hasOffers = kept.length > 0;
    return kept;
  }

  /** Why the selected offer must not be paid; null if its exposure was reserved. */
  protected async before(requirements: unknown): Promise<PaymentRefused | null> {
    const { call } = this;
    if (call === null) return new PaymentRefused(refuse("resource-mismatch", NOT_CALLED));
    const refusal = await this.reserve(call, requirements);
    return refusal === null ? null : this.fail(call, refusal);
  }

  protected async reserve(call: Call, requirements: unknown): Promise<Refuse | PaymentRefused | null> {
    if (call.attempt !== null || call.sent !== null) return refuse("paid-already", PAID_ALREADY);
    // In version 1 the token and its chain are in the signature and not in the payload: no later hook
    // may change them until it is signed.
    if (!freeze(requirements)) return refuse("signed-differs", "The offer is not plain data.");
    const payer = payerOf(this.client, members(call.required)["x402Version"], requirements);
    if (payer === null) {
      return refuse("signed-differs", "The guard cannot read which account would sign.");
    }
    const offer = this.judge.offer(call, requirements);
    const decision = this.judge.decide(call, offer, this.isStopped, this.now());
    if (decision.decision === "refuse") return decision;
    if (decision.decision === "ask") {
      const refusal = await this.consent(decision, call);
      if (refusal !== null) return refusal;
    }
    const { terms } = decision;
    const { purchase } = call;
    if (purchase === null) return refuse("resource-mismatch", "The URL cannot be read.");
    const reserved = this.journal.reserve(purchase, terms, payer, this.policy, this.now());
    if (reserved === null) {
      call.isBehind = true;
      return unresolved(purchase.resource, null, this.now());
    }
    if ("decision" in reserved) return reserved;
    const { id, handle } = reserved;
    call.attempt = { id, handle, payer, terms, requirements, isChecked: false };
    return null;
  }

  /** Compares the signed payment with the allowed one. */
  protected after(payload: unknown): void {
    const attempt = this.call?.attempt ?? null;
    if (attempt === null) throw this.differs("The guard did not allow this payment.");
    // An earlier hook may have shown the guard another offer than the client signs.
    const { x402Version, accepted } = members(payload);
    if (x402Version !== 1 && accepted !== attempt.requirements) {
      throw this.differs("Another offer was signed than the one that was allowed.");
    }
    this.check(attempt, payload);
    attempt.isChecked = true;
  }

  /** Records the payment, and fixes the header that may leave. */
  protected async seal(call: Call, payload: unknown): Promise<void> {
    const { attempt } = call;
    if (attempt === null || !attempt.isChecked) throw this.differs(UNREADABLE);
    const { id, handle, terms } = attempt;
    const signed = this.check(attempt, payload);
    const value = Buffer.from(JSON.stringify(payload)).toString("base64");
    const isSolana = terms.method === "solana";
    const found = {
      paymentId: paymentIdOf(payload),
      evidence: signed.evidence,
      ...(isSolana ? { validHeight: await this.nodes.lastValidHeight(terms.network) } : {}),
      ...(signed.exposed === null ? {} : { settled: partOfExposure(terms, signed.exposed) }),
    };
    this.journal.sign(id, signed, value, this.now(), found);
    call.sealed = { id, handle, header: headerOf(payload), value, isNew: true };
  }

  protected check({ payer, terms }: Attempt, payload: unknown): Authorization {
    const signed = readSigned(payload);
    if (signed === null) throw this.differs(UNREADABLE);
    const other = difference(signed, terms, this.now());
    if (other !== null) {
      throw this.differs(`The signed payment has another ${other} than allowed.`);
    }
    if (signed.payer !== payer) {
      throw this.differs("It was signed by another account than was allowed.");
    }
    const more = changedExtensions(payload, this.call?.required);
    const name = more.find((one) => !this.policy.allowExtensions.includes(one));
    if (name !== undefined) throw this.differs(`The extension ${name} had the wallet sign more.`);
    return signed;
  }

  /** Ends an attempt: what did not leave cannot be taken, and its exposure is given back. */
  protected giveUp(call: Call): void {
    const { attempt, sealed, sent } = call;
    if (sent !== null) return;
    try {
      if (sealed !== null) {
        const state = sealed.isNew ? "signed" : "in-flight";
        this.journal.change(sealed.id, "not-sent", this.now(), state);
      } else if (attempt !== null) {
        this.journal.change(attempt.id, "not-signed", this.now(), "reserved");
      }
    } catch {
      // The next start gives it back.
    }
    call.attempt = null;
    call.sealed = null;
  }

  /** Records why nothing was signed, and returns the error for the caller. */
  protected explain(call: Call, error: unknown): unknown {
    if (error instanceof JournalError) call.refused = error;
    if (call.refused instanceof JournalError) return call.refused;
    let refused = error instanceof PaymentRefused ? error : call.refused;
    if (refused === null && !call.hasOffers) {
      const best = furthest(call.dropped);
      if (best !== undefined) refused = new PaymentRefused(best);
    }
    call.refused = refused;
    const text = error instanceof Error ? error.message : String(error);
    this.record(call, refused ?? refuse("sdk-refused", text.slice(0, 500)));
    return refused ?? error;
  }

  protected record(call: Call, { code, reason }: Pick<Refuse, "code" | "reason">): void {
    const resource = parseResource(call.url);
    const offer = call.attempt?.terms;
    try {
      this.journal.refuse({
        at: this.now(),
        account: accountId(walletsOf(this.client)),
        host: resource?.host ?? "",
        resource: resource?.url ?? "",
        decision: "refuse",
        code,
        reason,
        network: offer?.network ?? null,
        payTo: offer?.payTo ?? null,
        amount: offer === undefined ? null : String(offer.amount),
      });
    } catch {
      // Nothing is paid; the caller gets the refusal.
    }
  }

  /** The refusal of a payment that was not approved; null if it was. */
  protected async consent(question: Ask, call: Call): Promise<Refuse | null> {
    const { ask, bundle } = this.options;
    if (this.policy.secondOpinion) {
      const opinion = await askPreflight(bundle, question, call.url);
      if (opinion.decision !== "ask") return opinion.decision === "refuse" ? opinion : null;
    }
    const { code, reason, terms } = question;
    // The approver runs outside the call: it pays separately.
    const outside = (): unknown =>
      CALLS.run(undefined, () =>
        OPTIONS.run({}, () => ask?.({ code, reason, url: call.url ?? "", terms })),
      );
    const { purchase } = call;
    const queued = (): boolean =>
      purchase !== null &&
      this.queue?.ask(question, purchase.host, purchase.account, this.now()) === true;
    const agreed = ask === undefined ? queued() : await outside();
    return agreed === true ? null : refuse(code, `${reason} It was not approved.`);
  }

  protected differs(reason: string): PaymentRefused {
    const refusal = refuse("signed-differs", reason);
    return this.call === null ? new PaymentRefused(refusal) : this.fail(this.call, refusal);
  }

  protected fail(call: Call, refusal: Refuse | PaymentRefused): PaymentRefused {
    const refused = refusal instanceof PaymentRefused ? refusal : new PaymentRefused(refusal);
    call.refused = refused;
    return refused;
  }

  protected report(id: number, event: Event): void {
    const { onChange } = this.options;
    try {
      const payment = onChange === undefined ? null : this.journal.payment(id);
      if (payment !== null) onChange?.(payment, event);
    } catch (error) {
      // A callback neither pays nor loses an answer.
      process.emitWarning(`onChange failed: ${String(error)}`, "TollgaugeGuard");
    }
  }
}
