"""Duration of watches, formats of URLs, and retries of deliveries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.watch import watch_rules
from tollgauge.core.watch.watch_rules import DestinationKind, Target, kind_of, retry_at

NOW = 1_795_000_000_000
WAITS = [
    5 * SECOND_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    5 * HOUR_MS,
    10 * HOUR_MS,
    10 * HOUR_MS,
]


@given(st.text(max_size=40), st.integers(1, 7))
def test_retries_keep_to_the_schedule_within_a_fifth(delivery: str, attempts: int) -> None:
    at = retry_at(delivery, attempts, now=NOW)
    assert at is not None
    assert abs(at - NOW - WAITS[attempts - 1]) <= WAITS[attempts - 1] // 5
    assert at == retry_at(delivery, attempts, now=NOW)


def test_retries_of_deliveries_are_spread() -> None:
    assert len({retry_at(f"dlv_{i}", 2, now=NOW) for i in range(100)}) > 90


def test_eighth_failure_is_the_last() -> None:
    assert retry_at("dlv", 7, now=NOW) is not None
    assert retry_at("dlv", 8, now=NOW) is None


@pytest.mark.parametrize(
    ("asked", "waited"),
    [(60_000, 60_000), (10 * DAY_MS, DAY_MS), (0, None), (2_000, None)],
)
def test_retry_after_can_only_make_it_later(asked: int, waited: int | None) -> None:
    usual = retry_at("dlv", 1, now=NOW)
    at = retry_at("dlv", 1, now=NOW, retry_after_ms=asked)
    assert usual is not None
    assert at == (usual if waited is None else NOW + waited)


@pytest.mark.parametrize(
    ("url", "slack", "kind"),
    [
        ("https://hooks.slack.com/services/T0/B0/abc", False, DestinationKind.SLACK),
        ("https://discord.com/api/webhooks/1/abc", False, DestinationKind.DISCORD),
        ("https://discordapp.com/api/webhooks/1/abc", False, DestinationKind.DISCORD),
        ("https://ptb.discord.com/api/v10/webhooks/1/abc", True, DestinationKind.DISCORD),
        ("https://discord.com/api/webhooks/1/abc/slack", False, DestinationKind.SLACK),
        ("https://discord.com.evil.example/api/webhooks/1/abc", False, DestinationKind.JSON),
        ("https://discord.com/channels/1", False, DestinationKind.JSON),
        ("https://hooks.slack.com.evil.example/services/x", False, DestinationKind.JSON),
        ("https://alerts.example.com/x", False, DestinationKind.JSON),
        ("https://mattermost.example.com/hooks/x", True, DestinationKind.SLACK),
    ],
)
def test_url_determines_the_format(url: str, slack: bool, kind: DestinationKind) -> None:
    assert kind_of(url, slack=slack) is kind


def mask(url: str) -> str:
    return Target(url=url, kind=DestinationKind.JSON).masked


def test_masked_url_does_not_give_its_secret_away() -> None:
    shown = mask("https://hooks.slack.com/services/T000/B000/SECRETSECRET1234")
    assert shown == "https://hooks.slack.com/…1234"
    assert mask("https://a.example.com/short") == "https://a.example.com/…"
    assert "token" not in mask("https://a.example.com/x?token=abc")


def test_renewal_keeps_the_remaining_time() -> None:
    left = NOW + 3 * DAY_MS
    assert watch_rules.compute_renewal(left, now=NOW) == left + 30 * DAY_MS
    assert watch_rules.compute_renewal(NOW - DAY_MS, now=NOW) == NOW + 30 * DAY_MS


def test_event_has_one_id_in_polls_and_deliveries_and_another_for_every_watch() -> None:
    one = watch_rules.message_id("wat_1", "flip:7")
    assert one == watch_rules.message_id("wat_1", "flip:7")
    assert (
        len(
            {
                one,
                watch_rules.message_id("wat_2", "flip:7"),
                watch_rules.message_id("wat_1", "flip:8"),
            }
        )
        == 3
    )
