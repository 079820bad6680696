"""Configuration: one TOML file and the environment, read once into frozen sections.

Rules: sections are dataclasses that live beside their consumers; an unknown key is an error; every
problem is reported at once; secrets come from the environment alone. A value's environment name
is `TOLLGAUGE_<SECTION>_<KEY>` (`TOLLGAUGE_PROBE_CADENCE_EVERY_MS` for a nested one) and wins over
the file; `DATABASE_URL` is understood for the store. `tollgauge.example.toml` has every setting.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tollgauge.clients.egress import EgressSettings
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.clients.rpc import RpcSettings
from tollgauge.clients.transactions import NetworkSettings
from tollgauge.clients.webhooks import WatchSettings
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.settings import Reader, settings_of
from tollgauge.core.units import known_asset
from tollgauge.jobs.discover import Source
from tollgauge.jobs.index import IndexSettings
from tollgauge.jobs.probe import ProbeSettings
from tollgauge.jobs.score import ScoreSettings
from tollgauge.store.engine import StoreSettings
from tollgauge.web.app import ServerSettings
from tollgauge.web.paid import SaleSettings

__all__ = ["Config", "ConfigError", "StoreSettings", "check", "load"]

PREFIX: Final = "TOLLGAUGE_"
SECRETS: Final = frozenset(
    {"facilitator.headers", "rpc.url", "watch.key"}
    | {setting.path for setting in settings_of(NetworkSettings, "networks")}
)
"""Values that are refused in the file, because files end up in repositories."""
ALIASES: Final = {"store.url": "DATABASE_URL"}
PROBE_STEPS: Final = 5
"""Requests one after the other under a host's lease: three ways to ask, the check of our own
connection, and the random path that tells a wildcard host."""
RPC_SECONDS_MAX: Final = 60
_EVM_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)


class ConfigError(TollgaugeError):
    """The configuration cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("The configuration has problems:\n- " + "\n- ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be configured, one frozen section a consumer."""

    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    sale: SaleSettings = field(default_factory=SaleSettings)
    facilitator: FacilitatorSettings = field(default_factory=FacilitatorSettings)
    rpc: RpcSettings = field(default_factory=RpcSettings)
    networks: NetworkSettings = field(default_factory=NetworkSettings)
    egress: EgressSettings = field(default_factory=EgressSettings)
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    score: ScoreSettings = field(default_factory=ScoreSettings)
    index: IndexSettings = field(default_factory=IndexSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    sources: tuple[Source, ...] = ()


def load(path: Path | None, environment: Mapping[str, str]) -> Config:
    """The configuration of a file (None: defaults) under an environment.

    Raises ConfigError with every problem at once.
    """
    problems: list[str] = []
    document = _document(path, problems)
    reader = Reader(
        environment=environment, prefix=PREFIX, secrets=SECRETS, aliases=ALIASES, problems=problems
    )
    config: Config = reader.read_all(Config, document)
    broken = frozenset(problem.partition(".")[0].partition(":")[0] for problem in problems)
    problems.extend(check(config, broken=broken))
    if _password_in(document):
        problems.append("store.url holds a password: set DATABASE_URL instead")
    if problems:
        raise ConfigError(tuple(problems))
    return config


def check(config: Config, *, broken: frozenset[str] = frozenset()) -> list[str]:
    """What is wrong between sections; `broken` are those that hold defaults only because they
    could not be read, so that nothing can be said of them.
    """
    rules = (
        (
            {"egress", "server"},
            bool(config.egress.mapped) and not _loopback(config.server.base_url),
            "egress.mapped is for a world on one machine: server.base_url must be loopback",
        ),
        (
            {"sale", "facilitator"},
            bool(config.sale.pay_to) and not config.facilitator.url,
            "sale.pay_to is set but facilitator.url is not: nothing could settle",
        ),
        (
            {"sale"},
            bool(config.sale.pay_to) and not _EVM_ADDRESS.fullmatch(config.sale.pay_to),
            "sale.pay_to must be an address: 0x and 40 hex digits",
        ),
        (
            {"sale"},
            known_asset(config.sale.network, config.sale.asset) is None,
            "sale.asset is not native USDC of sale.network",
        ),
        (
            {"rpc"},
            not 0 < config.rpc.timeout_s <= RPC_SECONDS_MAX,
            f"rpc.timeout_s must be above 0 and at most {RPC_SECONDS_MAX}",
        ),
        (
            {"probe", "egress"},
            config.probe.lease_ms < PROBE_STEPS * config.egress.deadline_ms,
            f"probe.lease_ms must be at least {PROBE_STEPS} times egress.deadline_ms",
        ),
    )
    return [words for names, wrong, words in rules if wrong and not names & broken]


def _loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _password_in(document: Mapping[str, Any]) -> bool:
    store = document.get("store")
    url = store.get("url") if isinstance(store, dict) else None
    return isinstance(url, str) and re.search(r"://[^/@:]*:[^@]+@", url) is not None


def _document(path: Path | None, problems: list[str]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        problems.append(f"{path} cannot be read")
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path} is not TOML: {error}")
    except UnicodeDecodeError:
        problems.append(f"{path} is not UTF-8 text")
    return {}
