export {
  type Allow,
  type Ask,
  type Code,
  type Decision,
  decide,
  type Refuse,
  type Situation,
  type Spent,
} from "./decision.js";
export { type Offer, readOffer, type Terms } from "./offer.js";
export { DEFAULT_POLICY, type Pin, type Policy, policyOf } from "./policy.js";
export { type EndpointRecord, readRecord, RecordError } from "./record.js";
export { parseResource, type Resource, variants } from "./resource.js";
export { type Asset, USDC } from "./units.js";
export { Bundle, BundleError } from "./bundle.js";
export { fingerprint, type PublicKey, publicKey, SignatureError } from "./signature.js";
export {
  type Call,
  PaymentRefused,
  PaymentUnresolved,
  type SentPayment,
  type Unresolved,
} from "./call.js";
export { Guard, guarded } from "./guard.js";
export type { GuardOptions, Question } from "./options.js";
export type { Nodes, ResolveOptions } from "./purchase.js";
export { type Entry, JournalError, type Outcome } from "./journal.js";
export type { BundleLocation, PinnedKey, SignedBody } from "./source.js";
export type { Fate } from "./settlement.js";
export type { Header, PayingClient, TransportGuard } from "./transport.js";
