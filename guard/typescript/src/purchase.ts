/**
 * The first authorization of a purchase stays the only one until it is dead. If an earlier payment
 * of the same purchase has no answer, it is sent again, or a node is asked about it, or the call is
 * refused. Only the chain, the end of the purchase or the owner make way for another payment.
 */

import { PaymentUnresolved } from "./call.js";
import { type Evidence, findEvidence } from "./chain.js";
import { readTerms } from "./decision.js";
import { type Entry, type Journal, JournalError } from "./journal.js";
import { members } from "./json.js";
import { readOffer, type Terms } from "./offer.js";
import type { Policy } from "./policy.js";
import type { Fate } from "./settlement.js";
import { dollars } from "./units.js";

/** Facilitators refuse what expires within the next seconds. */
const RESEND_MARGIN_S = 6;
/** A purchase ends this long after its payment expired, or was found used. */
const PURCHASE_WINDOW_S = 600;
/** How long a call waits for an identical one that is being paid. */
const QUEUE_MS = 30_000;

/** JSON-RPC URLs by network (CAIP-2). */
export type Nodes = Readonly<Record<string, string>>;

/** What the owner says about a payment. */
export interface ResolveOptions {
  /** The JSON-RPC URL to ask; by default the one of `nodes`. */
  readonly node?: string;
  /** Consent to pay for the same purchase again, whatever became of this payment. */
  readonly writeOff?: boolean;
}

const FATE: Readonly<Record<Evidence, Fate | null>> = {
  used: "paid-unanswered",
  dead: "dead",
  unknown: null,
};

/** What becomes of payments that the chain shows as used after their purchase has ended. */
const USED_AFTER: Partial<Record<Fate, Fate>> = { answered: "settled", lapsed: "written-off" };

export class Purchases {
  readonly #journal: Journal;
  readonly #nodes: Nodes;
  /** By request: resolves when the calls that came before have ended. */
  readonly #turns = new Map<string, Promise<void>>();
  /** Payments whose answer this process waits for. */
  readonly #inFlight = new Set<string>();

  constructor(journal: Journal, nodes: Nodes) {
    this.#journal = journal;
    this.#nodes = checkedNodes(nodes);
  }

