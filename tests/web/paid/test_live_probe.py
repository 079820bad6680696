"""Whose fault a failed live probe is, and who gets its result next: real TLS, a real store."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.support.ledger_world import held_claim
from tests.support.probe_rows import record_probe

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.core.base.units import DAY_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint, Perimeter, endpoint_id, parse_resource
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.jobs import probe
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.monitor.probing import Prober
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.admission import Waiting
from tollgauge.web.paid.live_probe import LiveProbe
from tollgauge.web.settings import LOOPBACK

START = 1_795_000_000_000
REFERENCE = "https://reference.example/"
SITES = [f"https://api.site-{number}.example/paid" for number in range(40)]
SHOP = "https://api.shop.example/paid"
HOSTS = frozenset(url.split("/")[2] for url in (*SITES, SHOP, REFERENCE))
EVERYBODY = Perimeter(mapped=HOSTS)
UP = ProbeResult(
    at=START - MINUTE_MS,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.TARGET,
    up=True,
    timings=Timings(total=90),
    status=402,
)
LONG_DEAD = replace(
    UP, at=START - DAY_MS, outcome=Outcome.TIMEOUT, up=False, status=None, reason="timeout"
)


@dataclass
class Clock:
    """A clock that advances by one second per call."""

    now: int = START

    def __call__(self) -> int:
        self.now += SECOND_MS
        return self.now


@dataclass
class Ours:
    """A store, a way out, and what uses them both."""

    store: Store
    egress: Egress
    references: tuple[str, ...]
    clock: Clock = field(default_factory=Clock)

    @property
    def prober(self) -> Prober:
        return Prober(
            store=self.store,
            egress=self.egress,
            clock=self.clock,
            cadence=Cadence(host_gap_ms=0),
            references=self.references,
        )

    @property
    def live(self) -> LiveProbe:
        return LiveProbe(prober=self.prober, waiting=Waiting(64))

    async def look(self, url: str) -> ProbeResult:
        _, result = await self.live.fresh_result(
            parse_resource(url, EVERYBODY), await held_claim(self.store, now=self.clock.now)
        )
        return result

    async def wave(self, urls: Sequence[str], *, was: ProbeResult | None = None) -> None:
        """Add endpoints and probe them; `was` contains their earlier results."""
        for url in urls:
            await self.know(url, was)
        await probe.run(self.prober, settings=ProbeSettings(), owner="worker")

    async def know(self, url: str, was: ProbeResult | None = None) -> None:
        """An endpoint is added, with a result of it."""
        endpoint = Endpoint(
            id=endpoint_id(url),
            resource=url,
            host=url.split("/")[2],
            first_seen=START,
            last_seen=START,
        )
        await self.store.writing(endpoints.insert, endpoint)
        if was is not None:
            await self.store.writing(record_probe, endpoint.id, was)

    async def history(self, url: str) -> list[ProbeResult]:
        history = await self.store.reading(
            probes.history, endpoint_id(url), since=START - 1, until=self.clock.now
        )
        return list(history)


@contextlib.asynccontextmanager
async def ours(
    folder: Path, *, ca: str = "right", references: tuple[str, ...] = (), **more: Any
) -> AsyncIterator[Ours]:
    """Sites on TLS that all answer 402, and us, with the right trust anchors or with others."""
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*HOSTS).configure_cert(context)
    ca_file = folder / "ca.pem"
    (authority if ca == "right" else other).cert_pem.write_to_path(str(ca_file))
    store = Store.open("sqlite://")
    await store.migrate()
    async with serve(_sells, tls=context) as port:
        mapped = more.pop("mapped", dict.fromkeys(HOSTS, (LOOPBACK, port)))
        egress = Egress(EgressSettings(mapped=mapped, ca_file=str(ca_file), **more))
        egress.start()
        yield Ours(store, egress, references)
        await egress.close()
    await store.close()


async def _sells(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 402, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def read_refusal(error: pytest.ExceptionInfo[Problem]) -> tuple[int, str]:
    return error.value.status, error.value.code


async def test_probe_that_fails_with_the_references_is_not_charged(tmp_path: Path) -> None:
    async with ours(tmp_path, ca="wrong", references=(REFERENCE,)) as here:
        with pytest.raises(Problem) as error:
            await here.look(SHOP)
        (result,) = await here.history(SHOP)
    assert read_refusal(error) == (503, "probe-failed-here")
    assert (result.outcome, result.attribution) == (Outcome.TLS, Attribution.LOCAL)
    assert result.reason == "no-connectivity"


@pytest.mark.parametrize("known", [None, UP, LONG_DEAD])
async def test_probe_that_fails_with_other_sites_is_not_charged(
    tmp_path: Path, known: ProbeResult | None
) -> None:
    """Without a reference, the workers' results of the last minute decide."""
    async with ours(tmp_path, ca="wrong") as here:
        await here.wave(SITES, was=UP)
        if known is not None:
            await here.know(SHOP, known)
        with pytest.raises(Problem) as error:
            await here.look(SHOP)
        result = (await here.history(SHOP))[-1]
    assert read_refusal(error) == (503, "probe-failed-here")
    assert (result.attribution, result.reason) == (Attribution.LOCAL, "common-mode")


async def test_certificate_error_without_a_reference_is_not_charged(tmp_path: Path) -> None:
    """The cause may be this machine's clock or trust anchors."""
    async with ours(tmp_path, ca="wrong") as here:
        with pytest.raises(Problem) as error:
            await here.look(SHOP)
        (result,) = await here.history(SHOP)
    assert read_refusal(error) == (503, "probe-failed-here")
    assert (result.outcome, result.attribution) == (Outcome.TLS, Attribution.UNKNOWN)


async def test_result_of_a_local_fault_is_not_shared(
    tmp_path: Path,
) -> None:
    async with ours(tmp_path, ca="wrong", references=(REFERENCE,)) as here:
        for _ in range(2):
            with pytest.raises(Problem) as error:
                await here.look(SHOP)
            assert read_refusal(error) == (503, "probe-failed-here")
        history = await here.history(SHOP)
    assert len(history) == 2
    assert history[1].at - history[0].at < 10 * SECOND_MS


@pytest.mark.parametrize("answer", ["private", "not found"])
async def test_name_error_without_a_reference_is_probed_again(tmp_path: Path, answer: str) -> None:
    asked = []

    def resolver(host: str) -> Sequence[str]:
        asked.append(host)
        if answer == "private":
            return ("10.0.0.1",)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    async with ours(tmp_path, mapped={}, resolver=resolver) as here:
        for _ in range(2):
            with pytest.raises(Problem) as error:
                await here.look("https://shop.nowhere.com/x")
            assert read_refusal(error) == (503, "probe-failed-here")
        history = await here.history("https://shop.nowhere.com/x")
    assert len(asked) == 2
    assert {result.attribution for result in history} == {Attribution.UNKNOWN}


async def test_private_address_is_attributed_to_the_host_if_a_reference_responds(
    tmp_path: Path,
) -> None:
    async with ours(
        tmp_path, references=(REFERENCE,), resolver=lambda _host: ("10.0.0.1",)
    ) as here:
        result = await here.look("https://shop.nowhere.com/x")
    assert (result.attribution, result.reason) == (Attribution.TARGET, "address-not-public")


async def test_result_about_the_target_is_shared(tmp_path: Path) -> None:
    async with ours(tmp_path) as here:
        one, other = await asyncio.gather(here.look(SHOP), here.look(SHOP))
        history = await here.history(SHOP)
    assert one.at == other.at
    assert len(history) == 1
