"""Rules about one entry of `accepts`, and the entries that stock clients select.

A stock client has every scheme of one family of networks (EVM, Solana or TON) and takes the first
entry that it supports; entries whose `paymentFlow` is not `authorization` come last. It does not
try another entry if the first is broken. Circle's client takes the first entry for Circle Gateway.

The rules themselves are in entry, network, token and scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollgauge.core.lint import entry, network, scheme, token
from tollgauge.core.lint.reading import AcceptsEntry
from tollgauge.core.lint.rule import Rule, rules_of

SHAPE_RULES: Final[tuple[Rule[AcceptsEntry], ...]] = (entry.entry_object,)
"""The rule about an entry that is not an object. Such an entry breaks no other rule."""

TERM_RULES: Final[tuple[Rule[AcceptsEntry], ...]] = tuple(
    rule for rule in rules_of(entry, network, token, scheme) if rule not in SHAPE_RULES
)
"""Every rule about an entry that is an object, in the order of the findings."""

ENTRY_RULES: Final = (*SHAPE_RULES, *TERM_RULES)
"""Every rule about one entry, in the order of the findings."""

FAMILIES: Final = ("eip155", "solana", "tvm")
"""The CAIP-2 namespaces of the families of networks whose schemes a stock client implements."""

_PREFERRED_FLOWS: Final = (None, "authorization")
_FATAL: Final = tuple(rule for rule in TERM_RULES if rule.fatal)


def is_payable(accepts: Sequence[AcceptsEntry]) -> bool:
    """Return whether a stock client of at least one family can pay.

    If no family is offered, any entry without a fatal finding counts: the behaviour of clients on
    other networks is unknown.
    """
    selected = [choice for family in FAMILIES if (choice := select_entry(accepts, family))]
    gateway = next((one for one in accepts if one.gateway), None)
    if gateway is not None and _is_valid(gateway):
        return True
    if selected:
        return any(_is_signed(choice) for choice in selected)
    return any(_is_valid(one) for one in accepts)


def select_entry(accepts: Sequence[AcceptsEntry], family: str) -> AcceptsEntry | None:
    """Return the entry that the stock client of a family selects; None if it supports no entry."""
    supported = [one for one in accepts if one.chain == family and one.supported]
    preferred = (one for one in supported if one.extra.get("paymentFlow") in _PREFERRED_FLOWS)
    return next(preferred, supported[0] if supported else None)


def alternative_entry(accepts: Sequence[AcceptsEntry], family: str) -> AcceptsEntry | None:
    """Return a valid entry if the stock client of a family selects a broken one.

    An entry of the same family is preferred. None if the client does not fail, or if there is no
    valid entry.
    """
    choice = select_entry(accepts, family) if len(accepts) > 1 else None
    if choice is None or _is_signed(choice):
        return None
    good = [one for one in accepts if one is not choice and one.evaluated and _is_valid(one)]
    return min(good, key=lambda one: (one.chain != family, one.gateway), default=None)


def _is_valid(subject: AcceptsEntry) -> bool:
    """Return whether an entry is an object without a fatal finding."""
    if not isinstance(subject.raw, dict):
        return False
    return not any(next(rule.check(subject), None) for rule in _FATAL)


def _is_signed(subject: AcceptsEntry) -> bool:
    """Return whether a stock client's signature for an entry can settle."""
    return _is_valid(subject) and not subject.gateway
