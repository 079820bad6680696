"""A guard that reads the bundle of the service decides as the service's preflight does, about every
endpoint of the demo's market and three offers of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.http_service import NOW, configuration, open_service
from tests.support.sellers import KNOWN_PRICE, entry
from tests.support.signing import KEY

from tollgauge.demo.envelopes import BASE
from tollgauge.demo.seller import payee
from tollgauge.demo.sellers import SELLERS
from tollgauge_guard import Allow, Policy, Unknown, decide
from tollgauge_guard.bundle import read_bundle
from tollgauge_guard.decision import Asked, Spent
from tollgauge_guard.lookup import look_up
from tollgauge_guard.offer import read_offer
from tollgauge_guard.resource import parse
from tollgauge_guard.signature import pin_keys

POLICY = Policy(unknown=Unknown.ASK, max_call=10**12, max_host_day=10**12, max_day=10**12)
"""Without limits, and asking about unknown endpoints, like the preflight."""


async def test_guard_and_preflight_decide_alike(
    market_database: Callable[[Path], str], tmp_path: Path
) -> None:
    url = market_database(tmp_path / "market.db")
    seen: Counter[str] = Counter()
    async with open_service(configuration(store_url=url)) as running:
        await running.service.round("bundle")
        answer = await running.get("/trust/bundle")
        signature = answer.headers["tollgauge-signature"]
        bundle = read_bundle(answer.content, signature, pin_keys(KEY.public.jwk))
        for seller in (seller for seller in SELLERS if seller.network == BASE):
            record = bundle.record(parse(seller.url))
            offer = record.offers[0] if record and record.offers else None
            known = offer.pay_to if offer else payee("seller")
            price = (offer and offer.amount) or KNOWN_PRICE
            for pay_to, amount in ((known, price), (payee("thief"), price), (known, 3 * price)):
                said = await running.get(
                    "/trust/preflight",
                    params={
                        "resource": seller.url,
                        "payTo": pay_to,
                        "amount": str(amount),
                        "network": BASE,
                    },
                )
                asked_for = read_offer(entry("seller", amount, payTo=pay_to), seller.url)
                known_now = look_up(bundle, parse(seller.url), (), pay_to)
                asked = Asked(url=seller.url)
                decision = decide(known_now, asked_for, asked, POLICY, NOW // 1_000, Spent())
                name = type(decision).__name__.lower()
                code = None if isinstance(decision, Allow) else decision.code
                service = said.json()
                found = (service["decision"], service["code"])
                assert found == (name, code), (seller.url, service)
                seen[code or name] += 1
    assert seen.keys() >= {"allow", "avoid", "payto-unknown", "price-jump", "unknown-resource"}
