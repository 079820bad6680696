"""The command line as a person meets it: results, exit codes and messages, no traceback."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gzip
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.conftest import Postgres
from tests.support.http_service import NOW, PAY_TO

from tollgauge import cli
from tollgauge.core.evidence import digest as evidence_digest
from tollgauge.core.evidence import from_json, to_json
from tollgauge.demo.directory import items_at
from tollgauge.web.wire import examples

TOLLGAUGE = str(Path(sys.executable).parent / "tollgauge")


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture
def tollgauge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs the command line in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)

    def run(*words: str, stdin: bytes = b"", **environment: str) -> Done:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["tollgauge", *words])
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            for name, value in environment.items():
                patched.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        found = capsys.readouterr()
        assert "Traceback" not in found.err
        return Done(int(str(ended.value.code or 0)), found.out, found.err)

    return run


def captured(**changes: Any) -> dict[str, Any]:
    """An exchange of a seller who does it right, as x402 v1."""
    entry = {
        "scheme": "exact",
        "network": "base",
        "maxAmountRequired": "10000",
        "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
        "payTo": PAY_TO,
        "resource": "https://api.example.com/weather",
        "description": "Weather",
        "mimeType": "application/json",
        "maxTimeoutSeconds": 60,
        "extra": {"name": "USD Coin", "version": "2"},
    } | changes
    body = {"x402Version": 1, "error": "payment required", "accepts": [entry]}
    return {
        "status": 402,
        "headers": {"content-type": "application/json"},
        "body": json.dumps(body),
        "url": "https://api.example.com/weather",
    }


def test_lint_says_what_a_captured_exchange_asks(tollgauge: Command, tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    path.write_text(json.dumps(captured()))
    done = tollgauge("lint", str(path), "--json")
    assert (done.code, done.err) == (0, "")
    assert set(done.json) == {"payable", "compliant", "version", "findings", "terms"}
    assert done.json["payable"] is True
    assert done.json["version"] == 1
    (terms,) = done.json["terms"]
    assert terms["amount"] == "10000"
    assert terms["network"] == "eip155:8453"


def test_lint_exits_1_when_no_client_could_pay(tollgauge: Command, tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    for exchange in (captured(maxAmountRequired="0.01"), {"status": 200, "headers": {}}):
        path.write_text(json.dumps(exchange))
        done = tollgauge("lint", str(path), "--json")
        assert done.code == 1
        assert done.json["payable"] is False
        for finding in done.json["findings"]:
            assert set(finding) == {"rule", "severity", "message", "where"}


def test_lint_reads_a_header_envelope_from_standard_input(tollgauge: Command) -> None:
    envelope = {
        "x402Version": 2,
        "error": "payment required",
        "resource": {"url": "https://api.example.com/weather"},
        "accepts": [
            {
                "scheme": "exact",
                "network": "eip155:8453",
                "amount": "10000",
                "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
                "payTo": PAY_TO,
                "maxTimeoutSeconds": 60,
                "extra": {"name": "USD Coin", "version": "2"},
            }
        ],
    }
    header = base64.b64encode(json.dumps(envelope).encode()).decode()
    exchange = {"status": 402, "headers": {"PAYMENT-REQUIRED": header}, "body": "{}"}
    done = tollgauge("lint", "-", "--json", stdin=json.dumps(exchange).encode())
    assert done.code == 0
    assert done.json["version"] == 2


CURL = """HTTP/1.1 301 Moved Permanently
Location: https://api.example.com/weather

HTTP/2 402
content-type: application/json

"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lint_reads_what_curl_prints_and_what_windows_saves(
    tollgauge: Command, tmp_path: Path, encoding: str, end: str
) -> None:
    text = CURL.replace("\n", end) + captured()["body"]
    (tmp_path / "curl.txt").write_bytes(text.encode(encoding))
    (tmp_path / "exchange.json").write_bytes(json.dumps(captured()).encode(encoding))
    for name in ("curl.txt", "exchange.json"):
        done = tollgauge("lint", name)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("payable   yes\n")
    from_pipe = tollgauge("lint", "-", "--json", stdin=text.encode(encoding))
    assert (from_pipe.code, from_pipe.json["payable"]) == (0, True)


