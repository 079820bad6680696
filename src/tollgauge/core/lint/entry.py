"""Rules about one entry of `accepts`: its amount, timeout, payment flow, and members by version.

Formats are checked only for schemes and networks that the linter knows: another scheme may define
`asset: "USD"` and no timeout. Rules of a network are in network.py, rules of a scheme in scheme.py.
Sources: x402 v2 specification (PaymentRequirements), schemas and signers of the official clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tollgauge.core.lint.accepts import FLOWS, AcceptsEntry
from tollgauge.core.lint.rule import error, note, warning
from tollgauge.core.probe.exchange import OfficialClient
from tollgauge.core.sale.payment import SETTLE_MARGIN_S

TIGHT_S: Final = 10
"""In seconds; a shorter timeout leaves little time to settle."""
LONG_S: Final = 3_600
CLIENT_CAP_MICRO_USD: Final = 1_000_000
"""Default limit of the official clients per payment; the owner of a client can raise it."""
_AMOUNT_BITS: Final = {"batch-settlement": 128, "auth-capture": 120}
"""Width of the amount in the contracts of a scheme. Default: 256 bits on EVM networks, 64 on
Solana, 120 on TON.
"""
_SOLANA_BITS: Final = 64
_TON_BITS: Final = 120
_TON_TIMEOUT_MAX: Final = 2**31
"""In seconds. A transfer on TON expires at a time of 32 bits."""
_V1_KEYS: Final = ("maxAmountRequired", "resource", "description", "mimeType", "outputSchema")


@error(stops={OfficialClient.PYTHON})
def entry_object(entry: AcceptsEntry) -> bool:
    """An element of `accepts` that is not an object. The official Python client rejects the whole
    envelope; the TypeScript client skips the element.
    """
    return not isinstance(entry.raw, dict)


@error()
def amount_form(entry: AcceptsEntry) -> Iterator[str]:
    """The amount is missing, under the other version's name, a JSON number (which the official
    Python client rejects), or not a whole number within the range of the network's contracts (a
    uint256 on EVM networks, 64 bits on Solana, 120 on TON). On other networks any string is
    accepted, because some ledgers use decimals.
    """
    bits = _AMOUNT_BITS.get(entry.scheme, 256)
    bits = _SOLANA_BITS if entry.solana else _TON_BITS if entry.ton else bits
    atomic = entry.amount is not None and entry.amount.bit_length() <= bits
    if not (atomic if entry.formats_apply else entry.text(entry.amount_key)):
        yield entry.at(entry.amount_key)


@warning()
def amount_not_atomic(entry: AcceptsEntry) -> Iterator[str]:
    """A string that is not a whole number, on a network that may allow it."""
    decimal = bool(entry.text(entry.amount_key)) and entry.amount is None
    if decimal and not entry.formats_apply:
        yield entry.at(entry.amount_key)


@warning()
def amount_padded(entry: AcceptsEntry) -> Iterator[str]:
    """Leading zeros. Clients read the number, but programs that compare strings see another
    price.
    """
    if entry.amount is not None and str(entry.amount) != entry.text(entry.amount_key):
        yield entry.at(entry.amount_key)


@error(stops=())
def amount_zero(entry: AcceptsEntry) -> Iterator[str]:
    """An amount of zero. Clients sign it, but it settles nothing."""
    if entry.amount == 0:
        yield entry.at(entry.amount_key)


@warning()
def amount_above_cap(entry: AcceptsEntry) -> Iterator[str]:
    """More than $1 in a token whose decimals are known."""
    for terms in entry.terms:
        if (terms.quote().micro_usd or 0) > CLIENT_CAP_MICRO_USD:
            yield entry.at(entry.amount_key)


@error("maxTimeoutSeconds", revision=2)
def timeout_form(entry: AcceptsEntry) -> bool:
    """The timeout is missing, quoted, fractional or not positive. JavaScript clients add it to the
    clock: a quoted one is concatenated and gives the year 60000, a missing one gives NaN. Checked
    in version 1 and for the schemes and networks that the linter knows; others may omit it. On TON,
    the time at which the payment expires has 32 bits.
    """
    late = entry.ton and (entry.timeout or 0) > _TON_TIMEOUT_MAX
    return late or ((entry.formats_apply or entry.version == 1) and entry.timeout is None)


@error("maxTimeoutSeconds")
def timeout_too_short(entry: AcceptsEntry) -> bool:
    """An EVM payment that is too old for a facilitator when it is signed."""
    return entry.evm and entry.timeout is not None and entry.timeout < SETTLE_MARGIN_S


@warning("maxTimeoutSeconds")
def timeout_tight(entry: AcceptsEntry) -> bool:
    """6 to 9 seconds."""
    return entry.timeout in range(SETTLE_MARGIN_S, TIGHT_S)


@warning("maxTimeoutSeconds")
def timeout_long(entry: AcceptsEntry) -> bool:
    """More than an hour. Clients sign any timeout. Circle Gateway requires a week."""
    return entry.timeout is not None and entry.timeout > LONG_S and not entry.gateway


@error("extra", stops={OfficialClient.PYTHON})
def extra_object(entry: AcceptsEntry) -> bool:
    """`extra` is present and is not an object."""
    return not isinstance(entry.fields.get("extra"), dict | None)


@error("extra.paymentFlow", stops={OfficialClient.TYPESCRIPT})
def flow_unknown(entry: AcceptsEntry) -> bool:
    """A payment flow that the official clients do not know. They skip the entry; in version 1, the
    Python client does not read the flow.
    """
    return entry.extra.get("paymentFlow") not in FLOWS


@note("extra.paymentFlow")
def flow_upfront(entry: AcceptsEntry) -> bool:
    """`paymentFlow` is `upfront`. Clients prefer any other entry to it."""
    return entry.extra.get("paymentFlow") == "upfront"


@error("resource", stops={OfficialClient.PYTHON})
def v1_resource(entry: AcceptsEntry) -> bool:
    """Version 1 keeps the resource in the entry, and the official Python client requires it."""
    return entry.version == 1 and not isinstance(entry.fields.get("resource"), str)


@error(stops={OfficialClient.PYTHON})
def v1_texts(entry: AcceptsEntry) -> Iterator[str]:
    """A version 1 member of a type that the official Python client rejects."""
    if entry.version != 1:
        return
    for key in ("description", "mimeType"):
        if not isinstance(entry.fields.get(key), str | None):
            yield entry.at(key)
    if not isinstance(entry.fields.get("outputSchema"), dict | None):
        yield entry.at("outputSchema")


@warning()
def v1_fields(entry: AcceptsEntry) -> Iterator[str]:
    """Members of version 1 in an entry of version 2."""
    if entry.version == 2:
        yield from (entry.at(key) for key in _V1_KEYS if key in entry.fields)


@warning("amount")
def v2_amount(entry: AcceptsEntry) -> bool:
    """The version 2 name of the amount in an entry of version 1."""
    return entry.version == 1 and "amount" in entry.fields
