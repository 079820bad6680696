/** Quotes: the guard's decisions about the offers of a URL, without paying. */

import type { Call } from "./call.js";
import type { Code } from "./codes.js";
import type { Decision } from "./decision.js";
import type { Fetch } from "./transport.js";
import { decoded, members, parsed } from "./json.js";
import type { Offer } from "./offer.js";
import { requestKey } from "./purchase-key.js";
import { follow } from "./redirect.js";

/** The decision about one offer of a 402. */
export interface Quote extends Pick<Offer, "scheme" | "network" | "amount" | "payTo"> {
  readonly decision: Decision["decision"];
  /** Null if it is allowed. */
  readonly code: Code | null;
  readonly reason: string | null;
  readonly remedy: string | null;
}

/** Sends a request without a payment, and returns the entries of its 402, which the call is about. */
export async function fetchOffers(call: Call, request: Request, fetch: Fetch): Promise<unknown[]> {
  const { method, url, headers } = request;
  const body = new Uint8Array(await request.clone().arrayBuffer());
  const { answer, hops } = await follow(request, fetch);
  if (answer.status !== 402) throw new TypeError(`${url} answers ${answer.status}, not 402.`);
  const header = answer.headers.get("payment-required");
  const required = header === null ? parsed(await answer.text()) : decoded(header);
  const { accepts } = members(required);
  if (!Array.isArray(accepts)) throw new TypeError(`The 402 of ${url} cannot be read.`);
  Object.assign(call, { required, hops, url: answer.url === "" ? url : answer.url });
  call.key = requestKey(method, url, (name) => headers.get(name), body);
  return accepts;
}

export function describeQuote({ scheme, network, amount, payTo }: Offer, decision: Decision): Quote {
  const offer = { scheme, network, amount, payTo, decision: decision.decision };
  if (decision.decision === "allow") return { ...offer, code: null, reason: null, remedy: null };
  const { code, reason } = decision;
  return { ...offer, code, reason, remedy: "remedy" in decision ? decision.remedy : null };
}