def test_a_status_may_be_a_text(tollgauge: Command) -> None:
    exchange = captured() | {"status": "402"}
    done = tollgauge("lint", "-", stdin=json.dumps(exchange).encode())
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.json", None, "missing.json cannot be read"),
        ("broken.json", b"{", "broken.json: This is not JSON"),
        ("empty.json", b"", "empty.json: This is not JSON"),
        ("head.txt", b"HTTP/1.1 402 X\r\nno colon\r\n\r\n", "head.txt: A line of the head"),
        ("half.txt", b"\xff\xfe{", "half.txt begins as UTF-16 and does not go on so"),
        ("list.json", b"[]", "not an object"),
        ("no-gzip.json.gz", b"{}", "cannot be read"),
        ("cut.json.gz", gzip.compress(b'{"status": 402}' * 50, mtime=0)[:40], "cannot be read"),
        ("deep.json", b"[" * 100_000, "This is not JSON"),
        (".", None, ". cannot be read"),
    ],
)
def test_lint_exits_2_for_what_is_no_exchange(
    tollgauge: Command, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = tollgauge("lint", name)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize("url", ["https://localhost/", "https://127.0.0.1/x", "https://"])
def test_lint_and_probe_ask_public_addresses_only(tollgauge: Command, url: str) -> None:
    for command in ("lint", "probe"):
        done = tollgauge(command, url)
        assert (done.code, done.out) == (2, "")
        assert "https://" in done.err


def test_score_recomputes_evidence_and_reports(tollgauge: Command, tmp_path: Path) -> None:
    report = examples.trust_report()
    (tmp_path / "report.json").write_bytes(orjson.dumps(report))
    (tmp_path / "evidence.json").write_bytes(to_json(examples._evidence()))
    for name in ("report.json", "evidence.json"):
        done = tollgauge("score", name, "--json")
        assert (done.code, done.err) == (0, "")
        assert {"score", "grade", "stats", "flags", "policy"} < set(done.json)
        found = done.json
        claim = {"agrees": True, "differences": []} if name == "report.json" else None
        assert found.pop("claim", None) == claim
        for field, value in found.items():
            assert value == report[field], field
    told = tollgauge("score", "report.json")
    assert told.code == 0
    assert f"{report['score']} of 100" in told.out


def test_score_exits_1_when_the_advice_is_to_avoid(tollgauge: Command, tmp_path: Path) -> None:
    evidence = orjson.loads(to_json(examples._evidence()))
    for day in evidence["days"]:
        day.update(up=0, compliant=0, payable=0, compliance=0, latency=[], latencySum=0)
    done = tollgauge("score", "-", "--json", stdin=orjson.dumps(evidence))
    assert done.code == 1, done.err
    assert done.json["recommendation"] in ("avoid", "not-payable")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "Standard input is no evidence that a score could be computed from: This is not"),
        (b"{}", "could be computed from: 'asOf' is a required property"),
        (b'{"evidence": {}}', "could be computed from at evidence.document: The report does"),
        (b'{"score": 99.9, "grade": "A"}', "at evidence.document: The report does not carry"),
        (b'{"score": 1, "evidence": {"digest": "00"}}', "The report does not carry its evidence"),
        (b"7", "could be computed from: 7 is not of type 'object'"),
    ],
)
def test_score_exits_2_for_what_is_no_evidence(
    tollgauge: Command, content: bytes, message: str
) -> None:
    done = tollgauge("score", "-", stdin=content)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Give a whole trust report" in done.err


def forged(field: str, claimed: Any) -> tuple[bytes, Any]:
    """A report that claims something else in one field, and what it claimed before."""
    report = orjson.loads(orjson.dumps(examples.trust_report()))
    *way, last = field.split("/")
    place = report
    for name in way:
        place = place[name]
    before, place[last] = place.get(last), claimed
    return orjson.dumps(report), before


def test_score_says_what_a_forged_report_claims_and_what_its_evidence_gives(
    tollgauge: Command,
) -> None:
    text, before = forged("score", 99.9)
    done = tollgauge("score", "-", stdin=text)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith(f"report claims 99.9, evidence gives {before}\n")
    shown = tollgauge("score", "-", "--json", stdin=text)
    assert shown.code == 1
    assert shown.json["score"] == before
    assert shown.json["claim"] == {
        "agrees": False,
        "differences": [{"field": "score", "claimed": 99.9, "given": before}],
    }


