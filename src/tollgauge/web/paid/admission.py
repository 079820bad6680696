"""Admission: which sales are begun. One payer, or one target, may not use up what all share.

Rules (docs/payments.md):
- a payer has a share of all concurrent sales;
- a payer with too many unpaid answers or failed requests gets no more of them for a while;
- a host that wasted too much work is not contacted for some minutes;
- sales that wait for other hosts are limited, in all and per site (registrable domain): otherwise
  the owner of a slow host could block every sale with wallets that never settle.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.facilitator import Facilitator
from tollgauge.core.base.units import whole_seconds
from tollgauge.core.chain.trace.transfers import is_signed_by_payer
from tollgauge.core.endpoint.identity import site
from tollgauge.core.sale.payment import Payment
from tollgauge.store.ledger import payer_limit
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web.edge.problem import Problem

PAYER_SHARE: Final = 8
"""One payer may have at most this part of all sales in progress."""
RETRY_S: Final = 5
"""After how many seconds at least a sale that was not begun may be tried again."""
SPREAD_S: Final = 5
"""The retry times of callers that are refused together are spread over this many seconds."""
SITE_SHARE: Final = 4
"""One site may have at most this part of all who wait."""
HOST_RETRY_S: Final = 10


def find_refusal(
    payment: Payment, in_work: Collection[Payment], facilitator: Facilitator
) -> Problem | None:
    """Return the reason why no sale may begin for a payment now, or None if one may."""
    slots = facilitator.sales_at_once
    id_ = payment.id
    copies = sum([other.id == id_ for other in in_work])
    if 0 < copies < max(1, slots // PAYER_SHARE):
        return None  # it waits for the sale in progress and begins no new one
    if copies:
        return Problem(
            503,
            "payment-in-flight",
            "Many copies of this payment wait for its answer. Do not pay again: send the same "
            "request with the same payment in a few seconds.",
            retry_after=pause_s(payment.id),
        )
    if _exceeds_share(payment, in_work, slots):
        return Problem(
            429,
            "payer-busy",
            "Too many payments of this payer are in progress. Nothing was charged; send the same "
            "request again when some of them are answered.",
            retry_after=pause_s(payment.id),
        )
    if _has_room(payment, in_work, slots) and facilitator.takes_sales():
        return None
    return Problem(
        503,
        "facilitator-unavailable",
        "Payments cannot be verified now: our facilitator does not answer, or too many payments "
        "wait for it. Nothing was charged; send the same request again.",
        retry_after=pause_s(payment.id),
    )


def pause_s(payment_id: str, least_s: int = RETRY_S) -> int:
    """Return after how many seconds a payment may be sent again: `least_s` or a few more, depending
    only on its ID, so that all copies get the same answer.
    """
    return least_s + int(payment_id, 16) % SPREAD_S


def _exceeds_share(payment: Payment, in_work: Collection[Payment], slots: int) -> bool:
    """Whether the payer has used up the share of one payer.

    Until the facilitator has verified a signature, anyone can name any payer. So once the share is
    used up, payments that the payer's own key signed are only counted against each other.
    """
    share = max(1, slots // PAYER_SHARE)
    same_payer = {other.id: other for other in in_work if other.payer == payment.payer}
    if len(same_payer) < share:
        return False
    if sum(map(is_signed_by_payer, same_payer.values())) >= share:
        return True  # whatever this one is: its signature need not be looked at
    return not is_signed_by_payer(payment)


def _has_room(payment: Payment, in_work: Collection[Payment], slots: int) -> bool:
    """Whether there is room for another sale. Payments without a proven signature (forged ones, and
    those of contract wallets) may use at most five eighths.
    """
    if 2 * len(in_work) < slots:
        return True
    if is_signed_by_payer(payment):
        return len(in_work) < slots
    unproven = sum(not is_signed_by_payer(other) for other in in_work)
    return len(in_work) < slots and unproven < slots // 2 + slots // PAYER_SHARE


def check(tx: Connection, row: LedgerRow, hosts: tuple[str, ...], *, now: int) -> None:
    """Refuse a payer with too many unpaid answers (Problem 429), and an order for a host that
    wasted too much work (Problem 503). The claim of this transaction is then rolled back.
    """
    for host in hosts or ("",):
        limits = payer_limit.limits(tx, row, host, now=now)
        if limits.payer_until is not None:
            raise Problem(
                429,
                "payer-unpaid",
                f"This payer has {payer_limit.MAX_UNPAID} unpaid responses in the last hour. "
                "Nothing was charged for this request. Try again later with a new payment.",
                retry_after=max(1, whole_seconds(limits.payer_until - now)),
            )
        if limits.host_until is not None:
            raise Problem(
                503,
                "host-busy",
                f"{payer_limit.HOST_MAX_FAILED} requests that needed {host.partition(':')[2]} "
                "failed in the last minutes because of it. Nothing was charged. Try again later.",
                retry_after=max(1, whole_seconds(limits.host_until - now)),
            )


@dataclass(frozen=True, slots=True)
class Waiting:
    """Limits the callers of this process that wait for other hosts to `max_callers`."""

    max_callers: int
    _sites: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    @contextlib.contextmanager
    def on(self, hosts: Collection[str]) -> Iterator[None]:
        """Count a caller that waits for `hosts`. Raises Problem 503 if too many wait already."""
        sites = {site(host) for host in hosts}
        share = max(1, self.max_callers // SITE_SHARE)
        if self._sites.total() + len(sites) > self.max_callers:
            raise _too_many("other hosts")
        for name in sites:
            if self._sites[name] >= share:
                raise _too_many(name)
        self._sites.update(sites)
        try:
            yield
        finally:
            self._sites.subtract(sites)
            for name in sites:
                if not self._sites[name]:
                    del self._sites[name]


def _too_many(whom: str) -> Problem:
    return Problem(
        503,
        "host-busy",
        f"Too many requests wait for {whom}. Nothing was charged; send the same request again.",
        retry_after=HOST_RETRY_S,
    )
