"""`tollgauge discover` with files: sources, detected changes and messages."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.recorded import FOLDER, needs_recorded_inputs

from tollgauge import cli

USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
ONE, OTHER = "0x" + "1" * 40, "0x" + "2" * 40
SERIES = FOLDER / "uptime-series"


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


class DiscoverCommand:
    """The command line in its own folder, and the events in its database."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def discover(self, *words: str) -> Done:
        sys.argv = ["tollgauge", "discover", *words]
        with pytest.raises(SystemExit) as ended:
            cli.main()
        output = self._capsys.readouterr()
        return Done(int(str(ended.value.code or 0)), output.out, output.err)

    def write(self, name: str, content: object) -> str:
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)
        return name

    def events(self, columns: str = "event") -> list[Any]:
        with sqlite3.connect(self.folder / "d.db") as database:
            rows = database.execute(f"SELECT {columns} FROM discovery_event ORDER BY id")
            return [row[0] if len(row) == 1 else row for row in rows]

    def endpoints(self) -> int:
        with sqlite3.connect(self.folder / "d.db") as database:
            return int(database.execute("SELECT count(*) FROM endpoint").fetchone()[0])


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> DiscoverCommand:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/d.db")
    return DiscoverCommand(tmp_path, capsys)


def entry(number: int, *, amount: str | None = "1000", pay_to: str = ONE) -> dict[str, Any]:
    terms = {"scheme": "exact", "network": "eip155:8453", "asset": USDC, "payTo": pay_to}
    if amount is not None:
        terms["amount"] = amount
    url = f"https://s{number}.dev/x"
    return {"resource": url, "type": "http", "x402Version": 2, "accepts": [terms]}


FOUR: list[list[dict[str, Any]]] = [
    [entry(n) for n in range(10)],
    [entry(n) for n in range(8)] + [entry(20)],
    [entry(n) for n in range(1, 9)] + [entry(0, amount="2000"), entry(20)],
    [entry(n) for n in range(10) if n != 1] + [entry(1, pay_to=OTHER), entry(20)],
]
"""Four crawls of one directory. In the second, 8 and 9 are gone; in the third, 8 is back and 0
costs more; in the fourth, 9 is back, 0 has its old price, and 1 has another payee.
"""
TOLD = Counter({"listed": 11, "delisted": 2, "relisted": 2, "price-changed": 2, "payto-changed": 1})


def crawl(number: int, **fields: Any) -> dict[str, Any]:
    return {"x402Version": 2, "items": FOUR[number - 1]} | fields


def dated_crawl(number: int) -> dict[str, Any]:
    """Return a crawl that states its origin and time."""
    taken = f"2026-0{number}-01T00:00:00Z"
    return crawl(number, meta={"facilitatorUrl": "https://dir.dev/x402", "generatedAt": taken})


def test_four_crawls_of_named_directory_record_every_change(command: DiscoverCommand) -> None:
    for number in (1, 2, 3, 4):
        path = command.write(f"crawl-{number}.json", dated_crawl(number))
        done = command.discover(path, "--json")
        assert (done.code, done.json["source"]) == (0, "dir.dev"), done.err
    assert Counter(command.events()) == TOLD
    at = command.events("event, at")
    assert next(when for event, when in at if event == "delisted") == 1_769_904_000_000  # February


def test_crawls_in_one_command_are_read_oldest_first(
    command: DiscoverCommand,
) -> None:
    paths = [command.write(f"{5 - number}.json", dated_crawl(number)) for number in (3, 1, 4, 2)]
    done = command.discover(*paths, "--json")
    assert done.code == 0, done.err
    assert [tally["source"] for tally in done.json] == ["dir.dev"] * 4
    assert Counter(command.events()) == TOLD


def test_crawls_without_origin_are_one_source_if_named(
    command: DiscoverCommand,
) -> None:
    paths = [command.write(f"crawl-{number}.json", crawl(number)) for number in (1, 2, 3, 4)]
    done = command.discover(*paths, "--name", "dir")
    assert done.code == 0, done.err
    assert Counter(command.events()) == TOLD
    assert done.out.count("source     dir\n") == 4


