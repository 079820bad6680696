"""Report the lint findings of an endpoint's last probe.

A probe stores the findings and the price, not the response itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from tollgauge.core.endpoint.terms import Terms
from tollgauge.core.lint.transport import no_answer
from tollgauge.core.probe.exchange import NOT_EVALUATED, Lint
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.store.probes import probes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLint:
    """Findings of a public endpoint's last probe at `at` (ms UTC); both are None before the first
    probe. `terms` contains the price without its scheme, which is not stored.
    """

    resource: str
    at: int | None
    lint: Lint | None


def stored_lint(tx: Connection, endpoint_id: str) -> StoredLint | None:
    """Read the findings of an endpoint's last probe; None if it is unknown or not public."""
    known = rated_endpoints.get_whole(tx, endpoint_id)
    if known is None or not known[1].public:
        return None
    endpoint = known[0]
    at = endpoint.last_probed
    last = probes.history(tx, endpoint_id, since=at - 1, until=at) if at is not None else ()
    if not last:
        return StoredLint(resource=endpoint.resource, at=None, lint=None)
    return StoredLint(
        resource=endpoint.resource, at=last[-1].at, lint=_lint(last[-1], endpoint.extensions)
    )


def _lint(probe: ProbeResult, extensions: tuple[str, ...]) -> Lint:
    rules = {finding.rule for finding in probe.findings}
    # A probe whose offers cannot be evaluated counts as payable (core/probe/probe).
    unknown_scheme = NOT_EVALUATED in rules and "network-not-evaluated" not in rules
    return Lint(
        payable=probe.payable and not (unknown_scheme and probe.compliance == 0),
        payable_by=probe.payable_by,
        compliant=probe.compliant,
        version=probe.version,
        accepts=probe.accepts,
        # The linter reports one finding about a missing response, which is stored without any.
        findings=(no_answer.finding("status"),) if probe.status is None else probe.findings,
        terms=_terms(probe),
        extensions=extensions if probe.version is not None else (),
    )


def _terms(probe: ProbeResult) -> tuple[Terms, ...]:
    quote = probe.quote
    if quote is None:
        return ()
    return (
        Terms(
            version=probe.version or 0,
            scheme="",
            network=quote.network,
            asset=quote.asset,
            amount=quote.amount,
            pay_to=quote.pay_to,
        ),
    )
