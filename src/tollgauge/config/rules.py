"""Rules between settings of several sections: values that contradict each other are errors.

Each rule names the sections that it looks at: a section that could not be read holds defaults,
and rules about it are skipped. What a section's own values may be, it declares itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from tollgauge.core.endpoint.identity import ResourceError, parse_resource

if TYPE_CHECKING:
    from tollgauge.config import Config

PROBE_STEPS: Final = 5
"""Requests one after the other under a host's lease: three ways to ask, the check of our own
connection, and the unlisted paths that tell a wildcard host."""

Rule = tuple[frozenset[str], bool, str]
"""The sections it looks at, whether they contradict each other, and what to say then."""


def check(config: Config, *, broken: frozenset[str] = frozenset()) -> list[str]:
    """What is wrong between sections, a sentence each; `broken` sections are left out."""
    rules = (*_rules(config), *_references(config))
    return [words for names, wrong, words in rules if wrong and not names & broken]


def _rules(config: Config) -> Iterator[Rule]:
    sale, facilitator, egress = config.sale, config.facilitator, config.egress
    yield (
        frozenset({"sale", "facilitator"}),
        bool(sale.pay_to) and not facilitator.url,
        "sale.pay_to is set but facilitator.url is not: nothing could settle",
    )
    longest = facilitator.verify_timeout_s + facilitator.settle_timeout_s
    yield (
        frozenset({"sale", "facilitator"}),
        sale.timeout_seconds <= longest,
        f"sale.timeout_seconds must be above {longest:g}, the facilitator's time-outs together",
    )
    yield (
        frozenset({"egress", "server"}),
        bool(egress.mapped) and not is_loopback(config.server.base_url),
        "egress.mapped is for a world on one machine: server.base_url must be loopback",
    )
    yield (
        frozenset({"demo", "rpc", "server"}),
        bool(config.demo.buyer_key or config.demo.control_url)
        and not all(map(is_loopback, (config.server.base_url, *config.rpc.url))),
        "demo is for a world on one machine: server.base_url and rpc.url must be loopback",
    )
    yield (
        frozenset({"probe", "egress"}),
        config.probe.lease_ms < PROBE_STEPS * egress.deadline_ms,
        f"probe.lease_ms must be at least {PROBE_STEPS} times egress.deadline_ms",
    )


def _references(config: Config) -> Iterator[Rule]:
    perimeter = config.egress.perimeter
    for url in config.probe.references:
        try:
            parse_resource(url, perimeter)
        except ResourceError as error:
            words = f"probe.references: {url!r} cannot be asked. {error}"
            yield frozenset({"probe", "egress"}), True, words


def is_loopback(url: str) -> bool:
    """Whether a URL can only be reached on this machine."""
    parts = _parts(url)
    return parts is not None and is_loopback_host(parts.hostname or "")


def is_loopback_host(host: str) -> bool:
    """Whether a name or an address is this machine's own alone."""
    return host in ("localhost", "::1") or host.startswith("127.")


def https_origins(urls: Iterable[str]) -> tuple[str, ...]:
    """The origins of the https URLs among texts, as URLs, each once."""
    origins = [
        f"https://{parts.netloc.rpartition('@')[2]}/"
        for parts in map(_parts, urls)
        if parts is not None and parts.scheme == "https" and parts.netloc
    ]
    return tuple(dict.fromkeys(origins))


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a port that is not a number
    except ValueError:
        return None
    return parts
