"""docs/lint-rules.md, written from the rule table so that it cannot disagree with it."""

from __future__ import annotations

from typing import Any, Final

from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.lint.rule import Rule

_HEAD: Final = """# Lint rules

Written by `tollgauge.core.lint.docs.markdown()`; do not edit.

What the envelope linter looks for in the answer to an unpaid request. An *error* means that a
stock client could not pay, or would pay the wrong thing; a *warning* that it costs some clients,
or that what describes the resource is defective; *info* is only worth knowing. A **fatal** rule
means that a stock client cannot pay: for a rule about the envelope not at all, for a rule about an
entry of `accepts` not by that entry (one payable entry is enough). A fatal warning breaks nothing:
clients of its maker may pay where the official ones cannot. `compliant` means no error.

Every scheme that an official client has is evaluated on EVM networks and on Solana; other networks
are named as not evaluated and never called wrong.
"""
_TABLE: Final = "| rule | severity | fatal |\n|---|---|---|\n"


def markdown() -> str:
    """The whole document."""
    rows = "".join(
        f"| [`{rule.slug}`](#{rule.slug}) | {rule.severity} | {'yes' if rule.fatal else ''} |\n"
        for rule in ALL_RULES
    )
    return f"{_HEAD}\n{_TABLE}{rows}" + "".join(_section(rule) for rule in ALL_RULES)


def _section(rule: Rule[Any]) -> str:
    kind = f"*{rule.severity}{', fatal' if rule.fatal else ''}*"
    what = " ".join(rule.doc.split())
    return f"\n## {rule.slug}\n\n{kind}. {what}\n\nFix: {rule.fix}\n"
