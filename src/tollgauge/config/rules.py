"""Rules across sections, and advice about valid settings with unwanted consequences.

Contradicting settings are errors. Advice is printed by `tollgauge config check` and logged once per
start. Each section declares the limits of its values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
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
    rules = (*_rules(config), *_check_references(config), *_check_prices(config))
    return [message for names, wrong, message in rules if wrong and not names & invalid]


def advice(config: Config) -> tuple[str, ...]:
    """Return one or two sentences about each omitted setting and its consequence (advice.json)."""
    server, sells = config.server, bool(config.sale.pay_to)
    is_local = is_loopback(server.base_url)
    port = urlsplit(server.base_url).port or 80
    hosts = [urlsplit(url).hostname or url for url in config.references]
    omitted = {
        "no-sources": not config.sources,
        "no-references": not hosts,
        "implied-references": bool(hosts) and not config.probe.references,
        "no-contact": not _CONTACT.search(config.egress.user_agent),
        "in-memory": config.store.in_memory,
        "unreachable": is_local and not is_loopback_host(server.host),
        "other-port": is_local and port != server.port,
        "no-sale-contact": sells and not config.sale.contact,
        "no-node": sells and config.sale_chain is None,
        "no-anchors": bool(config.indexed_chains) and len(config.demand.anchors) < MIN_OWNERS,
        "no-watch-key": sells and not config.watch.key,
        "no-signing-key": sells and config.signing.signing_key is None,
        "plain-http": sells and server.base_url.startswith("http://") and not is_local,
    }
    texts = json.loads(files("tollgauge.config").joinpath("advice.json").read_text("utf-8"))
    network = config.sale.network
    values = {
        "hosts": ", ".join(hosts),
        "network": network,
        "variable": nodes_variable(network),
    }
    return tuple(texts[name].format(**values) for name, applies in omitted.items() if applies)


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
            message = f"probe.references: {url!r} cannot be used. {error}"
            yield frozenset({"probe", "egress"}), True, message


def _check_prices(config: Config) -> Iterator[Rule]:
    if not config.sale.prices:
        return
    # Imported here because it loads half of all modules, which most commands do not need.
    from tollgauge.web.paid.products import all_products

    for path in config.sale.prices.keys() - {product.path for product in all_products()}:
        yield frozenset({"sale"}), True, f"sale.prices: {path} is not a paid route"


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
