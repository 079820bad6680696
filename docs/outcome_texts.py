"""Texts about each outcome of a probe for the methodology, operating and gaming pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tollgauge.core.probe.exchange import Answer, Fault, FaultKind
from tollgauge.core.probe.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class GamingRow:
    """A row of docs/gaming.md: a target that is down gives this answer instead of HTTP 503.

    `bounded`: whether it gains at most a few points.
    """

    trick: str
    answer: Answer | Fault
    bound: str
    bounded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTexts:
    """The texts of one outcome.

    Attributes:
        methodology: When a probe has this outcome (docs/methodology.md).
        operating: What an operator checks when many probes have it (docs/operating/configure.md).
        gaming: None only if a target cannot cause the outcome.
    """

    methodology: str
    operating: str
    gaming: GamingRow | None


_SELLER: Final = "Nothing on this machine: the seller's response."
_EVERY_FAILURE: Final = "All failures count; the forecast caps endpoints that are not payable now"
_NOT_PAYABLE: Final = "Counts as up: only compliance 0 during that time and the forecast caps"
_REFUSED: Final = "Counts as a failure from the first one"

OUTCOME_TEXTS: Final = {
    Outcome.PAYMENT_REQUIRED: OutcomeTexts(
        methodology="HTTP 402",
        operating="Nothing: the expected response.",
        gaming=GamingRow(
            trick="a 402 without terms",
            answer=Answer(status=402),
            bound=_NOT_PAYABLE,
            bounded=False,
        ),
    ),
    Outcome.OPEN: OutcomeTexts(
        methodology="HTTP 2xx: a response without a request for payment",
        operating="Whether a proxy of this network answers for the seller.",
        gaming=GamingRow(
            trick="a free 200", answer=Answer(status=200), bound=_NOT_PAYABLE, bounded=False
        ),
    ),
    Outcome.VALIDATES: OutcomeTexts(
        methodology="HTTP 400 or 422: the request is checked before payment",
        operating=_SELLER,
        gaming=GamingRow(trick="400", answer=Answer(status=400), bound=_NOT_PAYABLE, bounded=False),
    ),
    Outcome.FORBIDDEN: OutcomeTexts(
        methodology="HTTP 401 or 403",
        operating="Whether sellers block this machine's address or `egress.user_agent`.",
        gaming=GamingRow(trick="401", answer=Answer(status=401), bound=_REFUSED),
    ),
    Outcome.THROTTLED: OutcomeTexts(
        methodology="HTTP 429",
        operating="Whether other programs at this address probe the same sellers.",
        gaming=GamingRow(trick="429", answer=Answer(status=429), bound=_REFUSED),
    ),
    Outcome.BLOCKED: OutcomeTexts(
        methodology="HTTP 401, 403 or 503 with the marker of a known bot wall",
        operating="Whether sellers' bot walls list this machine's address or `egress.user_agent`.",
        gaming=GamingRow(
            trick="a bot wall",
            answer=Answer(status=403, headers=(("cf-mitigated", "challenge"),)),
            bound=_REFUSED,
        ),
    ),
    Outcome.NOT_FOUND: OutcomeTexts(
        methodology="HTTP 404 or 410",
        operating=_SELLER,
        gaming=GamingRow(trick="404", answer=Answer(status=404), bound=_EVERY_FAILURE),
    ),
    Outcome.METHOD_REFUSED: OutcomeTexts(
        methodology="HTTP 405",
        operating="Whether the directory lists another method.",
        gaming=GamingRow(trick="405", answer=Answer(status=405), bound=_EVERY_FAILURE),
    ),
    Outcome.REDIRECT: OutcomeTexts(
        methodology="HTTP 3xx: payment clients do not follow redirects",
        operating="Whether a captive portal or proxy of this network redirects requests.",
        gaming=GamingRow(trick="a redirect", answer=Answer(status=302), bound=_EVERY_FAILURE),
    ),
    Outcome.CLIENT_ERROR: OutcomeTexts(
        methodology="any other HTTP 4xx",
        operating=_SELLER,
        gaming=GamingRow(trick="418", answer=Answer(status=418), bound=_EVERY_FAILURE),
    ),
    Outcome.SERVER_ERROR: OutcomeTexts(
        methodology="HTTP 5xx",
        operating="Whether a proxy of this network answers for the seller.",
        gaming=GamingRow(trick="500", answer=Answer(status=500), bound=_EVERY_FAILURE),
    ),
    Outcome.NETWORK_LOGIN: OutcomeTexts(
        methodology="HTTP 511, unless no reference site answers at that moment",
        operating="Whether a captive portal of this network answers for the seller.",
        gaming=GamingRow(
            trick="511",
            answer=Answer(status=511),
            bound="The target's failure unless the reference sites fail too",
        ),
    ),
    Outcome.DNS: OutcomeTexts(
        methodology="the host name does not resolve, or its name servers do not respond",
        operating="This machine's resolver, `egress.dns_deadline_ms` and `egress.dns_threads`.",
        gaming=GamingRow(
            trick="name servers that answer SERVFAIL",
            answer=Fault(kind=FaultKind.DNS_FAILED),
            bound="Counts as the target's failure while other sites resolve",
        ),
    ),
    Outcome.CONNECT: OutcomeTexts(
        methodology="no connection, a connection reset, or an address that is not public",
        operating="Routes and firewall of this machine; IPv6 if only such hosts fail.",
        gaming=GamingRow(
            trick="connection refused", answer=Fault(kind=FaultKind.CONNECT), bound=_EVERY_FAILURE
        ),
    ),
    Outcome.TLS: OutcomeTexts(
        methodology="a TLS handshake that fails, or an invalid certificate",
        operating="This machine's clock and `egress.ca_file`.",
        gaming=GamingRow(
            trick="a wrong certificate",
            answer=Fault(kind=FaultKind.TLS_INVALID),
            bound=_EVERY_FAILURE,
        ),
    ),
    Outcome.TIMEOUT: OutcomeTexts(
        methodology="no connection or no complete response before the deadline",
        operating="Load of this machine, `probe.wave` and `probe.concurrent_waves`.",
        gaming=GamingRow(
            trick="no response before the deadline",
            answer=Fault(kind=FaultKind.TIMEOUT),
            bound=_EVERY_FAILURE,
        ),
    ),
    Outcome.BROKEN: OutcomeTexts(
        methodology="an empty reply, or bytes that are not HTTP",
        operating="Whether a proxy of this network alters responses.",
        gaming=GamingRow(
            trick="bytes that are not HTTP",
            answer=Fault(kind=FaultKind.MALFORMED),
            bound=_EVERY_FAILURE,
        ),
    ),
    Outcome.LOCAL: OutcomeTexts(
        methodology="this machine has no socket, memory or route, or reached a local limit",
        operating="File descriptors, memory and routes of this machine.",
        gaming=None,
    ),
}
