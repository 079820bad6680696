"""All rules about one entry of `accepts`, and whether a stock client could pay by the entry.

The rules themselves are in entry, network, token and scheme.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.lint import entry, network, scheme, token
from tollgauge.core.lint.reading import Entry
from tollgauge.core.lint.rule import Rule, rules_of

SHAPE_RULES: Final[tuple[Rule[Entry], ...]] = (entry.entry_object,)
"""The rule about an entry that is no object, which breaks no other."""

TERM_RULES: Final[tuple[Rule[Entry], ...]] = tuple(
    rule for rule in rules_of(entry, network, token, scheme) if rule not in SHAPE_RULES
)
"""Every rule about an entry that is an object, in the order of the findings."""

ENTRY_RULES: Final = (*SHAPE_RULES, *TERM_RULES)
"""Every rule about one entry, in the order of the findings."""

_FATAL: Final = tuple(rule for rule in TERM_RULES if rule.fatal)


def payable_entry(subject: Entry) -> bool:
    """Whether an entry is an object for which no fatal rule fires."""
    if not isinstance(subject.raw, dict):
        return False
    return not any(next(rule.check(subject), None) for rule in _FATAL)
