"""`tollgauge verify`: genuine, changed and unverifiable documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.command_line import Command, Done
from tests.support.rated_endpoints import whole_report
from tests.support.signing import KEY, OTHER_KEY
from tests.support.tls_server import serve_documents

from docs.response_examples import sample_evidence
from tollgauge.core.sale.signature import PublicKey, SigningKey, Typ
from tollgauge.core.score.evidence_document import to_json
from tollgauge.web.wire.examples import read_example

CASES = Path(__file__).resolve().parents[2] / "guard" / "cases"
NOW = 1_795_000_000_000
SIGNED_AT = "2026-11-18 11:06:40 UTC"
JWKS = "/.well-known/jwks.json"
PUBLIC = json.dumps(KEY.public.jwk)
BOUND = {"requestDigest": "ab" * 32, "payer": "0x" + "1" * 40, "nonce": "0x" + "2" * 64}


def key_set(*keys: PublicKey) -> bytes:
    return orjson.dumps({"keys": [{"kty": "EC", "crv": "P-256"}, *(key.jwk for key in keys)]})


@pytest.fixture(scope="module")
def documents() -> dict[str, bytes]:
    return {JWKS: key_set(OTHER_KEY.public, KEY.public), "/evidence/x": evidence()}


@pytest.fixture(scope="module")
def service(documents: dict[str, bytes]) -> Iterator[str]:
    """Serve only the keys of a service and one piece of evidence."""
    with serve_documents(documents) as url:
        yield url


def evidence() -> bytes:
    return to_json(sample_evidence())


def full_report() -> Any:
    return whole_report()


def save(
    document: Any,
    *,
    typ: Typ = "tollgauge-report",
    key: SigningKey = KEY,
    bound: Mapping[str, str] | None = None,
) -> None:
    """Write a document and its signature into this folder, as `tollgauge buy` does."""
    body = orjson.dumps(document)
    Path("report.json").write_bytes(body + b"\n")
    Path("report.json.jws").write_text(key.sign(body, typ, NOW, **(bound or {})) + "\n")


def read_checks(done: Done) -> dict[str, bool | None]:
    return {check["name"]: check["passed"] for check in done.json["checks"]}


def reason(done: Done, name: str) -> str:
    (words,) = (check["reason"] for check in done.json["checks"] if check["name"] == name)
    return str(words)


def test_genuine_report_passes_every_check_offline(tollgauge: Command) -> None:
    save(full_report(), bound=BOUND)
    done = tollgauge("verify", "report.json", "--key", PUBLIC)

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"key        yes {KEY.fingerprint} of --key",
        f"time       yes signed {SIGNED_AT}, when the key was valid",
        "signature  yes of this tollgauge-report",
        "evidence   yes it matches the report's digest",
        "score      yes it follows from the evidence",
        f"sale           nonce {BOUND['nonce']}",
        f"sale           payer {BOUND['payer']}",
        f"sale           requestDigest {BOUND['requestDigest']}",
        "report.json is authentic",
    ]


def test_json_output_has_the_same_result(tollgauge: Command) -> None:
    save(full_report(), bound=BOUND)
    done = tollgauge("verify", "report.json", "--key", PUBLIC, "--json")

    assert done.code == 0
    assert done.json["good"] is True
    assert done.json["typ"] == "tollgauge-report"
    assert (done.json["kid"], done.json["signedAt"]) == (KEY.fingerprint, NOW // 1000)
    assert done.json["sale"] == BOUND
    names = ("key", "time", "signature", "evidence", "score")
    assert read_checks(done) == dict.fromkeys(names, True)


def test_changed_report_fails_verification(tollgauge: Command) -> None:
    save(full_report())
    changed = full_report()
    changed["score"] = 99.9
    Path("report.json").write_bytes(orjson.dumps(changed))
    done = tollgauge("verify", "report.json", "--key", PUBLIC)

    assert done.code == 1
    assert "signature  no  not that of this file" in done.out
    assert "score      no  the evidence gives another score" in done.out
    assert "report.json cannot be trusted" in done.out


def test_signed_report_with_wrong_score_fails_the_score_check(
    tollgauge: Command,
) -> None:
    wrong = full_report()
    wrong["score"] = 99.9
    save(wrong)
    done = tollgauge("verify", "report.json", "--key", PUBLIC, "--json")

    assert done.code == 1
    assert read_checks(done)["signature"] is True
    assert read_checks(done)["evidence"] is True
    assert read_checks(done)["score"] is False
    assert reason(done, "score") == "the evidence gives another score"


def test_changed_evidence_does_not_match_its_digest(
    tollgauge: Command,
) -> None:
    wrong = full_report()
    wrong["evidence"]["document"]["firstSeen"] -= 1
    save(wrong)
    done = tollgauge("verify", "report.json", "--key", PUBLIC, "--json")

    assert done.code == 1
    assert read_checks(done)["evidence"] is False
    assert "evidence.digest" in reason(done, "evidence")


def test_evidence_of_short_report_is_fetched_from_the_service(
    tollgauge: Command, service: str
) -> None:
    short = read_example("trust_report")
    save(short | {"evidence": short["evidence"] | {"url": f"{service}/evidence/x"}})

    online = tollgauge("verify", "report.json", "--url", service, "--json")
    offline = tollgauge("verify", "report.json", "--key", PUBLIC, "--json")

    assert (online.code, offline.code) == (0, 0)
    assert set(read_checks(online).values()) == {True}
    assert f"{service}{JWKS}" in reason(online, "key")
    assert read_checks(offline)["evidence"] is None
    assert reason(offline, "evidence") == f"it is not in the report, but at {service}/evidence/x"


def test_evidence_url_of_unsigned_report_is_not_fetched(tollgauge: Command, service: str) -> None:
    short = read_example("trust_report")
    save(short)
    short = short | {"evidence": short["evidence"] | {"url": "http://127.0.0.1:9/trap"}}
    Path("report.json").write_bytes(orjson.dumps(short))
    done = tollgauge("verify", "report.json", "--url", service, "--json")

    assert done.code == 1
    assert read_checks(done)["signature"] is False
    assert read_checks(done)["evidence"] is None


def test_unavailable_evidence_leaves_the_score_unverified(tollgauge: Command, service: str) -> None:
    short = read_example("trust_report")
    save(short | {"evidence": short["evidence"] | {"url": f"{service}/evidence/gone"}})
    done = tollgauge("verify", "report.json", "--url", service)

    assert done.code == 2
    assert "signature  yes" in done.out
    assert f"evidence   ?   {service}/evidence/gone answered 404. Evidence is kept" in done.out
    assert "has a valid signature, but not every check could be made" in done.out


def test_snapshot_is_verified_as_a_snapshot(tollgauge: Command, service: str) -> None:
    save(read_example("snapshot"), typ="tollgauge-snapshot")
    done = tollgauge("verify", "report.json", TOLLGAUGE_URL=service)

    assert done.code == 0
    assert "signature  yes of this tollgauge-snapshot" in done.out
    assert "evidence" not in done.out


def test_reports_of_a_preview_are_verified_separately(tollgauge: Command) -> None:
    rows = [{"role": role, "report": full_report()} for role in ("best", "worst")]
    rows[1]["report"]["grade"] = "F"
    save({"samples": rows})
    done = tollgauge("verify", "report.json", "--key", PUBLIC, "--json")

    assert done.code == 1
    assert (read_checks(done)["score 1"], read_checks(done)["score 2"]) == (True, False)
    assert (read_checks(done)["evidence 1"], read_checks(done)["evidence 2"]) == (True, True)


def test_bundle_is_verified_with_its_response_headers(tollgauge: Command) -> None:
    body = b"\x28\xb5\x2f\xfd" + bytes(range(256))
    signature = KEY.sign(body, "tollgauge-bundle", NOW)
    Path("bundle.zst").write_bytes(body)
    earlier = "HTTP/1.1 200 Connection established\r\nTollgauge-Signature: old\r\n\r\n"
    now = f"HTTP/1.1 200 OK\r\nETag: x\r\ntollgauge-signature: {signature}\r\n\r\n"
    Path("headers.txt").write_text(earlier + now, newline="")
    words = ("verify", "bundle.zst", "--headers", "headers.txt", "--key", PUBLIC)

    genuine = tollgauge(*words)
    Path("bundle.zst").write_bytes(body + b"\0")
    changed = tollgauge(*words)

    assert (genuine.code, changed.code) == (0, 1)
    assert "signature  yes of this tollgauge-bundle" in genuine.out


def test_bundle_signed_by_another_program_is_verified(tollgauge: Command) -> None:
    """Uses the guards' sample, which was not signed with tollgauge's code."""
    Path("key.json").write_text(json.dumps(json.loads((CASES / "bundle.json").read_text())["key"]))
    done = tollgauge("verify", str(CASES / "bundle.zst"), "--key", "key.json", "--json")

    assert done.code == 0
    assert done.json["typ"] == "tollgauge-bundle"
    assert set(read_checks(done).values()) == {True}


def test_key_may_be_a_file_and_signature_an_option(tollgauge: Command) -> None:
    body = orjson.dumps(full_report())
    signature = KEY.sign(body, "tollgauge-report", NOW)
    Path("key.json").write_text(PUBLIC)
    Path("keys.json").write_bytes(key_set(OTHER_KEY.public, KEY.public))

    for file in ("key.json", "keys.json"):
        words = ("verify", "-", "--signature", signature, "--key", file)
        done = tollgauge(*words, stdin=body)
        assert done.code == 0, done.err
        assert "standard input is authentic" in done.out


def test_fingerprint_pins_one_key_of_the_service(tollgauge: Command, service: str) -> None:
    save(full_report())
    Path("fingerprint").write_text(KEY.fingerprint + "\n")

    for key, code in ((KEY.fingerprint, 0), ("fingerprint", 0), (OTHER_KEY.fingerprint, 1)):
        done = tollgauge("verify", "report.json", "--key", key, "--url", service)
        assert done.code == code, key


def test_unknown_key_is_reported_and_the_signature_left_open(tollgauge: Command) -> None:
    save(full_report(), key=OTHER_KEY)
    done = tollgauge("verify", "report.json", "--key", PUBLIC, "--json")

    assert done.code == 1
    assert read_checks(done)["key"] is False
    assert read_checks(done)["signature"] is None
    assert OTHER_KEY.fingerprint in reason(done, "key")


def test_retired_key_is_valid_for_signatures_of_its_time(
    tollgauge: Command, tmp_path: Path
) -> None:
    save(full_report())
    at = NOW // 1000
    for nbf, exp, code in ((at - 10, at + 10, 0), (at - 10, at - 1, 1), (at + 1, at + 10, 1)):
        Path("keys.json").write_bytes(key_set(replace(KEY.public, nbf=nbf, exp=exp)))
        done = tollgauge("verify", "report.json", "--key", "keys.json")
        assert done.code == code
        assert ("the key was not valid" in done.out) == bool(code)


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("", "The signature is not a detached JWS"),
        ("eyJhbGciOiJub25lIn0..", "algorithm is not EdDSA"),
        ("eyJhbGciOiJIUzI1NiIsImI2NCI6ZmFsc2UsImNyaXQiOlsiYjY0Il19..AAAA", "not EdDSA"),
    ],
)
def test_invalid_signature_text_fails_the_check(
    tollgauge: Command, signature: str, words: str
) -> None:
    save(full_report())
    Path("report.json.jws").write_text(signature)
    done = tollgauge("verify", "report.json", "--key", PUBLIC)

    assert done.code == 1
    assert words in done.out
    assert "report.json cannot be trusted" in done.out


def test_missing_input_is_reported_with_a_remedy(tollgauge: Command, service: str) -> None:
    save(full_report())
    Path("report.json.jws").unlink()
    Path("headers.txt").write_text("HTTP/1.1 200 OK\n\n")
    Path("private.txt").write_text("hunter2")

    for words, message in (
        ((), "report.json has no signature: the file report.json.jws does not exist."),
        (("--headers", "headers.txt"), "headers.txt has no header Tollgauge-Signature."),
        (("--signature", "x", "--key", "nonsense"), "nonsense cannot be read: "),
        (("--signature", "x", "--key", "x" * 300), "cannot be read: "),
        (("--signature", "x", "--key", "headers.txt"), "--key contains no usable key."),
        (("--signature", "x", "--key", '{"kty":"EC"}'), "The key is not an Ed25519 key."),
        (("--signature", "x", "--url", f"{service}/no"), "answered 404."),
        (("--signature", "x", "--url", "http://127.0.0.1:9"), "cannot be fetched"),
    ):
        done = tollgauge("verify", "report.json", *words)
        assert (done.code, done.out) == (2, ""), words
        assert message in done.err
    secret = tollgauge("verify", "report.json", "--signature", "x", "--key", "private.txt")
    assert "hunter2" not in secret.err
