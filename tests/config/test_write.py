"""Writing a configuration, and the file that `tollgauge demo` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.webhooks import WatchSettings
from tollgauge.config import Config, ConfigError, load
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import StoreSettings
from tollgauge.demo.chain import ACCOUNTS
from tollgauge.demo.folder import toml_text
from tollgauge.jobs.loop_settings import ProbeSettings, Source, SourceKind
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.settings import DemoSettings, ServerSettings

KEY = ACCOUNTS[1].key
DEMO = DemoSettings(buyer_key=KEY, chain_name="tollgauge demo chain")


def demo_config(tmp_path: Path) -> Config:
    authority = tmp_path / 'a "CA"\\é.pem'
    authority.touch()
    return Config(
        server=ServerSettings(
            base_url="http://127.0.0.1:9402", port=9402, front=EdgeSettings(free_per_minute=7)
        ),
        store=StoreSettings(url=f"sqlite:///{tmp_path}/demo.sqlite"),
        chains=(ChainSettings(network="eip155:8453", nodes=("http://127.0.0.1:1234",)),),
        egress=EgressSettings(
            user_agent="someone",
            ca_file=str(authority),
            mapped={"weather.example": ("127.0.0.1", 5678)},
        ),
        probe=ProbeSettings(cadence=Cadence(host_gap_ms=0)),
        watch=WatchSettings(key="k" * 40),
        demo=DEMO,
        sources=(
            Source(
                name="one",
                kind=SourceKind.BAZAAR,
                location="https://directory.example/x",
                pause_ms=0,
            ),
            Source(name="two", kind=SourceKind.FILE, location="listing.json"),
        ),
    )


def test_written_configuration_is_read_back_unchanged(tmp_path: Path) -> None:
    config = demo_config(tmp_path)
    path = tmp_path / "tollgauge.toml"
    path.write_text(toml_text(config), encoding="utf-8")
    assert load(path, {}) == config


def test_default_values_are_not_written(tmp_path: Path) -> None:
    text = toml_text(demo_config(tmp_path))
    assert "[egress.mapped]" in text
    for absent in ("deadline_ms", "[sale]", "[score]"):
        assert absent not in text
    assert toml_text(Config()).strip() == ""


@pytest.mark.parametrize(
    ("server", "node"),
    [
        ("https://trust.example.com", "http://127.0.0.1:1"),
        ("http://127.0.0.1:8402", "https://mainnet.example.com"),
    ],
)
def test_demo_on_a_public_address_is_rejected(tmp_path: Path, server: str, node: str) -> None:
    path = tmp_path / "tollgauge.toml"
    path.write_text(
        f'[server]\nbase_url = "{server}"\n[demo]\nbuyer_key = "{KEY}"\n'
        f'[[chains]]\nnetwork = "eip155:8453"\nnodes = ["{node}"]\n'
    )
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    (problem,) = caught.value.problems
    assert problem.startswith("demo is only for a closed market")


def test_secrets_are_rejected_in_a_file_without_a_demo(tmp_path: Path) -> None:
    path = tmp_path / "tollgauge.toml"
    for demo in ("", "[demo]\n", '[demo]\nbuyer_key = ""\n', "[[demo]]\n"):
        path.write_text(
            f'{demo}[[chains]]\nnetwork = "eip155:8453"\nnodes = ["http://127.0.0.1:1"]\n'
        )
        with pytest.raises(ConfigError) as caught:
            load(path, {})
        text = "chains[0].nodes is a secret: set TOLLGAUGE_CHAINS_8453_NODES instead"
        assert text in caught.value.problems
