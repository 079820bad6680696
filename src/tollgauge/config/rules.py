"""Rules between settings: values that contradict each other or cannot work are errors.

Each rule names the sections that it looks at: a section that could not be read holds defaults,
and rules about it are skipped. A section checks its own values itself, in its `__post_init__`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from tollgauge.core.endpoint import ResourceError, parse_resource
from tollgauge.core.units import EVM_ADDRESS_PATTERN, known_asset

if TYPE_CHECKING:
    from tollgauge.config import Config

PROBE_STEPS: Final = 5
"""Requests one after the other under a host's lease: three ways to ask, the check of our own
connection, and the random path that tells a wildcard host."""
RPC_SECONDS_MAX: Final = 60
_EGRESS_POSITIVE: Final = (
    "deadline_ms",
    "connect_deadline_ms",
    "dns_deadline_ms",
    "wire_cap",
    "header_cap",
    "body_cap",
    "max_in_flight",
    "dns_threads",
)

Rule = tuple[frozenset[str], bool, str]
"""The sections it looks at, whether they are wrong, and what to say then."""


def check(config: Config, *, broken: frozenset[str] = frozenset()) -> list[str]:
    """What is wrong between sections, a sentence each; `broken` sections are left out."""
    rules = (
        *_selling(config),
        *_nodes(config),
        *_outbound(config),
        *_references(config),
        *_sources(config),
    )
    return [words for names, wrong, words in rules if wrong and not names & broken]


def _selling(config: Config) -> Iterator[Rule]:
    sale, facilitator = config.sale, config.facilitator
    token = known_asset(sale.network, sale.asset)
    yield (
        frozenset({"sale", "facilitator"}),
        bool(sale.pay_to) and not facilitator.url,
        "sale.pay_to is set but facilitator.url is not: nothing could settle",
    )
    yield (
        frozenset({"sale"}),
        bool(sale.pay_to) and not EVM_ADDRESS_PATTERN.fullmatch(sale.pay_to),
        "sale.pay_to must be an address: 0x and 40 hex digits",
    )
    yield (
        frozenset({"sale"}),
        token is None or token.symbol != "USDC" or not token.eip3009,
        "sale.asset is not native USDC of sale.network",
    )
    longest = facilitator.verify_timeout_s + facilitator.settle_timeout_s
    yield (
        frozenset({"sale", "facilitator"}),
        sale.timeout_seconds <= longest,
        f"sale.timeout_seconds must be above {longest:g}, the facilitator's time-outs together",
    )


def _nodes(config: Config) -> Iterator[Rule]:
    yield (
        frozenset({"rpc"}),
        not 0 < config.rpc.timeout_s <= RPC_SECONDS_MAX,
        f"rpc.timeout_s must be above 0 and at most {RPC_SECONDS_MAX}",
    )
    named = {"rpc.url": config.rpc.url}
    for name in type(config.networks).__dataclass_fields__:
        named[f"networks.{name}"] = getattr(config.networks, name)
    for path, text in named.items():
        urls = [url.strip() for url in text.split(",") if url.strip()]
        yield (
            frozenset({path.partition(".")[0]}),
            not all(_is_web(url) for url in urls),
            f"{path} must be a http:// or https:// URL, several with commas between",
        )


def _outbound(config: Config) -> Iterator[Rule]:
    egress = config.egress
    yield (
        frozenset({"egress", "server"}),
        bool(egress.mapped) and not is_loopback(config.server.base_url),
        "egress.mapped is for a world on one machine: server.base_url must be loopback",
    )
    for name in _EGRESS_POSITIVE:
        yield (
            frozenset({"egress"}),
            getattr(egress, name) < 1,
            f"egress.{name} must be at least 1",
        )
    yield (
        frozenset({"egress"}),
        not all(0 < port < 1 << 16 for port in egress.ports),
        "egress.ports must be from 1 to 65535",
    )
    yield (
        frozenset({"egress"}),
        egress.ca_file is not None and not Path(egress.ca_file).is_file(),
        f"egress.ca_file: there is no file {egress.ca_file}",
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


def _sources(config: Config) -> Iterator[Rule]:
    counts = Counter(source.name for source in config.sources)
    for name, count in counts.items():
        yield (
            frozenset({"sources"}),
            count > 1,
            f"sources: {count} are named {name!r}; each needs a name of its own",
        )


def is_loopback(url: str) -> bool:
    """Whether a URL can only be reached on this machine."""
    parts = _parts(url)
    host = (parts.hostname or "") if parts else ""
    return host in ("localhost", "::1") or host.startswith("127.")


def https_origins(urls: Iterable[str]) -> tuple[str, ...]:
    """The origins of the https URLs among texts, as URLs, each once."""
    origins = [
        f"https://{parts.netloc.rpartition('@')[2]}/"
        for parts in map(_parts, urls)
        if parts is not None and parts.scheme == "https" and parts.netloc
    ]
    return tuple(dict.fromkeys(origins))


def _is_web(url: str) -> bool:
    parts = _parts(url)
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a port that is not a number
    except ValueError:
        return None
    return parts
