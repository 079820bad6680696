"""Results, exit codes and messages of `lint`, `score` and `probe`."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest
from tests.support.command_line import Command, captured_exchange
from tests.support.http_service import PAY_TO
from tests.support.lint_envelopes import change_example, encode_envelope
from tests.support.rated_endpoints import whole_report
from tests.support.tls_server import serve_documents

from docs.response_examples import sample_evidence
from tollgauge.cli.verify import _improvement_lines
from tollgauge.core.lint.rule import ANSWERS, RULE_ENTRIES
from tollgauge.core.score.evidence_document import digest as evidence_digest
from tollgauge.core.score.evidence_document import from_json, to_json
from tollgauge.core.score.improvement import Improvement
from tollgauge.web.wire.examples import read_example

GOOD = ANSWERS["v2"]


def test_lint_prints_terms_of_captured_exchange(tollgauge: Command, tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    path.write_text(json.dumps(captured_exchange()))
    done = tollgauge("lint", str(path), "--json")
    assert (done.code, done.err) == (0, "")
    assert set(done.json) == {
        *("payable", "payableBy", "compliant", "version", "findings", "terms", "envelope"),
    }
    assert done.json["payable"] is True
    assert done.json["version"] == 1
    (terms,) = done.json["terms"]
    assert terms["amount"] == "10000"
    assert terms["network"] == "eip155:8453"


def test_lint_exits_1_if_no_client_could_pay(tollgauge: Command, tmp_path: Path) -> None:
    path = tmp_path / "exchange.json"
    for exchange in (captured_exchange(maxAmountRequired="0.01"), {"status": 200, "headers": {}}):
        path.write_text(json.dumps(exchange))
        done = tollgauge("lint", str(path), "--json")
        assert done.code == 1
        assert done.json["payable"] is False
        for finding in done.json["findings"]:
            assert set(finding) == {"rule", "severity", "message", "where", "found", "expected"}


def test_lint_prints_errors_first_and_a_corrected_envelope(tollgauge: Command) -> None:
    wrong = change_example(
        change_example(GOOD, "resource.url", "/weather"), "accepts.0.amount", 0.01
    )
    done = tollgauge("lint", "-", stdin=(wrong.capture() or "").encode())
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines.index("payable   no") < lines.index(
        '      found 0.01 (JSON number), expected a string of atomic units: "10000"'
    )
    severities = [line.split()[0] for line in lines if line.startswith(("error", "warn"))]
    assert severities == ["error", "warn"]
    assert '>       "amount": 0.01,  <- amount-form' in lines
    better = done.out.partition("The corrected envelope")[2].partition("\n")[2]
    again = tollgauge("lint", "-", "--json", stdin=better.encode())
    assert (again.code, again.json["compliant"]) == (0, True)


def test_lint_prints_extensions_and_whether_they_are_evaluated(tollgauge: Command) -> None:
    builder = {"info": {"a": "bc_example"}, "schema": {}}
    example = change_example(ANSWERS["v2"], "extensions.builder-code", builder)
    done = tollgauge("lint", "-", stdin=(example.capture() or "").encode())
    assert "extension bazaar (evaluated)" in done.out.splitlines()
    assert "extension builder-code (recognised)" in done.out.splitlines()


def test_lint_reads_header_envelope_from_standard_input(tollgauge: Command) -> None:
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
def test_lint_reads_curl_output_and_windows_encodings(
    tollgauge: Command, tmp_path: Path, encoding: str, end: str
) -> None:
    text = CURL.replace("\n", end) + captured_exchange()["body"]
    (tmp_path / "curl.txt").write_bytes(text.encode(encoding))
    (tmp_path / "exchange.json").write_bytes(json.dumps(captured_exchange()).encode(encoding))
    for name in ("curl.txt", "exchange.json"):
        done = tollgauge("lint", name)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("payable   yes (TypeScript, Python)\n")
    from_pipe = tollgauge("lint", "-", "--json", stdin=text.encode(encoding))
    assert (from_pipe.code, from_pipe.json["payable"]) == (0, True)


def test_status_may_be_a_string(tollgauge: Command) -> None:
    exchange = captured_exchange() | {"status": "402"}
    done = tollgauge("lint", "-", stdin=json.dumps(exchange).encode())
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.json", None, "missing.json cannot be read"),
        ("broken.json", b"{", "broken.json: This is neither JSON"),
        ("empty.json", b" \n", "empty.json is empty"),
        ("head.txt", b"HTTP/1.1 402 X\r\nno colon\r\n\r\n", "head.txt: A line before the body"),
        ("half.txt", b"\xff\xfe{", "half.txt begins with a UTF-16 mark but is not UTF-16"),
        ("list.json", b"[]", "Expected `object`"),
        ("no-gzip.json.gz", b"{}", "cannot be read"),
        ("cut.json.gz", gzip.compress(b'{"status": 402}' * 50, mtime=0)[:40], "cannot be read"),
        ("deep.json", b"[" * 100_000, "This is neither JSON"),
        (".", None, ". cannot be read"),
    ],
)
def test_lint_exits_2_for_invalid_exchange(
    tollgauge: Command, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = tollgauge("lint", name)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_lint_of_empty_input_explains_how_to_see_the_cause(tollgauge: Command) -> None:
    done = tollgauge("lint", "-", stdin=b"")
    assert (done.code, done.out) == (2, "")
    assert "Standard input is empty." in done.err
    assert "`curl -i URL` prints why" in done.err


@pytest.mark.parametrize("url", ["http://localhost:3000/weather", "https://localhost:3000/weather"])
def test_lint_of_local_endpoint_explains_how_to_pipe_its_response(
    tollgauge: Command, url: str
) -> None:
    done = tollgauge("lint", url)
    assert (done.code, done.out) == (2, "")
    assert f"curl -si {url} | tollgauge lint -" in " ".join(done.err.split())


def test_lint_reads_bare_header_value_and_bare_envelope(tollgauge: Command) -> None:
    for text in (encode_envelope(GOOD.envelope), json.dumps(GOOD.envelope)):
        done = tollgauge("lint", "-", stdin=text.encode())
        assert (done.code, done.err) == (0, ""), done.err
        assert done.out.startswith("payable   yes (TypeScript, Python)\n")


@pytest.mark.parametrize(
    ("fail_on", "codes"),
    [
        ("never", (0, 0, 0, 0)),
        ("unpayable", (0, 0, 0, 1)),
        ("error", (0, 0, 1, 1)),
        ("warn", (0, 1, 1, 1)),
    ],
)
def test_lint_fails_on_the_chosen_severity(
    tollgauge: Command, tmp_path: Path, fail_on: str, codes: tuple[int, ...]
) -> None:
    rules = ("resource-url", "amount-zero", "amount-form")  # a warning, an error, unpayable
    examples = (GOOD, *(RULE_ENTRIES[rule].wrong for rule in rules))
    for example, code in zip(examples, codes, strict=True):
        path = tmp_path / "answer.http"
        path.write_text(example.capture() or "")
        assert tollgauge("lint", str(path), "--fail-on", fail_on).code == code


def test_lint_of_several_sources_prints_each_and_fails_if_one_fails(
    tollgauge: Command, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.http", tmp_path / "bad.http"
    good.write_text(GOOD.capture() or "")
    bad.write_text("HTTP/1.1 200 OK\r\n\r\n")
    done = tollgauge("lint", str(good), str(bad))
    assert done.code == 1
    assert done.out.index(str(good)) < done.out.index("payable   yes") < done.out.index(str(bad))
    both = tollgauge("lint", str(good), str(bad), "--json").json
    assert [one["payable"] for one in both] == [True, False]


def test_lint_annotations_cannot_be_forged_by_a_response(tollgauge: Command) -> None:
    network = "eip155:8453\n::error file=x::forged"
    forged = change_example(GOOD, "accepts.0.network", network)
    done = tollgauge("lint", "-", "--format", "github", stdin=(forged.capture() or "").encode())
    assert done.code == 1
    assert not [line for line in done.out.splitlines() if line.startswith("::error file=x")]
    assert "::error title=" in done.out


def test_lint_writes_sarif_with_rules_and_results(tollgauge: Command) -> None:
    wrong = change_example(GOOD, "accepts.0.amount", 0.01)
    done = tollgauge("lint", "-", "--format", "sarif", stdin=(wrong.capture() or "").encode())
    (run,) = done.json["runs"]
    assert done.json["version"] == "2.1.0"
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert rules[result["ruleIndex"]]["helpUri"].startswith("https://")
    assert "error" in {result["level"] for result in run["results"]}


def test_sarif_names_files_by_uri(tollgauge: Command, tmp_path: Path) -> None:
    file = tmp_path / "my response #1.json"
    file.write_text(change_example(GOOD, "accepts.0.amount", 0.01).capture() or "")
    (run,) = tollgauge("lint", str(file), "--format", "sarif").json["runs"]
    locations = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert {one["artifactLocation"]["uri"] for one in locations} == {
        f"{tmp_path}/my%20response%20%231.json"
    }


def test_lint_writes_junit_xml_that_any_response_leaves_valid(tollgauge: Command) -> None:
    wrong = change_example(GOOD, "accepts.0.network", "<a>\x01&")
    arguments = ("lint", "-", "--format", "junit", "--fail-on", "warn")
    done = tollgauge(*arguments, stdin=(wrong.capture() or "").encode())
    (suite,) = ET.fromstring(done.out.encode())
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert len(failed) == int(suite.get("failures", ""))
    assert failed[0] == "payable"


def test_lint_refuses_json_together_with_a_format(tollgauge: Command) -> None:
    done = tollgauge("lint", "-", "--json", "--format", "sarif", stdin=b"{}")
    assert (done.code, done.out) == (2, "")
    assert "--format cannot be used with --json" in done.err


@pytest.mark.parametrize("name", ["domain-wrong", "lint:domain-wrong"])
def test_lint_explains_a_rule(tollgauge: Command, name: str) -> None:
    done = tollgauge("lint", "--explain", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("domain-wrong (error; no client can pay)\n")
    for words in (
        "Fix: Write the EIP-712 domain",
        "EIP-712",
        "--- Wrong",
        "+++ Right",
        "FastAPI",
        "Hono",
    ):
        assert words in done.out
    document = tollgauge("lint", "--explain", name, "--json").json
    assert (document["rule"], document["severity"], document["fatal"]) == (
        "domain-wrong",
        "error",
        True,
    )
    checked = tollgauge("lint", "-", "--json", stdin=document["wrong"].encode())
    assert [finding["rule"] for finding in checked.json["findings"]] == ["domain-wrong"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--explain", "domain-wrng"), "Did you mean domain-wrong?"),
        (("--explain", "xyz"), "docs/lint-rules.md lists the rules"),
        ((), "Nothing to check."),
    ],
)
def test_lint_reports_unknown_rule(
    tollgauge: Command, arguments: tuple[str, ...], words: str
) -> None:
    done = tollgauge("lint", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.parametrize("url", ["https://localhost/", "https://127.0.0.1/x", "https://"])
def test_lint_and_probe_request_only_public_addresses(tollgauge: Command, url: str) -> None:
    for command in ("lint", "probe"):
        done = tollgauge(command, url)
        assert (done.code, done.out) == (2, "")
        assert "https://" in done.err


def test_score_recomputes_evidence_and_reports(tollgauge: Command, tmp_path: Path) -> None:
    report = whole_report()
    (tmp_path / "report.json").write_bytes(orjson.dumps(report))
    (tmp_path / "evidence.json").write_bytes(to_json(sample_evidence()))
    for name in ("report.json", "evidence.json"):
        done = tollgauge("score", name, "--json")
        assert (done.code, done.err) == (0, "")
        assert {"score", "grade", "stats", "flags", "policy"} < set(done.json)
        document = done.json
        claim = {"agrees": True, "differences": []} if name == "report.json" else None
        assert document.pop("claim", None) == claim
        raising = document.pop("improvements")
        assert raising == read_example("snapshot")["improvements"]
        lines = tollgauge("score", name).out
        assert "what would raise this score:" in lines
        assert all(f"({row['code']}): {row['fix']}" in lines for row in raising)
        for field, value in document.items():
            assert value == report[field], field
    as_text = tollgauge("score", "report.json")
    assert as_text.code == 0
    assert f"{report['score']} of 100" in as_text.out


@pytest.mark.parametrize(
    ("days", "words"),
    [(0, "with the next probe"), (1, "within 1 day"), (7, "within 7 days")],
)
def test_score_prints_days_until_the_score_rises(days: int, words: str) -> None:
    row = Improvement(
        code="uptime",
        fix="Answer every check.",
        points_tenths=12,
        score_tenths=840,
        grade="A",
        in_days=days,
    )
    _, line = _improvement_lines((row,))
    assert line == f"  +1.2 to 84.0 A {words} (uptime): Answer every check."


def test_score_does_not_claim_certainty(tollgauge: Command, tmp_path: Path) -> None:
    (tmp_path / "evidence.json").write_bytes(to_json(sample_evidence()))
    lines = tollgauge("score", "evidence.json").out.splitlines()
    assert "payable    99.9% in half an hour, 99.8% in 24 hours" in lines


def test_score_exits_1_if_the_recommendation_is_avoid(tollgauge: Command, tmp_path: Path) -> None:
    done = tollgauge("score", "-", "--json", stdin=orjson.dumps(dead_evidence()))
    assert done.code == 1, done.err
    assert done.json["recommendation"] in ("avoid", "not-payable")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "Standard input is not valid evidence: This is not"),
        (b"{}", "not valid evidence: 'anchors' is a required property"),
        (b'{"evidence": {}}', "not valid evidence at evidence.document: The report does"),
        (b'{"score": 99.9, "grade": "A"}', "at evidence.document: The report does not contain"),
        (b'{"score": 1, "evidence": {"digest": "00"}}', "The report does not contain its evidence"),
        (b"7", "not valid evidence: 7 is not of type 'object'"),
    ],
)
def test_score_exits_2_for_invalid_evidence(
    tollgauge: Command, content: bytes, message: str
) -> None:
    done = tollgauge("score", "-", stdin=content)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Give a whole trust report" in done.err


def forge_report(field: str, claimed: Any) -> tuple[bytes, Any]:
    """Return a report with one changed field, and the original value."""
    report = whole_report()
    *way, last = field.split("/")
    place = report
    for name in way:
        place = place[name]
    before, place[last] = place.get(last), claimed
    return orjson.dumps(report), before


def test_score_prints_claims_of_forged_report_and_recomputed_values(
    tollgauge: Command,
) -> None:
    text, before = forge_report("score", 99.9)
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
def test_score_exits_1_for_any_claim_that_contradicts_the_evidence(
    tollgauge: Command, field: str, claimed: Any
) -> None:
    text, before = forge_report(field, claimed)
    assert before != claimed, "the example must change"
    done = tollgauge("score", "-", stdin=text)
    assert (done.code, done.err) == (1, "")
    assert f"report claims {field.replace('/', '.')}" in done.out
    assert "they agree" not in done.out


def dead_evidence() -> dict[str, Any]:
    """Return evidence of an endpoint that never answered."""
    document: dict[str, Any] = orjson.loads(to_json(sample_evidence()))
    for day in document["days"]:
        day.update(up=0, compliant=0, payable=0, compliance=0, latency=[], latencySum=0)
        day["spans"].update(up=0, payable=0, down=86_400_000, compliance=0)
    for name in ("state", "last"):
        document[name] |= {"outcome": "timeout", "up": False, "payable": False}
    return document


def report_of_a_dead_endpoint(tollgauge: Command) -> dict[str, Any]:
    """Return an honest report whose recommendation is avoid."""
    document = dead_evidence()
    score = tollgauge("score", "-", "--json", stdin=orjson.dumps(document)).json
    assert score["recommendation"] == "avoid"
    report = whole_report()
    digest = evidence_digest(from_json(document))
    evidence = report["evidence"] | {"document": document, "digest": digest}
    verdict = {name: score[name] for name in ("recommendation", "reason")}
    computed = {"evidence": evidence, "verdict": verdict}
    honest: dict[str, Any] = report | score | computed
    return honest


def test_honest_report_with_avoid_is_not_forged(tollgauge: Command) -> None:
    report = report_of_a_dead_endpoint(tollgauge)
    done = tollgauge("score", "-", stdin=orjson.dumps(report))
    assert (done.code, done.err) == (0, ""), done.out


def test_omitted_flag_is_a_forgery(tollgauge: Command) -> None:
    report = report_of_a_dead_endpoint(tollgauge)
    done = tollgauge("score", "-", stdin=orjson.dumps(report | {"flags": {}}))
    assert done.code == 1
    assert report["flags"]
    for code in report["flags"]:
        assert f"report claims flags.{code} none, evidence gives" in done.out


def test_null_claim_is_compared(tollgauge: Command) -> None:
    text, before = forge_report("score", None)
    done = tollgauge("score", "-", stdin=text)
    assert done.code == 1
    assert f"report claims none, evidence gives {before}" in done.out


def test_texts_and_fields_without_evidence_are_not_claims(tollgauge: Command) -> None:
    report = whole_report()
    report |= {"advertisedBy": {"serviceName": "x", "description": "y"}, "added": "later"}
    for flag in [*report["flags"].values(), *report["flagsDetailed"]]:
        flag["message"] = "In the words of another version."
    del report["stats"], report["policy"]
    done = tollgauge("score", "-", stdin=orjson.dumps(report))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"report claims {report['score']}, evidence gives ")
    assert "they agree" in done.out


def test_score_detects_changed_evidence_by_its_digest(tollgauge: Command) -> None:
    report = whole_report()
    report["evidence"]["document"]["firstSeen"] -= 1
    done = tollgauge("score", "-", stdin=orjson.dumps(report))
    assert done.code == 1
    assert f"report claims evidence.digest {report['evidence']['digest']}, evidence" in done.out


@pytest.mark.parametrize(
    ("documents", "code", "words"),
    [
        ({"/evidence/x": to_json(sample_evidence())}, 0, "they agree"),
        ({}, 2, "answered 404"),
    ],
)
def test_score_fetches_evidence_of_a_short_report(
    tollgauge: Command, documents: dict[str, bytes], code: int, words: str
) -> None:
    report = read_example("trust_report") | {}
    with serve_documents(documents) as url:
        report["evidence"] = report["evidence"] | {"url": f"{url}/evidence/x"}
        done = tollgauge("score", "-", stdin=orjson.dumps(report))
    assert done.code == code
    assert words in done.out + done.err


def test_score_detects_fetched_evidence_with_another_digest(tollgauge: Command) -> None:
    other = replace(sample_evidence(), listed=False)
    report = read_example("trust_report") | {}
    with serve_documents({"/evidence/x": to_json(other)}) as url:
        report["evidence"] = report["evidence"] | {"url": f"{url}/evidence/x"}
        done = tollgauge("score", "-", stdin=orjson.dumps(report))
    assert done.code == 1
    assert "report claims evidence.digest" in done.out


def test_brackets_in_a_file_name_are_printed_literally(tollgauge: Command) -> None:
    assert (
        r"no\[bold]such[/].json cannot be read" in tollgauge("lint", r"no\[bold]such[/].json").err
    )
