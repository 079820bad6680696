"""Wash trading buys nothing: patterns as the chain shows them, from event logs to the score.

Each pattern makes JSON-RPC logs; they are paired, kept for the wallet and summed as the indexer
does it, and the score with them is compared with the score without
(docs/methodology.md, *organic settlement*).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tollgauge.core.evidence import ChainEvidence, Evidence, LastProbe, PayerVolume
from tollgauge.core.policy import POLICY_1, interpolate
from tollgauge.core.rollup import Rollup
from tollgauge.core.score import Score
from tollgauge.core.scoring import score as score_under
from tollgauge.core.settlement import AUTHORIZATION_USED, TRANSFER, entries, events, matched
from tollgauge.core.units import DAY_MS, WINDOW_MS, day_of


def score(evidence: Evidence) -> Score:
    """The score under policy 1."""
    return score_under(evidence, POLICY_1)


TOKEN = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
AS_OF = 1_780_000_000_000
SELLER = bytes([5]) * 20
LIMITS = settings(max_examples=examples(60), deadline=None)


@dataclass
class Chain:
    """Logs of one block, in order. A transaction is one payment or one plain transfer."""

    logs: list[dict[str, Any]] = field(default_factory=list)
    transactions: int = 0

    def pay(self, payer: bytes, payee: bytes, value: int) -> None:
        """A payment by authorization."""
        nonce = f"0x{self.transactions:064x}"
        self._log(AUTHORIZATION_USED, _topic(payer), nonce, data="0x")
        self.send(payer, payee, value)

    def send(self, payer: bytes, payee: bytes, value: int) -> None:
        """A plain transfer, or what an authorization makes."""
        self._log(TRANSFER, _topic(payer), _topic(payee), data=f"0x{value:064x}")
        self.transactions += 1

    def _log(self, *topics: str, data: str) -> None:
        self.logs.append(
            {
                "address": TOKEN,
                "topics": list(topics),
                "data": data,
                "blockHash": "0x" + "ab" * 32,
                "blockNumber": "0x1",
                "blockTimestamp": hex(AS_OF // 1_000 - 60),
                "transactionHash": f"0x{self.transactions:064x}",
                "logIndex": hex(len(self.logs)),
                "removed": False,
            }
        )

    def evidence(self) -> ChainEvidence:
        """What is known of the seller afterwards."""
        logged = events(self.logs, token=TOKEN)
        known = matched(logged.transfers, logged.used)
        assert known.unclear == []
        sums: dict[bytes, list[int]] = {}
        for entry in entries(known.transfers, {SELLER}, logged.stamps):
            row = sums.setdefault(entry.other, [0, 0, 0])
            row[0] += entry.incoming
            row[1 if entry.incoming else 2] += entry.value
        return ChainEvidence(
            network="eip155:8453",
            pay_to="0x" + SELLER.hex(),
            indexed_ms=WINDOW_MS,
            payers=tuple(
                PayerVolume(payer="0x" + other.hex(), transfers=n, paid=paid, returned=back)
                for other, (n, paid, back) in sums.items()
                if n
            ),
        )


def _topic(address: bytes) -> str:
    return "0x" + 24 * "0" + address.hex()


def wallet(number: int) -> bytes:
    return b"wash" + number.to_bytes(16)


def customer(number: int) -> bytes:
    return b"good" + number.to_bytes(16)


Pattern = Callable[[Chain, random.Random, int], None]
"""Writes payments of a size into a chain."""


def self_pay(chain: Chain, dice: random.Random, size: int) -> None:
    """The seller pays itself, a thousand times."""
    for _ in range(1_000):
        chain.pay(SELLER, SELLER, dice.randrange(1, size + 1))


def round_trip(chain: Chain, dice: random.Random, size: int) -> None:
    """One wallet pays and gets everything back, sometimes first."""
    for _ in range(200):
        value = dice.randrange(1, size + 1)
        if dice.random() < 0.5:
            chain.send(SELLER, wallet(1), value)
            chain.pay(wallet(1), SELLER, value)
        else:
            chain.pay(wallet(1), SELLER, value)
            chain.send(SELLER, wallet(1), value)


def ring(chain: Chain, dice: random.Random, size: int) -> None:
    """The seller gives money to forty wallets, and each buys with it."""
    for number in range(40):
        value = dice.randrange(1, size + 1)
        chain.send(SELLER, wallet(number), value)
        spent = value
        for _ in range(dice.randrange(1, 6)):
            part = dice.randrange(0, spent + 1)
            chain.pay(wallet(number), SELLER, part)
            spent -= part


def plain_crowd(chain: Chain, dice: random.Random, size: int) -> None:
    """A thousand wallets send money without an authorization."""
    for number in range(1_000):
        chain.send(wallet(number), SELLER, dice.randrange(1, size + 1))


def one_big_payer(chain: Chain, dice: random.Random, size: int) -> None:
    """One wallet pays a fortune."""
    chain.pay(wallet(2), SELLER, size * 10**6 + dice.randrange(10**6))


def tiny_payments(chain: Chain, dice: random.Random, size: int) -> None:
    """A thousand payments of next to nothing from one wallet."""
    for _ in range(1_000):
        chain.pay(wallet(3), SELLER, dice.randrange(1, min(size, 2_000) + 1))


NOTHING: tuple[Pattern, ...] = (self_pay, round_trip, ring, plain_crowd)
"""Patterns that must not move a score at all."""
ONE_WALLET: tuple[Pattern, ...] = (one_big_payer, tiny_payments)
"""Patterns of one wallet that is not the seller's as far as the chain shows."""
SIZES = st.sampled_from((1, 999, 5_000, 10**6, 10**9, 10**12))


