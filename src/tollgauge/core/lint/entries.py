"""All rules about one entry of `accepts`, and whether a stock client could pay by the entry.

The rules themselves are in entry, network, token and scheme.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.lint import entry, network, scheme, token
from tollgauge.core.lint.reading import Entry
from tollgauge.core.lint.rule import Rule, rules_of

ENTRY_RULES: Final[tuple[Rule[Entry], ...]] = rules_of(entry, network, token, scheme)
"""Every rule about one entry, in the order of the findings."""


def applies(rule: Rule[Entry], subject: Entry) -> bool:
    """Whether a rule judges an entry: one that is no object has that as its only finding."""
    return isinstance(subject.raw, dict) or rule is entry.entry_object


def payable_entry(subject: Entry) -> bool:
    """Whether no fatal rule fires for an entry."""
    fatal = (rule for rule in ENTRY_RULES if rule.fatal and applies(rule, subject))
    return not any(next(rule.check(subject), None) for rule in fatal)
