/**
 * Approval by a queue in the journal: questions that the approver answers with
 * `tollgauge-guard approve`.
 *
 * The approver signs each answer with a private key that is not in the agent's environment; the guard
 * has only the public key. An approval is valid for one payment of one offer, for 10 minutes.
 */

import { createHash, createPublicKey, type KeyObject, verify } from "node:crypto";
import type { Ask } from "./decision.js";
import { newHandle, type Row, type Store } from "./journal-file.js";
import type { Terms } from "./offer.js";
import { dollars } from "./units.js";

const VALID_S = 600;
const CONTEXT = "tollgauge-guard approval";

export class ApprovalQueue {
  readonly #file: Store;
  readonly #key: KeyObject;

  /** `approver` is the approver's Ed25519 public key in base64url. Throws TypeError. */
  constructor(file: Store, approver: string) {
    this.#file = file;
    if (!/^[A-Za-z0-9_-]{43}$/.test(approver)) {
      const advice = "`tollgauge-guard approve --new-key` prints a pair.";
      throw new TypeError(`The approver's public key cannot be read. ${advice}`);
    }
    this.#key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: approver }, format: "jwk" });
  }

  /**
   * Whether the approver allowed this offer; otherwise the question is queued. An approval is used up
   * by the call that it allows. Throws JournalError.
   */
  ask(question: Ask, host: string, account: string, now: number): boolean {
    const offer = offerDigest(host, question.terms);
    return this.#file.transaction(() => {
      const found = this.#file.all(
        `SELECT * FROM approvals WHERE account = ? AND offer = ? AND code = ? AND expires_at > ?
         AND used_at IS NULL ORDER BY at`,
        ...[account, offer, question.code, now],
      );
      const approval = found.find((row) => row["answer"] === "yes" && this.#isSigned(row));
      if (approval !== undefined) {
        const sql = "UPDATE approvals SET used_at = ? WHERE id = ?";
        this.#file.all(sql, now, approval["id"]!);
        return true;
      }
      if (!found.some((row) => row["answer"] === null)) this.#add(question, host, account, offer, now);
      return false;
    });
  }

  #add(question: Ask, host: string, account: string, offer: string, now: number): void {
    const { code, terms } = question;
    this.#file.all(
      `INSERT INTO approvals (id, account, offer, at, expires_at, host, pay_to, exposure, code, prompt)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[newHandle(), account, offer, now, now + VALID_S, host, terms.payTo, terms.exposure],
      ...[code, describe(question, host)],
    );
  }

  #isSigned(row: Row): boolean {
    const { id, account, offer, code, expires_at: expiresAt, signature } = row;
    const message = [CONTEXT, id, account, offer, code, expiresAt, "yes"].join("\n");
    const signed = Buffer.from(String(signature), "base64url");
    return verify(null, Buffer.from(message), this.#key, signed);
  }
}

/** The guard's own text of a question: the seller wrote nothing in it but host and payTo. */
export function describe({ code, reason, terms }: Omit<Ask, "decision">, host: string): string {
  const verb = code === "pay-again" ? "Pay again" : "Pay";
  const money = `${dollars(terms.exposure)} to ${terms.payTo} at ${host} on ${terms.network}`;
  return `${verb} ${money}? ${code}: ${reason}`;
}

/** The digest of an offer (guard/cases/README.md). */
function offerDigest(host: string, { network, asset, payTo, exposure, scheme }: Terms): string {
  const parts = [host, network, asset, payTo, String(exposure), scheme];
  return createHash("sha256").update(parts.join("\n")).digest("hex");
}
