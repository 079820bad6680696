"""Statements of a payer about one payment, signed as EIP-712 typed data.

Anyone can check that the payer said it: the statement names the payment by its nonce, and only the
account that signed the payment can sign the statement.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from tollgauge_guard.errors import GuardError
from tollgauge_guard.payment import Payment

DOMAIN_NAME: Final = "tollgauge outcome"
DOMAIN_VERSION: Final = "1"
_PAYMENT_REQUIRED: Final = 402
TYPES: Final = {
    "Outcome": [
        {"name": "resource", "type": "string"},
        {"name": "payTo", "type": "address"},
        {"name": "nonce", "type": "bytes32"},
        {"name": "outcome", "type": "string"},
        {"name": "at", "type": "uint256"},
    ]
}
"""The statement as EIP-712 types."""


class Delivery(StrEnum):
    """The payer's result."""

    DELIVERED = "delivered"
    NOT_MATCHING = "delivered-not-matching"
    EMPTY = "empty"
    ERROR = "error-after-payment"
    NOT_DELIVERED = "settled-not-delivered"
    ASKED_AGAIN = "asked-again"


class StatementError(GuardError):
    """A statement that cannot be signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A signed statement. `at` is the time of the payment (unix seconds), `payer` the signer."""

    resource: str
    pay_to: str
    nonce: str
    outcome: Delivery
    at: int
    network: str
    payer: str
    signature: str

    def document(self) -> dict[str, object]:
        """Return the statement as JSON."""
        document = asdict(self)
        return {"payTo" if name == "pay_to" else name: document[name] for name in document}


def guess_delivery(payment: Payment) -> Delivery:
    """Return the likely outcome from the journal. The payer, who saw the answer, decides."""
    if payment.status == _PAYMENT_REQUIRED:
        return Delivery.ASKED_AGAIN
    if payment.status is None:
        return Delivery.NOT_DELIVERED
    is_good = 200 <= payment.status < 300
    return Delivery.DELIVERED if is_good else Delivery.ERROR


def sign_statement(payment: Payment, outcome: Delivery, private_key: str) -> Statement:
    """Sign a statement about a payment of the journal.

    Raises StatementError if the key is not that of the payer. No message contains the key.
    """
    from eth_account import Account  # only who signs has it
    from eth_account.messages import encode_typed_data

    nonce = payment.nonce or ""
    if not payment.network.startswith("eip155:"):
        raise StatementError("Only payments on EVM chains can be reported.")
    try:
        account = Account.from_key(private_key)
    except Exception:  # noqa: BLE001  # the library's message may contain the key
        raise StatementError(
            "The private key cannot be read.", hint="It is 32 bytes of hex."
        ) from None
    if account.address.lower() != payment.payer:
        raise StatementError(
            f"The key is that of {account.address.lower()}, and {payment.payer} paid.",
            hint="Only the account that paid can state the outcome.",
        )
    message = {
        "resource": payment.resource,
        "payTo": payment.pay_to,
        "nonce": bytes.fromhex(nonce[2:]),
        "outcome": outcome.value,
        "at": payment.at,
    }
    chain = int(payment.network.removeprefix("eip155:"))
    domain = {"name": DOMAIN_NAME, "version": DOMAIN_VERSION, "chainId": chain}
    signed = account.sign_message(encode_typed_data(domain, TYPES, message))
    return Statement(
        resource=payment.resource,
        pay_to=payment.pay_to,
        nonce=nonce,
        outcome=outcome,
        at=payment.at,
        network=payment.network,
        payer=payment.payer,
        signature="0x" + signed.signature.hex().removeprefix("0x"),
    )
