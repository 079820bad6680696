/** Codes of decisions, in the order in which the rules are checked, with the owner's remedies. */

const ASK = "Give the guard an approver (`ask`, or the queue of `tollgauge-guard approve`)";
const TRUST = "or name the host and its payTo in `trust` of the policy";

/** The remedy of each code. The order of the members is the order of the rules. */
export const REMEDIES = {
  /** `stop()` was called. */
  stopped: "Start a new guard.",
  /** The 402 names another host than the requested one, and payTo or price are not known. */
  "resource-mismatch": `Send the request to the seller's own address, ${TRUST}.`,
  /** The guard cannot prove what happened to a payment by this scheme. */
  "scheme-unsupported": "Use another offer or another seller.",
  /** The token is neither the network's USDC nor allowed by the policy. */
  "asset-unknown": "Add the token to `assets` of the policy.",
  /** The amount is not a positive number of atomic units. */
  "amount-invalid": "The seller has to correct its offer.",
  /** The payTo is not an address of an account on its network, or is the token itself. */
  "payto-malformed": "The seller has to correct its offer.",
  /** The authorization would be valid for no time, or for longer than `maxValidity`. */
  "timeout-invalid": "Raise `maxValidity` of the policy.",
  /** The 402 contains a signed offer of the seller that contradicts this one. */
  "offer-contradicted": "Ask the seller which of its offers is right.",
  /** The host or the payTo is on the owner's deny list. */
  denied: "Remove the host or the payTo from `deny` of the policy.",
  /** The exposure is above `maxCall`, or above `maxAmount` of the call. */
  "over-call-cap": "Raise `maxCall` of the policy, or `maxAmount` of the call.",
  /** The payTo is not the `expectPayTo` of the call. */
  "payto-unexpected": "Check `expectPayTo` of the call with the seller.",
  /** An extension of the seller would have the wallet sign something in addition. */
  "extension-signs": "Name the extension in `allowExtensions` of the policy.",
  /** The service recommends `not-payable`. */
  "not-payable": "Use another seller.",
  /** The service recommends `avoid`. */
  avoid: "Use another seller, or name host and payTo in `trust` of the policy.",
  /** Endpoints of the host are abusive: all of at least three (refused), or some (asks). */
  "host-abusive": `${ASK}, ${TRUST}.`,
  /** Endpoints paid at this payTo are abusive: all of at least three, or some (asks). */
  "payto-abusive": `${ASK}, ${TRUST}.`,
  /** The endpoint did not ask to be paid at this address in the last 30 days. */
  "payto-unknown": `Wait for a newer bundle, ${TRUST}.`,
  /** The endpoint asks for another payTo each time: asks. */
  "payto-varies": `${ASK}, or name the host in \`trust\` of the policy.`,
  /** The endpoint did not ask to be paid on this network. */
  "network-unknown": `Wait for a newer bundle, ${TRUST}.`,
  /** The exposure is above `priceFactor` times the usual price: asks. */
  "price-jump": `${ASK}, ${TRUST}, or raise \`priceFactor\`.`,
  /** The service recommends `caution`: asks. */
  caution: `${ASK}, ${TRUST}.`,
  /** The grade is below `minGrade`: asks. */
  "grade-low": `${ASK}, or lower \`minGrade\` of the policy.`,
  /** The payment flow is `upfront` or `escrow`: asks. */
  "flow-unusual": `${ASK}.`,
  /** The bundle is older than 7 days and the exposure above `unknownMax`, or there is none. */
  "bundle-old": "Check the address of the bundle and the pinned keys.",
  /** The bundle has no advice about the endpoint: `unknown` decides. */
  "unknown-resource": `${ASK}, ${TRUST}, or raise \`unknownMax\`.`,
  /** The bundle is older than 48 hours, so the endpoint counts as unknown. */
  "bundle-stale": `Check the address of the bundle. ${ASK}.`,
  /** The host would get more than `maxHostDay` within 24 hours. */
  "over-host-budget": "Wait, or raise `maxHostDay` of the policy.",
  /** More than `maxDay` would be spent within 24 hours. */
  "over-day-budget": "Wait, or raise `maxDay` of the policy.",
  /** More than `maxSession` would be spent in this session. */
  "over-session-budget": "Raise `maxSession` of the policy, or start a new session.",
  /** More than `maxLifetime` would be spent by this account. */
  "over-lifetime-budget": "Raise `maxLifetime` of the policy.",
  /** Too much was paid to the host without an answer within 24 hours: asks. */
  "over-loss-budget": `${ASK}, or raise \`lossBudget\` or \`lossCount\` of the policy.`,
  /** An earlier payment of this purchase got no answer: asks whether to pay again. */
  "pay-again": `${ASK}, or set \`payAgain\` of the policy.`,
  /** The x402 client itself refused all offers, or failed. */
  "sdk-refused": "Check the schemes, policies and spend controls of the x402 client.",
  /** The request was paid already, and is not paid a second time. */
  "paid-already": "Find the hook that asks for a second payment.",
  /** The signed or outgoing payment differs from the allowed one. */
  "signed-differs": "Find the hook, extension or redirect that changes the payment.",
  /** An earlier payment of the same purchase has no answer, and may still be taken or was. */
  "payment-unresolved": "See `guard.unresolved()`.",
} as const;

/** Why a payment was refused or needs consent. */
export type Code = keyof typeof REMEDIES;

/** The codes in the order of the rules. */
export const CODES = Object.keys(REMEDIES) as readonly Code[];

/** The position of a code in the order of the rules. */
export const codeIndex = (code: Code): number => CODES.indexOf(code);
