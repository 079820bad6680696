"""The command: its output and exit codes. Keys are never shown."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from guard.cases import sample_bundle as sample
from tests.support.guard_payments import pay
from tests.support.guard_seller import OTHER_PAYEE, Answer, Seller, receipt
from x402 import x402ClientSync

from tollgauge.demo.serving import closed_port
from tollgauge_guard import cli, cli_journal, guarded
from tollgauge_guard.cli_journal import PAYER_KEY
from tollgauge_guard.journal import Journal, Refusal
from tollgauge_guard.payment import Event, Payment, State
from tollgauge_guard.policy import Policy
from tollgauge_guard.statement import DOMAIN_NAME, DOMAIN_VERSION, TYPES, Delivery

GOOD_URL = "https://api.example.com/v1/weather"
PRIVATE_KEY = "0x" + "11" * 32
ADDRESS = Account.from_key(PRIVATE_KEY).address
NONCE = f"0x{1:064x}"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bundle.zst"
    path.write_bytes(body := sample.body(as_of=int(time.time())))
    path.with_name("bundle.zst.jws").write_text(sample.signature(body))
    monkeypatch.setenv(cli_journal.BUNDLE, str(path))
    monkeypatch.setenv(cli_journal.KEY, json.dumps(sample.public_key()))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*words: str) -> tuple[int, str, str]:
        try:
            code = cli.main(words)
        except SystemExit as error:  # how argparse ends
            code = int(error.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with an unanswered payment of ADDRESS, and one that was answered."""
    path, now = tmp_path / "journal.sqlite", int(time.time())
    kept = Journal(path)
    pay(kept, 1, Policy(), now)
    answered = pay(kept, 2, Policy(), now, path="/b")
    assert isinstance(answered, Payment)
    kept.change(answered.id, Event.ANSWER, now, status=200, settlement="0xab")
    kept.close()
    return path