@pytest.mark.parametrize(
    ("field", "claimed"),
    [
        ("grade", "F"),
        ("recommendation", "avoid"),
        ("confidence", 0.01),
        ("resource", "https://another.example.com/x"),
        ("scoreRange/high", 100.5),
        ("breakdown/uptime", 12.5),
        ("stats/uptime30d", 1.5),
        ("stats/excluded30d", {"our-timeout": 999}),
        ("policy/weights/uptime", 99),
        ("policy/caps", [{"code": "down-now", "limit": 49, "reason": "x"}]),
        ("flags", {"invented": {"severity": "info", "message": "x"}}),
        ("flagsDetailed", [{"code": "invented", "severity": "info", "message": "x"}]),
        ("evidence/asOf", "2020-01-01T00:00:00Z"),
        ("evidence/digest", "00" * 32),
    ],
)
def test_score_exits_1_for_any_claim_that_the_evidence_does_not_give(
    tollgauge: Command, field: str, claimed: Any
) -> None:
    text, before = forged(field, claimed)
    assert before != claimed, "the example must change"
    done = tollgauge("score", "-", stdin=text)
    assert (done.code, done.err) == (1, "")
    assert f"report claims {field.replace('/', '.')}" in done.out
    assert "they agree" not in done.out


def report_of_a_dead_endpoint(tollgauge: Command) -> dict[str, Any]:
    """An honest report that says avoid."""
    document = orjson.loads(to_json(examples._evidence()))
    for day in document["days"]:
        day.update(up=0, compliant=0, payable=0, compliance=0, latency=[], latencySum=0)
    document["recent"] = {"scored": 6, "up": 0}
    score = tollgauge("score", "-", "--json", stdin=orjson.dumps(document)).json
    assert score["recommendation"] == "avoid"
    report = examples.trust_report()
    digest = evidence_digest(from_json(document))
    evidence = report["evidence"] | {"document": document, "digest": digest}
    honest: dict[str, Any] = report | score | {"evidence": evidence}
    return honest


def test_an_honest_report_that_says_avoid_is_not_forged(tollgauge: Command) -> None:
    report = report_of_a_dead_endpoint(tollgauge)
    done = tollgauge("score", "-", stdin=orjson.dumps(report))
    assert (done.code, done.err) == (0, ""), done.out


def test_a_flag_that_a_report_hides_is_a_forgery(tollgauge: Command) -> None:
    report = report_of_a_dead_endpoint(tollgauge)
    done = tollgauge("score", "-", stdin=orjson.dumps(report | {"flags": {}}))
    assert done.code == 1
    assert report["flags"]
    for code in report["flags"]:
        assert f"report claims flags.{code} none, evidence gives" in done.out


def test_a_claim_of_nothing_is_compared_too(tollgauge: Command) -> None:
    text, before = forged("score", None)
    done = tollgauge("score", "-", stdin=text)
    assert done.code == 1
    assert f"report claims none, evidence gives {before}" in done.out


def test_words_and_what_no_evidence_gives_are_no_claims(tollgauge: Command) -> None:
    report = orjson.loads(orjson.dumps(examples.trust_report()))
    report |= {"advertisedBy": {"serviceName": "x", "description": "y"}, "added": "later"}
    for flag in [*report["flags"].values(), *report["flagsDetailed"]]:
        flag["message"] = "In the words of another version."
    del report["stats"], report["policy"]
    done = tollgauge("score", "-", stdin=orjson.dumps(report))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"report claims {report['score']}, evidence gives ")
    assert "they agree" in done.out


def test_score_tells_evidence_that_was_changed_by_its_digest(tollgauge: Command) -> None:
    report = orjson.loads(orjson.dumps(examples.trust_report()))
    report["evidence"]["document"]["firstSeen"] -= 1
    done = tollgauge("score", "-", stdin=orjson.dumps(report))
    assert done.code == 1
    assert f"report claims evidence.digest {report['evidence']['digest']}, evidence" in done.out


