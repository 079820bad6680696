"""Configuration: one TOML file and the environment, read once into frozen sections.

Sections are pydantic dataclasses next to their consumers; each declares the limits of its values.
An unknown key is an error, and all problems are reported together. The environment variable of a
setting is `TOLLGAUGE_<SECTION>_<KEY>` (`TOLLGAUGE_PROBE_CADENCE_EVERY_MS` for a nested one) and
takes precedence over the file; `DATABASE_URL` sets `store.url`, and `<NAME>_FILE` names a file that
contains a secret. Secrets come only from the environment, except the public ones of a demo.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.clients.webhooks import WatchSettings
from tollgauge.config.read import (
    NODES,
    apply_environment,
    apply_nodes,
    read_secret_files,
    remove_nodes,
    remove_secrets,
    secret_files,
    validate,
)
from tollgauge.config.rules import check, https_origins
from tollgauge.config.settings import FILE, PREFIX, list_settings
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.db.engine import StoreSettings
from tollgauge.jobs.loop_settings import (
    BundleSettings,
    CalibrationSettings,
    DemandSettings,
    IndexSettings,
    ProbeSettings,
    ScoreSettings,
    Source,
    SourceKind,
)
from tollgauge.monitor.embedding import SearchSettings
from tollgauge.web.paid.sale import SaleSettings
from tollgauge.web.settings import DemoSettings, ServerSettings
from tollgauge.web.signing import SigningSettings

_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound
# Variables that the command line, the demo or the clients read.
_ELSEWHERE: Final = frozenset(
    {"TOLLGAUGE_CONFIG", "TOLLGAUGE_ANVIL", "TOLLGAUGE_URL", "TOLLGAUGE_BUYER_KEY"}
)


class ConfigError(TollgaugeError):
    """The configuration cannot be used.

    `problems` lists all errors. `unread` is true if the file could not be read.
    """

    def __init__(self, problems: tuple[str, ...], *, unread: bool = False) -> None:
        super().__init__("The configuration has problems:\n- " + "\n- ".join(problems))
        self.problems = problems
        self.unread = unread


def _check_unique(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{count} are named {name!r}; names must be unique")


def _check_names(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    _check_unique(source.name for source in sources)
    return sources


def _check_networks(chains: tuple[ChainSettings, ...]) -> tuple[ChainSettings, ...]:
    _check_unique(chain.network for chain in chains)
    return chains


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration, one frozen section per consumer."""

    server: ServerSettings = field(default_factory=ServerSettings)
    """Listening addresses, public address and connection limits."""
    store: StoreSettings = field(default_factory=StoreSettings)
    """The database."""
    sale: SaleSettings = field(default_factory=SaleSettings)
    """Sale of reports and watches: receiving address, network and prices."""
    signing: SigningSettings = field(default_factory=SigningSettings)
    """Signatures of responses."""
    facilitator: FacilitatorSettings = field(default_factory=FacilitatorSettings)
    """The facilitator, which verifies and settles payments."""
    egress: EgressSettings = field(default_factory=EgressSettings)
    """Requests to addresses that others choose. Times are in milliseconds, caps in bytes."""
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    """Probes of endpoints."""
    score: ScoreSettings = field(default_factory=ScoreSettings)
    """Scores."""
    search: SearchSettings = field(default_factory=SearchSettings)
    """Searches."""
    calibration: CalibrationSettings = field(default_factory=CalibrationSettings)
    """Calibration: forecasts compared with outcomes."""
    bundle: BundleSettings = field(default_factory=BundleSettings)
    """The signed file of trust records that clients download."""
    index: IndexSettings = field(default_factory=IndexSettings)
    """Indexing of `[[chains]]`."""
    demand: DemandSettings = field(default_factory=DemandSettings)
    """Payers that are proven by their purchases from other sellers."""
    watch: WatchSettings = field(default_factory=WatchSettings)
    """Watches and deliveries of alerts."""
    demo: DemoSettings = field(default_factory=DemoSettings)
    """Used only in the file of `tollgauge demo`, a closed market on this machine."""
    chains: Annotated[tuple[ChainSettings, ...], AfterValidator(_check_networks)] = ()
    """Chains whose settlements are read and whose transactions are traced. The nodes of
    `sale.network` also prove unclear payments.
    """
    sources: Annotated[tuple[Source, ...], AfterValidator(_check_names)] = ()
    """Directories to crawl."""

    @property
    def indexed_chains(self) -> tuple[ChainSettings, ...]:
        """The chains whose settlements are read: those with a node, unless switched off."""
        return tuple(chain for chain in self.chains if chain.index and chain.nodes)

    @property
    def sale_chain(self) -> ChainSettings | None:
        """The chain on which payments are received; None without a node of it."""
        return next(
            (chain for chain in self.chains if chain.network == self.sale.network and chain.nodes),
            None,
        )

    @property
    def references(self) -> tuple[str, ...]:
        """URLs that show whether this service is online.

        Default: the origins of the sources and of the facilitator, which the service requests
        anyway.
        """
        named = [source.location for source in self.sources if source.kind != SourceKind.FILE]
        return self.probe.references or https_origins([*named, self.facilitator.url])


