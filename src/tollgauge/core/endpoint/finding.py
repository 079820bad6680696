"""Finding: one place where a lint rule fired, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.endpoint.terms import Terms

LINT_FLAG: Final = "lint:"
"""How the code of a flag begins that stands for a rule of the linter."""
SIGNED_OFFER_MISMATCH: Final = "signed-offer-mismatch"
"""The rule about a signed offer that is wrong, and the flag that stands for it."""
NOT_EVALUATED: Final = "not-evaluated"
"""The rule about an offer of which no entry can be evaluated, and the flag that stands for it."""


class Severity(StrEnum):
    """How bad a finding is. An error: a stock client could not pay, or would pay the wrong thing.
    A warning: it costs some clients, or what describes the resource is defective.
    """

    ERROR = "error"
    WARN = "warn"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Its place among all, 0 for the worst."""
        return tuple(Severity).index(self)


def is_lint(code: str) -> bool:
    """Whether the code of a flag stands for a rule of the linter."""
    return code.startswith(LINT_FLAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that fired: its slug, its severity, a message that says how to fix it, and where in
    the exchange (`status`, `header`, `body`, or a path such as `accepts[0].amount`).
    """

    rule: str
    severity: Severity
    message: str
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """What the linter says of one exchange.

    `payable`: a stock client could pay. `compliant`: a 402 with no error. `version`: of the
    envelope that a client would use, None without one. `accepts`: how many entries it lists, None
    without an envelope. `terms`: every entry that could be read.
    """

    payable: bool
    compliant: bool
    version: int | None
    accepts: int | None = None
    findings: tuple[Finding, ...] = ()
    terms: tuple[Terms, ...] = ()

    @property
    def evaluated(self) -> bool:
        """Whether it can be said if a client could pay: an error outside of the entries is one on
        any network.
        """
        return not self.compliant or all(one.rule != NOT_EVALUATED for one in self.findings)

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def warnings(self) -> int:
        """How many findings are warnings."""
        return sum(finding.severity is Severity.WARN for finding in self.findings)
