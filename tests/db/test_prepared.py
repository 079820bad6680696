"""Statements that the driver runs itself, on both databases."""

from __future__ import annotations

import asyncio
import sqlite3

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.open_transaction import open_transaction

from tollgauge.db.engine import Store, StoreUnavailable
from tollgauge.db.prepared import Prepared, PreparedAny
from tollgauge.db.schema import upsert
from tollgauge.store.ledger.attempts import payment_attempt

THING = sa.Table(
    "thing",
    sa.MetaData(),
    sa.Column("id", sa.String(8), primary_key=True),
    sa.Column("good", sa.Boolean),
    sa.Column("big", sa.BigInteger),
    sa.Column("bytes", sa.LargeBinary),
    sa.Column("words", sa.Text),
)
ROWS = (
    {"id": "a", "good": True, "big": 2**62, "bytes": b"\x00\xff", "words": "é %s :x ? $1"},
    {"id": "b", "good": False, "big": -1, "bytes": b"", "words": ""},
    {"id": "c", "good": None, "big": None, "bytes": None, "words": None},
)
ADD = Prepared(THING.insert())
ADD_NEW = Prepared(upsert(THING).on_conflict_do_nothing())
ALL = Prepared(sa.select(THING).order_by(THING.c.id))
FIRST = Prepared(sa.select(THING.c.id.label("name")).order_by(THING.c.id.desc()).limit(1))
CHANGE = Prepared(THING.update().where(THING.c.id == sa.bindparam("id_")))

ANY = PreparedAny(
    lambda names: sa.select(THING.c.id).where(
        THING.c.id.in_(names), THING.c.big > sa.bindparam("more")
    ),
    sa.String,
)


@pytest.fixture
async def things(store: Store) -> Store:
    """A store with a table of things in it."""
    await store.writing(lambda connection: THING.create(connection))
    await store.writing(ADD.run_each, ROWS)
    return store


async def test_rows_are_what_sqlalchemy_makes_of_them(things: Store) -> None:
    def both(tx: Connection) -> None:
        rows = ALL.rows(tx, {})
        assert rows == [tuple(row) for row in tx.execute(sa.select(THING).order_by(THING.c.id))]
        assert tuple(row._asdict() for row in rows) == ROWS
        assert [type(row.good) for row in rows] == [bool, bool, type(None)]

    await things.reading(both)


async def test_an_update_changes_what_has_a_value_and_nothing_else(things: Store) -> None:
    def change(tx: Connection) -> None:
        assert CHANGE.run(tx, {"id_": "a", "good": False}) == 1
        assert CHANGE.run(tx, {"id_": "a", "words": "new"}) == 1
        assert CHANGE.run(tx, {"id_": "none", "words": "new"}) == 0
        row = ALL.first(tx, {})
        assert (row.good, row.words, row.big) == (False, "new", 2**62)

    await things.writing(change)


async def test_a_value_that_stands_in_the_statement_is_not_asked_for(things: Store) -> None:
    assert (await things.reading(FIRST.first, {})).name == "c"


async def test_no_row_is_none(things: Store) -> None:
    nothing = Prepared(sa.select(THING).where(THING.c.id == sa.bindparam("id")))
    assert await things.reading(nothing.first, {"id": "none"}) is None
    with pytest.raises(KeyError):
        await things.reading(nothing.first, {})


async def test_an_insert_that_finds_its_key_taken_says_so(things: Store) -> None:
    assert await things.writing(ADD_NEW.run, {**ROWS[0], "words": "other"}) == 0
    assert await things.writing(ADD_NEW.run, {**ROWS[0], "id": "d"}) == 1
    with pytest.raises((sqlite3.IntegrityError, asyncpg.UniqueViolationError)):
        await things.writing(ADD.run, ROWS[0])
    assert len(await things.reading(ALL.rows, {})) == 4


async def test_no_rows_at_once_are_nothing(things: Store) -> None:
    await things.writing(ADD.run_each, ())
    assert len(await things.reading(ALL.rows, {})) == 3


async def test_it_shares_its_transaction_with_sqlalchemy(things: Store) -> None:
    def half(tx: Connection) -> None:
        tx.execute(THING.insert(), {"id": "x"})
        assert CHANGE.run(tx, {"id_": "x", "words": "seen"}) == 1
        raise LookupError

    with pytest.raises(LookupError):
        await things.writing(half)
    assert len(await things.reading(ALL.rows, {})) == 3


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_a_connection_that_is_lost_under_it_is_unavailable(things: Store) -> None:
    def lose(tx: Connection) -> None:
        tx.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 1"))
        tx.execute(sa.text("SELECT 1"))

    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable):  # noqa: PT012 - it is lost before the statement
            async with open_transaction(things, writing=True) as run:
                await run(lose)
                await asyncio.sleep(0.2)
                await run(ALL.rows, {})
    assert len(await things.reading(ALL.rows, {})) == 3


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_work_that_lets_a_failed_statement_pass_is_told(things: Store) -> None:
    def careless(tx: Connection) -> None:
        tx.execute(payment_attempt.delete())
        with pytest.raises(asyncpg.UniqueViolationError):
            ADD.run(tx, ROWS[0])

    with pytest.raises(RuntimeError, match="nothing was written"):
        await things.writing(careless)
    assert len(await things.reading(ALL.rows, {})) == 3


@pytest.mark.parametrize("count", [0, 1, 2, 10, 11, 100, 101, 250])
async def test_any_number_of_values_may_be_asked_for(things: Store, count: int) -> None:
    def asked(tx: Connection) -> list[str]:
        ADD.run_each(tx, [ROWS[0] | {"id": str(number), "big": number} for number in range(260)])
        names = [str(number) for number in range(count)]
        return sorted(row.id for row in ANY.rows(tx, names, {"more": 0}))

    rows = await things.writing(asked)
    assert rows == sorted(str(number) for number in range(1, count))
