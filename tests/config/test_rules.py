"""Advice on a valid configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.signing import PRIVATE_JWK

from tollgauge.config import Config, ConfigError, load
from tollgauge.config.rules import advice

PAY_TO = "0x" + "ab" * 20
SELLS = f"""
[sale]
pay_to = "{PAY_TO}"
[facilitator]
url = "https://facilitator.example.com"
"""


def load_text(tmp_path: Path, text: str, **environment: str) -> Config:
    path = tmp_path / "tollgauge.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, environment)


def test_complete_configuration_gets_no_advice(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        f"""
[server]
base_url = "https://trust.example.com"
[sale]
pay_to = "{PAY_TO}"
contact = "ops@example.com"
[facilitator]
url = "https://facilitator.example.com"
[egress]
user_agent = "tollgauge (x402 endpoint monitor; contact and opt-out: ops@example.com)"
[probe]
references = ["https://www.example.com/"]
[demand.anchors]
"books.example" = ["0x{"1" * 40}"]
"maps.example" = ["0x{"2" * 40}"]
[[sources]]
name = "one"
kind = "bazaar"
location = "https://directory.example.com/discovery"
""",
        TOLLGAUGE_CHAINS_8453_NODES="https://node.example.com/key",
        TOLLGAUGE_WATCH_KEY="k" * 32,
        TOLLGAUGE_SIGNING_KEY=PRIVATE_JWK,
    )
    assert advice(config) == ()


def test_anchor_may_be_limited_to_a_chain(tmp_path: Path) -> None:
    address = f"eip155:137:0x{'1' * 40}"
    config = load_text(tmp_path, f'[demand.anchors]\n"books.example" = ["{address}"]\n')
    assert config.demand.anchors == {"books.example": (address,)}
    with pytest.raises(ConfigError, match="must be a list of addresses"):
        load_text(tmp_path, f'[demand.anchors]\n"books.example" = ["solana:x:0x{"1" * 40}"]\n')


@pytest.mark.parametrize("prefix", ["", "eip155:8453:"])
def test_own_payto_is_not_an_anchor(tmp_path: Path, prefix: str) -> None:
    text = f'''
[sale]
pay_to = "{PAY_TO}"
[facilitator]
url = "https://facilitator.example.com"
[demand.anchors]
"books.example" = ["{prefix}{PAY_TO}"]
'''
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, text)
    assert "what this service sells must not prove payers" in str(caught.value)


def test_valid_but_inadvisable_settings_get_advice(tmp_path: Path) -> None:
    for text, environment, expected in (
        ("", {}, "There are no [[sources]]"),
        ("", {}, "egress.user_agent contains no contact"),
        ("", {}, "the service cannot check whether it is online"),
        ("", {"DATABASE_URL": "sqlite://"}, "all data is lost when the process ends"),
        ('[server]\nhost = "0.0.0.0"\n', {}, "server.base_url is a loopback address"),
        (
            '[server]\nport = 9000\nbase_url = "http://127.0.0.1:8402"\n',
            {},
            "server.base_url and server.port name different ports",
        ),
        (SELLS, {}, "No node of eip155:8453 is set"),
        (SELLS, {}, "watch.key is not set"),
        (SELLS, {}, "signing.key is not set"),
        (SELLS + '[server]\nbase_url = "http://trust.example.com"\n', {}, "sent unencrypted"),
    ):
        words = advice(load_text(tmp_path, text, **environment))
        assert any(expected in word for word in words), (expected, words)


def test_without_references_the_configured_hosts_are_queried(tmp_path: Path) -> None:
    text = """
[facilitator]
url = "https://facilitator.example.com/v2"
[[sources]]
name = "one"
kind = "bazaar"
location = "https://directory.example.com:8443/discovery?x=1"
[[sources]]
name = "two"
kind = "file"
location = "listing.json"
"""
    config = load_text(tmp_path, text)
    named = ("https://directory.example.com:8443/", "https://facilitator.example.com/")
    assert config.references == named
    assert any(
        "only directory.example.com, facilitator.example.com shows" in x for x in advice(config)
    )
    own = load_text(tmp_path, text + '[probe]\nreferences = ["https://www.example.com/"]\n')
    assert own.references == ("https://www.example.com/",)
    assert load(None, {}).references == ()
