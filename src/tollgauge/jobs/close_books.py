"""The check of the books, a day at a time: does what was sold equal what the chain brought?

Rules (docs/payments.md):
- a day is judged once it is complete, and its outcome is remembered; the last days are looked at
  again each time, older ones when a sale of theirs changed;
- a difference that nothing explains is an alarm, once for each sum that it comes to. It is raised
  before it is remembered, so that a process that dies in between raises it twice rather than never.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, MINUTE_MS, day_of
from tollgauge.core.sale.books import Account, Day
from tollgauge.db.engine import Store
from tollgauge.observe import books_alarm
from tollgauge.store.ledger import books

EVERY_MS: Final = 10 * MINUTE_MS
AGAIN_DAYS: Final = 7
"""How many days are looked at again, however they came out: a sale may settle as late as that
without the `settle` loop."""
OLDER_DAYS: Final = 31
"""How many older days are checked at once."""


async def run(store: Store, *, now: int) -> int:
    """Check the days that want it; how many differences were found that nothing explains."""
    accounts = await store.reading(_accounts)
    unexplained = 0
    for account, checked in accounts:
        for number in _wanted(account, checked, today=day_of(now)):
            day = await store.reading(books.of_day, account, number)
            if day.complete:
                await _remember(store, day, checked.get(number), now=now)
                unexplained += day.unexplained
    return unexplained


def _accounts(tx: Connection) -> list[tuple[Account, Mapping[int, int]]]:
    """Every account of ours, with the difference of each day that was checked."""
    return [(account, books.checked(tx, account)) for account in books.accounts(tx)]


def _wanted(account: Account, checked: Mapping[int, int], *, today: int) -> Iterable[int]:
    """The complete days that were not checked, that were out of balance, or that are recent."""
    if account.read_from is None or account.read_to is None:
        return ()
    first = account.read_from // DAY_MS + 1
    days = range(min(today, day_of(account.read_to) - 1), first - 1, -1)
    recent = [day for day in days if day > today - AGAIN_DAYS]
    older = [day for day in days if day <= today - AGAIN_DAYS and checked.get(day) != 0]
    # New ones first: those that stay out of balance must not keep them waiting.
    older.sort(key=lambda day: day in checked)
    return (*recent, *older[:OLDER_DAYS])


async def _remember(store: Store, day: Day, known: int | None, *, now: int) -> None:
    if known == day.difference:
        return
    if day.unexplained:
        books_alarm(day.account.address, day.day, day.difference)
    await store.writing(books.check, day, now=now)
