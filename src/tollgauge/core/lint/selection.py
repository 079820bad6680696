"""All rules about one entry of `accepts`, and which entries stock clients pay by.

A stock client has every scheme of one family of networks (EVM, Solana or TON) and takes the first
entry that it supports; entries whose `paymentFlow` is not `authorization` come last. It does not
try another one when the first is broken. Circle's client takes the first entry for Circle Gateway.

The rules themselves are in entry, network, token and scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollgauge.core.lint import entry, network, scheme, token
from tollgauge.core.lint.reading import AcceptsEntry
from tollgauge.core.lint.rule import Rule, rules_of

SHAPE_RULES: Final[tuple[Rule[AcceptsEntry], ...]] = (entry.entry_object,)
"""The rule about an entry that is no object, which breaks no other."""

TERM_RULES: Final[tuple[Rule[AcceptsEntry], ...]] = tuple(
    rule for rule in rules_of(entry, network, token, scheme) if rule not in SHAPE_RULES
)
"""Every rule about an entry that is an object, in the order of the findings."""

ENTRY_RULES: Final = (*SHAPE_RULES, *TERM_RULES)
"""Every rule about one entry, in the order of the findings."""

FAMILIES: Final = ("eip155", "solana", "tvm")
"""The families of networks, by CAIP-2 namespace, that a stock client can have all schemes of."""

_PREFERRED_FLOWS: Final = (None, "authorization")
_FATAL: Final = tuple(rule for rule in TERM_RULES if rule.fatal)


def is_payable(accepts: Sequence[AcceptsEntry]) -> bool:
    """Whether the client of at least one family signs. Where no family is offered, whether any
    entry has no fatal finding: on networks that are not evaluated, nothing is known of clients.
    """
    selected = [choice for family in FAMILIES if (choice := select_entry(accepts, family))]
    gateway = next((one for one in accepts if one.gateway), None)
    if gateway is not None and _is_valid(gateway):
        return True
    if selected:
        return any(_is_signed(choice) for choice in selected)
    return any(_is_valid(one) for one in accepts)


def select_entry(accepts: Sequence[AcceptsEntry], family: str) -> AcceptsEntry | None:
    """The entry that the stock client of a family pays by, None where it supports none."""
    supported = [one for one in accepts if one.chain == family and one.supported]
    preferred = (one for one in supported if one.extra.get("paymentFlow") in _PREFERRED_FLOWS)
    return next(preferred, supported[0] if supported else None)


def alternative_entry(accepts: Sequence[AcceptsEntry], family: str) -> AcceptsEntry | None:
    """A good entry beside the one at which the stock client of a family stops: one of the same
    family if there is any. None where the client does not stop, or nothing else is good.
    """
    choice = select_entry(accepts, family) if len(accepts) > 1 else None
    if choice is None or _is_signed(choice):
        return None
    good = [one for one in accepts if one is not choice and one.evaluated and _is_valid(one)]
    return min(good, key=lambda one: (one.chain != family, one.gateway), default=None)


def _is_valid(subject: AcceptsEntry) -> bool:
    """Whether an entry is an object for which no fatal rule fires."""
    if not isinstance(subject.raw, dict):
        return False
    return not any(next(rule.check(subject), None) for rule in _FATAL)


def _is_signed(subject: AcceptsEntry) -> bool:
    """Whether a stock client signs an entry so that it can settle."""
    return _is_valid(subject) and not subject.gateway
