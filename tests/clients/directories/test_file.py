"""Lists in files: JSON lines, Markdown, CSV, and unusable files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.support.directory import names, write

from tollgauge.clients.directories import file
from tollgauge.clients.directories.document import DirectoryError, parse_document
from tollgauge.core.directory.listing import ListedItem, read_item

TWO = ["https://a.dev/x", "https://b.dev/y"]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(TWO),
        json.dumps({"items": [{"url": url} for url in TWO]}),
        json.dumps({"resources": [{"resource": url} for url in TWO]}),
        gzip.compress(json.dumps({"resources": TWO}).encode(), mtime=0),
        b"\xef\xbb\xbf" + json.dumps(TWO).encode(),
        "\n".join(json.dumps({"resource": url}) for url in TWO),
        "# my list\n\nhttps://a.dev/x\r\n  https://b.dev/y  \n",
        "name,url,method\nA,https://a.dev/x,GET\nB,https://b.dev/y,post\n",
        'resource,description\nhttps://a.dev/x,"one, two"\n"https://b.dev/y",z\n',
        "https://a.dev/x,comment\nhttps://b.dev/y,other\n",
    ],
)
def test_format_is_detected_by_content_not_by_name(tmp_path: Path, content: bytes | str) -> None:
    path = write(tmp_path / "anything.bin", content)
    assert names(path) == TWO
    assert file.read(path).complete is True


@pytest.mark.parametrize(
    "content",
    [
        "- [A](https://a.dev/x) does A\n- [B](https://b.dev/y)\n",
        "# Paid APIs\n\nSome words.\n\n* https://a.dev/x\n* `GET https://b.dev/y`.\n",
        "| name | url |\n|---|---|\n| A | https://a.dev/x |\n| B | [B](https://b.dev/y) |\n",
        "1. ![logo](https://img.dev/l.png) [A](https://a.dev/x)\n2. <https://b.dev/y>\n",
        "[A](https://a.dev/x)\n```\ncurl https://c.dev/z\n- https://d.dev/\n```\n+ https://b.dev/y\n",
    ],
)
def test_markdown_list_is_read_by_its_links(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "list.md", content)
    assert names(path) == TWO
    assert file.read(path).complete is True


def test_markdown_link_gives_name_and_its_line_gives_method(tmp_path: Path) -> None:
    path = write(tmp_path / "l.md", "| [Desk](https://a.dev/x) | POST | $0.01 |\n")
    item = read_item(next(iter(file.read(path).items)))
    assert isinstance(item, ListedItem)
    assert (item.method, item.service_name) == ("POST", "Desk")


@pytest.mark.parametrize(
    "content", ["name,price\nA,0.01\nB,0.02\n", "name;price\nA;1\n", "name\tprice\nA\t1\n"]
)
def test_csv_without_a_url_column_is_rejected_with_its_columns(
    tmp_path: Path, content: str
) -> None:
    with pytest.raises(DirectoryError, match=r"without a URL column.*: name, price"):
        file.read(write(tmp_path / "l.csv", content))


def test_csv_may_use_semicolons_and_a_links_column(tmp_path: Path) -> None:
    path = write(tmp_path / "l.csv", "name;link\nA;https://a.dev/x\nB;https://b.dev/y\n")
    assert names(path) == TWO


def test_csv_columns_reach_the_entry(tmp_path: Path) -> None:
    path = write(tmp_path / "l.csv", "url,method,service,tags\nhttps://a.dev/x,post,Desk,a|b\n")
    item = read_item(next(iter(file.read(path).items)))
    assert isinstance(item, ListedItem)
    assert (item.method, item.service_name, item.tags) == ("POST", "Desk", ("a", "b"))


def test_broken_line_is_a_skipped_entry_with_a_reason(tmp_path: Path) -> None:
    path = write(tmp_path / "l.jsonl", '{"url":"https://a.dev/x"}\n{"url":\n{}\n')
    assert names(path) == ["https://a.dev/x", "unreadable", "no-resource"]


@pytest.mark.parametrize(
    ("document", "complete"),
    [
        ({"resources": TWO, "total": 2, "partial": False}, True),
        ({"resources": TWO, "total": 2, "partial": True}, False),
        ({"resources": TWO, "total": 3, "partial": False}, False),
        ({"items": TWO, "pagination": {"total": 40}}, False),
        ({"items": TWO}, True),
    ],
)
def test_file_reports_whether_it_is_complete(
    tmp_path: Path, document: object, complete: object
) -> None:
    assert file.read(write(tmp_path / "f.json", json.dumps(document))).complete is complete


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no entries"),
        (b"# nothing\n", "no entries"),
        (b"{x", "not JSON"),
        (b"[" * 100_000, "nested"),
        (b'{"a":1}', "no list"),
        (gzip.compress(b"[]", mtime=0)[:-6], "gzip"),
        (b"\x1f\x8b" + b"x" * 50, "gzip"),
        (gzip.compress(b" " * 3_000_000, mtime=0), "more than"),
    ],
)
def test_unsupported_file_is_rejected_with_a_reason(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(DirectoryError, match=message):
        file.read(write(tmp_path / "f", content), size_max=1_000_000)


def test_missing_file_or_folder_is_rejected_with_a_reason(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DirectoryError, match="cannot be read"):
            file.read(path)


async def test_large_file_is_read_in_steps_and_an_empty_one_in_one(tmp_path: Path) -> None:
    path = write(tmp_path / "f.json", json.dumps([f"https://s{n}.dev/" for n in range(2_001)]))
    steps = [step async for step in file.steps(file.read(path))]
    assert [(len(s.page.items), s.next_offset, s.page.complete) for s in steps] == [
        (1_000, 1_000, None),
        (1_000, 2_000, None),
        (1, 2_001, True),
    ]
    empty = [step async for step in file.steps(file.read(write(tmp_path / "e.json", "[]")))]
    assert [len(step.page.items) for step in empty] == [0]


def test_invalid_json_that_is_common_is_still_read() -> None:
    odd = b'{"a":NaN,"b":"\\ud800","c":%s,"d":"\xff"}' % (b"9" * 5_000)
    value = parse_document(odd)
    assert isinstance(value, dict)
    assert value["b"] == "\ud800"
    assert value["c"] == float("inf")


LONG = [f"https://s{n}.dev/x" for n in range(300)]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"items": [], "meta": {"a": [1]}, "resources": LONG}),
        json.dumps({"services": ["https://other.dev/"], "resources": LONG}),
        json.dumps({"origins": {"https://other.dev/": {}}, "resources": LONG}),
        json.dumps({"resources": [f"/{n}" for n in range(300)], "baseUrl": "https://base.dev/"}),
        "\n".join(json.dumps({"url": url}) for url in LONG),
    ],
    ids=["empty-first", "first-name", "named-later", "paths", "lines"],
)
def test_second_reading_of_a_long_list_gives_the_same_entries(tmp_path: Path, content: str) -> None:
    listed = file.read(write(tmp_path / "f", content))
    assert (listed.count, listed.complete) == (300, True)
    read = [read_item(item) for item in listed.items]
    assert read == [read_item(item) for item in listed.items]
    hosts = {item.resource.host for item in read if isinstance(item, ListedItem)}
    assert hosts == ({"base.dev"} if "base.dev" in content else {f"s{n}.dev" for n in range(300)})


def test_entries_of_a_group_are_counted_separately(tmp_path: Path) -> None:
    service = {"name": "Desk", "baseUrl": "https://a.dev", "endpoints": ["/x", "/y"]}
    listed = file.read(write(tmp_path / "f", json.dumps({"services": [service], "total": 2})))
    assert (listed.count, listed.complete) == (2, True)
    urls = [item["resource"] for item in listed.items if isinstance(item, dict)]
    assert urls == ["https://a.dev/x", "https://a.dev/y"]


async def test_file_that_changed_after_counting_is_not_read_further(tmp_path: Path) -> None:
    path = write(tmp_path / "f.json", json.dumps(LONG))
    listed = file.read(path)
    write(path, json.dumps(LONG[:200]))
    with pytest.raises(DirectoryError, match="changed while it was read"):
        [step async for step in file.steps(listed)]


CUT = """{"items": [
{"resource": "https://a.dev/1"},
{"resource": "https://a.dev/2"},
{"resource": "https://a.dev/3", "description": "one, "two"}]}"""


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (CUT[: CUT.index("one")], 4),
        (CUT[: CUT.index("https://a.dev/3")] + "\n", 4),
        (CUT[: CUT.index('{"resource": "https://a.dev/3"')], 3),
        ('["https://a.dev/1",\n"https://a.dev/2", "https:', 2),
        ('["https://a.dev/1",\n\n"https://a.dev/2", "\\u00', 3),
        ('{"routes": {"https://a.dev/1": {},\n"https://a.dev/2": {}, "https://a.dev/3": {', 2),
        ('{"items": ["https://a.dev/1",\n"https://a.dev/2"], "total": 3, "meta": nul', 2),
    ],
)
def test_complete_entries_of_truncated_json_are_listed(
    tmp_path: Path, content: str, line: int
) -> None:
    path = write(tmp_path / "f.json", content)
    listed = file.read(path)
    assert f"ends early at line {line}." in listed.problem
    assert (listed.count, listed.complete) == (2, False)
    assert names(path) == ["https://a.dev/1", "https://a.dev/2"]


def test_complete_operations_of_a_truncated_openapi_document_are_listed(tmp_path: Path) -> None:
    document = """{"openapi": "3.1.0", "servers": [{"url": "https://a.dev"}], "paths": {
"/1": {"get": {"x-payment-info": {"price": "1"}}},
"/2": {"get": {"x-payment-info": {"pri"""
    path = write(tmp_path / "openapi.json", document)
    assert "ends early at line 3." in file.read(path).problem
    assert names(path) == ["https://a.dev/1"]


@pytest.mark.parametrize(
    "content", ["{", '{"items":', '[{"resource": "https://a.dev/1"', '{"openapi": "3.1.0", "pat']
)
def test_json_truncated_before_its_first_entry_is_rejected(tmp_path: Path, content: str) -> None:
    with pytest.raises(DirectoryError, match=r"ends early at line 1\."):
        file.read(write(tmp_path / "f.json", content))


@pytest.mark.parametrize("content", [CUT, json.dumps({"items": LONG})[:-2] + "}}"])
def test_list_that_is_broken_inside_is_rejected_before_anything_is_recorded(
    tmp_path: Path, content: str
) -> None:
    with pytest.raises(DirectoryError, match="not JSON"):
        file.read(write(tmp_path / "f.json", content))


def test_first_line_too_long_for_a_csv_header_is_plain_text(tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", "x" * 200_000 + "\nhttps://a.dev/x\n")
    assert names(path)[1:] == ["https://a.dev/x"]
