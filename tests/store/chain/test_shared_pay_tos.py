"""Payments to an address that several endpoints name, on both databases."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa
from tests.store.chain.test_volumes import ANN, BEN, CHAIN, SELLER, USDC, index_trades, text
from tests.support.attacks import AS_OF, Trade

from tollgauge.core.chain.shared_pay_to import PAYMENTS_MAX, SharedPayTo
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import KnownOffer, Quote
from tollgauge.db.engine import Store
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.monitor import settlement
from tollgauge.store.chain import shared_pay_tos
from tollgauge.store.chain.transfers import transfer
from tollgauge.store.endpoints import endpoints

NETWORK = f"eip155:{CHAIN}"
PAY_TO = text(SELLER)


def quote(amount: int, pay_to: str = PAY_TO) -> Quote:
    return Quote(network=NETWORK, asset=USDC, amount=amount, pay_to=pay_to)


async def list_endpoint(store: Store, path: str, amount: int, *, code: str = "") -> str:
    """Add an endpoint that is paid at the seller's address; return its ID."""
    resource = parse_resource(f"https://shared.dev/{path}")
    offer = KnownOffer(NETWORK, "exact", PAY_TO, amount, app_code=code)
    endpoint = Endpoint(
        id=resource.id,
        resource=resource.url,
        host=resource.host,
        first_seen=0,
        last_seen=0,
        quote=quote(amount),
        quote_at=0,
        offers=(offer,),
    )
    await store.writing(endpoints.insert, endpoint)
    return resource.id


async def figures(store: Store, id_: str, pay_to: str = PAY_TO) -> SharedPayTo | None:
    return await store.reading(shared_pay_tos.get, id_, quote(1, pay_to))


async def test_payments_are_divided_by_amount_and_builder_code(store: Store) -> None:
    trades = [Trade(ANN, SELLER, 500, 3), Trade(BEN, SELLER, 700, 2), Trade(ANN, SELLER, 700, 1)]
    await index_trades(store, [*trades, Trade(ANN, SELLER, 500, 31)])
    cheap = await list_endpoint(store, "cheap", 500)
    maps = await list_endpoint(store, "maps", 700, code="bc_maps")
    news = await list_endpoint(store, "news", 700, code="bc_news")

    def name_app(tx: sa.Connection) -> None:
        of_ben = transfer.update().where(transfer.c.other == BEN)
        tx.execute(of_ben.values(app_code="bc_maps"))

    await store.writing(name_app)
    await settlement.measure(store, CHAIN, now=AS_OF)
    # The seller of `index_trades` names the address too, with a price that no 402 confirmed.
    shown = {id_: await figures(store, id_) for id_ in (cheap, maps, news)}
    nothing = SharedPayTo(pay_to=PAY_TO, endpoints=4, payments=3, certain=0, possible=0)
    assert shown[cheap] == replace(nothing, possible=1)
    assert shown[maps] == replace(nothing, certain=1, possible=1)
    assert shown[news] == replace(nothing, possible=1)
    assert await figures(store, cheap, pay_to=text(BEN)) is None


async def test_figures_end_when_the_address_is_no_longer_shared(store: Store) -> None:
    await index_trades(store, [Trade(ANN, SELLER, 500, 3)])
    other = await list_endpoint(store, "other", 500)
    await settlement.measure(store, CHAIN, now=AS_OF)
    assert await figures(store, other) is not None

    def move(tx: sa.Connection) -> None:
        moved = endpoint_table.update().where(endpoint_table.c.id != other)
        tx.execute(moved.values(quote_pay_to=text(ANN)))

    await store.writing(move)
    await settlement.measure(store, CHAIN, now=AS_OF + 1)
    assert await figures(store, other) is None


async def test_only_the_newest_payments_are_read(store: Store) -> None:
    old = Trade(ANN, SELLER, 700, 9)
    await index_trades(
        store, [old, *(Trade(ANN, SELLER, 500, 1 + n / 10_000) for n in range(PAYMENTS_MAX))]
    )
    dear = await list_endpoint(store, "dear", 700)
    await settlement.measure(store, CHAIN, now=AS_OF)
    found = await figures(store, dear)
    assert found is not None
    assert (found.payments, found.certain, found.possible) == (PAYMENTS_MAX, 0, 0)
