"""Settlement: what the transfers of an indexed chain are attributed to, and what is kept of them.

- which addresses of ours are to be read, and from when on;
- which transfers a second look at final blocks adds: those of wallets that were indexed there;
- what a chain's published volume is, and how long single transfers are kept.

When a chain is asked for what is jobs/index; what a transfer means for a wallet is core/settlement;
the rows are in store/chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.blocks import Span
from tollgauge.core.settlement import Deposit, Entry
from tollgauge.core.units import DAY_MS, HOUR_MS
from tollgauge.store.chain import cursors, deposits, transfers, volumes, wallets
from tollgauge.store.chain.cursors import Cursor
from tollgauge.store.chain.volumes import ChainVolume
from tollgauge.store.ledger import books

KEEP_MS: Final = 40 * DAY_MS
"""How long single transfers are kept."""
FORGET_BLOCKS: Final = 50_000
"""How many blocks of old transfers one transaction forgets."""
ACCOUNT_PAST_MS: Final = 366 * DAY_MS
"""How far back an address of ours is filled in at most; else from the ledger's first day on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAccounts:
    """Addresses of ours that are not indexed yet, and since when (ms UTC) their deposits are
    wanted.
    """

    addresses: tuple[str, ...]
    wanted_from: int


def new_accounts(
    tx: Connection, chain: int, token: str, *, pay_to: str, since: int, now: int
) -> NewAccounts:
    """The addresses that the configuration (`pay_to`) and the ledger name and that are new. The
    ledger is searched from `since` on.
    """
    named, began = books.named(tx, f"eip155:{chain}", token, since=since)
    ours = {address for address in {*named, pay_to} if wallets.ADDRESS.fullmatch(address)}
    first = max(now if began is None else min(began, now), now - ACCOUNT_PAST_MS)
    return NewAccounts(
        addresses=deposits.new_addresses(tx, chain, token, ours),
        # An hour more than whole days, because clocks differ.
        wanted_from=first - first % DAY_MS - HOUR_MS,
    )


def add_missing(
    tx: Connection,
    cursor: Cursor,
    span: Span,
    token: str,
    *,
    entries: Sequence[Entry],
    received: Sequence[Deposit],
    at: int,
) -> int:
    """Add what a second look at a final span, whose last block is of time `at` (ms UTC), showed
    and the first look lacked; how many were added. Transfers of wallets that are not indexed that
    far back are left to the filling in of their past.
    """
    wallet_lows = wallets.lows(tx, cursor.chain)
    account_lows = deposits.lows(tx, cursor.chain, token)
    never = span.last + 1
    return cursors.record_audit(
        tx,
        cursor,
        span,
        [entry for entry in entries if entry.number >= wallet_lows.get(entry.wallet, never)],
        at=at,
        received=[
            deposit
            for deposit in received
            if deposit.number >= account_lows.get(deposit.pay_to, never)
        ],
    )


def publish_volume(tx: Connection, volume: ChainVolume, *, now: int) -> None:
    """Publish a chain's volume as it was measured, and forget transfers that are too old."""
    volumes.publish(tx, volume)
    transfers.forget(tx, volume.chain, before=now - KEEP_MS, blocks=FORGET_BLOCKS)
