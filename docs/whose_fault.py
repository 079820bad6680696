"""The section *Attribution* of docs/methodology.md, generated from core/probe."""

from __future__ import annotations

from typing import Final

from docs.markdown import table
from docs.outcome_texts import OUTCOME_TEXTS
from tollgauge.core.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.probe import attribution
from tollgauge.core.probe.attribution import (
    BASE_RATE,
    CHANCE,
    COMMON_MODE,
    NO_CONNECTIVITY,
    NO_REFERENCE,
    PARTLY_REACHABLE,
    RECENT_MS,
    SAME_MOMENT_MS,
    SITES_MIN,
    SURPRISE_MS,
    TLS_SITES_MIN,
)
from tollgauge.core.probe.exchange import FaultKind
from tollgauge.core.probe.outcome import OUTCOMES, Outcome
from tollgauge.core.probe.probe import HOLDS_MIN_MS, LATE_HERE, LATE_MS

_NETWORK: Final = (
    "applies to names not found, connections, TLS and certificates, timeouts and empty replies"
)
_LATE: Final = (
    f"our own thread or event loop was late by more than {LATE_MS} ms while we waited, and the "
    "outcome was an answer, a timeout, or a connection closed by the other side; or the outcome "
    f"arrived more than {LATE_MS} ms after the deadline"
)
_COMMON: Final = "unrelated sites failed together as described below"
_UNPROVEN: Final = (
    "no site answered and no reference is configured: names that are not found or that resolve to "
    "private addresses, TLS and certificates, unless another site answered in the minute before; "
    f"and, unless the endpoint was down for {SURPRISE_MS // HOUR_MS} hours, TLS "
    f"or a certificate if {TLS_SITES_MIN} or more unrelated sites, or any failure if "
    f"{SITES_MIN} or more, failed this way within {RECENT_MS // MINUTE_MS} minutes and no site "
    "answered since"
)


def whose_fault() -> str:
    """Return the section as Markdown."""
    return (
        "## Attribution\n\n"
        "Each probe has an outcome and an attribution: `theirs` (the target), `ours` (this "
        "service) or `unknown`.\n\n"
        + table(("outcome", "when", "up", "attribution"), map(_outcome_row, Outcome))
        + "\n\nThe attribution of a probe differs from that of its outcome if one of these "
        "conditions holds; the reason is stored with the probe.\n\n"
        + table(
            ("reason", "attribution", "holds when"),
            (
                (f"`{LATE_HERE}`", "ours", _LATE),
                (f"`{NO_CONNECTIVITY}`", "ours", f"no reference answered; {_NETWORK}"),
                (f"`{COMMON_MODE}`", "ours", f"{_COMMON}; {_NETWORK}"),
                (f"`{NO_REFERENCE}`", "unknown", _UNPROVEN),
                (
                    f"`{FaultKind.DNS_FAILED.value}`",
                    "unknown",
                    "name servers did not respond, nor did another site or the references",
                ),
                (
                    f"`{PARTLY_REACHABLE}`",
                    "unknown",
                    "at most half of several vantages see the failure",
                ),
            ),
        )
        + "\n\n"
        + "\n\n".join((_together(), _explain_vouching(), _explain_references(), _several()))
    )


def _outcome_row(outcome: Outcome) -> tuple[str, ...]:
    row = OUTCOMES[outcome]
    up = "as a count, not as time" if row.up and row.refusal else "yes" if row.up else "no"
    return f"`{outcome.value}`", OUTCOME_TEXTS[outcome].methodology, up, row.attribution.value


def _several() -> str:
    minutes, hours = attribution.VALID_MS // MINUTE_MS, HOLDS_MIN_MS // HOUR_MS
    return (
        "**Several vantages.** A service may probe from several network locations. The first "
        "configured vantage is the primary one: scores and published latencies use its probes. "
        "A failure that it sees, of any kind, is attributed to the endpoint only if more than "
        f"half of the vantages with a result in the last {minutes} minutes, itself included, see "
        "one; a vantage's own faults count for neither side. If an endpoint that was up fails, "
        "the other vantages probe it immediately, and every 5 minutes for 2 hours; a first "
        "failure that they do not see is withdrawn. An endpoint that some vantages reached in the "
        f"last {hours} hours and others did not is *partly reachable* in reports and "
        "snapshots."
    )


def _together() -> str:
    return (
        "**Common failures.** A failure without an answer is a surprise if the endpoint was up at "
        f"its last scored probe, less than {SURPRISE_MS // HOUR_MS} hours before. The test "
        "considers the unrelated sites that answered or failed by surprise in the last minute, at "
        f"any worker of the service. It is positive if at least {SITES_MIN} of them failed and "
        f"the probability of as many failures is below 1/{CHANCE.denominator:,} (the exact tail "
        f"of the binomial distribution) at a failure rate of {BASE_RATE} per site, which is "
        "several times the usual rate. A site is a registrable domain of the "
        "[public suffix list](https://publicsuffix.org), including its private part. Endpoints "
        f"already down for {SURPRISE_MS // HOUR_MS} hours are excluded from this test, and their "
        "failures remain their own."
    )


def _explain_vouching() -> str:
    return (
        "Common failures are attributed to the service (`ours`), as is every other failure of the "
        f"minute, including those of new endpoints, if at least {SITES_MIN} of those sites failed "
        f"in a row without an answer in between or within {SAME_MOMENT_MS // SECOND_MS} s, or if "
        "a reference, queried immediately, does not answer. Otherwise the service's network "
        "worked while they failed: an outage that several sellers share, at one provider or in "
        "one region, is their downtime, because it affects buyers too."
    )


def _explain_references() -> str:
    return (
        "References are queried over the same route, including when none of the sites probed "
        "together answered, for example after the failed probe of a paid report. A paid report "
        "whose probe failed in such a minute, or whose failure is `ours` or `unknown` for another "
        "reason (except 429), returns 503 without charge, and its result is not reused for the "
        "next caller."
    )