def test_similar_files_are_not_loaded_without_a_name(
    command: DiscoverCommand,
) -> None:
    paths = [command.write(f"crawl-{number}.json", crawl(number)) for number in (1, 2, 3, 4)]
    asked = command.discover(*paths)
    assert (asked.code, asked.out) == (2, "")
    assert "crawl-1.json and crawl-2.json look like crawls of one directory" in asked.err
    assert "--name crawl" in asked.err
    assert command.events() == []
    assert command.discover(*paths, "--name", "crawl").code == 0
    assert Counter(command.events()) == TOLD


def test_file_similar_to_known_directory_requires_a_name(
    command: DiscoverCommand,
) -> None:
    assert command.discover(command.write("crawl-1.json", crawl(1))).code == 0
    second = command.write("crawl-2.json", crawl(2))
    asked = command.discover(second, "--json")
    assert (asked.code, asked.out) == (2, "")
    assert "the source file:crawl-1.json" in asked.err
    assert "8 of its 9 endpoints" in asked.err
    assert "--name file:crawl-1.json" in asked.err
    assert Counter(command.events()) == {"listed": 10}
    known = command.discover(second, "--name", "file:crawl-1.json", "--json")
    assert known.json["events"] == {"listed": 1, "delisted": 2}


def test_similar_file_with_its_own_name_is_another_directory(command: DiscoverCommand) -> None:
    command.discover(command.write("crawl-1.json", crawl(1)))
    done = command.discover(command.write("crawl-2.json", crawl(2)), "--name", "another", "--json")
    assert (done.code, done.json["events"]) == (0, {"listed": 1})


def test_files_of_different_directories_need_no_name(command: DiscoverCommand) -> None:
    one = command.write("one.json", {"items": [entry(n) for n in range(10)]})
    two = command.write("two.json", {"items": [entry(n) for n in range(9, 30)]})
    done = command.discover(one, two, "--json")
    assert done.code == 0, done.err
    assert [tally["source"] for tally in done.json] == ["file:one.json", "file:two.json"]
    assert Counter(command.events()) == {"listed": 30}


def test_file_of_known_name_without_common_endpoints_requires_a_name(
    command: DiscoverCommand,
) -> None:
    command.discover(command.write("a/list.json", {"items": [entry(n) for n in range(4)]}))
    again = command.write("b/list.json", {"items": [entry(n) for n in range(4, 8)]})
    asked = command.discover(again)
    assert asked.code == 2
    assert "contains none of the 4 endpoints that file:list.json lists" in asked.err
    assert Counter(command.events()) == {"listed": 4}


def test_file_older_than_last_crawl_is_rejected(command: DiscoverCommand) -> None:
    command.discover(command.write("new.json", dated_crawl(2)))
    asked = command.discover(command.write("old.json", dated_crawl(1)))
    assert asked.code == 2
    assert "2026-01-01" in asked.err
    assert "2026-02-01" in asked.err
    assert "oldest first" in asked.err
    assert Counter(command.events()) == {"listed": 9}


def test_crawl_that_shrank_by_half_is_suspicious_until_a_second_agrees(
    command: DiscoverCommand,
) -> None:
    def load(*numbers: int) -> Done:
        path = command.write("list.json", {"items": [entry(n) for n in numbers]})
        return command.discover(path, "--name", "dir", "--json")

    assert load(*range(20)).json["complete"] is True
    first = load(*range(9)).json
    assert (first["complete"], first["suspicious"], first["delisted"]) == (False, True, 0)
    assert "lists 9 endpoints, the last complete crawl listed 20" in first["problem"]
    assert load(*range(3)).json["suspicious"] is True  # much less again: no agreement
    assert load(*range(11, 14)).json["suspicious"] is True  # the same number, but other endpoints
    again = load(*range(11, 15)).json
    assert (again["complete"], again["suspicious"], again["delisted"]) == (True, False, 16)
    document = load(*range(11, 15), 30).json
    assert (document["complete"], document["events"]) == (True, {"listed": 1})


def test_same_file_does_not_confirm_itself(command: DiscoverCommand) -> None:
    for count, code in ((20, 0), (9, 1), (9, 2)):
        path = command.write("list.json", {"items": [entry(n) for n in range(count)]})
        done = command.discover(path, "--name", "dir")
        assert done.code == code
    assert "does not confirm" in done.err
    assert "delisted" not in command.events()


