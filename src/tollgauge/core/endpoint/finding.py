"""Findings: the places where lint rules fired, and how to fix them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.endpoint.terms import Terms

LINT_FLAG: Final = "lint:"
"""Prefix of the flags that represent a rule of the linter."""
SIGNED_OFFER_MISMATCH: Final = "signed-offer-mismatch"
"""Slug of the rule about an invalid signed offer, and of the flag that represents it."""
NOT_EVALUATED: Final = "not-evaluated"
"""Slug of the rule about an envelope whose entries cannot be evaluated, and of the flag that
represents it.
"""


class Severity(StrEnum):
    """The severity of a finding.

    An error: a stock client could not pay, or would pay the wrong thing. A warning: some clients
    cannot pay, or the description of the resource is wrong.
    """

    ERROR = "error"
    WARN = "warn"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Its index among all severities, 0 for the worst."""
        return tuple(Severity).index(self)


def is_lint(code: str) -> bool:
    """Return whether a flag represents a rule of the linter."""
    return code.startswith(LINT_FLAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that fired, and its place in the exchange: `status`, `header`, `body`, or a path such
    as `accepts[0].amount`.
    """

    rule: str
    severity: Severity
    message: str
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """The linter's result for one exchange.

    Attributes:
        payable: A stock client could pay.
        compliant: A 402 without errors.
        version: Version of the envelope that a client would use; None without an envelope.
        accepts: Number of entries in the envelope; None without an envelope.
        terms: Every readable entry.
        extensions: Names of its extensions, as written.
    """

    payable: bool
    compliant: bool
    version: int | None
    accepts: int | None = None
    findings: tuple[Finding, ...] = ()
    terms: tuple[Terms, ...] = ()
    extensions: tuple[str, ...] = ()

    @property
    def evaluated(self) -> bool:
        """Whether the linter can decide if clients can pay. An error outside of the entries affects
        every network.
        """
        return not self.compliant or all(one.rule != NOT_EVALUATED for one in self.findings)

    @property
    def errors(self) -> int:
        """The number of errors."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def warnings(self) -> int:
        """The number of warnings."""
        return sum(finding.severity is Severity.WARN for finding in self.findings)
