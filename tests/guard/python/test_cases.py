"""The shared cases of guard/cases: states, steps, evidence, purchases and budgets."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.support.guard_seller import CASES_FOLDER

from tollgauge_guard.budget import Exposure, add_exposure
from tollgauge_guard.decision import Spent, is_over_losses, over_budget
from tollgauge_guard.evidence import BlockReading, combine, prove_evm, prove_solana
from tollgauge_guard.journal import Journal
from tollgauge_guard.payment import (
    SETTLE_MARGIN_S,
    TRANSITIONS,
    Event,
    Evidence,
    PayAgain,
    Situation,
    State,
    next_step,
)
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase_key import account_id, given_key, request_key, url_digest
from tollgauge_guard.receipt import Answer, classify_answer


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((CASES_FOLDER / name).read_text(encoding="utf-8"))
    return document


PAYMENTS, PURCHASES, BUDGETS = map(load, ("payments.json", "purchases.json", "budgets.json"))


def parametrize_cases(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def test_transitions_match_the_table() -> None:
    table = {
        (State(row["from"]), Event(row["event"])): row
        for row in PAYMENTS["transitions"]
        if row["from"] is not None
    }
    assert set(TRANSITIONS) == set(table)
    for key, transition in TRANSITIONS.items():
        row = table[key]
        assert transition.to == (None if row["to"] is None else State(row["to"]))
        assert transition.release == ("release" in row["effects"])
        assert transition.settle == ("settle" in row["effects"])
        assert transition.drop_payload == ("drop-payload" in row["effects"])
        assert transition.keep_hint == ("keep-hint" in row["effects"])


@parametrize_cases(
    [
        case
        for case in PAYMENTS["responses"]
        # The others depend on the transport and on the owner's function: test_never_twice.
        if case.get("complete") and case.get("accepted", True)
    ]
)
def test_event_of_answer_matches_the_table(case: dict[str, Any]) -> None:
    receipt = case.get("receipt", {})
    answer = Answer(case["status"], receipt.get("transaction") or None)

    event = classify_answer(answer, is_conditional=case.get("conditional", False))

    assert event == Event(case["event"])


@parametrize_cases(PAYMENTS["steps"])
def test_step_of_a_call(case: dict[str, Any]) -> None:
    row = PAYMENTS["stepDefaults"] | case
    evidence = row["evidence"]
    situation = Situation(
        state=None if row["state"] is None else State(row["state"]),
        is_busy=row["busy"],
        is_queue_over=row["queueOver"],
        may_resend=row["sameUrl"] and row["offered"] and row["payloadKept"],
        seconds_left=row["secondsLeft"],
        evidence=None if evidence is None else Evidence(evidence),
        is_window_over=row["windowOver"] and not row["keyed"],
        pay_again=PayAgain(row["payAgain"]),
        pay_again_max=row["payAgainMax"],
        exposure=row["exposure"],
        has_approver=row["approver"],
    )
    assert next_step(situation) == row["step"]


@parametrize_cases(PAYMENTS["evidence"])
def test_evidence_of_a_scheme(case: dict[str, Any]) -> None:
    scheme = case["scheme"].partition("/")[2]
    proved = Evidence.UNKNOWN
    if scheme == "solana":
        proved = prove_solana(
            is_found=case["found"],
            finalized_height=case["finalizedHeight"],
            last_valid_height=case["validHeight"],
        )
    elif scheme in ("eip3009", "permit2", "deposit-eip3009", "deposit-permit2"):
        block = case.get("block")
        proved = prove_evm(
            latest=case["latest"],
            block=block
            and BlockReading(
                timestamp=block["timestamp"],
                depth=block["depth"],
                is_finalized=block["finalized"],
                is_used=block["used"],
            ),
            dead_from=case["validBefore"] + scheme.endswith("permit2"),
            exposure=case.get("exposure", PAYMENTS["evidenceDefaults"]["exposure"]),
        )
    assert proved == case["evidence"]


@parametrize_cases(PAYMENTS["nodes"])
def test_evidence_of_several_nodes(case: dict[str, Any]) -> None:
    assert combine(Evidence(name) for name in case["nodes"]) == case["evidence"]


def test_margin_of_the_steps_is_the_one_of_facilitators() -> None:
    assert SETTLE_MARGIN_S == 6


@parametrize_cases(PURCHASES["accounts"])
def test_account(case: dict[str, Any]) -> None:
    assert account_id(case["wallets"]) == case["account"]


@parametrize_cases(PURCHASES["requests"])
def test_purchase(case: dict[str, Any]) -> None:
    given, url = case.get("given"), case["url"]
    body = case["body"].encode()

    key = request_key(case["method"], url, httpx.Headers(case["headers"]), body)

    assert (key if given is None else given_key(given)) == case["purchase"]
    assert url_digest(url) == case["urlDigest"]


@parametrize_cases(BUDGETS["cases"])
def test_spent(case: dict[str, Any]) -> None:
    defaults, journal = BUDGETS["defaults"], Journal()
    for payment in case["payments"]:
        row = defaults | payment
        names = ("account", "network", "asset", "host", "session", "at")
        where = Exposure(**{name: row[name] for name in names})
        with journal.file.transaction() as rows:
            add_exposure(rows, where, row["exposure"])
            add_exposure(rows, where, -row.get("released", 0))

    spent = journal.sum_spent(Exposure(**defaults, at=case["now"]))

    expected = case["spent"]
    assert (spent.host, spent.day) == (expected["host"], expected["day"])
    assert (spent.session, spent.lifetime) == (expected["session"], expected["lifetime"])


@parametrize_cases(BUDGETS["limits"])
def test_limits(case: dict[str, Any]) -> None:
    limits = BUDGETS["limitDefaults"] | case.get("limits", {})
    policy = Policy(
        max_host_day=limits["host"],
        max_day=limits["day"],
        max_session=limits["session"],
        max_lifetime=limits["lifetime"],
    )
    refusal = over_budget(case["exposure"], Spent(**case.get("spent", {})), policy)
    assert (None if refusal is None else refusal.code) == case["code"]


@parametrize_cases(BUDGETS["losses"])
def test_losses(case: dict[str, Any]) -> None:
    journal, defaults = Journal(), BUDGETS["defaults"]
    for index, loss in enumerate(case["losses"]):
        with journal.file.transaction() as rows:
            rows.execute(
                "INSERT INTO payments (handle, account, purchase, session, owner, state, at, "
                "changed_at, host, resource, url_digest, scheme, method, network, asset, pay_to, "
                "amount, exposure, payer, valid_before) VALUES (?, ?, '', '', '', ?, 0, ?, ?, '', "
                "'', 'exact', 'eip3009', '', '', '', '0', ?, '', 0)",
                (
                    str(index),
                    defaults["account"],
                    loss["state"],
                    loss["changedAt"],
                    loss["host"],
                    loss["exposure"],
                ),
            )
    row = BUDGETS["lossDefaults"] | case
    policy = Policy(loss_budget=row["lossBudget"], loss_count=row["lossCount"])

    spent = journal.sum_spent(Exposure(**defaults, at=BUDGETS["now"]))

    assert is_over_losses(spent, policy) == case["over"]
