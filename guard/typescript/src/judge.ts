/** Judges the offers of a call: reads them, looks up the records, and decides. */

import type { Call } from "./call.js";
import { decide, type Decision, type Refuse, type Spent } from "./decision.js";
import { exposureOf, type Journal, type Purchase } from "./journal.js";
import { members } from "./json.js";
import { type KnownRequest, lookUp, lookUpPayee } from "./lookup.js";
import { type Offer, readOffer, readTerms, signingExtensions } from "./offer.js";
import type { Payment } from "./payment-state.js";
import type { Policy } from "./policy.js";
import { accountId, givenKey, urlDigest } from "./purchase-key.js";
import { parseResource } from "./resource.js";
import { termsOf } from "./signed-offers.js";
import type { BundleSource } from "./source.js";
import { canSignFor, walletsOf } from "./wallet.js";

const NOTHING_SPENT: Spent = { host: 0n, day: 0n, session: 0n, lifetime: 0n, lost: 0n, losses: 0 };

export class Judge {
  readonly #client: object;
  readonly #source: BundleSource;
  readonly #journal: Journal;
  readonly #policy: Policy;
  readonly #session: string;

  constructor(
    client: object,
    source: BundleSource,
    journal: Journal,
    policy: Policy,
    session: string,
  ) {
    this.#client = client;
    this.#source = source;
    this.#journal = journal;
    this.#policy = policy;
    this.#session = session;
  }

  /** The purchase of a call; null if its URL cannot be read, which the decision explains. */
  purchase({ url, key, options }: Call): Purchase | null {
    const resource = parseResource(url);
    if (resource === null || key === null || url === null) return null;
    const wallets = walletsOf(this.#client);
    const { purchase } = options;
    return {
      account: accountId(wallets),
      wallets,
      session: this.#session,
      key: purchase === undefined ? key : givenKey(purchase),
      host: resource.host,
      resource: resource.url,
      urlDigest: urlDigest(url),
    };
  }

  /** An entry of the call's 402, which may name the request by its alias. */
  offer(call: Call, entry: unknown): Offer {
    const { x402Version, resource, extensions } = members(call.required);
    const { url } = members(resource);
    const isAlias = call.alias !== null && url === call.alias;
    const names = signingExtensions(extensions).filter((name) =>
      canSignFor(this.#client, x402Version, entry, name),
    );
    const isContradicted = call.contradicted.has(termsOf(entry));
    return readOffer(entry, isAlias ? call.url : url, x402Version, names, isContradicted);
  }

  /**
   * Decides about an offer at `now` (unix seconds). `again` is an earlier payment that would be sent
   * again: it does not count twice.
   */
  decide(
    call: Call,
    offer: Offer,
    isStopped: boolean,
    now: number,
    again: Payment | null = null,
  ): Decision {
    const known = { ...this.#known(call), payee: lookUpPayee(call.bundle, offer.payTo) };
    const { maxAmount = null, expectPayTo = null } = call.options;
    const asked = { url: call.url, hops: call.hops, maxAmount, expectPayTo, isStopped };
    const spent = this.#spent(call, offer, now, again);
    const decision = decide(known, offer, asked, this.#policy, now, spent);
    return decision.decision === "refuse" ? this.#withProblem(decision) : decision;
  }

  /** The bundle's records for the request. A second 402 of a call may have come from another URL. */
  #known(call: Call): KnownRequest {
    const { bundle, url, hops, tool, known } = call;
    const isSame = known?.bundle === bundle && known.url === url && known.hops === hops;
    return isSame ? known : (call.known = lookUp(bundle, url, hops, tool));
  }

  #spent(call: Call, offer: Offer, now: number, again: Payment | null): Spent {
    const terms = readTerms(offer, this.#policy);
    if (call.purchase === null || !("payTo" in terms)) return NOTHING_SPENT;
    const where = exposureOf(call.purchase, terms, now);
    const key = JSON.stringify(where);
    // The reservation checks the budgets again, in its transaction.
    if (call.spent?.key !== key) call.spent = { key, sums: this.#journal.spent(where) };
    const spent = call.spent.sums;
    if (again === null) return spent;
    const less = (sum: bigint): bigint => (sum > again.exposure ? sum - again.exposure : 0n);
    const isSameSession = again.session === this.#session;
    return {
      ...spent,
      host: less(spent.host),
      day: less(spent.day),
      session: isSameSession ? less(spent.session) : spent.session,
      lifetime: less(spent.lifetime),
    };
  }

  /** A refusal for want of a bundle, with the reason why there is none. */
  #withProblem(refusal: Refuse): Refuse {
    const { problem } = this.#source;
    if (refusal.code !== "bundle-old" || problem === null) return refusal;
    return { ...refusal, reason: `${refusal.reason} ${problem}` };
  }
}