def test_discover_loads_a_file_into_the_database(tollgauge: Command, tmp_path: Path) -> None:
    items = [
        item
        for item in items_at(NOW, present=NOW)
        if not isinstance(item, dict) or "sellers.example" not in str(item.get("resource"))
    ]
    public = [
        {"resource": f"https://api-{n}.example.com/paid", "type": "http", "x402Version": 2}
        | {"accepts": [], "lastUpdated": NOW // 1000}
        for n in range(3)
    ]
    path = tmp_path / "listing.json"
    path.write_text(json.dumps({"x402Version": 2, "items": [*public, *items]}))
    database = f"sqlite:///{tmp_path / 'new' / 'folder' / 'd.db'}"
    done = tollgauge("discover", str(path), "--json", "--name", "cdp", DATABASE_URL=database)
    assert done.code == 0, done.err
    assert done.json["source"] == "cdp"
    assert done.json["new"] == 3
    assert sum(done.json["skipped"].values()) == len(items)
    assert done.json["items"] == 3 + len(items)
    assert done.json["problem"] is None
    again = tollgauge("discover", str(path), "--json", "--name", "cdp", DATABASE_URL=database)
    assert (again.json["new"], again.json["seen"]) == (0, 3)
    assert (tmp_path / "new" / "folder" / "d.db").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("missing.json",), 2, "There is no file missing.json"),
        (("broken.json",), 2, "not JSON"),
        (("cut.json.gz",), 2, "gzip"),
        (("http://example.com/list",), 2, "is no https:// URL"),
        (("https://example.com/", "--kind", "pigeon"), 2, "No source is of the kind"),
        (("https://127.0.0.1/list",), 1, "address-not-public"),
    ],
)
def test_discover_says_what_cannot_be_loaded(
    tollgauge: Command, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"[]" * 500)[:20])
    done = tollgauge("discover", *words, DATABASE_URL="sqlite://")
    assert done.code == code
    assert message in done.err


def test_discover_exits_1_for_a_listing_that_is_not_whole(
    tollgauge: Command, tmp_path: Path
) -> None:
    (tmp_path / "part.json").write_text(
        json.dumps({"items": ["https://api.example.com/paid"], "pagination": {"total": 2}})
    )
    found = tollgauge("discover", "part.json", "--json", DATABASE_URL="sqlite://")
    assert (found.code, found.json["complete"], found.json["new"]) == (1, False, 1)
    told = tollgauge("discover", "part.json", DATABASE_URL="sqlite://")
    assert told.code == 1
    assert "complete   no" in told.out
    assert "not all of it" in told.err


def test_config_check_says_everything_at_once(tollgauge: Command, tmp_path: Path) -> None:
    good = tollgauge("config", "check")
    assert good.code == 0
    assert "sells nothing" in good.out
    (tmp_path / "tollgauge.toml").write_text(
        '[server]\nprot = 1\n[rpc]\nurl = "https://key@node"\n[probe.cadence]\nevery_ms = "x"\n'
    )
    bad = tollgauge("config", "check", TOLLGAUGE_SERVER_PORT="high")
    assert (bad.code, bad.out) == (1, "")
    for words in (
        "server.prot is not a setting",
        "rpc.url is a secret: set TOLLGAUGE_RPC_URL instead",
        "probe.cadence.every_ms must be a whole number",
        "server.port must be a whole number",
    ):
        assert words in bad.err
    assert "key@node" not in bad.err
    as_json = tollgauge("config", "check", "--json", TOLLGAUGE_SERVER_PORT="high")
    assert (as_json.code, as_json.err) == (1, "")
    assert as_json.json["good"] is False
    assert all(f"- {problem}" in bad.err for problem in as_json.json["problems"])
    assert len(as_json.json["problems"]) == 4


def test_config_check_advises_against_what_is_unwise(tollgauge: Command) -> None:
    told = tollgauge("config", "check", TOLLGAUGE_WACTH_KEY="hunter2")
    found = tollgauge("config", "check", "--json", TOLLGAUGE_WACTH_KEY="hunter2")
    assert (told.code, found.code, found.err) == (0, 0, "")
    assert found.json["good"] is True
    assert found.json["sells"] is False
    for words in ("[[sources]]", "probe.references", "no contact", "TOLLGAUGE_WATCH_KEY?"):
        assert any(words in warning for warning in found.json["warnings"]), words
        assert words in told.err
    assert "hunter2" not in told.out + told.err + found.out


