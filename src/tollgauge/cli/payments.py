"""`tollgauge payments`: the ledger and its reconciliation, for the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tollgauge.cli.terminal import (
    BAD,
    GOOD,
    ConfigFile,
    Json,
    load_existing,
    note,
    show,
    with_store,
)
from tollgauge.core.base.units import DAY_MS, day_of, iso, iso_day

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from sqlalchemy import Connection

    from tollgauge.core.sale.payment_state import Account, Day
    from tollgauge.store.ledger.attempts import Attempt
    from tollgauge.store.ledger.payments import LedgerRow
    from tollgauge.store.ledger.reconciliation import UnattributedDeposit
    from tollgauge.web.paid.sale import SaleSettings

_COLUMNS: Final = ("sales", "settled", "received", "unattributed", "awaited", "difference")


def payments(
    config: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Number of payments to list.")] = 20,
    books: Annotated[
        bool, typer.Option("--books", help="Compare each day's sales with the chain's transfers.")
    ] = False,
    days: Annotated[int, typer.Option(min=1, max=3_660, help="Number of days for --books.")] = 7,
    as_json: Json = False,
) -> None:
    """List the newest payments, or reconcile sales with the chain. Exit 1 if they do not match.

    Each payment is listed with its attempts to verify, settle or prove it, followed by transfers
    that paid for nothing. --books compares each day's totals with those of the chain.
    """
    from tollgauge.service_status import now_ms

    settings = load_existing(config)
    if books:
        document = with_store(
            settings,
            lambda store: store.reading(_read_books, settings.sale, days=days, now=now_ms()),
        )
        _show_books(document, as_json=as_json)
    else:
        document = with_store(settings, lambda store: store.reading(_read_ledger, limit=limit))
        show(document, _ledger_lines(document), as_json=as_json)


def _ledger_lines(document: dict[str, Any]) -> Iterator[str]:
    if not document["payments"]:
        yield "The ledger is empty: there are no payments yet."
    for payment in document["payments"]:
        figures = (payment[name] for name in ("createdAt", "paymentId", "state", "amount", "route"))
        yield _line(*figures, payment["transaction"] or "")
        for attempt in payment["attempts"]:
            steps = (attempt[name] for name in ("at", "kind", "outcome"))
            yield _line(" ", *steps, attempt["transaction"] or "")
    if document["unattributed"]:
        yield "Incoming transfers that paid for nothing (unattributed; they unlock nothing):"
    for deposit in document["unattributed"]:
        sale = deposit["payment"]
        owner = f"payment {sale['paymentId']} is {sale['state']}" if sale else ""
        transfer = (deposit["at"], deposit["amount"], "from", deposit["payer"])
        yield _line(*transfer, deposit["transaction"], owner)


def _line(*cells: object) -> str:
    return " ".join(map(str, cells))


def _show_books(document: dict[str, Any], *, as_json: bool) -> None:
    """Print the reconciliation and exit: 1 if the totals of a complete day do not match."""
    show(document, _book_lines(document), as_json=as_json)
    if document["unexplained"] and not as_json:
        note(
            "A complete day's sales differ from the chain's transfers. `tollgauge payments` lists "
            "them; docs/operating/reconciliation.md explains possible causes."
        )
    raise typer.Exit(BAD if document["unexplained"] else GOOD)


def _book_lines(document: dict[str, Any]) -> Iterator[str]:
    if not document["accounts"]:
        yield "There is nothing to reconcile: sale.pay_to is not set and there are no payments."
    for account in document["accounts"]:
        yield f"{account['payTo']}, atomic units of {account['asset']} on {account['network']}"
        if account["readTo"] is None:
            yield "  The chain is not read for it: set a node of it, and run its index loop."
        else:
            yield f"  The chain is read, and final, up to {account['readTo']}."
        yield _line(" ", "day".ljust(10), *(name.rjust(12) for name in _COLUMNS))
        for day in document["days"]:
            if all(day[name] == account[name] for name in ("network", "asset", "payTo")):
                state = "complete" if day["complete"] else "open"
                figures = (str(day[name]).rjust(12) for name in _COLUMNS)
                yield _line(
                    " ", day["day"], *figures, "NOT EXPLAINED" if day["unexplained"] else state
                )


def _read_ledger(tx: Connection, *, limit: int) -> dict[str, Any]:
    """Load the newest payments with their attempts, and the newest unattributed transfers."""
    from tollgauge.store.ledger import attempts, reconciliation
    from tollgauge.store.ledger import payments as ledger

    rows = ledger.latest(tx, limit=limit)
    by_payment = attempts.of_payments(tx, [row.id for row in rows])
    deposits = reconciliation.find_unattributed(tx, limit=limit)
    return {
        "payments": [_payment(row, by_payment[row.id]) for row in rows],
        "unattributed": [_describe_deposit(deposit) for deposit in deposits],
    }


def _read_books(tx: Connection, sale: SaleSettings, *, days: int, now: int) -> dict[str, Any]:
    """Load the newest days of each payment address, and older days that did not match."""
    from tollgauge.core.sale.payment_state import Account
    from tollgauge.store.ledger import reconciliation

    accounts = reconciliation.accounts(tx)
    current = Account(network=sale.network, asset=sale.asset.lower(), address=sale.pay_to.lower())
    if sale.pay_to and not any(account.same_as(current) for account in accounts):
        accounts = (*accounts, current)
    newest = range(day_of(now) - days + 1, day_of(now) + 1)
    book_days: list[Day] = []
    for account in accounts:
        checked = reconciliation.load_checked(tx, account)
        older = {day for day, difference in checked.items() if difference}
        for number in sorted({*newest, *older}, reverse=True):
            day = reconciliation.of_day(tx, account, number)
            if day.complete or day.transfers or day.sales or account.same_as(current):
                book_days.append(day)
    return {
        "accounts": [_account(account) for account in accounts],
        "days": [_day(day) for day in book_days],
        "unexplained": sum(day.unexplained for day in book_days),
    }


def _account(account: Account) -> dict[str, Any]:
    return {
        "network": account.network,
        "asset": account.asset,
        "payTo": account.address,
        "readFrom": None if account.read_from is None else iso(account.read_from),
        "readTo": None if account.read_to is None else iso(account.read_to),
    }


def _day(day: Day) -> dict[str, Any]:
    """Return a day of the reconciliation; amounts are decimal strings of atomic units."""
    return {
        "day": iso_day(day.day * DAY_MS),
        "network": day.account.network,
        "asset": day.account.asset,
        "payTo": day.account.address,
        "sales": day.sales,
        "settled": str(day.settled),
        "transfers": day.transfers,
        "received": str(day.received),
        "unattributedTransfers": day.unattributed_transfers,
        "unattributed": str(day.unattributed),
        "awaited": str(day.awaited),
        "difference": str(day.difference),
        "complete": day.complete,
        "unexplained": day.unexplained,
    }


def _describe_deposit(deposit: UnattributedDeposit) -> dict[str, Any]:
    """Return a transfer that paid for nothing; `payment` is the one with its authorization."""
    payment = {
        "paymentId": deposit.payment_id,
        "state": None if deposit.state is None else str(deposit.state),
    }
    return {
        "at": iso(deposit.at),
        "network": deposit.network,
        "asset": deposit.asset,
        "amount": str(deposit.value),
        "payer": deposit.payer,
        "payTo": deposit.pay_to,
        "nonce": deposit.nonce,
        "transaction": deposit.transaction,
        "logIndex": deposit.log_index,
        "block": deposit.block,
        "payment": payment if deposit.payment_id else None,
    }


def _payment(row: LedgerRow, attempts: tuple[Attempt, ...]) -> dict[str, Any]:
    """Return a payment without the signed payload and the purchased response."""
    from tollgauge.core.sale.payment_state import State

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
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
        "attempts": [
            {
                "kind": attempt.kind,
                "at": iso(attempt.at),
                "endedAt": iso(attempt.ended_at),
                "outcome": attempt.outcome,
                "transaction": attempt.transaction,
            }
            for attempt in attempts
        ],
    }
