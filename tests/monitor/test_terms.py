"""Changes of terms that probes and directories detect, on real databases."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa
from tests.support.crawls import CENT, NOW, TWO, crawl, item, load_endpoint, term_changes
from tests.support.databases import on_sqlite

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.evidence_document import from_json, to_json
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring, terms

pytestmark = on_sqlite


async def test_terms_of_a_probe_are_compared_with_those_of_earlier_probes(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    row = await load_endpoint(store, one)
    assert await store.writing(terms.observe_quotes, {row.id: (TWO, NOW + 1)}) == ()
    assert await store.writing(terms.observe_quotes, {row.id: (TWO, NOW + 2)}) == ()
    changes = await store.writing(terms.observe_quotes, {row.id: (CENT, NOW + 3)})
    assert await store.writing(terms.observe_quotes, {row.id: (TWO, NOW + 2)}) == ()  # late
    (change,) = changes
    assert change.price is not None
    assert (change.price.before, change.price.usual) == (20_000, 20_000)
    assert replace(change, price=None) == TermChange(
        at=NOW + 3, kind="price-changed", source="probe", before="20000", after="10000"
    )
    assert await term_changes(store, row.id, since=NOW + 2, until=NOW + 3) == changes
    assert await term_changes(store, row.id, since=NOW + 3, until=NOW + 9) == ()
    assert await term_changes(store, row.id, since=NOW, until=NOW + 2) == ()


async def test_terms_of_a_probe_have_priority_over_a_listing(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    row = await load_endpoint(store, one)
    await store.writing(terms.observe_quotes, {row.id: (TWO, NOW + 1)})
    await crawl(store, "bazaar", replace(one, quote=replace(CENT, amount=5)), now=NOW + 2)
    row = await load_endpoint(store, one)
    assert (row.quote, row.quote_at) == (TWO, NOW + 1)


async def test_price_confirmed_by_a_probe_belongs_to_the_probe(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    row = await load_endpoint(store, one)
    await store.writing(terms.observe_quotes, {row.id: (CENT, NOW + 1)})
    await crawl(store, "bazaar", replace(one, quote=TWO), now=NOW + 2)
    row = await load_endpoint(store, one)
    assert (row.quote, row.quote_at) == (CENT, NOW + 1)


async def test_confirmed_price_is_not_written_again(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    row = await load_endpoint(store, one)
    statements: list[str] = []

    def observe(tx: sa.Connection, quote: Quote, at: int) -> None:
        sa.event.listen(tx, "before_cursor_execute", lambda *seen: statements.append(seen[2]))
        terms.observe_quotes(tx, {row.id: (quote, at)})

    await store.writing(observe, CENT, NOW + 1)
    updates = [text for text in statements if text.startswith("UPDATE endpoint")]
    assert len(updates) == 1
    assert "quote_source" in updates[0]
    assert "quote_pay_to" not in updates[0]
    statements.clear()
    await store.writing(observe, TWO, NOW + 2)
    assert any("quote_pay_to" in text for text in statements if text.startswith("UPDATE endpoint"))


async def test_change_seen_by_several_sources_is_reported_once(store: Store) -> None:
    one = item()
    for source in ("bazaar", "x402scan"):
        await crawl(store, source, one)
    row = await load_endpoint(store, one)
    await store.writing(terms.observe_quotes, {row.id: (CENT, NOW)})
    await store.writing(terms.observe_quotes, {row.id: (TWO, NOW + 1)})
    await store.writing(terms.observe_quotes, {row.id: (CENT, NOW + 2)})
    await store.writing(terms.observe_quotes, {row.id: (TWO, NOW + 3)})
    for source in ("bazaar", "x402scan"):
        await crawl(store, source, replace(one, quote=TWO), now=NOW + 4)
    seen = await term_changes(store, row.id, since=0, until=NOW + 9)
    assert [(change.at - NOW, change.source) for change in seen] == [
        (1, "probe"),
        (2, "probe"),
        (3, "probe"),
    ]


async def test_payto_that_varies_from_the_first_day_is_not_a_change(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    id_ = (await load_endpoint(store, one)).id
    for number in range(6):
        quote = replace(CENT, pay_to=f"0x{number:040x}")
        await store.writing(terms.observe_quotes, {id_: (quote, NOW + number * HOUR_MS)})
    endpoint = await load_endpoint(store, one)
    assert endpoint.pay_to_varies
    assert endpoint.quote is not None
    assert endpoint.quote.pay_to == f"0x{5:040x}"
    seen = await term_changes(store, id_, since=0, until=NOW + DAY_MS)
    assert len(seen) == 2, "later changes are not recorded"
    evidence = await store.reading(scoring.gather, endpoint, as_of=NOW + 6 * HOUR_MS)
    assert evidence.pay_to_varies
    assert from_json(to_json(evidence)) == evidence


async def test_payto_that_was_stable_for_a_week_never_counts_as_varying(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    id_ = (await load_endpoint(store, one)).id
    await store.writing(terms.observe_quotes, {id_: (CENT, NOW)})
    await store.writing(terms.observe_quotes, {id_: (TWO, NOW + 7 * DAY_MS)})
    for number in range(6):
        quote = replace(TWO, pay_to=f"0x{number:040x}")
        at = NOW + 7 * DAY_MS + (number + 1) * MINUTE_MS
        await store.writing(terms.observe_quotes, {id_: (quote, at)})
    endpoint = await load_endpoint(store, one)
    assert not endpoint.pay_to_varies
    assert endpoint.payto_history is not None
    assert endpoint.payto_history.settled == CENT.pay_to
    seen = await term_changes(store, id_, since=0, until=NOW + 8 * DAY_MS)
    assert len([change for change in seen if change.kind == "payto-changed"]) == 6