def test_accept_shrink_confirms_a_smaller_directory(command: DiscoverCommand) -> None:
    for count, words, code in (
        (20, (), 0),
        (3, (), 1),
        (3, (), 2),
        (0, ("--accept-shrink",), 1),
        (3, ("--accept-shrink",), 0),
    ):
        path = command.write("list.json", {"items": [entry(n) for n in range(count)]})
        done = command.discover(path, "--name", "dir", *words)
        assert done.code == code, done.err
        assert ("--accept-shrink" in done.err) is (code == 2 or (count, code) == (3, 1))
    assert Counter(command.events()) == {"listed": 20, "delisted": 17}
    assert command.discover(path, "--name", "dir").code == 0  # the file is no longer suspicious


def test_accept_shrink_confirms_the_first_smaller_crawl(command: DiscoverCommand) -> None:
    for count, words in ((20, ()), (3, ("--accept-shrink",))):
        path = command.write("list.json", {"items": [entry(n) for n in range(count)]})
        assert command.discover(path, "--name", "dir", *words).code == 0
    assert Counter(command.events()) == {"listed": 20, "delisted": 17}


def test_half_of_a_directory_may_leave_in_one_crawl(command: DiscoverCommand) -> None:
    for count, delisted in ((20, 0), (10, 10)):
        path = command.write("list.json", {"items": [entry(n) for n in range(count)]})
        done = command.discover(path, "--json")
        assert (done.code, done.json["delisted"]) == (0, delisted)


def test_recovered_directory_is_compared_with_last_complete_crawl(
    command: DiscoverCommand,
) -> None:
    for count, code in ((20, 0), (9, 1), (20, 0), (9, 1)):
        path = command.write("list.json", {"items": [entry(n) for n in range(count)]})
        assert command.discover(path).code == code
    assert "delisted" not in command.events()


def test_suspicious_crawl_is_reported_in_text(command: DiscoverCommand) -> None:
    for count in (20, 3):
        path = command.write("list.json", {"items": [entry(n) for n in range(count)]})
        done = command.discover(path)
    assert done.code == 1
    assert "Suspicious" in done.err
    assert "until a second crawl agrees" in done.err


@pytest.mark.parametrize("first", ["1000", None])
def test_changed_payee_is_recorded_if_the_entry_has_no_amount(
    command: DiscoverCommand, first: str | None
) -> None:
    for amount, pay_to in ((first, ONE), (None, OTHER)):
        path = command.write("list.json", {"items": [entry(1, amount=amount, pay_to=pay_to)]})
        assert command.discover(path).code == 0
    assert command.events("event, before, after") == [
        ("listed", "", ""),
        ("payto-changed", ONE, OTHER),
    ]


def test_skipped_entries_are_counted_with_reason_and_examples(
    command: DiscoverCommand,
) -> None:
    bad = [f"ftp://h{n}.dev/" for n in range(5)]
    path = command.write("list.json", {"items": [entry(1), *bad, 7]})
    document = command.discover(path, "--json").json
    assert document["skipped"] == {"scheme-not-http": 5, "not-an-object": 1}
    assert document["examples"]["scheme-not-http"] == bad[:3]
    text = command.discover(path).out
    assert "5 scheme-not-http: a scheme other than https (ftp://h0.dev/, ftp://h1.dev/" in text


def test_only_one_directory_is_queried_per_command(command: DiscoverCommand) -> None:
    asked = command.discover("https://a.dev/", "https://b.dev/")
    assert asked.code == 2
    assert "Several URLs cannot be combined" in asked.err


@needs_recorded_inputs
def test_real_snapshots_of_one_directory_change_over_time(
    command: DiscoverCommand,
) -> None:
    paths = [str(path) for path in sorted(SERIES.glob("*.json.gz"))[8:88:8]]
    read = command.discover(*paths, "--json").json
    assert {tally["source"] for tally in read} == {"api.cdp.coinbase.com"}
    kinds = Counter(command.events())
    assert min(kinds["listed"], kinds["delisted"], kinds["relisted"]) > 20
    assert kinds["listed"] == command.endpoints()
