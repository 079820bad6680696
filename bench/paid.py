"""`tollgauge bench paid`: what a sale costs, and what a facilitator that never answers does to
everyone else.

Measured: the service as it is served, in a process of its own, over HTTP on loopback, with
payments that the official x402 client signed beforehand. The facilitator is a stub in another
process that says yes at once, or swallows everything.

- A sale's CPU is all of the service's process, all threads, while it sells: once with the calls of
  verify and settle answered with yes on the spot (`own`, for which the limit holds), once with the
  calls made (`whole`). `trust` shares a probe of the last ten seconds, `live` makes one
  (TLS to a seller under a name of its own). On SQLite, and on a PostgreSQL of its own, whose own
  CPU is not counted.
- Free answers: closed loops over every kind of free page, alone and while many callers' payments
  hang; the callers try again after what Retry-After says, with a payment of its own each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import trustme
import uvloop
from eth_account import Account
from x402 import x402Client
from x402.http import decode_payment_required_header, encode_payment_signature_header
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.schemas import PaymentPayload, PaymentRequired

from bench import postgres, service, traffic
from bench.child import Child, started
from bench.counterparties import ANSWER, HOLE, NETWORK
from bench.measurement import Measurement, Report
from bench.seller import free_port
from tollgauge.web.paid.products import history, similar, trust

SALES: Final = 200
SALE_ROUNDS: Final = 5
"""Rounds of so many sales; the least counts."""
ROUNDS: Final = 3
CALLERS: Final = 300
"""Callers whose payments hang, each on a connection of its own."""
FREE_LOOPS: Final = 8
ARRIVING_S: Final = 1.0
"""How long it takes until all of those callers are there."""
ALONE_S: Final = 6.0
HOLE_S: Final = 15.0
"""Longer than the default time-out of verify: what hangs ends, and comes again."""
SALE_CPU_MS: Final = 4.0


def run(sales: int = SALES, rounds: int = ROUNDS, callers: int = CALLERS) -> Report:
    """Measure so many sales, and free requests while so many callers hang."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure(sales, rounds, callers))


async def measure(sales: int, rounds: int, callers: int) -> Report:
    """Sales on each database, then the black hole on SQLite."""
    async with opened("sqlite") as running:
        sqlite = await selling(running, sales)
        free = await holding(running, rounds, callers)
    async with postgres.migrated() as url, opened(url) as running:
        databases = {"sqlite": sqlite, "postgresql": await selling(running, sales)}
    costs = (
        Measurement(
            name=f"sale, {name}",
            figure=products["trust"]["own_cpu_ms"],
            unit="ms of CPU",
            goal=SALE_CPU_MS,
        )
        for name, products in databases.items()
    )
    return Report(
        measurements=(*costs, *_beside_a_black_hole(free)),
        details={**databases, "free": free},
    )


