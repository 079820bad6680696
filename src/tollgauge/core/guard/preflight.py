"""Preflight: whether an offer may be paid, by the trust record of its endpoint.

These are the rules of a payment guard that need neither the client's limits nor its payment
history: the offer is well formed, it matches the record, and a record exists. The codes, their
order and their meaning are those of the guards (guard/cases/decide.json). Parts of the offer
that the caller omits are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.base.units import canonical_address, known_asset, parse_amount
from tollgauge.core.guard.bundle import TrustRecord
from tollgauge.core.lint.accounts import (
    ZERO_ADDRESS,
    evm_address,
    fits_other_chain,
    solana_key,
    strict_evm_address,
)
from tollgauge.core.score.advice import AVOIDED, PAYABLE

PRICE_FACTOR: Final = 2  # of the usual price
MIN_GRADE: Final = "C"


class Decision(StrEnum):
    """The decision about an offer: pay it, ask the user, or do not pay it."""

    ALLOW = "allow"
    ASK = "ask"
    REFUSE = "refuse"


class Code(StrEnum):
    """Why an offer is not allowed, in the order of the checks."""

    AMOUNT_INVALID = "amount-invalid"
    PAYTO_MALFORMED = "payto-malformed"
    NOT_PAYABLE = "not-payable"
    AVOID = "avoid"
    PAYTO_UNKNOWN = "payto-unknown"
    PAYTO_VARIES = "payto-varies"
    NETWORK_UNKNOWN = "network-unknown"
    PRICE_JUMP = "price-jump"
    CAUTION = "caution"
    GRADE_LOW = "grade-low"
    UNKNOWN_RESOURCE = "unknown-resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightOffer:
    """The offer as the seller wrote it; None for omitted parts. `network` is a CAIP-2 ID, `amount`
    atomic units as a decimal string.
    """

    pay_to: str | None = None
    amount: str | None = None
    network: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightVerdict:
    """A decision, its code (None for `allow`) and its reason in one sentence."""

    decision: Decision
    code: Code | None
    reason: str


def decide(record: TrustRecord | None, offer: PreflightOffer) -> PreflightVerdict:
    """Decide whether an offer of the record's endpoint may be paid.

    The first rule that refuses decides, otherwise the first that asks. `record` is None for an
    unknown endpoint.
    """
    verdicts = [*_check_offer(offer, record), *_check_record(offer, record), *_check_known(record)]
    for decision in (Decision.REFUSE, Decision.ASK):
        for verdict in verdicts:
            if verdict.decision is decision:
                return verdict
    reason = "The endpoint's record gives no reason to refuse it."
    return PreflightVerdict(decision=Decision.ALLOW, code=None, reason=reason)


def _check_offer(offer: PreflightOffer, record: TrustRecord | None) -> Iterator[PreflightVerdict]:
    """Check that the offer is well formed."""
    if offer.amount is not None and not parse_amount(offer.amount):
        yield _refuse(Code.AMOUNT_INVALID, "The amount is not a positive number of atomic units.")
    network = offer.network or (record.network if record else None)
    if offer.pay_to is not None and not _is_account(offer.pay_to, network):
        yield _refuse(Code.PAYTO_MALFORMED, "The payTo is not the address of an account.")


def _check_record(offer: PreflightOffer, record: TrustRecord | None) -> Iterator[PreflightVerdict]:
    """Compare the offer with the record; without known offers, only its recommendation counts."""
    if record is None:
        return
    if record.recommendation in AVOIDED:
        words = f"The recommendation is not to pay: {record.recommendation}."
        yield _refuse(Code(record.recommendation), words)
    if not record.offers:
        return
    is_unknown = offer.pay_to is not None and canonical_address(offer.pay_to) not in record.pay_to
    if is_unknown and Code.PAYTO_VARIES in record.flags:
        words = "Each offer names another payTo: pay only with a pinned host and maximum amount."
        yield _ask(Code.PAYTO_VARIES, words)
    elif is_unknown:
        words = "The endpoint did not ask to be paid at this address in the last 30 days."
        yield _refuse(Code.PAYTO_UNKNOWN, words)
    if offer.network and offer.network not in record.networks:
        words = f"The endpoint is paid on {', '.join(record.networks)}, not on {offer.network}."
        yield _refuse(Code.NETWORK_UNKNOWN, words)
    amount, usual = parse_amount(offer.amount), record.usual_price(offer.network or record.network)
    if amount and usual is not None and amount > PRICE_FACTOR * usual:
        words = f"The amount is more than {PRICE_FACTOR} times the usual price, {usual}."
        yield _ask(Code.PRICE_JUMP, words)
    if record.recommendation == Code.CAUTION:
        yield _ask(Code.CAUTION, "The recommendation is caution.")
    if record.grade is not None and record.grade > MIN_GRADE:
        yield _ask(Code.GRADE_LOW, f"Its grade {record.grade} is below {MIN_GRADE}.")


def _check_known(record: TrustRecord | None) -> Iterator[PreflightVerdict]:
    """Check that the endpoint is known and recommended."""
    if record is None:
        yield _ask(Code.UNKNOWN_RESOURCE, "This resource is unknown.")
    elif not record.offers:
        yield _ask(Code.UNKNOWN_RESOURCE, "The payTo of this resource is unknown.")
    elif record.recommendation not in PAYABLE:
        words = f"There is no recommendation to pay: {record.recommendation}."
        yield _ask(Code.UNKNOWN_RESOURCE, words)


def _is_account(pay_to: str, network: str | None) -> bool:
    """Return whether a text may be the address of an account on a network.

    Without a network, any text except a malformed EVM address may be.
    """
    is_hex = pay_to.startswith("0x")
    chain = network.partition(":")[0] if network else "eip155" if is_hex else ""
    if chain == "eip155":
        return _is_evm_account(pay_to, network)
    if chain == "solana":
        return solana_key(pay_to) is not None
    return bool(pay_to.strip()) and fits_other_chain(chain, pay_to)


def _is_evm_account(pay_to: str, network: str | None) -> bool:
    """Return whether a text is an address in one case or with its EIP-55 checksum, and neither the
    zero address nor a token.
    """
    address = evm_address(pay_to)
    if address is None or address == ZERO_ADDRESS or known_asset(network or "", address):
        return False
    return pay_to[2:] == address[2:].upper() or strict_evm_address(pay_to) is not None


def _refuse(code: Code, reason: str) -> PreflightVerdict:
    return PreflightVerdict(decision=Decision.REFUSE, code=code, reason=reason)


def _ask(code: Code, reason: str) -> PreflightVerdict:
    return PreflightVerdict(decision=Decision.ASK, code=code, reason=reason)