def market(customers: Sequence[int]) -> Chain:
    """A seller with honest customers who paid these amounts."""
    chain = Chain()
    for number, amount in enumerate(customers):
        chain.pay(customer(number), SELLER, amount)
    return chain


def judged(chain: Chain) -> Score:
    return score(replace(BASE, chain=chain.evidence()))


def gain(pattern: Pattern, customers: Sequence[int], size: int, seed: int) -> int:
    """By how many tenths of a point a pattern raises the score of a seller."""
    before, after = judged(market(customers)), market(customers)
    pattern(after, random.Random(seed), size)
    return _tenths(judged(after)) - _tenths(before)


def _tenths(result: Score) -> int:
    assert result.score_tenths is not None
    return result.score_tenths


TODAY = day_of(AS_OF)
BASE = Evidence(
    format=1,
    resource="https://seller.dev/pay",
    as_of=AS_OF,
    first_seen=AS_OF - 90 * DAY_MS,
    days=tuple(
        Rollup(
            day=day,
            probes=48,
            scored=48,
            up=48,
            compliant=48,
            payable=48,
            compliance=4_800,
            slots=2**48 - 1,
            latency_sum=48 * 100,
            latency=((100, 48),),
        )
        for day in range(TODAY - 29, TODAY)
    ),
    recent=(6, 6),
    last=LastProbe(
        at=AS_OF - 60_000,
        outcome="payment-required",
        up=True,
        payable=True,
        accepts=1,
        tls_not_after=None,
    ),
)
CUSTOMERS = st.lists(st.integers(1, 10**9), max_size=12)


@pytest.mark.parametrize("pattern", NOTHING)
@LIMITS
@given(customers=CUSTOMERS, size=SIZES, seed=st.integers(0, 10**6))
def test_money_that_the_seller_moves_itself_buys_nothing(
    pattern: Pattern, customers: list[int], size: int, seed: int
) -> None:
    assert gain(pattern, customers, size, seed) == 0


@pytest.mark.parametrize("pattern", ONE_WALLET)
@LIMITS
@given(size=SIZES, seed=st.integers(0, 10**6))
def test_one_wallet_moves_a_score_by_at_most_one_point(
    pattern: Pattern, size: int, seed: int
) -> None:
    assert 0 <= gain(pattern, (), size, seed) <= 10


@pytest.mark.parametrize("pattern", ONE_WALLET)
@LIMITS
@given(customers=CUSTOMERS, size=SIZES, seed=st.integers(0, 10**6))
def test_one_wallet_among_customers_is_at_most_one_more_of_them(
    pattern: Pattern, customers: list[int], size: int, seed: int
) -> None:
    """The steepest part of the payers' table: 12.5 for one more payer, 1.875 points."""
    assert gain(pattern, customers, size, seed) <= 19


@LIMITS
@given(
    patterns=st.lists(st.sampled_from(NOTHING), min_size=1, max_size=3, unique=True),
    customers=CUSTOMERS,
    size=SIZES,
    seed=st.integers(0, 10**6),
)
def test_patterns_together_buy_no_more_than_alone(
    patterns: list[Pattern], customers: list[int], size: int, seed: int
) -> None:
    def together(chain: Chain, dice: random.Random, of: int) -> None:
        for pattern in patterns:
            pattern(chain, dice, of)

    assert gain(together, customers, size, seed) == 0


@LIMITS
@given(
    wallets=st.integers(1, 60),
    payments=st.integers(1, 30),
    size=st.integers(1, 10**12),
    seed=st.integers(0, 10**6),
)
def test_a_ring_behind_a_middleman_is_worth_its_wallets_and_not_its_payments(
    wallets: int, payments: int, size: int, seed: int
) -> None:
    """Money that comes from elsewhere cannot be told from a customer's. What it buys is bounded by
    how many wallets it is spread over, whatever they pay and however often.
    """
    chain, dice = Chain(), random.Random(seed)
    for number in range(wallets):
        for _ in range(payments):
            chain.pay(wallet(number), SELLER, dice.randrange(1, size + 1))
    result = judged(chain)
    activity = next(part for part in result.components if part.name == "activity")
    bound = Fraction(*interpolate(POLICY_1.payers, (wallets, 1)))
    assert Fraction(activity.tenths, 10) <= bound + Fraction(1, 20)


def test_honest_customers_do_move_it() -> None:
    """The patterns above are compared with something that counts."""
    assert _tenths(judged(market([10**6] * 10))) - _tenths(judged(market([]))) > 50


def test_the_patterns_are_what_they_say() -> None:
    for pattern, payments in ((self_pay, 1_000), (round_trip, 200), (tiny_payments, 1_000)):
        chain = Chain()
        pattern(chain, random.Random(1), 10**6)
        assert sum(row.transfers for row in chain.evidence().payers) == payments
