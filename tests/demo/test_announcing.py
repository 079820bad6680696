"""Demo sellers that do and do not announce a change of payTo."""

from __future__ import annotations

import pytest

from tollgauge.core.base.signature import recover_signer, text_digest
from tollgauge.core.base.units import DAY_MS, SECOND_MS
from tollgauge.core.directory.seller_file import read
from tollgauge.core.endpoint.identity import Perimeter, parse_resource
from tollgauge.db.engine import Store
from tollgauge.demo import seed
from tollgauge.demo.announcing import AHEAD_MS, file_at, turns
from tollgauge.demo.seller import Seller, offer_at
from tollgauge.demo.sellers import SELLERS
from tollgauge.store.endpoints import listings

NOW = 1_795_000_000_000


def one(label: str) -> Seller:
    return next(seller for seller in SELLERS if seller.label == label)


def test_file_announces_next_change_signed_by_current_payee() -> None:
    seller = one("mixpay")
    (turn_at, *_) = turns(seller, NOW, NOW + 30 * DAY_MS)
    for now in (turn_at - AHEAD_MS, turn_at - 1, turn_at):
        file = read(file_at(seller, now) or b"", seller.host)
        assert file is not None
        assert file.problems == ()
        (signed,) = file.announcements
        item = signed.statement
        assert item.before == offer_at(seller, turn_at - 1).pay_to
        assert item.after == offer_at(seller, turn_at).pay_to
        assert item.not_before * SECOND_MS == turn_at
        assert recover_signer(text_digest(item.text), signed.signature) == item.before
    quiet = read(file_at(seller, turn_at - AHEAD_MS - 1) or b"", seller.host)
    assert quiet is not None
    assert quiet.announcements == ()


def test_most_sellers_have_no_file() -> None:
    assert [seller.label for seller in SELLERS if file_at(seller, NOW)] == ["mixpay"]


async def test_simulated_history_records_which_changes_were_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sellers = {label: one(label) for label in ("mixpay", "drops")}
    monkeypatch.setattr(seed, "SELLERS", tuple(sellers.values()))
    store = Store.open("sqlite://")
    await store.migrate()
    await seed.load_past(store, days=12, now=NOW, report=lambda *_: None)
    announced: dict[str, set[bool]] = {}
    for label, seller in sellers.items():
        perimeter = Perimeter(mapped=frozenset({seller.host}))
        id_ = parse_resource(seller.url, perimeter).id
        events = await store.reading(listings.events, id_, since=0, until=NOW)
        changes = [event for event in events if event.kind == "payto-changed"]
        announced[label] = {event.announced for event in changes}
    assert announced == {"mixpay": {True}, "drops": {False}}
    await store.close()
