"""The `accepts` array: what of it can be read as Terms.

Reading is tolerant and never raises: an entry that does not say how much of what goes to whom is
left out, whatever else is odd about it is the rules' business. Directories and probes share this
reader, so a listing and a challenge with the same words have the same terms.
"""

from __future__ import annotations

import re
from typing import Final

from tollgauge.core.base.units import UINT256_MAX, legacy_network
from tollgauge.core.endpoint.terms import Terms

ENTRIES_MAX: Final = 64
"""Entries that are read. No real challenge has nearly as many; a hostile one may have thousands."""
TEXT_MAX: Final = 256
"""Longest identifier in characters; a Cardano asset needs 120."""
TIMEOUT_MAX: Final = 2**53
"""Largest timeout in seconds that a JavaScript client adds without losing one."""
_DIGITS: Final = re.compile(r"[0-9]{1,78}", re.ASCII)
AMOUNT_KEYS: Final = {1: "maxAmountRequired", 2: "amount"}
"""The name of the amount, by envelope version."""


def terms_of_accepts(accepts: object, *, version: int) -> tuple[Terms, ...]:
    """Every entry that could be read, in order, at most ENTRIES_MAX.

    `version` says which name of the amount is looked for first; the other version's name and a
    plain number are read too, because directories list both. Names of v1 networks become CAIP-2.
    """
    if not isinstance(accepts, list):
        return ()
    read = [_terms(entry, version) for entry in accepts[:ENTRIES_MAX]]
    return tuple([terms for terms in read if terms is not None])


def atomic_amount(text: object) -> int | None:
    """An amount of atomic units from its decimal digits, or None unless it fits a uint256. Leading
    zeros are read: clients and facilitators compare the number.
    """
    if not isinstance(text, str) or not _DIGITS.fullmatch(text):
        return None
    value = int(text)
    return value if value <= UINT256_MAX else None


def timeout_seconds(value: object) -> int | None:
    """A timeout that clients can add to a clock: a positive whole number, not a text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value <= TIMEOUT_MAX else None


def _identifier(value: object) -> str | None:
    """A printable text of 1 to TEXT_MAX characters, or None."""
    if isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.isprintable():
        return value
    return None


def _terms(entry: object, version: int) -> Terms | None:
    """The terms of one entry, None where it does not say how much of what goes to whom."""
    if not isinstance(entry, dict):
        return None
    scheme, network = _identifier(entry.get("scheme")), _identifier(entry.get("network"))
    asset, pay_to = _identifier(entry.get("asset")), _identifier(entry.get("payTo"))
    amount = _amount(entry, version)
    if scheme is None or network is None or asset is None or pay_to is None or amount is None:
        return None
    extra = entry.get("extra")
    domain = extra if isinstance(extra, dict) else {}
    return Terms(
        version=version,
        scheme=scheme,
        network=legacy_network(network) or network,
        asset=asset,
        amount=amount,
        pay_to=pay_to,
        timeout_seconds=timeout_seconds(entry.get("maxTimeoutSeconds")),
        domain_name=_identifier(domain.get("name")),
        domain_version=_identifier(domain.get("version")),
        transfer_method=_identifier(domain.get("assetTransferMethod")),
    )


def _amount(entry: dict[str, object], version: int) -> int | None:
    v1, v2 = AMOUNT_KEYS[1], AMOUNT_KEYS[2]
    for key in (v1, v2) if version == 1 else (v2, v1):
        value = entry.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value if 0 <= value <= UINT256_MAX else None
        amount = atomic_amount(value)
        if amount is not None:
            return amount
    return None
