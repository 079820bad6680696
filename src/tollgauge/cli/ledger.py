"""`tollgauge payments`: the ledger as its operator sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tollgauge.cli.inputs import load_config
from tollgauge.cli.terminal import ConfigFile, Json, print_json

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from tollgauge.config import Config
    from tollgauge.store.payments import Attempt, LedgerRow


def payments(
    config: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """The newest payments of the ledger, and every attempt to verify, settle or prove them."""
    from tollgauge.web import wire

    rows, attempts = asyncio.run(_newest(load_config(config), limit))
    if as_json:
        print_json({"payments": [_payment(row, attempts[row.id]) for row in rows]})
        return
    for row in rows:
        words = (row.id, row.state.value, row.amount, row.route, row.transaction or "")
        print(wire.iso(row.created_at), *words)
        for tried in attempts[row.id]:
            print(" ", wire.iso(tried.at), tried.kind, tried.outcome, tried.transaction or "")


async def _newest(
    config: Config, limit: int
) -> tuple[tuple[LedgerRow, ...], dict[str, tuple[Attempt, ...]]]:
    from tollgauge import app as root
    from tollgauge.store import payments as ledger

    async with root.opened(config) as service, service.store.read() as tx:
        rows = await ledger.latest(tx, limit=limit)
        return rows, await ledger.attempts(tx, [row.id for row in rows])


def _payment(row: LedgerRow, attempts: tuple[Attempt, ...]) -> dict[str, Any]:
    """A payment as the operator sees it: neither what was signed nor the answer that it bought."""
    from tollgauge.core.payment import State
    from tollgauge.web import wire

    return {
        "paymentId": row.id,
        "state": row.state.value,
        "reason": row.reason or None,
        "final": row.state is State.SETTLED and row.lease_until == 0,
        "route": row.route,
        "network": row.network,
        "asset": row.asset,
        "amount": str(row.amount),
        "payer": row.payer,
        "payTo": row.pay_to,
        "nonce": row.nonce,
        "transaction": row.transaction,
        "answerStored": row.answer is not None,
        "createdAt": wire.iso(row.created_at),
        "updatedAt": wire.iso(row.updated_at),
        "attempts": [
            {
                "kind": tried.kind,
                "at": wire.iso(tried.at),
                "endedAt": wire.iso(tried.ended_at),
                "outcome": tried.outcome,
                "transaction": tried.transaction,
            }
            for tried in attempts
        ],
    }
