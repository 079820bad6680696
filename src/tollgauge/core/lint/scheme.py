"""Rules about the members of `extra` that a scheme requires: upto, batch-settlement, auth-capture,
and the transfer methods of `exact`.

Sources: x402 scheme specifications for EVM networks, and of upto for Solana, as the official
clients (Python 2.25, TypeScript 2.27) and facilitators implement them. Version 1 has none of these
schemes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tollgauge.core.base.units import SDK
from tollgauge.core.lint.accepts import AcceptsEntry
from tollgauge.core.lint.accounts import (
    ZERO_ADDRESS,
    ZERO_KEY,
    evm_address,
    lacks_checksum,
    solana_key,
    strict_evm_address,
)
from tollgauge.core.lint.rule import error, warning
from tollgauge.core.probe.exchange import OfficialClient

_GRACE_MAX: Final = 2**32 - 1
_DEADLINES: Final = ("captureDeadline", "refundDeadline")
_FEES: Final = ("minFeeBps", "maxFeeBps")
_DEADLINE_BITS: Final = 48
_FEE_MAX: Final = 10_000
_EXACT_METHODS: Final = (None, "eip3009", "permit2", "erc7710")
_CHANNEL_METHODS: Final = (None, "eip3009", "permit2")


def _uses(entry: AcceptsEntry, scheme: str) -> bool:
    return entry.evm and entry.scheme == scheme and entry.version == 2


def _is_solana_upto(entry: AcceptsEntry) -> bool:
    return entry.solana and entry.scheme == "upto"


def _read_whole(value: object) -> int:
    """Return a whole JSON number, -1 for any other value; the official Python client reads no
    other.
    """
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _is_account(value: object) -> bool:
    """Return whether a value is an EVM address other than the zero address."""
    return evm_address(value) not in (None, ZERO_ADDRESS)


@error("extra.facilitatorAddress")
def upto_facilitator(entry: AcceptsEntry) -> bool:
    """`upto` without the address of the facilitator. The payer's signature contains it: only this
    facilitator can settle the payment.
    """
    return _uses(entry, "upto") and not _is_account(entry.extra.get("facilitatorAddress"))


@warning()
def upto_domain(entry: AcceptsEntry) -> Iterator[str]:
    """`upto` without name or version. Clients can sign the payment, but not the permit."""
    if _uses(entry, "upto"):
        yield from entry.domain_gaps()


@error("extra.receiverAuthorizer")
def upto_authorizer(entry: AcceptsEntry) -> bool:
    """`upto` on Solana without the account whose vouchers withdraw from the payment channel."""
    authorizer = solana_key(entry.extra.get("receiverAuthorizer"))
    return _is_solana_upto(entry) and authorizer in (None, ZERO_KEY)


@error("extra.withdrawDelay")
def upto_delay(entry: AcceptsEntry) -> bool:
    """`upto` on Solana without the grace period of the payment channel, or with one of more than 32
    bits.
    """
    delay = entry.extra.get("withdrawDelay")
    if isinstance(delay, float) and delay.is_integer():
        delay = int(delay)
    return _is_solana_upto(entry) and not 0 < _read_whole(delay) <= _GRACE_MAX


@error("extra.tokenProgram")
def upto_token_program(entry: AcceptsEntry) -> bool:
    """`upto` on Solana with a token program that clients do not know."""
    program = entry.extra.get("tokenProgram")
    return _is_solana_upto(entry) and program not in (None, "", *SDK.token_programs)


@warning("extra.assetTransferMethod")
def transfer_method(entry: AcceptsEntry) -> bool:
    """`exact` with a transfer method that the specification does not define. Clients sign an
    EIP-3009 authorization for it.
    """
    method = entry.extra.get("assetTransferMethod")
    return _uses(entry, "exact") and method not in _EXACT_METHODS


@warning("extra.name")
def gateway_only(entry: AcceptsEntry) -> bool:
    """An offer of Circle Gateway (`extra.name` is `GatewayWalletBatched`). npm
    @circle-fin/x402-batching signs it over the contract in `extra.verifyingContract`.
    """
    return entry.gateway


@error()
def gateway_terms(entry: AcceptsEntry) -> Iterator[str]:
    """An offer of Circle Gateway that Circle's client cannot sign."""
    if not entry.gateway:
        return
    if entry.extra.get("version") != "1":
        yield entry.at("extra.version")
    if not _is_account(entry.extra.get("verifyingContract")):
        yield entry.at("extra.verifyingContract")


@error("extra.receiverAuthorizer")
def batch_authorizer(entry: AcceptsEntry) -> bool:
    """`batch-settlement` without the authorizer, which is part of the channel's ID."""
    authorizer = entry.extra.get("receiverAuthorizer")
    return _uses(entry, "batch-settlement") and not _is_account(authorizer)


@error("extra.withdrawDelay")
def batch_delay(entry: AcceptsEntry) -> bool:
    """`batch-settlement` without the delay, which is part of the channel's ID, or with one that the
    contract rejects.
    """
    shortest, longest = SDK.withdraw_delay
    delay = _read_whole(entry.extra.get("withdrawDelay"))
    return _uses(entry, "batch-settlement") and not shortest <= delay <= longest


@error("extra.assetTransferMethod")
def batch_method(entry: AcceptsEntry) -> bool:
    """`batch-settlement` with a deposit method that clients do not support."""
    method = entry.extra.get("assetTransferMethod")
    return _uses(entry, "batch-settlement") and method not in _CHANNEL_METHODS


@error(stops={OfficialClient.TYPESCRIPT})
def address_strict(entry: AcceptsEntry) -> Iterator[str]:
    """An address without its EIP-55 checksum in a scheme that hashes the address as written
    (`batch-settlement`, `auth-capture`). The official TypeScript client rejects it.
    """
    if _uses(entry, "batch-settlement") or _uses(entry, "auth-capture"):
        for field in ("asset", "payTo"):
            if lacks_checksum(entry.fields.get(field)):
                yield entry.at(field)


@error()
def capture_account(entry: AcceptsEntry) -> Iterator[str]:
    """`auth-capture` without one of the two accounts that the payer's signature contains."""
    if not _uses(entry, "auth-capture"):
        return
    for key in ("captureAuthorizer", "feeRecipient"):
        if strict_evm_address(entry.extra.get(key)) is None:
            yield entry.at(f"extra.{key}")


@error()
def capture_terms(entry: AcceptsEntry) -> Iterator[str]:
    """`auth-capture` with a deadline or a fee that is missing, not a whole number, too large for
    the contract, or in the wrong order.
    """
    if not _uses(entry, "auth-capture"):
        return
    if _read_whole(entry.fields.get("maxTimeoutSeconds")) >= 2 ** (_DEADLINE_BITS - 1):
        yield entry.at("maxTimeoutSeconds")
    for keys, allowed in ((_DEADLINES, range(2**_DEADLINE_BITS)), (_FEES, range(_FEE_MAX + 1))):
        first, last = (_read_whole(entry.extra.get(key)) for key in keys)
        wrong = [key for key in keys if _read_whole(entry.extra.get(key)) not in allowed]
        if not wrong and first > last:
            wrong = [keys[1]]
        yield from (entry.at(f"extra.{key}") for key in wrong)


@error("extra.authCaptureEscrow")
def capture_escrow(entry: AcceptsEntry) -> bool:
    """`auth-capture` with an escrow that clients do not know."""
    escrow = entry.extra.get("authCaptureEscrow")
    if not _uses(entry, "auth-capture") or "authCaptureEscrow" not in entry.extra or escrow == "":
        return False
    return strict_evm_address(escrow) not in SDK.escrows