def test_config_check_reads_another_file_and_the_environment(
    tollgauge: Command, tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text('[facilitator]\nurl = "https://f.example.com"\n')
    sells = tollgauge(
        "config",
        "check",
        "--config",
        "other.toml",
        TOLLGAUGE_SALE_PAY_TO=PAY_TO,
        TOLLGAUGE_FACILITATOR_HEADERS="Authorization: Bearer hunter2",
        DATABASE_URL="postgresql://me:hunter2@host/db",
    )
    assert sells.code == 0, sells.err
    assert "stores in postgresql, sells reports" in sells.out
    assert "hunter2" not in sells.out + sells.err
    assert "rpc.url is not set" in sells.err
    missing = tollgauge("config", "check", TOLLGAUGE_CONFIG="gone.toml")
    assert missing.code == 2
    assert "gone.toml cannot be read" in missing.err


def test_migrate_makes_the_database(tollgauge: Command, tmp_path: Path) -> None:
    for _ in range(2):
        done = tollgauge("migrate", DATABASE_URL=f"sqlite:///{tmp_path}/a/b.db")
        assert done.code == 0
        assert "up to date" in done.out
    assert tollgauge("migrate", "--json", DATABASE_URL=f"sqlite:///{tmp_path}/a/b.db").json[
        "version"
    ]
    assert (tmp_path / "a" / "b.db").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "The database URL cannot be read"),
        ("mysql://host/db", "No store speaks 'mysql'"),
        ("postgresql://u@127.0.0.1:port/db", "The database URL cannot be read"),
        ("postgresql://u@127.0.0.1:1/db", "no connection"),
        ("postgresql://u@127.0.0.1:1/db?sslmode=require", "no connection"),
        ("postgresql://u@127.0.0.1:1/db?junk=1", "unknown here: junk"),
        ("sqlite:////proc/no/such/place.db", "cannot be made"),
        ("sqlite:///file.txt/x.db", "cannot be made"),
        ("sqlite:///file.txt", "SQLITE_NOTADB"),
        ("sqlite:///folder", "SQLITE_CANTOPEN"),
    ],
)
def test_a_database_that_cannot_be_used_is_named(
    tollgauge: Command, tmp_path: Path, url: str, message: str
) -> None:
    (tmp_path / "file.txt").write_text("this is no database " * 100)
    (tmp_path / "folder").mkdir()
    done = tollgauge("migrate", DATABASE_URL=url)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 2, "what is wrong, and what to do"


def test_a_loop_that_does_not_exist_is_named(tollgauge: Command) -> None:
    for only, named in (("probe,nope", "nope"), ("discover", "discover")):
        done = tollgauge("work", "--only", only, DATABASE_URL="sqlite://")
        assert done.code == 2
        assert f"There is no loop named {named}." in done.err
        assert all(loop in done.err for loop in ("probe", "score", "prune"))


def test_a_command_that_does_not_exist_is_misuse(tollgauge: Command) -> None:
    for words in (
        ("nonsense",),
        ("lint",),
        ("demo", "--history-days", "91"),
        ("work", "--on", "x"),
    ):
        assert tollgauge(*words).code == 2


def test_help_names_every_command(tollgauge: Command) -> None:
    done = tollgauge("--help")
    assert done.code == 0
    for name in (
        *("run", "serve", "work", "demo", "probe", "lint", "score", "discover", "migrate"),
        *("trace", "mcp", "backup", "restore", "config", "bench", "payments", "watch"),
    ):
        assert f" {name} " in done.out