def _beside_a_black_hole(free: dict[str, Any]) -> tuple[Measurement, ...]:
    """Free requests while payments hang, beside the same without."""
    alone, beside = free["alone"], free["black_hole"]
    peer = "the same without payments that hang"
    return (
        Measurement(
            name="free requests, p99",
            figure=beside["p99_ms"],
            unit="ms",
            goal=2,
            peer=peer,
            peer_figure=alone["p99_ms"],
        ),
        Measurement(
            name="free requests",
            figure=beside["rps"],
            unit="requests a second",
            goal=0.8,
            bound="least",
            peer=peer,
            peer_figure=alone["rps"],
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The service's process and port, the stubs' process, and the paying wallet."""

    service: Child
    counterparties: Child
    port: int
    signing: Signing


class Signing:
    """A wallet that pays with the official client."""

    def __init__(self) -> None:
        self._client = x402Client()
        signer = EthAccountSigner(Account.create())
        register_exact_evm_client(self._client, signer, networks=NETWORK)
        self._terms: dict[str, PaymentRequired] = {}

    async def learn(self, port: int, route: str) -> None:
        """What a route asks, from its own 402."""
        connection = await traffic.Connection.to(port)
        reply = await connection.ask(traffic.post(route, b"{}"))
        connection.close()
        terms = decode_payment_required_header(reply.headers["payment-required"])
        assert isinstance(terms, PaymentRequired)  # noqa: S101 - the service speaks version 2
        self._terms[route] = terms

    async def payments(self, route: str, count: int) -> list[str]:
        """Signed payments of a route, as headers."""
        terms = self._terms[route]
        payloads = [await self._client.create_payment_payload(terms) for _ in range(count)]
        return [
            encode_payment_signature_header(payload)
            for payload in payloads
            if isinstance(payload, PaymentPayload)
        ]


async def selling(running: Running, sales: int) -> dict[str, Any]:
    """The CPU of a sale, by product."""
    known, live = service.known(), service.live()
    costs: dict[str, Any] = {}
    for name, route, resources, more in (
        ("trust", trust.PRODUCT.path, known, {}),
        ("history_1d", history.PRODUCT.path, known, {"days": 1}),
        ("history_30d", history.PRODUCT.path, known, {"days": 30}),
        ("similar", similar.PRODUCT.path, service.replaceable(), {}),
    ):
        bodies = [orjson.dumps({"resource": endpoint.resource, **more}) for endpoint in resources]
        await sold(running, route, bodies, min(sales, 2 * len(bodies)))
        costs[name] = {}
        for kind, calls_made in (("own", False), ("whole", True)):
            await running.service.order(do="calls", made=calls_made)
            costs[name] |= _cost(
                kind, [await sold(running, route, bodies, sales) for _ in range(SALE_ROUNDS)]
            )
    bodies = [orjson.dumps({"resource": endpoint.resource}) for endpoint in live]
    await running.service.order(do="calls", made=False)
    costs["live"] = _cost("own", [await sold(running, trust.PRODUCT.path, bodies, len(bodies))])
    await running.service.order(do="calls", made=True)
    return costs


def _cost(kind: str, rounds: Sequence[tuple[float, traffic.Seen]]) -> dict[str, Any]:
    """The least of the rounds: other programs only ever add."""
    every = [seconds for _, seen in rounds for seconds in seen.seconds]
    return {
        f"{kind}_cpu_ms": round(min(cpu for cpu, _ in rounds), 3),
        f"{kind}_cpu_ms_of_rounds": [round(cpu, 3) for cpu, _ in rounds],
        f"{kind}_p50_ms": traffic.Seen(seconds=every).percentile_ms(500),
    }


async def sold(
    running: Running, route: str, bodies: Sequence[bytes], count: int
) -> tuple[float, traffic.Seen]:
    """Sell `count` answers: the service's CPU milliseconds a sale, and what the buyers met."""
    payments = await running.signing.payments(route, count)
    requests = [
        traffic.post(route, body, payment=payment)
        for body, payment in zip(itertools.cycle(bodies), payments, strict=False)
    ]
    await running.service.order(do="probe")
    before = (await running.service.order(do="cpu"))["cpu_s"]
    seen = await traffic.run(running.port, iter(requests), connections=service.AT_ONCE)
    after = (await running.service.order(do="cpu"))["cpu_s"]
    if seen.statuses != {200: count}:
        raise RuntimeError(f"not every sale was made: {dict(seen.statuses)}")
    return 1_000 * (after - before) / count, seen


async def holding(running: Running, rounds: int, callers: int) -> dict[str, Any]:
    """Free answers alone and while payments hang, in turns."""
    alone, held, met = [], [], Counter[int]()
    for _ in range(rounds):
        await warm(running)
        alone.append(await free(running, ALONE_S))
        payments = await running.signing.payments(trust.PRODUCT.path, 8 * callers)
        await running.counterparties.obey(HOLE)
        hanging = asyncio.create_task(hang(running, payments, callers))
        await asyncio.sleep(ARRIVING_S)
        held.append(await free(running, HOLE_S))
        hanging.cancel()
        met += await hanging
        await running.counterparties.obey(ANSWER)
    before, after = _summary(alone, ALONE_S), _summary(held, HOLE_S)
    return {
        "alone": before,
        "black_hole": after,
        "callers": callers,
        "paid_statuses": {str(status): count for status, count in sorted(met.items())},
    }


async def hang(running: Running, payments: Sequence[str], callers: int) -> Counter[int]:
    """Paid requests that are never answered, again and again, until cancelled; what came back."""
    met: Counter[int] = Counter()
    left = iter(payments)
    body = orjson.dumps({"resource": service.known()[0].resource})

    async def caller(number: int) -> None:
        await asyncio.sleep(ARRIVING_S * number / callers)
        connection = await traffic.Connection.to(running.port)
        try:
            for payment in left:
                request = traffic.post(trust.PRODUCT.path, body, payment=payment, caller=number)
                reply = await connection.ask(request)
                met[reply.status] += 1
                await asyncio.sleep(float(reply.headers.get("retry-after", "0")))
        finally:
            connection.close()

    tasks = [asyncio.create_task(caller(number)) for number in range(callers)]
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return met


async def warm(running: Running) -> None:
    """Every page once: the first answers of a process bring its templates with them."""
    await traffic.run(running.port, map(traffic.get, _paths()), connections=FREE_LOOPS)


async def free(running: Running, seconds: float) -> traffic.Seen:
    """Free answers for so long."""
    until = asyncio.get_running_loop().time() + seconds
    seen = await traffic.run(running.port, _pages(), connections=FREE_LOOPS, until=until)
    if seen.statuses.keys() != {200}:
        raise RuntimeError(f"not every free request was answered: {dict(seen.statuses)}")
    return seen


def _pages() -> Iterator[bytes]:
    """Every kind of free answer, again and again; callers enough for the rate limit."""
    for number, path in enumerate(itertools.cycle(_paths())):
        yield traffic.get(path, caller=400 + number % 500)


def _paths() -> Iterator[str]:
    """Every kind of free answer, snapshots most often."""
    ids = [endpoint.id for endpoint in service.known()]
    yield from (f"/trust/snapshot/{id_}" for id_ in ids)
    yield from (f"/endpoint/{id_}" for id_ in ids[:5])
    yield from ("/", "/trust/leaderboard", "/leaderboard", "/trust/stats", "/v1/x402-trust-preview")


def _summary(rounds: Sequence[traffic.Seen], seconds: float) -> dict[str, Any]:
    """Medians over the rounds."""
    return {
        "rps": round(statistics.median(len(seen.seconds) / seconds for seen in rounds)),
        **{
            f"{name}_ms": round(statistics.median(seen.percentile_ms(at) for seen in rounds), 2)
            for name, at in (("p50", 500), ("p99", 990), ("p999", 999), ("max", 1_000))
        },
    }


@contextlib.asynccontextmanager
async def opened(store: str) -> AsyncIterator[Running]:
    """The service on an empty store, `sqlite` or the URL of one, with those whom it deals with."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        key_file, ca_file = _certificates(folder)
        stubs_command = [sys.executable, "-m", "bench.counterparties", str(key_file)]
        stubs = await stack.enter_async_context(started(stubs_command, folder / "counterparties"))
        facilitator, seller = (await stubs.line()).split()
        url = f"sqlite:///{folder / 'bench.db'}" if store == "sqlite" else store
        settings = service.Settings(
            port=free_port(),
            store=url,
            facilitator=f"http://127.0.0.1:{int(facilitator)}",
            seller_port=int(seller),
            ca_file=str(ca_file),
        )
        process = await stack.enter_async_context(
            started(service.command(settings), folder / "service")
        )
        await process.line()
        signing = Signing()
        for product in (trust.PRODUCT, history.PRODUCT, similar.PRODUCT):
            await signing.learn(settings.port, product.path)
        yield Running(service=process, counterparties=stubs, port=settings.port, signing=signing)


def _certificates(folder: Path) -> tuple[Path, Path]:
    """The seller's key and certificates, good for every name of the catalogue, and the authority
    to trust.
    """
    authority = trustme.CA()
    key_file, ca_file = folder / "seller.pem", folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    leaf = authority.issue_cert("*.example.com")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(key_file))
    return key_file, ca_file
