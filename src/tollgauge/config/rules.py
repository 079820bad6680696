"""Rules across sections, and advice about valid settings with unwanted consequences.

Contradicting settings are errors. Advice is printed by `tollgauge config check` and logged once per
start. Each section declares the limits of its values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from tollgauge.config.read import nodes_variable
from tollgauge.core.endpoint.identity import ResourceError, parse_resource
from tollgauge.core.score.demand import MIN_OWNERS

if TYPE_CHECKING:
    from tollgauge.config import Config

# Consecutive requests under a host's lease: three methods, the connectivity check, and the
# unlisted path that detects a wildcard host.
PROBE_STEPS: Final = 5

Rule = tuple[frozenset[str], bool, str]  # sections, whether they contradict each other, message
_CONTACT: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+|https?://[^\s/]+\.[^\s/]+", re.ASCII)


def check(config: Config, *, invalid: frozenset[str]) -> list[str]:
    """Return a message for each contradiction.

    Rules about `invalid` sections, which have their defaults in `config`, are skipped.
    """
    rules = (*_rules(config), *_check_references(config))
    return [message for names, wrong, message in rules if wrong and not names & invalid]


def advice(config: Config) -> tuple[str, ...]:
    """Return one or two sentences about each omitted setting and its consequence."""
    url, sells = config.server.base_url, bool(config.sale.pay_to)
    rules = (
        (not config.sources, _NO_SOURCES),
        (not config.probe.references, _missing_references(config)),
        (not _CONTACT.search(config.egress.user_agent), _NO_CONTACT),
        (config.store.in_memory, _IN_MEMORY),
        (_unreachable(config), _UNREACHABLE),
        (_other_port(config), _OTHER_PORT),
        (sells and not config.sale.contact, _NO_SALE_CONTACT),
        (sells and config.sale_chain is None, _name_missing_node(config)),
        (bool(config.indexed_chains) and len(config.demand.anchors) < MIN_OWNERS, _NO_ANCHORS),
        (sells and not config.watch.key, _NO_WATCH_KEY),
        (sells and config.signing.signing_key is None, _NO_SIGNING_KEY),
        (sells and url.startswith("http://") and not is_loopback(url), _PLAIN_HTTP),
    )
    return tuple(words for wrong, words in rules if wrong)


def _unreachable(config: Config) -> bool:
    return is_loopback(config.server.base_url) and not is_loopback_host(config.server.host)


def _other_port(config: Config) -> bool:
    url = config.server.base_url
    return is_loopback(url) and (urlsplit(url).port or 80) != config.server.port


def _missing_references(config: Config) -> str:
    hosts = [urlsplit(url).hostname or url for url in config.references]
    if not hosts:
        return (
            "probe.references is empty and no https source or facilitator is set, so the "
            "service cannot check whether it is online: its own outages may be attributed to "
            "endpoints, and a paid report for a name that is not found returns 503. Name two or "
            "three sites that are always up."
        )
    return (
        f"probe.references is empty: only {', '.join(hosts)} shows whether this machine is online. "
        "Name two or three sites that are always up."
    )


def _name_missing_node(config: Config) -> str:
    return (
        f"No node of {config.sale.network} is set: settlements that a facilitator leaves unclear "
        "cannot be proven, and settlements do not count towards scores "
        f"({nodes_variable(config.sale.network)})."
    )


def _rules(config: Config) -> Iterator[Rule]:
    sale, facilitator, egress = config.sale, config.facilitator, config.egress
    yield (
        frozenset({"sale", "facilitator"}),
        bool(sale.pay_to) and not facilitator.url,
        "sale.pay_to is set but facilitator.url is not: payments could not be settled",
    )
    anchors = {
        one.rpartition(":")[2] for addresses in config.demand.anchors.values() for one in addresses
    }
    yield (
        frozenset({"sale", "demand"}),
        sale.pay_to.lower() in anchors,
        "demand.anchors contains sale.pay_to: what this service sells must not prove payers",
    )
    nodes = [url for chain in config.chains for url in chain.nodes]
    longest = facilitator.verify_timeout_s + facilitator.settle_timeout_s
    yield (
        frozenset({"sale", "facilitator"}),
        sale.timeout_seconds <= longest,
        f"sale.timeout_seconds must be above {longest:g}, the sum of the facilitator's timeouts",
    )
    yield (
        frozenset({"egress", "server"}),
        bool(egress.mapped) and not is_loopback(config.server.base_url),
        "egress.mapped is only for a closed market: server.base_url must be loopback",
    )
    yield (
        frozenset({"demo", "chains", "server"}),
        bool(config.demo.buyer_key or config.demo.control_url)
        and not all(map(is_loopback, (config.server.base_url, *nodes))),
        "demo is only for a closed market: server.base_url and all nodes must be loopback",
    )
    yield (
        frozenset({"probe", "egress"}),
        config.probe.lease_ms < PROBE_STEPS * egress.deadline_ms,
        f"probe.lease_ms must be at least {PROBE_STEPS} times egress.deadline_ms",
    )


def _check_references(config: Config) -> Iterator[Rule]:
    perimeter = config.egress.perimeter
    for url in config.probe.references:
        try:
            parse_resource(url, perimeter)
        except ResourceError as error:
            words = f"probe.references: {url!r} cannot be used. {error}"
            yield frozenset({"probe", "egress"}), True, words


def is_loopback(url: str) -> bool:
    """Whether a URL is reachable only from this machine."""
    parts = _parts(url)
    return parts is not None and is_loopback_host(parts.hostname or "")


def is_loopback_host(host: str) -> bool:
    """Whether a name or an address is loopback."""
    return host in ("localhost", "::1") or host.startswith("127.")


def https_origins(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the origins of the https URLs, without duplicates."""
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


_NO_SOURCES: Final = (
    "There are no [[sources]], so no endpoints are discovered: the service monitors only endpoints "
    "that `tollgauge discover` loads or that callers request. Add a directory."
)
_NO_CONTACT: Final = (
    "egress.user_agent contains no contact: name the prober and a way to opt out, such as "
    '"tollgauge (x402 endpoint monitor; contact and opt-out: ops@example.com)".'
)
_NO_SALE_CONTACT: Final = (
    "sale.contact is empty: a buyer whose payment was settled but not recorded cannot contact you. "
    "Set an e-mail address or a URL."
)
_IN_MEMORY: Final = "store.url names a database in memory: all data is lost when the process ends."
_UNREACHABLE: Final = (
    "server.base_url is a loopback address although server.host accepts other machines: links and "
    "offers do not work for them. Set the public address."
)
_OTHER_PORT: Final = (
    "server.base_url and server.port name different ports of this machine: links and offers work "
    "only if the port is forwarded. Remove base_url, or use the same port."
)
_NO_ANCHORS: Final = (
    "demand.anchors names fewer than two owners: proven demand is not measured, and activity is 0 "
    "for everyone. `tollgauge anchors suggest` lists candidates."
)
_NO_WATCH_KEY: Final = (
    "watch.key is not set: watches are not sold, because their secrets cannot be encrypted "
    "(TOLLGAUGE_WATCH_KEY)."
)
_NO_SIGNING_KEY: Final = (
    "signing.key is not set: responses are not signed, so buyers cannot prove their content. "
    "Create a key with `tollgauge keys new` (TOLLGAUGE_SIGNING_KEY)."
)
_PLAIN_HTTP: Final = (
    "server.base_url is http://: payments and secrets would be sent unencrypted. Use a proxy with "
    "TLS and set its https:// address."
)
