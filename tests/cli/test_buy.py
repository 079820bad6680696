"""`tollgauge buy` before the first request (keys, prices, files), and unexpected responses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from tests.support.command_line import Command
from tests.support.guard_seller import ACCOUNT, receipt, run_seller

from tollgauge.demo.chain import ACCOUNTS
from tollgauge.demo.serving import closed_port

URL = "https://api.example.com/paid"
SERVICE = "https://trust.example.invalid"


def test_missing_key_is_reported_before_any_request(tollgauge: Command, tmp_path: Path) -> None:
    done = tollgauge("buy", URL, "--service", SERVICE)
    assert (done.code, done.out) == (2, "")
    assert "TOLLGAUGE_BUYER_KEY is not set: there is no key to pay with." in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["0x1234", "ab" * 31 + "zz", "twelve words that nobody knows"])
def test_invalid_key_is_rejected_and_never_printed(tollgauge: Command, key: str) -> None:
    done = tollgauge("buy", URL, "--service", SERVICE, TOLLGAUGE_BUYER_KEY=key)
    assert (done.code, done.out) == (2, "")
    assert "TOLLGAUGE_BUYER_KEY is not a private key." in done.err
    assert key.removeprefix("0x") not in done.err


def test_local_service_is_paid_with_demo_key_and_notice(
    tollgauge: Command,
) -> None:
    with closed_port() as unused:
        port = unused.getsockname()[1]
        done = tollgauge("buy", URL, "--service", f"http://127.0.0.1:{port}")
    assert done.code == 2
    assert "paying with the demo's key, 0x70997970" in done.err
    assert f"No service responds at http://127.0.0.1:{port}/v1/x402-trust" in done.err
    assert "make demo" in done.err


def test_configured_demo_is_paid_with_its_buyer_key(tollgauge: Command, tmp_path: Path) -> None:
    other = ACCOUNTS[2]
    with closed_port() as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        text = f'[server]\nbase_url = "{url}"\n[demo]\nbuyer_key = "{other.key}"\n'
        (tmp_path / "tollgauge.toml").write_text(text)
        done = tollgauge("buy", URL)
    assert f"paying with the demo's key, {other.address}." in done.err
    assert other.key not in done.err


def test_address_without_scheme_is_invalid_not_down(tollgauge: Command) -> None:
    done = tollgauge("buy", URL, TOLLGAUGE_URL="127.0.0.1:8402")
    assert (done.code, done.out) == (2, "")
    assert "127.0.0.1:8402 is not a service URL." in done.err
    assert "http://" in done.err


def test_service_is_taken_from_configuration_unless_given(
    tollgauge: Command, tmp_path: Path
) -> None:
    with closed_port() as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (tmp_path / "tollgauge.toml").write_text(f'[server]\nbase_url = "{url}"\n')
        assert f"responds at {url}/" in tollgauge("buy", URL).err
        named = tollgauge("buy", URL, TOLLGAUGE_URL="http://localhost:9")
        assert "responds at http://localhost:9/" in named.err


@pytest.mark.parametrize("price", ["free", "-1", "0", "0.0000001", "nan"])
def test_invalid_max_price_exits_2(tollgauge: Command, price: str) -> None:
    done = tollgauge("buy", URL, "--service", SERVICE, f"--max-price={price}")
    assert done.code == 2
    assert "--max-price" in done.err


def test_resource_without_https_is_rejected(tollgauge: Command) -> None:
    done = tollgauge("buy", "api.example.com/paid", "--service", SERVICE)
    assert done.code == 2
    assert "api.example.com/paid is not an https:// URL." in done.err


@pytest.mark.parametrize(
    ("output", "words"),
    [("there", "there exists already"), ("a/b.json", "The folder a does not exist")],
)
def test_unwritable_output_is_reported_before_payment(
    tollgauge: Command, tmp_path: Path, output: str, words: str
) -> None:
    (tmp_path / "there").mkdir()
    done = tollgauge("buy", URL, "--service", SERVICE, "--output", output, "--force")
    assert done.code == 2
    assert words in done.err
    assert "Nothing was paid." in done.err


@pytest.mark.parametrize("body", [b'{"ok": true}', b"<h1>Welcome</h1>", b"[]", b'"report"'])
@pytest.mark.parametrize(
    ("command", "file", "bought"),
    [(["buy"], "report.json", "trust report"), (["watch", "buy"], "watch.json", "watch")],
)
def test_unexpected_response_to_purchase_is_kept_and_reported(
    tollgauge: Command, tmp_path: Path, body: bytes, command: list[str], file: str, bought: str
) -> None:
    with run_seller() as seller:
        seller.answer = lambda _: replace(receipt(), body=body)
        done = tollgauge(
            *command, URL, TOLLGAUGE_URL=seller.url, TOLLGAUGE_BUYER_KEY=ACCOUNT.key.to_0x_hex()
        )
    assert (done.code, done.out) == (2, "")
    assert f"The purchased response is not a {bought}." in done.err
    assert f"It is in {file}" in done.err
    assert (tmp_path / file).read_bytes() == body + b"\n"


@pytest.mark.parametrize(
    ("confirmed", "code", "line"),
    [
        (True, 1, "down since 2026-11-24T00:00:00Z: it failed (5xx)"),
        (False, 0, "failed once at 2026-11-24T00:00:00Z: it failed (5xx)"),
    ],
)
def test_confirmed_outage_is_printed_first_and_exits_1(
    tollgauge: Command, confirmed: bool, code: int, line: str
) -> None:
    down = {"since": "2026-11-24T00:00:00Z", "reason": "it failed (5xx)", "confirmed": confirmed}
    report = {
        "resource": URL,
        "down": down,
        "verdict": {"recommendation": "caution", "reason": "It could not be paid."},
        "score": 85.0,
        "grade": "A",
        "confidence": 1,
    }
    with run_seller() as seller:
        seller.answer = lambda _: replace(receipt(), body=orjson.dumps(report))
        done = tollgauge(
            "buy", URL, TOLLGAUGE_URL=seller.url, TOLLGAUGE_BUYER_KEY=ACCOUNT.key.to_0x_hex()
        )
    assert (done.code, done.out.splitlines()[0]) == (code, line)
