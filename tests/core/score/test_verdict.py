"""The verdict in a word and in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.evidences import AS_OF, dead, payable

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.rollup import Rollup
from tollgauge.core.score.advice import UNPROBED, summary, verdict
from tollgauge.core.score.evidence import Evidence, LatestState, TermChange
from tollgauge.core.score.score import Down
from tollgauge.core.score.scoring import score

NEVER = payable(days=(), last=None, state=None)


@pytest.mark.parametrize(
    ("up", "scored", "word"),
    [
        (0, 0, None),
        (1_440, 1_440, "flawless"),
        (100_000, 100_001, "near-perfect"),
        (995, 1_000, "near-perfect"),
        (9_945, 10_000, "near-perfect"),
        (9_944, 10_000, "occasional misses"),
        (950, 1_000, "occasional misses"),
        (949, 1_000, "frequent outages"),
        (800, 1_000, "frequent outages"),
        (799, 1_000, "unreliable"),
        (1, 100_000, "unreliable"),
        (0, 48, "failed every check"),
    ],
)
def test_uptime_has_a_word(up: int, scored: int, word: str | None) -> None:
    assert verdict(up, scored) == word


def test_good_summary_states_reason_then_advice_then_uptime() -> None:
    assert summary(score(payable())) == (
        "It could be paid when it was last checked. Proceed: grade A (85.0 of 100). "
        "Flawless: 100.0% up in 30 days (1,464 checks), 150 ms on average."
    )


@pytest.mark.parametrize(
    "outcome", [Outcome.SERVER_ERROR, Outcome.THROTTLED, Outcome.TIMEOUT, Outcome.FORBIDDEN]
)
def test_summary_of_a_dead_endpoint_begins_with_the_outage_without_praise(
    outcome: Outcome,
) -> None:
    result = score(dead(outcome=outcome))
    words = summary(result)
    assert result.reason
    assert result.down is not None
    assert words.startswith(f"{result.down.text} {result.reason}")
    assert words.index("Avoid: grade") < words.index("% up")
    assert not any(word in words for word in ("Flawless", "Near-perfect", "Occasional"))


@pytest.mark.parametrize(
    ("evidence", "first"),
    [
        (NEVER, UNPROBED),
        (replace(NEVER, templated=True), UNPROBED),
        (payable(wildcard=True), "Any path of the host asks for a payment."),
        (replace(payable(), as_of=AS_OF + 20 * HOUR_MS), "There was no check for 20 hours"),
        (
            replace(NEVER, days=(Rollup(day=AS_OF // DAY_MS, probes=3, excluded=(("x", 3),)),)),
            "None of its checks in the last 30 days could be scored.",
        ),
    ],
)
def test_summary_begins_with_the_reason_of_the_advice(evidence: Evidence, first: str) -> None:
    assert summary(score(evidence)).startswith(first)


def test_no_more_days_are_claimed_than_were_watched() -> None:
    young = payable(days=payable().days[-2:], first_seen=AS_OF - 2 * DAY_MS)
    assert "% up in the 2 days since it was first seen (72 checks)" in summary(score(young))


def test_unpayable_endpoint_gets_no_payment_advice() -> None:
    good = score(payable())
    assert any("small payment" in flag.message for flag in good.flags)
    bad = score(payable(wildcard=True))
    assert bad.recommendation == "avoid"
    assert not any("small payment" in flag.message for flag in bad.flags)


def test_new_endpoint_is_not_payable_after_one_failed_probe() -> None:
    failed = LatestState(at=AS_OF - 1, outcome="timeout", up=False, payable=False)
    young = payable(days=payable().days[-1:], first_seen=AS_OF - HOUR_MS)
    assert score(young).is_payable is True
    assert score(replace(young, state=failed)).is_payable is False
    assert score(NEVER).is_payable is None


def _failure(*, unconfirmed: bool, since: int | None = None) -> LatestState:
    return LatestState(
        at=AS_OF,
        outcome=Outcome.SERVER_ERROR,
        up=False,
        payable=False,
        unconfirmed=unconfirmed,
        since=since,
        payable_since=AS_OF - 30 * DAY_MS,
    )


def test_summary_of_a_down_endpoint_begins_with_its_outage() -> None:
    began = AS_OF - HOUR_MS
    result = score(payable(state=_failure(unconfirmed=False, since=began)))
    assert result.down == Down(since=began, reason="it failed (5xx)", confirmed=True)
    assert summary(result).startswith("Down since 2026-05-27 11:00 UTC: it failed (5xx).")


def test_first_failure_is_down_but_not_confirmed() -> None:
    result = score(payable(state=_failure(unconfirmed=True)))
    assert result.down is not None
    assert (result.down.since, result.down.confirmed) == (AS_OF, False)
    assert summary(result).startswith("Failed once at 2026-05-27 12:00 UTC, being confirmed: ")


def test_payable_endpoint_has_no_outage() -> None:
    assert score(payable()).down is None
    assert score(NEVER).down is None


@pytest.mark.parametrize("outcome", [Outcome.THROTTLED, Outcome.FORBIDDEN, Outcome.OPEN])
def test_refusal_is_an_outage_only_of_an_endpoint_that_was_payable(outcome: Outcome) -> None:
    refused = LatestState(at=AS_OF, outcome=outcome, up=outcome is Outcome.OPEN, payable=False)
    was_payable = replace(refused, payable_since=0)
    assert score(payable(state=was_payable)).down is not None
    assert score(replace(NEVER, state=refused)).down is None


UPTO, EIP3009, UNREAD = (f"eip155:8453 {name}" for name in ("upto", "eip3009", "erc7710"))


def _settlement_flags(*forms: str) -> dict[str, str]:
    flags = score(payable(forms=forms)).flags
    return {flag.code: flag.message for flag in flags if "settlements" in flag.code}


def test_unread_form_of_payment_is_not_measured_and_never_called_unpaid() -> None:
    only_unread = _settlement_flags(UNREAD)
    assert set(only_unread) == {"settlements-not-measured"}
    (message,) = only_unread.values()
    assert message.startswith("Settlements are not measured for ERC-7710 on Base: ")
    assert "first buyers" not in message
    assert set(_settlement_flags(EIP3009, UNREAD)) == {"settlements-not-measured"}
    partial = score(payable(forms=(EIP3009, UNREAD)))
    assert partial.coverage == {"eip155:8453": {"eip3009": "read", "erc7710": "not-read"}}
    assert partial.is_activity_partial
    assert not score(payable(forms=(EIP3009,))).is_activity_partial
    assert set(_settlement_flags(EIP3009)) == set(_settlement_flags()) == {"no-settlements"}


def test_experimental_reader_is_named_and_proves_no_absence() -> None:
    flags = _settlement_flags(EIP3009, UPTO)
    assert set(flags) == {"settlements-not-measured"}
    text = "The reader of upto on Base is experimental and may miss payments."
    assert text in flags["settlements-not-measured"]
    assert "not measured" not in flags["settlements-not-measured"]
    result = score(payable(forms=(EIP3009, UPTO)))
    assert result.coverage == {"eip155:8453": {"eip3009": "read", "upto": "experimental"}}
    assert result.is_activity_partial
    assert result.settlement is not None
    assert result.settlement.not_measured == ()
    both = _settlement_flags(UNREAD, UPTO)["settlements-not-measured"]
    assert "not measured for ERC-7710 on Base" in both
    assert text in both


@pytest.mark.parametrize("name", ["permit2", "upto", "batch-settlement", "auth-capture"])
def test_forms_with_stand_ins_are_experimental_where_their_contracts_are_read(name: str) -> None:
    on_base = score(payable(forms=(f"eip155:8453 {name}",)))
    assert on_base.coverage == {"eip155:8453": {name: "experimental"}}
    in_another_token = score(payable(forms=(f"eip155:8453 {name}-other-token",)))
    assert in_another_token.coverage["eip155:8453"] == {f"{name}-other-token": "not-read"}


def test_network_other_than_that_of_the_quote_is_not_measured() -> None:
    (message,) = _settlement_flags(EIP3009, "eip155:137 eip3009").values()
    assert "not measured for EIP-3009 on Polygon:" in message


def _payto_change(hours: int, before: str, after: str) -> TermChange:
    at = AS_OF - hours * HOUR_MS
    return TermChange(at=at, kind="payto-changed", source="probe", before=before, after=after)


def test_seller_whose_payto_varies_may_be_paid_and_buyers_learn_what_to_pin() -> None:
    changes = (_payto_change(1, "a", "b"), _payto_change(2, "c", "a"))
    alarmed = score(payable(changes=changes))
    assert (alarmed.grade, alarmed.recommendation) == ("D", "avoid")
    varies = score(payable(changes=changes, pay_to_varies=True))
    assert (varies.grade, varies.recommendation) == ("A", "proceed")
    codes = {flag.code for flag in varies.flags}
    assert "payto-varies" in codes
    assert "payto-changed-recently" not in codes
    assert "Each offer names another receiving address" in varies.reason
    assert "pin the host, a maximum amount" in varies.reason
