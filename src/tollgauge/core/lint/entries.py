"""All rules about one entry of `accepts`, and whether a stock client could pay by the entry.

The rules themselves are in entry, network, token and scheme.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.lint.entry import ENTRY_RULES, entry_object
from tollgauge.core.lint.network import NETWORK_RULES
from tollgauge.core.lint.reading import Entry
from tollgauge.core.lint.rule import Rule
from tollgauge.core.lint.scheme import SCHEME_RULES
from tollgauge.core.lint.token import TOKEN_RULES

ALL_ENTRY_RULES: Final[tuple[Rule[Entry], ...]] = (
    *ENTRY_RULES,
    *NETWORK_RULES,
    *TOKEN_RULES,
    *SCHEME_RULES,
)
"""Every rule about one entry, in the order of the findings."""


def applies(rule: Rule[Entry], entry: Entry) -> bool:
    """Whether an entry is judged by a rule: one that is no object is only told so."""
    return isinstance(entry.raw, dict) or rule is entry_object


def payable_entry(entry: Entry) -> bool:
    """Whether no fatal rule fires for an entry."""
    fatal = (rule for rule in ALL_ENTRY_RULES if rule.fatal and applies(rule, entry))
    return not any(next(rule.check(entry), None) for rule in fatal)