def load(path: Path | None, environment: Mapping[str, str]) -> Config:
    """Read the configuration from a file (None: defaults) and an environment.

    Raises:
        ConfigError: with every problem of both.
    """
    problems: list[str] = []
    settings = list_settings(Config, describe=False)
    document = _read_file(path, problems)
    unread = document is None
    document = document or {}
    if _has_password(document):
        problems.append("store.url contains a password: set DATABASE_URL instead")
    environment = read_secret_files(environment, settings, problems)
    if not _is_demo(document):
        problems += [*remove_secrets(document, settings), *remove_nodes(document)]
    apply_environment(document, environment, settings)
    apply_nodes(document, environment)
    config, errors, invalid = validate(Config, document)
    sections = tuple(f"{PREFIX}{section.name.upper()}_" for section in fields(Config))
    problems += [*errors, *(text for text in find_unused(environment) if text.startswith(sections))]
    if not unread:
        problems += check(config, invalid=invalid)
    if problems:
        raise ConfigError(tuple(problems), unread=unread)
    if "base_url" in document.get("server", {}):
        return config
    return replace(config, server=_with_own_address(config.server))


def _with_own_address(server: ServerSettings) -> ServerSettings:
    """Set `base_url` to the address on which the server listens."""
    host = "127.0.0.1" if server.host in _EVERYWHERE else server.host
    host = f"[{host}]" if ":" in host else host
    return replace(server, base_url=f"http://{host}:{server.port}")


def find_unused(environment: Mapping[str, str]) -> list[str]:
    """Return a message for each `TOLLGAUGE_` variable that is not a setting.

    `load` treats it as an error only if it names a section: orchestrators set other variables that
    begin with the name of a service.
    """
    settings = list_settings(Config, describe=False)
    known = _ELSEWHERE | {setting.variable for setting in settings} | secret_files(settings).keys()
    sentences = []
    for name in sorted(environment.keys() - known):
        if name.startswith(PREFIX) and not NODES.fullmatch(name.removesuffix(FILE)):
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            meant = f"; did you mean {near[0]}?" if near else ""
            sentences.append(f"{name} (environment) is not a setting and changes nothing{meant}")
    return sentences


def _is_demo(document: Mapping[str, Any]) -> bool:
    """Whether `tollgauge demo` wrote the file, which may contain the demo's public keys.

    config/rules rejects `[demo]` in the file of a service that others can reach.
    """
    demo = document.get("demo")
    return isinstance(demo, dict) and bool(demo.get("buyer_key") or demo.get("control_url"))


def _has_password(document: Mapping[str, Any]) -> bool:
    store = document.get("store")
    url = store.get("url") if isinstance(store, dict) else None
    return isinstance(url, str) and re.search(r"://[^/@:]*:[^@]+@", url) is not None


def _read_file(path: Path | None, problems: list[str]) -> dict[str, Any] | None:
    """Return the file's tables, or None and a message in `problems` if it cannot be read."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror or 'no such file'}")
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path} is not TOML: {error}")
    except UnicodeDecodeError:
        problems.append(f"{path} is not UTF-8 text")
    return None
