"""`tollgauge buy` before anything is asked: keys, prices and files; and what was not sold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from tests.support.command_line import Command
from tests.support.guard_seller import ACCOUNT, receipt, selling

from tollgauge.demo.chain import ACCOUNTS
from tollgauge.demo.serving import closed_port

URL = "https://api.example.com/paid"
SERVICE = "https://trust.example.invalid"


def test_without_a_key_nobody_is_asked_and_the_variable_is_named(
    tollgauge: Command, tmp_path: Path
) -> None:
    done = tollgauge("buy", URL, "--service", SERVICE)
    assert (done.code, done.out) == (2, "")
    assert "There is no key to pay with: TOLLGAUGE_BUYER_KEY is not set." in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["0x1234", "ab" * 31 + "zz", "twelve words that nobody knows"])
def test_a_text_that_is_no_key_is_refused_and_never_printed(tollgauge: Command, key: str) -> None:
    done = tollgauge("buy", URL, "--service", SERVICE, TOLLGAUGE_BUYER_KEY=key)
    assert (done.code, done.out) == (2, "")
    assert "TOLLGAUGE_BUYER_KEY is no private key." in done.err
    assert key.removeprefix("0x") not in done.err


def test_a_service_on_this_machine_is_paid_with_the_demo_s_key_and_says_so(
    tollgauge: Command,
) -> None:
    with closed_port() as unused:
        port = unused.getsockname()[1]
        done = tollgauge("buy", URL, "--service", f"http://127.0.0.1:{port}")
    assert done.code == 2
    assert "paying with the demo's key, 0x70997970" in done.err
    assert f"No service answers at http://127.0.0.1:{port}/v1/x402-trust" in done.err
    assert "make demo" in done.err


def test_a_demo_that_is_configured_is_paid_with_the_key_that_it_names(
    tollgauge: Command, tmp_path: Path
) -> None:
    other = ACCOUNTS[2]
    with closed_port() as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        text = f'[server]\nbase_url = "{url}"\n[demo]\nbuyer_key = "{other.key}"\n'
        (tmp_path / "tollgauge.toml").write_text(text)
        done = tollgauge("buy", URL)
    assert f"paying with the demo's key, {other.address}." in done.err
    assert other.key not in done.err


def test_an_address_without_its_scheme_is_no_service_that_is_down(tollgauge: Command) -> None:
    done = tollgauge("buy", URL, TOLLGAUGE_URL="127.0.0.1:8402")
    assert (done.code, done.out) == (2, "")
    assert "127.0.0.1:8402 is no address of a service." in done.err
    assert "http://" in done.err


def test_the_service_is_that_of_the_configuration_unless_it_is_named(
    tollgauge: Command, tmp_path: Path
) -> None:
    with closed_port() as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (tmp_path / "tollgauge.toml").write_text(f'[server]\nbase_url = "{url}"\n')
        assert f"answers at {url}/" in tollgauge("buy", URL).err
        named = tollgauge("buy", URL, TOLLGAUGE_URL="http://localhost:9")
        assert "answers at http://localhost:9/" in named.err


@pytest.mark.parametrize("price", ["free", "-1", "0", "0.0000001", "nan"])
def test_a_price_that_is_no_amount_of_dollars_is_misuse(tollgauge: Command, price: str) -> None:
    done = tollgauge("buy", URL, "--service", SERVICE, f"--max-price={price}")
    assert done.code == 2
    assert "--max-price" in done.err


def test_an_address_without_https_is_refused(tollgauge: Command) -> None:
    done = tollgauge("buy", "api.example.com/paid", "--service", SERVICE)
    assert done.code == 2
    assert "api.example.com/paid is no https:// URL." in done.err


@pytest.mark.parametrize(
    ("output", "words"), [("there", "there exists already"), ("a/b.json", "There is no folder a")]
)
def test_a_file_that_cannot_be_written_is_said_before_anything_is_paid(
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
def test_an_answer_that_is_not_what_was_bought_is_kept_and_said_to_be_none(
    tollgauge: Command, tmp_path: Path, body: bytes, command: list[str], file: str, bought: str
) -> None:
    with selling() as seller:
        seller.answer = lambda _: replace(receipt(), body=body)
        done = tollgauge(
            *command, URL, TOLLGAUGE_URL=seller.url, TOLLGAUGE_BUYER_KEY=ACCOUNT.key.to_0x_hex()
        )
    assert (done.code, done.out) == (2, "")
    assert f"What was bought is no {bought}." in done.err
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
    with selling() as seller:
        seller.answer = lambda _: replace(receipt(), body=orjson.dumps(report))
        done = tollgauge(
            "buy", URL, TOLLGAUGE_URL=seller.url, TOLLGAUGE_BUYER_KEY=ACCOUNT.key.to_0x_hex()
        )
    assert (done.code, done.out.splitlines()[0]) == (code, line)