def test_help_loads_no_part_of_the_service() -> None:
    asked = "import sys, tollgauge.cli; print(*(m for m in sys.modules if m in sys.argv[1:]))"
    heavy = ("sqlalchemy", "fastapi", "pycurl", "httpx", "mcp", "tollgauge.app", "tollgauge.config")
    done = subprocess.run(
        [sys.executable, "-c", asked, *heavy], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.postgres
def test_a_copy_from_sqlite_is_restored_into_an_empty_postgresql_database(
    tollgauge: Command, tmp_path: Path, postgres: Postgres
) -> None:
    before = f"sqlite:///{tmp_path}/t.sqlite"
    tollgauge("migrate", DATABASE_URL=before)
    tollgauge("backup", "move.sqlite", DATABASE_URL=before)
    postgres.sql("CREATE DATABASE from_sqlite")
    after = postgres.url("from_sqlite")
    moved = tollgauge("restore", "move.sqlite", "--json", DATABASE_URL=after)
    assert (moved.code, moved.json["newest"]) == (0, True), moved.err
    again = tollgauge("restore", "move.sqlite", DATABASE_URL=after)
    assert (again.code, again.out) == (2, "")
    assert "goes into an empty one" in again.err


def test_a_copy_of_the_database_is_made_and_put_back(tollgauge: Command, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/t.sqlite"
    tollgauge("migrate", DATABASE_URL=database)
    made = tollgauge("backup", "copy.sqlite", "--json", DATABASE_URL=database)
    assert made.code == 0, made.err
    assert made.json["newest"] is True
    assert made.json["rows"]["payment"] == 0
    assert made.json["bytes"] == (tmp_path / "copy.sqlite").stat().st_size
    again = tollgauge("backup", "copy.sqlite", DATABASE_URL=database)
    assert (again.code, again.out) == (2, "")
    assert "add --force" in again.err
    put = tollgauge("restore", "copy.sqlite", "--json", DATABASE_URL=database)
    assert put.code == 0, put.err
    assert Path(put.json["replaced"]).is_file()
    (tmp_path / "letter").write_text("this is no database " * 100)
    bad = tollgauge("restore", "letter", DATABASE_URL=database)
    assert (bad.code, bad.out) == (1, "")
    assert "no whole SQLite database" in bad.err
    for url in ("sqlite://", "sqlite:///gone.sqlite"):
        gone = tollgauge("backup", "x.sqlite", DATABASE_URL=url)
        assert (gone.code, gone.out) == (2, "")
        assert not (tmp_path / "x.sqlite").exists()


def test_trace_names_the_variable_that_is_missing(tollgauge: Command) -> None:
    for network, named in (
        ("base-mainnet", "TOLLGAUGE_NETWORKS_BASE_MAINNET (or TOLLGAUGE_RPC_URL)"),
        ("polygon-mainnet", "TOLLGAUGE_NETWORKS_POLYGON_MAINNET to"),
    ):
        done = tollgauge("trace", "0x" + "ab" * 32, "--network", network)
        assert (done.code, done.out) == (2, "")
        assert f"No node of {network} is configured" in done.err
        assert named in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("mcp",),
        ("payments",),
        ("payments", "--books", "--json"),
        ("watch", "list"),
        ("watch", "show", "wat_1"),
        ("watch", "resend", "dlv_1"),
        ("backup", "copy.sqlite"),
    ],
)
def test_a_command_that_reads_makes_no_database(
    tollgauge: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = tollgauge(*words)
    assert (done.code, done.out) == (2, "")
    assert "There is no database tollgauge.sqlite" in done.err
    assert "store.url" in done.err
    named = tollgauge(*words, DATABASE_URL=f"sqlite:///{tmp_path}/far/away.db")
    assert (named.code, named.out) == (2, "")
    assert f"There is no database {tmp_path}/far/away.db" in named.err
    assert list(tmp_path.iterdir()) == []


def result_commands(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Every command that prints a result and needs nobody else's machine."""
    (tmp_path / "exchange.json").write_text(json.dumps(captured()))
    (tmp_path / "report.json").write_bytes(orjson.dumps(examples.trust_report()))
    (tmp_path / "tx.json").write_text('{"hash": "0x' + "ab" * 32 + '", "input": "0xa9059cbb"}')
    (tmp_path / "list.json").write_text('["https://api.example.com/paid"]')
    return {
        "migrate": ("migrate",),
        "lint": ("lint", "exchange.json"),
        "score": ("score", "report.json"),
        "trace": ("trace", "--tx", "tx.json"),
        "discover": ("discover", "list.json", "--name", "x"),
        "payments": ("payments",),
        "books": ("payments", "--books"),
        "watches": ("watch", "list"),
        "dead": ("watch", "list", "--dead"),
        "resend": ("watch", "resend", "dlv_1"),
        "config": ("config", "check"),
        "backup": ("backup", "copy.sqlite", "--force"),
        "restore": ("restore", "copy.sqlite"),
    }


def test_every_command_prints_text_unless_it_is_asked_for_json(
    tollgauge: Command, tmp_path: Path
) -> None:
    database = {"DATABASE_URL": f"sqlite:///{tmp_path}/t.sqlite"}
    for name, words in result_commands(tmp_path).items():
        told = tollgauge(*words, **database)
        assert told.out, name
        assert told.out[0] not in "{[", name
        for kept in tmp_path.glob("*.replaced-*"):
            kept.unlink()  # a second restore of the same second would not replace it
        asked = tollgauge(*words, "--json", **database)
        assert isinstance(asked.json, dict), name
        assert told.code in (0, 1), told.err
        assert (asked.code, asked.err) == (told.code, ""), name


def on_a_terminal(command: list[str], stream: str, **how: Any) -> bytes:
    """What a command prints where one of its streams is a terminal."""
    ours, theirs = os.openpty()
    subprocess.run(command, **{"stdout": subprocess.DEVNULL} | how | {stream: theirs}, check=True)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # what Linux says when the other end is closed
        while part := os.read(ours, 65_536):
            seen += part
    os.close(ours)
    return seen


def test_work_that_may_be_long_is_shown_on_a_terminal_alone(tmp_path: Path) -> None:
    settings = {"PATH": os.environ["PATH"], "TERM": "xterm", "DATABASE_URL": "sqlite://"}
    command = [TOLLGAUGE, "migrate"]
    seen = on_a_terminal(command, "stderr", cwd=tmp_path, env=settings)
    assert b"bringing the database up to date" in seen
    piped = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, check=True)
    assert piped.stderr == b""


def test_a_terminal_and_a_pipe_get_the_same(tmp_path: Path) -> None:
    (tmp_path / "exchange.json").write_text(json.dumps(captured()))
    for more in ((), ("--json",)):
        command = [TOLLGAUGE, "lint", "exchange.json", *more]
        piped = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
        seen = on_a_terminal(command, "stdout", cwd=tmp_path)
        assert seen.replace(b"\r\n", b"\n") == piped
        assert seen.startswith(b"{") is bool(more)


CAP_NET_BIND_SERVICE = 10
PR_CAPBSET_DROP = 24


def without_privileges() -> None:
    """In the child: root may then bind no more ports than anybody."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE)


def started(tmp_path: Path, *words: str, **changes: str) -> tuple[int, str, str]:
    """A command that should not come far: its exit code and what it printed."""
    folder = tmp_path / "-".join(words)
    folder.mkdir(exist_ok=True)
    settings = {"TOLLGAUGE_SERVER_PORT": "0", "TOLLGAUGE_SERVER_ADMIN_PORT": "0"}
    process = subprocess.Popen(
        [TOLLGAUGE, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"]} | settings | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=without_privileges,
    )
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert list(folder.iterdir()) == [], "nothing is made"
    return process.returncode, out, err


@pytest.fixture
def taken_port() -> Iterator[str]:
    """A port that another program listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


@pytest.mark.parametrize("command", ["run", "serve"])
@pytest.mark.parametrize("setting", ["port", "admin_port"])
def test_a_port_that_is_taken_is_one_line_and_nothing_is_made(
    tmp_path: Path, taken_port: str, command: str, setting: str
) -> None:
    code, out, err = started(
        tmp_path, command, **{f"TOLLGAUGE_SERVER_{setting.upper()}": taken_port}
    )
    assert (code, out) == (2, "")
    assert err == (
        f"tollgauge: Cannot listen on 127.0.0.1, port {taken_port}: another program listens "
        f"there; stop it, or set server.{setting} to another port.\n"
    )


def test_the_demo_says_that_its_port_is_taken_before_it_starts(
    tmp_path: Path, taken_port: str
) -> None:
    code, out, err = started(tmp_path, "demo", "--port", taken_port, "--folder", ".")
    assert (code, out) == (2, "")
    assert "another program listens there; stop it, or set --port to another port" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"TOLLGAUGE_SERVER_HOST": "192.0.2.1"}, "this machine has no such address"),
        ({"TOLLGAUGE_SERVER_HOST": "no.such.invalid"}, "this name has no address"),
        ({"TOLLGAUGE_SERVER_PORT": "443"}, "ports below 1024 need a privilege"),
    ],
)
def test_an_address_that_cannot_be_had_is_one_line(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    free_for_all = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if "TOLLGAUGE_SERVER_PORT" in changes and int(free_for_all.read_text()) <= 443:
        pytest.skip("on this machine everybody may listen on port 443")
    code, out, err = started(tmp_path, "serve", **changes)
    assert (code, out) == (2, "")
    assert message in err
    assert "server." in err
    assert len(err.splitlines()) == 1