  /**
   * Waits until no identical call is being paid. Returns what ends this call's turn, or null after
   * QUEUE_MS.
   */
  async turn(request: string): Promise<(() => void) | null> {
    const before = this.#turns.get(request) ?? Promise.resolve();
    let end = (): void => undefined;
    const own = new Promise<void>((resolve) => (end = resolve));
    const chained = before.then(() => own);
    this.#turns.set(request, chained);
    void chained.then(() => {
      if (this.#turns.get(request) === chained) this.#turns.delete(request);
    });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<false>((resolve) => {
      timer = setTimeout(resolve, QUEUE_MS, false);
    });
    const isReady = await Promise.race([before.then(() => true), late]);
    clearTimeout(timer);
    if (isReady) return end;
    end();
    return null;
  }

  /** Whether an identical call that does not end leaves no way for another payment at `now`. */
  isBlocked(entry: Entry | null, now: number): boolean {
    return entry === null || now < endsAt(entry);
  }

  /** Notes that the answer to a payment is awaited, or no longer is. */
  setInFlight(nonce: string, isInFlight: boolean): void {
    if (isInFlight) this.#inFlight.add(nonce);
    else this.#inFlight.delete(nonce);
  }

  /** Whether a payment may be sent again at `now` (unix seconds). */
  isSendable({ nonce, outcome, validBefore }: Entry, now: number): boolean {
    const isOpen = outcome === null || outcome.fate === "open";
    const isKept = this.#journal.sent(nonce) !== null;
    return isOpen && isKept && validBefore - now > RESEND_MARGIN_S;
  }

  /**
   * Writes down what is known of a payment that cannot be sent again. Returns whether the journal
   * has to be looked at again. Throws JournalError.
   */
  async makeWay(entry: Entry, now: () => number): Promise<boolean> {
    const node = this.#nodes[entry.network];
    const isAsked = node !== undefined && entry.outcome?.fate !== "paid-unanswered";
    const evidence = isAsked ? await findEvidence(node, authorization(entry)) : "unknown";
    const at = now();
    const fate = FATE[evidence] ?? (at >= endsAt(entry) ? "lapsed" : null);
    if (fate === null) return false;
    if (fate === "lapsed") process.emitWarning(lossText(entry), "PaymentLapsed");
    this.#record(entry, fate, at);
    return true;
  }

  /** Asks a node about a payment and writes down what it shows. Throws JournalError. */
  async resolve(nonce: string, options: ResolveOptions, now: () => number): Promise<Fate | null> {
    const found = this.#journal.entry(nonce);
    if (found === null) throw new JournalError(`The journal has no open payment ${nonce}.`);
    if (this.#inFlight.has(nonce) && now() < endsAt(found)) {
      const message = `The answer to the payment ${nonce} is still awaited.`;
      throw new JournalError(`${message} Nothing was changed.`);
    }
    const node = options.node ?? this.#nodes[found.network];
    const payment = authorization(found);
    const evidence = node === undefined ? "unknown" : await findEvidence(node, payment);
    let entry = this.#journal.entry(nonce);
    if (entry === null) return found.outcome?.fate ?? null;
    const state = entry.outcome?.fate ?? null;
    const fate = (evidence === "used" && USED_AFTER[state ?? "open"]) || FATE[evidence];
    if (fate !== null && fate !== state) this.#record(entry, fate, now());
    if (this.#journal.entry(nonce) === null || options.writeOff !== true) return fate ?? state;
    entry = this.#journal.entry(nonce) ?? entry;
    this.#record(entry, "written-off", now());
    return "written-off";
  }

  /** The refusal of a purchase whose earlier payment has no answer; null: one is being signed. */
  unresolved(resource: string, entry: Entry | null, now: number): PaymentUnresolved {
    if (entry === null) {
      const nothing = { nonce: null, network: null, payer: null, retryUntil: null };
      const reason = "An identical call is signing a payment for this purchase.";
      const advice = "Call again later. Nothing was paid for this call.";
      return new PaymentUnresolved(reason, advice, { ...nothing, resource, state: "open" });
    }
    const { nonce, network, payer } = entry;
    const isPaid = entry.outcome?.fate === "paid-unanswered";
    const retryUntil = entry.validBefore - RESEND_MARGIN_S;
    const state = isPaid ? "paid-unanswered" : "open";
    const payment = { nonce, network, payer, resource: entry.resource };
    const unresolved = { ...payment, state, retryUntil } as const;
    const money = `${dollars(BigInt(entry.microUsd))} to ${entry.payTo} on ${network}`;
    if (isPaid) {
      const reason = `${money} was taken for ${entry.resource} and not answered (nonce ${nonce}).`;
      const remedy = `\`guard.resolve("${nonce}", { writeOff: true })\``;
      const again = `Ask the seller for the answer. ${remedy} lets the guard pay again.`;
      const advice = `No other payment was signed. ${again}`;
      return new PaymentUnresolved(reason, advice, unresolved);
    }
    const until = timeText(entry.validBefore);
    const which = `(nonce ${nonce}, valid until ${until})`;
    const reason = `A payment of ${money} for ${entry.resource} has no answer and may be taken ${which}.`;
    const remedy = `\`guard.resolve("${nonce}", { node: "URL" })\``;
    const again = `Call again before ${timeText(retryUntil)} to send the same one. `;
    const ask = `${now < retryUntil ? again : ""}${remedy} asks the chain what became of it.`;
    const advice = `No other payment was signed. ${ask}`;
    return new PaymentUnresolved(reason, advice, unresolved);
  }

  #record(entry: Entry, fate: Fate, at: number): void {
    const { status = null, transaction = null } = entry.outcome ?? {};
    this.#journal.recordOutcome(entry.nonce, { at, fate, status, transaction });
  }

}

/** The entry of a 402's `accepts` that an earlier payment still pays, or undefined. */
export function offerFor(
  entry: Entry,
  { x402Version, accepts }: ReturnType<typeof members>,
  policy: Policy,
): unknown {
  const offers: unknown[] = Array.isArray(accepts) ? accepts : [];
  return offers.find((offer) => {
    const terms = readTerms(readOffer(offer, null, x402Version), policy);
    return !("decision" in terms) && isPaymentFor(entry, terms);
  });
}

function isPaymentFor(entry: Entry, terms: Terms): boolean {
  const names = ["network", "asset", "payTo"] as const;
  const isPayee = names.every((name) => entry[name] === terms[name]);
  return isPayee && entry.amount === String(terms.amount);
}

function authorization(entry: Entry): Omit<Entry, "microUsd"> & { readonly microUsd: bigint } {
  return { ...entry, microUsd: BigInt(entry.microUsd) };
}

function endsAt({ outcome, validBefore }: Entry): number {
  const foundAt = outcome?.fate === "paid-unanswered" ? outcome.at : 0;
  return Math.max(validBefore, foundAt) + PURCHASE_WINDOW_S;
}

function lossText({ microUsd, nonce, payTo, resource }: Entry): string {
  const money = `${dollars(BigInt(microUsd))} to ${payTo} for ${resource}`;
  return `A payment of ${money} was never answered and counts as a loss (nonce ${nonce}).`;
}

function timeText(at: number): string {
  return new Date(at * 1000).toISOString().replace("T", " ").replace(".000Z", " UTC");
}

/** The nodes. Throws TypeError for one that is no HTTP URL of an EVM network. */
function checkedNodes(nodes: Nodes): Nodes {
  for (const [network, url] of Object.entries(nodes)) {
    const isUrl = URL.canParse(url) && /^https?:$/.test(new URL(url).protocol);
    if (!/^eip155:[1-9][0-9]*$/.test(network) || !isUrl) {
      throw new TypeError('nodes must be { "eip155:8453": "https://…" }: a JSON-RPC URL each.');
    }
  }
  return { ...nodes };
}
