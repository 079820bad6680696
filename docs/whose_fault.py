"""The section *Attribution* of docs/methodology.md, generated from core/probe."""

from __future__ import annotations

from typing import Final

from docs.markdown import table
from tollgauge.core.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.probe import vantage
from tollgauge.core.probe.attribution import (
    BASE_RATE,
    CHANCE,
    COMMON_MODE,
    NO_CONNECTIVITY,
    NO_REFERENCE,
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
    "it takes names not found, connections, TLS and certificates, time-outs and empty replies"
)
_LATE: Final = (
    f"our own thread or event loop was late by more than {LATE_MS} ms while we waited, and it was "
    f"an answer, a time-out, or the other side ended the connection; or whatever came, came more "
    f"than {LATE_MS} ms past the deadline"
)
_COMMON: Final = "unrelated sites failed together as below"
_UNPROVEN: Final = (
    "nobody answered and there was no reference to ask: unless another site answered in the minute "
    "before, a name that is not found or that leads to a private address, TLS and certificates; "
    f"and, unless the endpoint was down for {SURPRISE_MS // HOUR_MS} hours, TLS "
    f"or a certificate when {TLS_SITES_MIN} or more unrelated sites, or any failure when "
    f"{SITES_MIN} or more, failed so within {RECENT_MS // MINUTE_MS} minutes and nobody answered "
    "since"
)


def whose_fault() -> str:
    """The section in Markdown."""
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
                    "name servers gave no answer, nor did another site or the references",
                ),
                (
                    f"`{vantage.PARTLY_REACHABLE}`",
                    "unknown",
                    "not more than half of several vantages see the failure",
                ),
            ),
        )
        + "\n\n"
        + "\n\n".join((_together(), _vouched(), _asked(), _several()))
    )


def _outcome_row(outcome: Outcome) -> tuple[str, ...]:
    row = OUTCOMES[outcome]
    up = "as a count, not as time" if row.up and row.refusal else "yes" if row.up else "no"
    return f"`{outcome.value}`", row.methodology, up, row.attribution.value


def _several() -> str:
    minutes, hours = vantage.RECENT_MS // MINUTE_MS, HOLDS_MIN_MS // HOUR_MS
    return (
        "**Several vantages.** An operator may probe from several places on the network. The first "
        "that is configured is the primary one: its probes are the evidence of scores and of "
        "published latencies. Any failure that it sees, whatever its kind, is the endpoint's only "
        f"if more than half of the vantages with a result of the last {minutes} minutes, itself "
        "included, see one; what is a vantage's own fault counts for neither side. The others are "
        "asked at once when an endpoint that was up fails, and every 5 minutes for 2 hours; a "
        "first failure that they do not see is taken back. An endpoint that some vantages reached "
        f"in the last {hours} hours and others did not is *partly reachable* in reports and "
        "snapshots."
    )


def _together() -> str:
    return (
        "**Together.** A failure without an answer surprises if its endpoint was up at its last "
        f"scored probe, less than {SURPRISE_MS // HOUR_MS} hours before. Of the unrelated sites "
        "that answered or failed surprisingly in the last minute, at any of our workers, more "
        f"failed than chance explains: at least {SITES_MIN}, and with a probability below "
        f"1/{CHANCE.denominator:,} (the exact tail of the binomial) if each failed with "
        f"{BASE_RATE}, which is several times what is usual. A site is a registrable domain of the "
        "[public suffix list](https://publicsuffix.org), its private part included. Endpoints that "
        f"were down for {SURPRISE_MS // HOUR_MS} hours or more surprise nobody: they count for "
        "nothing here, and what they fail with stays their own."
    )


def _vouched() -> str:
    return (
        "Such failures are ours, and with them every failure of the minute, that of an endpoint "
        f"not seen before as well, if at least {SITES_MIN} of those sites failed in a row, without "
        f"an answer from anybody in between or within {SAME_MOMENT_MS // SECOND_MS} s, or if one "
        "of the references, which are asked at once, does not answer. Otherwise our network was "
        "seen to work while they failed: an outage that some sellers share, at one provider or in "
        "one region, is their downtime, because buyers meet it too."
    )


def _asked() -> str:
    return (
        "The references are asked over the same way out, also when nobody answered who was asked "
        "together, as when a paid report's probe failed. A paid report whose probe failed in such "
        "a minute, or is ours or unknown for another reason (429 apart), is a 503 that costs "
        "nothing, and its result is not given to the next caller."
    )
