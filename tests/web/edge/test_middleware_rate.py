"""How many requests a client may send, and who a client is."""

from __future__ import annotations

import pytest

from tollgauge.web.edge.middleware import CLIENTS_MAX, RateLimit, client_key, parse_address

SECOND = 1_000_000_000


class Hand:
    """A clock that is moved by hand; nanoseconds."""

    def __init__(self) -> None:
        self.now = 5 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_burst_of_one_minute_is_allowed(hand: Hand) -> None:
    limit = RateLimit(7, monotonic_ns=hand)
    assert [limit.take("a") for _ in range(9)] == [0] * 7 + [9, 9]
    assert limit.take("b") == 0, "each client has its own"


def test_requests_after_a_burst_are_allowed_at_the_rate(hand: Hand) -> None:
    limit = RateLimit(3, monotonic_ns=hand)
    for _ in range(3):
        limit.take("a")
    hand.now += 19 * SECOND
    assert limit.take("a") == 1
    hand.now += SECOND
    assert [limit.take("a"), limit.take("a")] == [0, 20]
    hand.now += 600 * SECOND
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 20], "no more for a long rest"


def test_number_of_stored_clients_is_limited(hand: Hand) -> None:
    limit = RateLimit(1, monotonic_ns=hand)
    for number in range(CLIENTS_MAX + 1):
        limit.take(str(number))
    assert limit.take(str(CLIENTS_MAX)) == 60, "who came last is remembered"
    assert limit.take("0") == 0


@pytest.mark.parametrize(
    ("peer", "forwarded", "proxies", "key"),
    [
        ("192.0.2.1", None, (), "192.0.2.1"),
        ("2001:db8:1:2:3::4", None, (), "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", None, (), "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", None, (), "192.0.2.1"),
        ("", None, (), "unknown"),
        ("192.0.2.1", b"203.0.113.9", (), "192.0.2.1"),
        ("192.0.2.1", b"203.0.113.9", ("192.0.2.1",), "203.0.113.9"),
        ("192.0.2.2", b"203.0.113.9", ("192.0.2.1",), "192.0.2.2"),
        ("::ffff:192.0.2.1", b"203.0.113.9", ("192.0.2.1",), "203.0.113.9"),
        ("192.0.2.1", b"10.9.9.9, 203.0.113.9", ("192.0.2.1",), "203.0.113.9"),
        ("192.0.2.1", b"10.9.9.9, " * 30 + b"203.0.113.9", ("192.0.2.1",), "203.0.113.9"),
        ("192.0.2.1", b"2001:db8:1:2:3::4", ("192.0.2.1",), "2001:db8:1:2::/64"),
        ("192.0.2.1", b"<script>", ("192.0.2.1",), "unknown"),
    ],
)
def test_client_key_is_the_peer_or_the_forwarded_address(
    peer: str, forwarded: bytes | None, proxies: tuple[str, ...], key: str
) -> None:
    assert client_key(peer, forwarded, [parse_address(proxy) for proxy in proxies]) == key
