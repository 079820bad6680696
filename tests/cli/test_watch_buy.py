"""Reading the events of a watch at the command line, and errors before a purchase."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.support.command_line import Command
from tests.support.tls_server import serve_answers

from tollgauge.demo.serving import closed_port


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"poll_url": "x"}'])
def test_file_without_a_watch_is_named(tollgauge: Command, tmp_path: Path, text: str) -> None:
    (tmp_path / "watch.json").write_text(text)
    done = tollgauge("watch", "events")
    assert (done.code, done.out) == (2, "")
    assert "watch.json was not written by `tollgauge watch buy`." in done.err


def test_missing_watch_file_explains_how_to_buy_one(tollgauge: Command) -> None:
    done = tollgauge("watch", "events")
    assert (done.code, done.out) == (2, "")
    assert "watch.json cannot be read" in done.err
    assert "tollgauge watch buy URL" in done.err


def test_unreachable_service_loses_no_event_and_prints_no_secret(
    tollgauge: Command, tmp_path: Path
) -> None:
    with closed_port() as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1/watch/wat_1/events"
        (tmp_path / "mine").write_bytes(orjson.dumps({"poll_url": url, "secret": "do not print"}))
        done = tollgauge("watch", "events", "mine")
    assert done.code == 2
    assert f"{url} cannot be reached" in done.err
    assert "do not print" not in done.out + done.err


@pytest.mark.parametrize(
    "document", [b"<h1>Welcome</h1>", b"[]", b'{"events": 3}', b'{"events": [{}]}']
)
def test_invalid_response_of_the_service_is_reported(
    tollgauge: Command, tmp_path: Path, document: bytes
) -> None:
    with serve_answers(lambda _path, _sent: document) as url:
        (tmp_path / "mine").write_bytes(orjson.dumps({"poll_url": url, "secret": "do not print"}))
        done = tollgauge("watch", "events", "mine")
    assert (done.code, done.out) == (2, "")
    assert f"{url} did not respond as a watch." in done.err


@pytest.mark.parametrize("url", ["http://[", "ftp://127.0.0.1/", "nowhere"])
def test_invalid_poll_url_is_reported(tollgauge: Command, tmp_path: Path, url: str) -> None:
    (tmp_path / "mine").write_bytes(orjson.dumps({"poll_url": url, "secret": "do not print"}))
    done = tollgauge("watch", "events", "mine")
    assert (done.code, done.out) == (2, "")
    assert f"{url} cannot be reached" in done.err


def test_secret_of_a_watch_is_not_printed(tollgauge: Command) -> None:
    done = tollgauge("watch", "buy", "https://api.example.com/paid", "--output", "-")
    assert done.code == 2
    assert "The watch's secret is not printed." in done.err
