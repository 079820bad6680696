"""Approval by a queue: questions that the approver answers with `tollgauge-guard approve`.

The approver signs each answer with a private key that is not in the agent's environment; the guard
knows the public key only. An approval is valid for one payment of one offer, for 10 minutes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Ask
from tollgauge_guard.errors import GuardError
from tollgauge_guard.journal_file import Rows, Store
from tollgauge_guard.offer import Terms
from tollgauge_guard.signature import decode_base64url, encode_base64url
from tollgauge_guard.units import dollars

AskFunction = Callable[[Ask, str], bool | Awaitable[bool]]
"""Called with a question and the URL; only the answer True allows the payment."""
VALID_S: Final = 600
_CONTEXT: Final = "tollgauge-guard approval"
_COLUMNS: Final = (
    "id, account, offer, at, expires_at, host, pay_to, exposure, code, prompt, answer, signature"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One question, and its answer if there is one. Times are unix seconds."""

    id: str
    account: str
    offer: str
    at: int
    expires_at: int
    host: str
    pay_to: str
    exposure: int
    code: str
    prompt: str
    answer: str | None
    signature: str | None

    def message(self, answer: str) -> bytes:
        """Return the bytes that the approver signs."""
        parts = (_CONTEXT, self.id, self.account, self.offer, self.code, str(self.expires_at))
        return "\n".join((*parts, answer)).encode()


class ApprovalQueue:
    """The questions of a journal.

    Args:
        file: of the journal.
        approver: the approver's Ed25519 public key in base64url.

    Raises:
        GuardError: the key cannot be read.
    """

    def __init__(self, file: Store, approver: str) -> None:
        self._file = file
        try:
            self._key = Ed25519PublicKey.from_public_bytes(decode_base64url(approver))
        except ValueError as error:
            raise GuardError(
                "The approver's public key cannot be read.",
                hint="`tollgauge-guard approve --new-key` prints a pair.",
            ) from error

    def ask(self, question: Ask, host: str, account: str, now: int) -> bool:
        """Return whether the approver allowed this offer; otherwise queue the question.

        An approval is used up by the call that it allows.
        """
        offer = offer_digest(host, question.terms)
        with self._file.transaction() as rows:
            found = _read(
                rows,
                "account = ? AND offer = ? AND code = ? AND expires_at > ? AND used_at IS NULL",
                *(account, offer, question.code, now),
            )
            for approval in found:
                if approval.answer == "yes" and self._is_signed(approval):
                    values = (now, approval.id)
                    rows.execute("UPDATE approvals SET used_at = ? WHERE id = ?", values)
                    return True
            if not any(approval.answer is None for approval in found):
                _add(rows, question, host=host, account=account, offer=offer, now=now)
        return False

    def _is_signed(self, approval: Approval) -> bool:
        try:
            signature = decode_base64url(approval.signature or "")
            self._key.verify(signature, approval.message("yes"))
        except (InvalidSignature, ValueError):
            return False
        return True


def list_questions(file: Store, now: int) -> tuple[Approval, ...]:
    """Return the questions that wait for an answer, oldest first."""
    with file.reading() as rows:
        return _read(rows, "answer IS NULL AND expires_at > ?", now)


def answer_question(file: Store, approval: Approval, *, allow: bool, secret: str) -> None:
    """Record the approver's signed answer. Raises GuardError if the secret cannot be read."""
    try:
        key = Ed25519PrivateKey.from_private_bytes(decode_base64url(secret))
    except ValueError:
        raise GuardError(
            "The approver's secret cannot be read.", hint="It is 43 characters of base64url."
        ) from None
    answer = "yes" if allow else "no"
    signature = encode_base64url(key.sign(approval.message(answer)))
    with file.transaction() as rows:
        rows.execute(
            "UPDATE approvals SET answer = ?, signature = ? WHERE id = ? AND answer IS NULL",
            (answer, signature, approval.id),
        )


def new_key() -> tuple[str, str]:
    """Return a new secret and its public key."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    return encode_base64url(key.private_bytes_raw()), encode_base64url(public)


def offer_digest(host: str, terms: Terms) -> str:
    """Return the digest of an offer (guard/cases/README.md)."""
    parts = (host, terms.network, terms.asset, terms.pay_to, str(terms.exposure), terms.scheme)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def describe(question: Ask, host: str) -> str:
    """Return the guard's own text of a question; nothing in it was written by the seller."""
    terms = question.terms
    verb = "Pay again" if question.code is Code.PAY_AGAIN else "Pay"
    return (
        f"{verb} {dollars(terms.exposure)} to {terms.pay_to} at {host} on {terms.network}? "
        f"{question.code}: {question.reason}"
    )


def _add(rows: Rows, question: Ask, *, host: str, account: str, offer: str, now: int) -> None:
    terms = question.terms
    values = (secrets.token_hex(16), account, offer, now, now + VALID_S, host)
    rows.execute(
        "INSERT INTO approvals (id, account, offer, at, expires_at, host, pay_to, exposure, code, "
        "prompt) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, terms.pay_to, terms.exposure, question.code, describe(question, host)),
    )


def _read(rows: Rows, condition: str, *values: object) -> tuple[Approval, ...]:
    statement = f"SELECT {_COLUMNS} FROM approvals WHERE {condition} ORDER BY at"  # noqa: S608 - constants
    names = _COLUMNS.split(", ")
    found = rows.execute(statement, values).fetchall()
    return tuple(Approval(**dict(zip(names, row, strict=True))) for row in found)
