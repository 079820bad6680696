"""Attribution of payments to endpoints that are paid at the same address.

A transfer names the address and not the endpoint. Two facts of a payment narrow it down:

- its builder code (ERC-8021, x402 extension `builder-code`): if the settlement's transaction ends
  with the code of an app that some of the endpoints name in their 402, it is for one of these;
- its amount: an `exact` offer is settled for its price, `upto` and `auth-capture` for at most the
  price, `batch-settlement` for any sum. The prices of the last 30 days count, because a payment may
  be older than the present one.

If one endpoint remains, the payment is certain; if several do, it is possible for each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tollgauge.core.endpoint.terms import BATCH_SETTLEMENT, KnownOffer

PAYMENTS_MAX: Final = 1_000
"""The newest payments to an address that are considered."""


class PaymentGroup(NamedTuple):
    """Payments to an address of the same amount (atomic units) and builder code (empty without
    any).
    """

    value: int
    code: str
    payments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPayTo:
    """Payments to an address that several `endpoints` name, from the point of view of one of them:
    of the newest `payments`, `certain` can only be for it, and `possible` for it or for others.
    """

    pay_to: str
    endpoints: int
    payments: int
    certain: int
    possible: int

    @property
    def text(self) -> str:
        """The figures in one sentence."""
        return (
            f"{self.endpoints:,} endpoints are paid at this address. By amount and builder code, "
            f"{self.certain:,} of its newest {self.payments:,} payments are for this endpoint, and "
            f"{self.possible:,} may be for it or for others."
        )


def attribute_payments(
    groups: Collection[PaymentGroup], offers: Mapping[str, Collection[KnownOffer]]
) -> dict[str, tuple[int, int]]:
    """Return how many payments are certain and possible for each endpoint.

    `offers` are those that name the address, by endpoint ID.
    """
    certain: Counter[str] = Counter()
    possible: Counter[str] = Counter()
    for group in groups:
        ids = _find_candidates(group, offers)
        for id_ in ids:
            (certain if len(ids) == 1 else possible)[id_] += group.payments
    return {id_: (certain[id_], possible[id_]) for id_ in offers}


def _find_candidates(
    group: PaymentGroup, offers: Mapping[str, Collection[KnownOffer]]
) -> Collection[str]:
    """Return the endpoints that a payment may be for. A code that none of them names, such as that
    of a wallet, is ignored.
    """
    of_code = {
        id_: of_one
        for id_, of_one in offers.items()
        if group.code and group.code in {offer.app_code for offer in of_one}
    }
    return [id_ for id_, of_one in (of_code or offers).items() if _may_settle(of_one, group.value)]


def _may_settle(offers: Iterable[KnownOffer], value: int) -> bool:
    """Return whether an offer can be settled for an amount. A price in another asset is unknown, a
    batch settles several payments, and other schemes than `exact` may settle less than the price.
    """
    return any(
        offer.amount is None
        or offer.scheme == BATCH_SETTLEMENT
        or (value == offer.amount if offer.scheme == "exact" else value <= offer.amount)
        for offer in offers
    )
