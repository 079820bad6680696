"""docs/lint-rules.md, written from the rule table so that it cannot disagree with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tollgauge.core.lint.guide import Explanation, explained
from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.lint.remedy import REMEDIES, Remedy

_HEAD: Final = """# Lint rules

Written by `tollgauge.core.lint.docs.markdown()`; do not edit.

What the envelope linter looks for in the answer to an unpaid request. An *error* means that a
stock client could not pay, or would pay the wrong thing; a *warning* that it costs some clients,
or that what describes the resource is defective; *info* is only worth knowing. A **fatal** rule
means that a stock client cannot pay: for a rule about the envelope not at all, for a rule about an
entry of `accepts` not by that entry (one payable entry is enough). A fatal warning breaks nothing:
clients of its maker may pay where the official ones cannot. `compliant` means no error.

Every scheme that an official client has is evaluated on EVM networks, Solana and TON; other
networks are named as not evaluated and never called wrong.

The pages `/lint/rules` of every service and `tollgauge lint --explain RULE` also show an answer
that breaks the rule and one that does not. What each web framework writes for a fix stands
[at the end](#fixes), once for each kind.
"""
_TABLE: Final = "| rule | severity | fatal |\n|---|---|---|\n"


def markdown() -> str:
    """The whole document."""
    explanations = [row for rule in ALL_RULES if (row := explained(rule.slug)) is not None]
    rows = "".join(
        f"| [`{rule.slug}`](#{rule.slug}) | {rule.severity} | {'yes' if rule.fatal else ''} |\n"
        for rule in ALL_RULES
    )
    rules = "".join(_section(explanation) for explanation in explanations)
    fixes = "".join("".join(_fixes(remedy)) for remedy in REMEDIES.values())
    return f"{_HEAD}\n{_TABLE}{rows}{rules}\n## Fixes\n{fixes}"


def _section(explanation: Explanation) -> str:
    rule, source = explanation.rule, explanation.entry.source
    kind = f"*{rule.severity}{', fatal' if rule.fatal else ''}*"
    fix = f"[{explanation.remedy.title.lower()}](#{_anchor(explanation.remedy)})"
    return (
        f"\n## {rule.slug}\n\n{kind}. {explanation.what}\n\nFix: {rule.fix}\n"
        f"\nSource: [{source.name}]({source.url}). How: {fix}.\n"
    )


def _anchor(remedy: Remedy) -> str:
    """The anchor that Markdown gives to the heading of a remedy."""
    return re.sub(r"[^a-z0-9 -]", "", remedy.title.lower()).replace(" ", "-")


def _fixes(remedy: Remedy) -> Iterator[str]:
    yield f"\n### {remedy.title}\n\n{remedy.advice}\n"
    for framework, code in remedy.by_framework():
        language = framework.language.lower()
        yield f"\n{framework.name} (`{framework.package}`):\n\n```{language}\n{code}\n```\n"
