"""Faults of demo sellers that a person switches on and off."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tollgauge.clients.peer import public_authorities
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange, Severity, Timings
from tollgauge.demo import control
from tollgauge.demo.behaviours import play
from tollgauge.demo.control import ControlError, run_control
from tollgauge.demo.directory import DIRECTORY_HOST, DIRECTORY_PATH
from tollgauge.demo.faults import PRICE_FACTOR, SLOW_MS, FaultError, Faults, Kind
from tollgauge.demo.market import DemoMarket, run_market
from tollgauge.demo.receiver import RECEIVER_HOST, Receiver
from tollgauge.demo.seller import DemoRequest, Reply, Seller, offer_at
from tollgauge.demo.sellers import SELLERS

_NOW = 1_795_000_000_000
_TERMS = (Kind.PRICE, Kind.PAYTO)


def _find_seller(label: str) -> Seller:
    return next(seller for seller in SELLERS if seller.label == label)


def _ask(faults: Faults, seller: Seller) -> Reply:
    request = DemoRequest(method=seller.method, path=seller.path)
    return faults.apply(seller, play(faults.present(seller), request, _NOW))


def _errors(seller: Seller, answer: Answer) -> set[str]:
    url = seller.url
    exchange = Exchange(
        url=url, method=seller.method, at=_NOW, result=answer, timings=Timings(total=9)
    )
    return {
        finding.rule for finding in lint(exchange).findings if finding.severity is Severity.ERROR
    }


@pytest.fixture
def faults() -> Faults:
    return Faults()


def test_seller_without_faults_is_unchanged(faults: Faults) -> None:
    seller = _find_seller("weather")
    assert faults.present(seller) is seller
    assert _ask(faults, seller).answer.status == 402
    assert faults.list_sellers() == SELLERS


def test_down_seller_answers_503_until_switched_off(faults: Faults) -> None:
    seller = _find_seller("weather")
    faults.switch("weather", "down", on=True)
    assert _ask(faults, seller).answer.status == 503
    assert _ask(faults, _find_seller("fx")).answer.status == 402
    faults.switch("weather", "down", on=False)
    assert _ask(faults, seller).answer.status == 402
    assert faults.on() == {}


def test_slow_seller_answers_later_and_otherwise_as_usual(faults: Faults) -> None:
    seller = _find_seller("weather")
    before = _ask(faults, seller)
    faults.switch("weather", "slow", on=True)
    after = _ask(faults, seller)
    assert (after.answer, after.delay_ms) == (before.answer, before.delay_ms + SLOW_MS)


@pytest.mark.parametrize("label", ["weather", "quotes", "surge"])
def test_changed_terms_apply_to_every_later_offer(faults: Faults, label: str) -> None:
    seller = _find_seller(label)
    before = offer_at(seller, _NOW)
    for kind in _TERMS:
        faults.switch(label, kind, on=True)
    after = offer_at(faults.present(seller), _NOW)
    assert after.amount == PRICE_FACTOR * before.amount
    assert after.pay_to != before.pay_to
    assert faults.present(seller) is faults.present(seller)
    assert _errors(seller, _ask(faults, seller).answer) == set()


@pytest.mark.parametrize("label", ["weather", "quotes", "tokenrisk", "palette"])
def test_broken_envelope_breaks_a_lint_rule(faults: Faults, label: str) -> None:
    seller = _find_seller(label)
    assert _errors(seller, _ask(faults, seller).answer) == set()
    faults.switch(label, "broken", on=True)
    assert _errors(seller, _ask(faults, seller).answer)


def test_changed_payee_stays_on_its_chain(faults: Faults) -> None:
    faults.switch("soltx", "payto", on=True)
    assert _errors(_find_seller("soltx"), _ask(faults, _find_seller("soltx")).answer) == set()


def test_faults_can_be_combined(faults: Faults) -> None:
    for kind in ("down", "slow", "price"):
        faults.switch("weather", kind, on=True)
    reply = _ask(faults, _find_seller("weather"))
    assert (reply.answer.status, reply.delay_ms) == (503, SLOW_MS)
    assert faults.on() == {"weather": ["down", "price", "slow"]}


def test_unknown_seller_or_fault_is_rejected_with_valid_names(faults: Faults) -> None:
    with pytest.raises(FaultError, match="no seller named nobody") as unknown:
        faults.switch("nobody", "down", on=True)
    assert "weather" in unknown.value.hint
    with pytest.raises(FaultError, match="no fault named rain") as odd:
        faults.switch("weather", "rain", on=True)
    assert all(kind in odd.value.hint for kind in Kind)


async def _get(http: httpx.AsyncClient, market: DemoMarket, host: str, path: str) -> httpx.Response:
    address, port = market.mapped[host]
    return await http.get(
        f"https://{address}:{port}{path}",
        headers={"host": host},
        extensions={"sni_hostname": host},
    )


async def test_market_and_directory_show_switched_faults(tmp_path: Path) -> None:
    faults, seller = Faults(), _find_seller("weather")
    async with run_market(lambda: _NOW, tmp_path, latency=lambda *_: 0, faults=faults) as market:
        trust = ssl.create_default_context(cafile=market.ca_file)
        alone = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(
            timeout=30, verify=trust, trust_env=False, limits=alone
        ) as http:

            async def challenge() -> dict[str, Any]:
                answer = await _get(http, market, seller.host, seller.path)
                document = json.loads(base64.b64decode(answer.headers["payment-required"]))
                return dict(document["accepts"][0])

            async def line() -> dict[str, Any] | None:
                answer = await _get(http, market, DIRECTORY_HOST, DIRECTORY_PATH)
                items = (item for item in answer.json()["items"] if item)
                return next((i for i in items if i.get("resource") == seller.url), None)

            faults.switch("weather", "price", on=True)
            faults.switch("weather", "payto", on=True)
            asked, listed = await challenge(), await line()
            assert asked["amount"] == str(PRICE_FACTOR * seller.amounts[0])
            assert listed is not None
            assert listed["accepts"][0] == asked
            faults.switch("weather", "delisted", on=True)
            assert await line() is None


async def test_receiver_keeps_alerts_and_control_server_shows_them(tmp_path: Path) -> None:
    async with run_market(lambda: _NOW, tmp_path, latency=lambda *_: 0) as market:
        trust = ssl.create_default_context(cafile=market.ca_file)
        async with (
            run_control(Faults(), market.receiver) as url,
            httpx.AsyncClient(timeout=30, verify=trust, trust_env=False) as http,
        ):
            address, port = market.mapped[RECEIVER_HOST]
            said = [
                await http.post(
                    f"https://{address}:{port}/alerts",
                    content=body,
                    headers={"host": RECEIVER_HOST},
                    extensions={"sni_hostname": RECEIVER_HOST},
                )
                for body in (b'{"type":"liveness_down"}', b"{", b'{"type":"liveness_recovered"}')
            ]
            shown = (await http.get(f"{url}/alerts")).json()["alerts"]
    assert [answer.status_code for answer in said] == [204, 400, 204]
    assert [alert["body"]["type"] for alert in shown] == ["liveness_down", "liveness_recovered"]
    assert {alert["at"] for alert in shown} == {_NOW}


@pytest_asyncio.fixture
async def control_url(faults: Faults) -> AsyncIterator[str]:
    async with run_control(faults, Receiver()) as url:
        yield url


async def test_fault_is_switched_through_the_control_server(
    faults: Faults, control_url: str
) -> None:
    state = await asyncio.to_thread(control.switch, control_url, "weather", "down", on=True)
    assert state["on"] == faults.on() == {"weather": ["down"]}
    assert state == await asyncio.to_thread(control.state, control_url)
    assert state["kinds"].keys() == set(Kind)
    state = await asyncio.to_thread(control.switch, control_url, "weather", "down", on=False)
    assert state["on"] == faults.on() == {}


async def test_control_server_rejects_unknown_seller(control_url: str) -> None:
    with pytest.raises(ControlError, match="no seller named nobody"):
        await asyncio.to_thread(control.switch, control_url, "nobody", "down", on=True)


async def test_control_server_rejects_other_host_names(faults: Faults, control_url: str) -> None:
    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=public_authorities()) as http:
        answer = await http.put(
            f"{control_url}/faults/weather/down", headers={"host": "evil.example"}
        )
        form = await http.post(f"{control_url}/faults/weather/down")
    assert (answer.status_code, form.status_code) == (421, 405)
    assert faults.on() == {}


def test_missing_demo_is_reported_with_how_to_start_one() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ControlError, match="No demo responds") as nobody:
            control.state(url)
    assert "make demo" in nobody.value.hint


async def test_control_server_uses_another_port_if_its_port_is_taken(faults: Faults) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with run_control(faults, Receiver(), port=port) as url:
            assert not url.endswith(f":{port}")
            assert (await asyncio.to_thread(control.state, url))["on"] == {}
