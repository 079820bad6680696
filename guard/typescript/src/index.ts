export {
  type Allow,
  type Ask,
  type Asked,
  type Decision,
  decide,
  isOverLosses,
  type Known,
  overBudget,
  type Refuse,
  type Spent,
} from "./decision.js";
export { type Code, CODES, REMEDIES } from "./codes.js";
export { type Method, type Offer, readOffer, type Terms } from "./offer.js";
export { DEFAULT_POLICY, type Policy, policyOf, type Trust } from "./policy.js";
export {
  type Conduct,
  type EndpointRecord,
  type KnownOffer,
  readConduct,
  readRecord,
  RecordError,
} from "./record.js";
export { parseResource, type Resource, variants } from "./resource.js";
export { type Asset, USDC } from "./units.js";
export { Bundle, BundleError } from "./bundle.js";
export {
  fingerprint,
  Keyring,
  type PinnedKey,
  type PublicKey,
  publicKey,
  SignatureError,
} from "./signature.js";
export { type CallOptions, PaymentRefused, PaymentUnresolved } from "./call.js";
export { Guard, guarded, paying } from "./guard.js";
export {
  AdapterError,
  agentKitProviders,
  cloudflareMcpClient,
  openAiAgentsTools,
  type PaidTool,
  paidTool,
  vercelTools,
} from "./paid-tool.js";
export { Elicitation, type ElicitingServer } from "./mcp.js";
export type { GuardOptions, Question } from "./options.js";
export type { Nodes } from "./nodes.js";
export type { Event, Payment, State } from "./payment-state.js";
export { Journal, type Refusal } from "./journal.js";
export { type DurableStorage, durableStore, JournalError, MEMORY, type Row, type Store } from "./journal-file.js";
export type { EvmSignInAccount, SignInAccount, SolanaSignInAccount } from "./sign-in.js";
export type { BundleLocation, SignedBody } from "./source.js";
export type { IsAnswer, PaidAnswer, PayingClient } from "./transport.js";
export type { Quote } from "./quote.js";
