"""Facilitators: a record of the configured one, and the settlements of all on the indexed chains.

The record has the kinds and signers in `/supported`, their changes, and the number of answered
requests per day. The index loops ask for the signers (store/chain/submitters), which updates the
record: one request per CHECK_MS, however many chains and processes there are.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import orjson
from pydantic import TypeAdapter
from sqlalchemy import Connection

from tollgauge.clients.facilitator import Facilitator, FacilitatorUnavailable, Supported
from tollgauge.core.base.units import MINUTE_MS, Clock, day_of
from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.store.chain import periods
from tollgauge.store.chain.periods import ChainPeriods

CHECK_MS: Final = 5 * MINUTE_MS
RECORD_DAYS: Final = 30
CHANGES_MAX: Final = 50
_KEY: Final = "facilitator"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedChange:
    """Payment kinds and signers that `/supported` named or no longer named at `at` (ms UTC)."""

    at: int
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorRecord:
    """The configured facilitator as its answers to `/supported` show it.

    Attributes:
        host: Its host.
        checked_at: The time of the last request (ms UTC).
        answered: Whether that was answered.
        kinds: The payment kinds that it last named: `v2 exact eip155:8453`.
        signers: The addresses with which it signs on EVM chains, in lower-case hex.
        days: (UTC day, requests, answers), oldest first.
        changes: Newest first.
    """

    host: str
    checked_at: int
    answered: bool
    kinds: tuple[str, ...] = ()
    signers: tuple[str, ...] = ()
    days: tuple[tuple[int, int, int], ...] = ()
    changes: tuple[SupportedChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facilitators:
    """The settlements of each indexed chain, and the configured facilitator, None without one."""

    chains: tuple[ChainPeriods, ...]
    configured: FacilitatorRecord | None


_RECORD: Final = TypeAdapter(FacilitatorRecord)


def report(tx: Connection) -> Facilitators:
    """Read both."""
    return Facilitators(chains=periods.load_published(tx), configured=_read(tx))


async def read_signers(store: Store, facilitator: Facilitator, *, clock: Clock) -> frozenset[bytes]:
    """Return the addresses with which the configured facilitator signs, as it last named them. If
    the record is older than CHECK_MS, ask again first.
    """
    if not facilitator.host:
        return frozenset()
    now, known = clock(), await store.reading(_read)
    if known is None or known.host != facilitator.host or now >= known.checked_at + CHECK_MS:
        answer = None
        with suppress(FacilitatorUnavailable):  # the record counts it
            answer = await facilitator.read_supported()
        known = await store.writing(_record, facilitator.host, answer, now=now)
    return frozenset(bytes.fromhex(signer[2:]) for signer in known.signers)


def _record(tx: Connection, host: str, answer: Supported | None, *, now: int) -> FacilitatorRecord:
    """Add an answer to the record, None for a request without one."""
    known = _read(tx)
    if known is None or known.host != host:
        known = FacilitatorRecord(host=host, checked_at=now, answered=False)
    today = day_of(now)
    days = {row[0]: row for row in known.days if row[0] > today - RECORD_DAYS}
    _, checks, answers = days.get(today, (today, 0, 0))
    days[today] = (today, checks + 1, answers + (answer is not None))
    record = replace(
        known,
        checked_at=now,
        answered=answer is not None,
        days=tuple(days[day] for day in sorted(days)),
    )
    if answer is not None:
        record = _compare(record, answer, is_first=not any(row[2] for row in known.days), now=now)
    meta.put(tx, _KEY, orjson.dumps(record).decode())
    return record


def _compare(
    record: FacilitatorRecord, answer: Supported, *, is_first: bool, now: int
) -> FacilitatorRecord:
    """Replace kinds and signers, and record the differences from the last answer."""
    before, after = {*record.kinds, *record.signers}, {*answer.kinds, *answer.signers}
    changes = record.changes
    if before != after and not is_first:
        change = SupportedChange(
            at=now, added=_order(after - before), removed=_order(before - after)
        )
        changes = (change, *changes)[:CHANGES_MAX]
    return replace(
        record, kinds=_order(answer.kinds), signers=_order(answer.signers), changes=changes
    )


def _order(names: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _read(tx: Connection) -> FacilitatorRecord | None:
    text = meta.get(tx, _KEY)
    return None if text is None else _RECORD.validate_json(text)