def test_reading_commands_do_not_create_a_missing_journal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run("journal")[:2] == (0, "Nothing was paid yet.\n")
    path = tmp_path / "other" / "journal.sqlite"
    for words in (["journal"], ["unresolved"], ["unresolved", "write-off", NONCE], ["report", "1"]):
        code, _, err = run(*words, "--journal", str(path))
        assert (code, f"There is no journal {path}." in err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_for_a_file_is_refused_with_a_remedy(run: Run, bundle: Path) -> None:
    code, _, err = run("check", GOOD_URL, "--bundle", str(bundle), "--key", sample.fingerprint())
    assert code == 2
    assert "public JWK, which the service has at /.well-known/jwks.json" in err


def test_good_endpoint_is_allowed(run: Run, bundle: Path) -> None:
    code, out, _ = run("check", GOOD_URL)
    assert code == 0
    assert out.splitlines()[0] == f"allow  {GOOD_URL}"
    assert "proceed: grade B, offers of 30 days:" in out
    assert f"exact on eip155:8453: $0.005 to {sample.PAYEE}" in out


def test_unknown_endpoint_is_allowed_up_to_the_printed_amount(run: Run, bundle: Path) -> None:
    stranger = ("check", "https://nobody.example.org/")
    assert "The bundle has no record of it: up to $0.01 would be paid." in run(*stranger)[1]
    assert "up to $0.02 would be paid" in run(*stranger, "--unknown-max", "0.02")[1]
    for words in (["--amount", "10000"], ["--amount", "20000"], ["--unknown", "refuse"]):
        assert "The bundle has no record of it.\n" in run(*stranger, *words)[1]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["https://bad.example.net/pay"], "avoid"),
        (["https://broken.example.net/"], "not-payable"),
        ([GOOD_URL, "--pay-to", OTHER_PAYEE], "payto-unknown"),
        ([GOOD_URL, "--amount", "10001"], "price-jump"),
        ([GOOD_URL, "--network", "eip155:84532"], "network-unknown"),
        ([GOOD_URL, "--amount", "1e3"], "amount-invalid"),
        ([GOOD_URL, "--max-call", "0.001"], "over-call-cap"),
        (["https://nobody.example.org/", "--amount", "20000"], "unknown-resource"),
        (["https://nobody.example.org/", "--unknown", "refuse"], "unknown-resource"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_payment_is_printed_with_its_rule(
    run: Run, bundle: Path, words: list[str], rule: str
) -> None:
    code, out, _ = run("check", *words)
    assert code == 1
    assert f"{rule}: " in out
    code, out, _ = run("check", *words, "--json")
    assert code == 1
    assert json.loads(out)["code"] == rule


def test_bundle_and_key_are_options(
    run: Run, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(cli_journal.BUNDLE)
    monkeypatch.delenv(cli_journal.KEY)
    assert "No bundle was named" in run("check", GOOD_URL)[2]
    assert "No key was named" in run("check", GOOD_URL, "--bundle", str(bundle))[2]
    wrong = ("check", GOOD_URL, "--bundle", str(bundle), "--key", "x")
    assert "Give the operator's public JWK" in run(*wrong)[2]
    key = json.dumps(sample.public_key())
    assert run("check", GOOD_URL, "--bundle", str(bundle), "--key", key)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        *([], ["check"], ["check", "weather"], ["check", GOOD_URL, "--max-call", "a"]),
        *(["check", GOOD_URL, "--max-call", "0.0000001"], ["check", GOOD_URL, "--max-day", "-1"]),
        *(["report", "x"], ["resolve", NONCE], ["proxy"]),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_2_and_a_hint(run: Run, bundle: Path, words: list[str]) -> None:
    code, _, errors = run(*words)
    assert code == 2
    assert errors
    assert "Traceback" not in errors


def test_unavailable_bundle_is_a_failure(
    run: Run, bundle: Path, seller: Seller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seller.unpaid = lambda _call: Answer(503)
    code, _, errors = run("check", GOOD_URL, "--bundle", f"{seller.url}/trust/bundle")
    assert code == 2
    assert "No bundle could be loaded" in errors


def test_forged_bundle_is_a_failure(run: Run, bundle: Path) -> None:
    bundle.write_bytes(sample.body(as_of=1))
    code, _, errors = run("check", GOOD_URL)
    assert code == 2
    assert "not signed by the pinned key" in errors


def test_journal_is_printed_as_text_and_json(run: Run, journal: Path) -> None:
    code, out, _ = run("journal", "--journal", str(journal))
    assert code == 0
    assert out.count("nonce 0x") == 2
    code, out, _ = run("journal", "--json", "--journal", str(journal))
    first, second = map(json.loads, out.splitlines())
    assert (first["state"], second["state"]) == ("in-flight", "delivered")
    assert first["payer"] == ADDRESS.lower()
    assert "header 1" not in out


def test_payments_are_exported_without_their_payloads(run: Run, journal: Path) -> None:
    code, out, _ = run("export", "--csv", "--journal", str(journal))
    first, second = csv.DictReader(out.splitlines())
    assert (code, first["nonce"], second["settlement"]) == (0, NONCE, "0xab")
    assert "payload" not in first
    code, out, _ = run("export", "--jsonl", "--journal", str(journal))
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["in-flight", "delivered"]
    assert "header 1" not in out


def test_text_of_a_seller_is_not_a_formula_in_a_spreadsheet(run: Run, tmp_path: Path) -> None:
    kept = Journal(tmp_path / "new")
    kept.refuse(
        Refusal(
            at=1,
            account="a",
            host="h",
            resource="https://h/",
            decision="refuse",
            code="avoid",
            reason="r",
            pay_to="=cmd()",
        )
    )
    kept.close()
    _, out, _ = run("export", "--refusals", "--csv", "--journal", str(tmp_path / "new"))
    (row,) = csv.DictReader(out.splitlines())
    assert row["pay_to"] == "'=cmd()"
    assert (
        "avoid  https://h/" in run("journal", "--refusals", "--journal", str(tmp_path / "new"))[1]
    )


def test_empty_export_names_its_columns(run: Run, tmp_path: Path) -> None:
    Journal(tmp_path / "new").close()
    for option, column in (("--csv", "handle"), ("--refusals", "code")):
        _, out, _ = run("export", "--csv", option, "--journal", str(tmp_path / "new"))
        (header,) = csv.reader(out.splitlines())
        assert column in header


@pytest.fixture
def open_payment(journal: Path) -> str:
    """The nonce of a payment of `journal` that was answered by 402 and has expired."""
    kept = Journal(journal)
    kept.change(1, Event.ERROR_ANSWER, int(time.time()), status=402, settlement="0xcd")
    kept.close()
    with contextlib.closing(sqlite3.connect(journal)) as rows, rows:
        rows.execute("UPDATE payments SET valid_before = 1")
    return NONCE


def test_unresolved_payments_are_listed(run: Run, journal: Path, open_payment: str) -> None:
    code, out, _ = run("unresolved", "--journal", str(journal))
    assert (code, open_payment in out) == (1, True)
    code, out, _ = run("unresolved", "--json", "--journal", str(journal))
    (row,) = map(json.loads, out.splitlines())
    assert (code, row["nonce"], row["state"]) == (1, open_payment, "open")


def test_evidence_for_the_seller_lets_no_one_take_money(
    run: Run, journal: Path, open_payment: str
) -> None:
    code, out, _ = run("unresolved", "show", open_payment, "--journal", str(journal))
    evidence = json.loads(out)
    assert (code, evidence["transaction"], evidence["nonce"]) == (0, "0xcd", open_payment)
    assert evidence["offer"]["amount"] == "5000"
    assert evidence["requestDigest"].startswith("sha256:")
    assert "header 1" not in out


@pytest.mark.parametrize("action", ["write-off", "pay-again"])
def test_payment_that_the_owner_closes_stays_spent(
    run: Run, journal: Path, open_payment: str, action: str
) -> None:
    code, out, _ = run("unresolved", action, open_payment, "--journal", str(journal))
    assert (code, "may pay for the same purchase again" in out) == (0, True)
    code, out, _ = run("unresolved", "--journal", str(journal))
    assert (code, out) == (0, "Every payment was answered, or its purchase has ended.\n")
    (payment, _) = Journal(journal).payments()
    assert (payment.state, payment.exposure) == (State.WRITTEN_OFF, 5_000)


def test_node_that_does_not_answer_resolves_nothing(
    run: Run, journal: Path, open_payment: str
) -> None:
    with closed_port() as port:
        node = f"http://127.0.0.1:{port.getsockname()[1]}"
        words = ("unresolved", "resolve", open_payment, "--node", node, "--json")
        code, out, _ = run(*words, "--journal", str(journal))
    assert (code, json.loads(out)["state"]) == (1, "open")


def test_unresolved_reports_missing_arguments(run: Run, journal: Path, open_payment: str) -> None:
    code, _, err = run("unresolved", "resolve", open_payment, "--journal", str(journal))
    assert (code, "Add --node URL" in err) == (2, True)
    code, _, err = run("unresolved", "write-off", "0x12", "--journal", str(journal))
    assert (code, "no payment 0x12" in err) == (2, True)
    code, _, err = run("unresolved", "write-off", "--journal", str(journal))
    assert (code, "needs the handle" in err) == (2, True)


def test_payment_that_a_running_program_waits_for_is_not_written_off(
    run: Run, journal: Path
) -> None:
    code, _, err = run("unresolved", "write-off", NONCE, "--journal", str(journal))
    assert (code, "A program is waiting for the answer" in err) == (2, True)


def test_quote_judges_each_offer_and_pays_nothing(run: Run, bundle: Path, seller: Seller) -> None:
    code, out, _ = run("quote", f"{seller.url}/data")
    assert (code, out) == (0, f"allow  $0.005 to {sample.PAYEE} on {sample.BASE}\n")
    seller.amount = "20000"
    code, out, _ = run("quote", f"{seller.url}/data", "--method", "POST", "--data", "x")
    assert (code, "unknown-resource: " in out) == (1, True)
    seller.amount = "2000000"
    code, out, _ = run("quote", f"{seller.url}/data", "--json")
    quoted = json.loads(out)
    assert (code, quoted["decision"], quoted["code"]) == (1, "refuse", "over-call-cap")
    assert "`max_call`" in quoted["remedy"]
    assert not seller.payments
    assert [call.body for call in seller.calls] == [b"", b"x", b""]


def test_quote_of_free_resource_is_a_failure(run: Run, bundle: Path, seller: Seller) -> None:
    seller.unpaid = lambda _call: Answer(200)
    assert "answers 200, not 402" in run("quote", f"{seller.url}/data")[2]
    seller.unpaid = lambda _call: Answer(402, {}, b"pay me")
    assert "cannot be read" in run("quote", f"{seller.url}/data")[2]


def test_open_payment_is_sent_again_by_the_command(
    run: Run, bundle: Path, seller: Seller, payer_sync: x402ClientSync, tmp_path: Path
) -> None:
    file, url = tmp_path / "journal.sqlite", f"{seller.url}/other?q=1"
    seller.answer = lambda _call: Answer(503)
    key = json.dumps(sample.public_key())
    with guarded(payer_sync, bundle=bundle, key=key, journal=file) as http:
        http.get(url)
        (payment,) = http.guard.unresolved()
    words = ("unresolved", "retry", payment.handle, "--journal", str(file))
    assert "needs --url" in run(*words)[2]
    assert "cannot be sent" in run(*words, "--url", f"{seller.url}/other")[2]
    assert run(*words, "--url", url)[0] == 1
    seller.pay_to = OTHER_PAYEE
    assert "cannot be sent" in run(*words, "--url", url)[2]
    seller.pay_to, seller.answer = sample.PAYEE, lambda _call: receipt()
    code, out, _ = run(*words, "--url", url)
    assert (code, out) == (0, '{"ok": true}\n')
    first, *others = seller.payments
    assert others == [first, first]
    (delivered,) = Journal(file).payments()
    assert delivered.state == State.DELIVERED
    assert "cannot be sent" in run(*words, "--url", url)[2]


def test_try_shows_a_purchase_and_a_refusal(run: Run) -> None:
    code, out, _ = run("try")
    assert code == 0
    assert "good seller: 200" in out
    assert "delivered" in out
    assert "bad seller: payto-unknown" in out


def test_empty_journal_is_reported(run: Run, tmp_path: Path) -> None:
    Journal(tmp_path / "new").close()
    assert run("journal", "--journal", str(tmp_path / "new"))[1] == "Nothing was paid yet.\n"


def test_report_is_signed_by_the_payer(
    run: Run, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PAYER_KEY, PRIVATE_KEY)
    code, out, errors = run("report", "2", "--outcome", "empty", "--journal", str(journal))
    assert code == 0
    assert PRIVATE_KEY[2:] not in out + errors
    statement = json.loads(out)
    message = {name: statement[name] for name in ("resource", "payTo", "outcome", "at")}
    message["nonce"] = bytes.fromhex(statement["nonce"][2:])
    domain = {"name": DOMAIN_NAME, "version": DOMAIN_VERSION, "chainId": 8453}
    signed = encode_typed_data(domain, TYPES, message)
    assert Account.recover_message(signed, signature=statement["signature"]) == ADDRESS
    assert statement["outcome"] == "empty"


@pytest.mark.parametrize(("entry", "outcome"), [("1", "settled-not-delivered"), ("2", "delivered")])
def test_report_states_the_outcome_in_the_journal_by_default(
    run: Run, journal: Path, monkeypatch: pytest.MonkeyPatch, entry: str, outcome: str
) -> None:
    monkeypatch.setenv(PAYER_KEY, PRIVATE_KEY)
    _, out, _ = run("report", entry, "--journal", str(journal))
    assert json.loads(out)["outcome"] == Delivery(outcome)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        *(("", "is not set"), ("22" * 32, "Only the account that paid"), ("zz" * 32, "cannot be")),
        ("11" * 31, "cannot be read"),
    ],
)
def test_report_needs_the_payer_s_key_and_never_prints_it(
    run: Run, journal: Path, monkeypatch: pytest.MonkeyPatch, key: str, words: str
) -> None:
    monkeypatch.setenv(PAYER_KEY, key)
    code, out, errors = run("report", "1", "--journal", str(journal))
    assert (code, out) == (2, "")
    assert words in errors
    assert not key or key not in errors


def test_report_is_sent_only_with_option(
    run: Run, journal: Path, seller: Seller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PAYER_KEY, PRIVATE_KEY)
    seller.unpaid = lambda _call: Answer(202)
    run("report", "2", "--journal", str(journal))
    assert not seller.calls
    url = f"{seller.url}/v1/outcomes"
    code, out, _ = run("report", "2", "--send", url, "--journal", str(journal))
    assert code == 0
    assert json.loads(seller.calls[0].body) == json.loads(out)
    seller.unpaid = lambda _call: Answer(422)
    assert run("report", "2", "--send", url, "--journal", str(journal))[0] == 1


def test_server_that_cannot_be_started_is_reported(run: Run, bundle: Path, tmp_path: Path) -> None:
    code, _, errors = run(
        "proxy", "--journal", str(tmp_path / "j"), "--", str(tmp_path / "no-such-program")
    )
    assert code == 2
    assert "cannot be started" in errors


def test_help_lists_every_command(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert re.findall(r"^    (\w+)", out, re.MULTILINE) == [
        *("try", "check", "quote", "journal", "export", "unresolved", "approve", "report"),
        *("proxy", "gateway"),
    ]
