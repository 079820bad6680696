"""`tollgauge bench paid`: the cost of a sale, and free requests while the facilitator hangs.

The complete service runs in a separate process and is called over HTTP on loopback. The official
x402 client signs the payments in advance. The facilitator is a stub in another process that accepts
each payment immediately, or never responds.

- Sales: the CPU of the service's process, all threads, once without requests to the facilitator
  (`own`, which the goal limits) and once with them (`whole`). `trust` shares a probe of the last
  ten seconds; `live` probes the seller over TLS. Measured on SQLite and on PostgreSQL, whose own
  CPU is not included.
- Free requests: closed loops over all free pages, first without paid requests, then while the
  payments of many callers hang. The callers retry after Retry-After with a new payment.
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
from bench.child import Child, start_child
from bench.counterparties import ANSWER, HOLE, NETWORK
from bench.measurement import Measurement, Report
from bench.seller import free_port
from tollgauge.web.paid.products import history, similar, trust

SALES: Final = 50  # per round
SALE_ROUNDS: Final = 5
"""Rounds of `SALES` sales. The lowest cost is reported: other programs can only add to it."""
ROUNDS: Final = 3
CALLERS: Final = 300
"""Callers whose payments hang, each on a separate connection."""
FREE_LOOPS: Final = 8
ARRIVING_S: Final = 1.0
"""Time in which all these callers connect."""
WITHOUT_PAYMENTS_S: Final = 6.0
HANGING_S: Final = 15.0
"""Longer than the default timeout of verify, so that payments time out and are retried."""
SALE_CPU_MS: Final = 4.0


def run(sales: int = SALES, rounds: int = ROUNDS, callers: int = CALLERS) -> Report:
    """Measure sales, and free requests while the payments of `callers` hang."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure(sales, rounds, callers))


async def measure(sales: int, rounds: int, callers: int) -> Report:
    """Measure sales on each database, and free requests on SQLite."""
    async with run_service("sqlite") as running:
        sqlite = await measure_sales(running, sales)
        free = await measure_free_requests(running, rounds, callers)
    async with postgres.run_migrated() as url, run_service(url) as running:
        databases = {"sqlite": sqlite, "postgresql": await measure_sales(running, sales)}
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
        measurements=(*costs, *_compare_free_requests(free)),
        details={**databases, "free": free},
    )


def _compare_free_requests(free: dict[str, Any]) -> tuple[Measurement, ...]:
    undisturbed, hanging = free["undisturbed"], free["hanging"]
    peer = "the same without hanging payments"
    return (
        Measurement(
            name="free requests, p99",
            figure=hanging["p99_ms"],
            unit="ms",
            goal=2,
            peer=peer,
            peer_figure=undisturbed["p99_ms"],
        ),
        Measurement(
            name="free requests",
            figure=hanging["rps"],
            unit="requests per second",
            goal=0.8,
            bound="least",
            peer=peer,
            peer_figure=undisturbed["rps"],
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
        """Store the payment terms of a route's 402."""
        connection = await traffic.Connection.to(port)
        reply = await connection.ask(traffic.post(route, b"{}"))
        connection.close()
        terms = decode_payment_required_header(reply.headers["payment-required"])
        assert isinstance(terms, PaymentRequired)  # noqa: S101 - the service uses version 2
        self._terms[route] = terms

    async def payments(self, route: str, count: int) -> list[str]:
        """Sign payments for a route and return them as header values."""
        terms = self._terms[route]
        payloads = [await self._client.create_payment_payload(terms) for _ in range(count)]
        return [
            encode_payment_signature_header(payload)
            for payload in payloads
            if isinstance(payload, PaymentPayload)
        ]


async def measure_sales(running: Running, sales: int) -> dict[str, Any]:
    """Return the CPU cost of a sale for each product."""
    known, live = service.known_endpoints(), service.live_endpoints()
    costs: dict[str, Any] = {}
    for name, route, resources, more in (
        ("trust", trust.PRODUCT.path, known, {}),
        ("history_1d", history.PRODUCT.path, known, {"days": 1}),
        ("history_30d", history.PRODUCT.path, known, {"days": 30}),
        ("similar", similar.PRODUCT.path, service.replaceable(), {}),
    ):
        bodies = [orjson.dumps({"resource": endpoint.resource, **more}) for endpoint in resources]
        await sell(running, route, bodies, min(sales, 2 * len(bodies)))
        costs[name] = {}
        for kind, calls_made in (("own", False), ("whole", True)):
            await running.service.order(do="calls", made=calls_made)
            costs[name] |= _cost(
                kind, [await sell(running, route, bodies, sales) for _ in range(SALE_ROUNDS)]
            )
    bodies = [orjson.dumps({"resource": endpoint.resource}) for endpoint in live]
    await running.service.order(do="calls", made=False)
    costs["live"] = _cost("own", [await sell(running, trust.PRODUCT.path, bodies, len(bodies))])
    await running.service.order(do="calls", made=True)
    return costs


def _cost(kind: str, rounds: Sequence[tuple[float, traffic.Seen]]) -> dict[str, Any]:
    # The minimum of the rounds: other programs can only add to the cost.
    every = [seconds for _, seen in rounds for seconds in seen.seconds]
    return {
        f"{kind}_cpu_ms": round(min(cpu for cpu, _ in rounds), 3),
        f"{kind}_cpu_ms_of_rounds": [round(cpu, 3) for cpu, _ in rounds],
        f"{kind}_p50_ms": traffic.Seen(seconds=every).percentile_ms(500),
    }


async def sell(
    running: Running, route: str, bodies: Sequence[bytes], count: int
) -> tuple[float, traffic.Seen]:
    """Sell `count` responses and return the CPU milliseconds per sale and the buyers' results."""
    payments = await running.signing.payments(route, count)
    requests = [
        traffic.post(route, body, payment=payment)
        for body, payment in zip(itertools.cycle(bodies), payments, strict=False)
    ]
    await running.service.order(do="probe")
    before = (await running.service.order(do="cpu"))["cpu_s"]
    seen = await traffic.run(running.port, iter(requests), connections=service.CONCURRENT_SALES)
    after = (await running.service.order(do="cpu"))["cpu_s"]
    if seen.statuses != {200: count}:
        raise RuntimeError(f"Some sales failed: {dict(seen.statuses)}")
    return 1_000 * (after - before) / count, seen


async def measure_free_requests(running: Running, rounds: int, callers: int) -> dict[str, Any]:
    """Measure free requests without and with hanging payments, in alternating rounds."""
    undisturbed, disturbed, met = [], [], Counter[int]()
    for _ in range(rounds):
        await warm(running)
        undisturbed.append(await free(running, WITHOUT_PAYMENTS_S))
        payments = await running.signing.payments(trust.PRODUCT.path, 8 * callers)
        await running.counterparties.obey(HOLE)
        hanging = asyncio.create_task(hang(running, payments, callers))
        await asyncio.sleep(ARRIVING_S)
        disturbed.append(await free(running, HANGING_S))
        hanging.cancel()
        met += await hanging
        await running.counterparties.obey(ANSWER)
    before, after = _summary(undisturbed, WITHOUT_PAYMENTS_S), _summary(disturbed, HANGING_S)
    return {
        "undisturbed": before,
        "hanging": after,
        "callers": callers,
        "paid_statuses": {str(status): count for status, count in sorted(met.items())},
    }


async def hang(running: Running, payments: Sequence[str], callers: int) -> Counter[int]:
    """Repeat paid requests that hang until cancelled. Returns the number of each status."""
    met: Counter[int] = Counter()
    left = iter(payments)
    body = orjson.dumps({"resource": service.known_endpoints()[0].resource})

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
    """Request every page once: the first responses of a process include loading its templates."""
    await traffic.run(running.port, map(traffic.get, _paths()), connections=FREE_LOOPS)


async def free(running: Running, seconds: float) -> traffic.Seen:
    """Request free pages for `seconds`."""
    until = asyncio.get_running_loop().time() + seconds
    seen = await traffic.run(running.port, _pages(), connections=FREE_LOOPS, until=until)
    if seen.statuses.keys() != {200}:
        raise RuntimeError(f"Some free requests failed: {dict(seen.statuses)}")
    return seen


def _pages() -> Iterator[bytes]:
    """Yield requests for all free pages, from enough callers to stay below the rate limit."""
    for number, path in enumerate(itertools.cycle(_paths())):
        yield traffic.get(path, caller=400 + number % 500)


def _paths() -> Iterator[str]:
    """Yield the paths of all free pages, snapshots most often."""
    ids = [endpoint.id for endpoint in service.known_endpoints()]
    yield from (f"/trust/snapshot/{id_}" for id_ in ids)
    yield from (f"/endpoint/{id_}" for id_ in ids[:5])
    yield from ("/", "/trust/leaderboard", "/leaderboard", "/trust/stats", "/v1/x402-trust-preview")


def _summary(rounds: Sequence[traffic.Seen], seconds: float) -> dict[str, Any]:
    """Return the medians of the rounds."""
    return {
        "rps": round(statistics.median(len(seen.seconds) / seconds for seen in rounds)),
        **{
            f"{name}_ms": round(statistics.median(seen.percentile_ms(at) for seen in rounds), 2)
            for name, at in (("p50", 500), ("p99", 990), ("p999", 999), ("max", 1_000))
        },
    }


@contextlib.asynccontextmanager
async def run_service(store: str) -> AsyncIterator[Running]:
    """Run the service on an empty store (`sqlite` or a database URL), with stubs for other
    parties.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        key_file, ca_file = _certificates(folder)
        stubs_command = [sys.executable, "-m", "bench.counterparties", str(key_file)]
        stubs = await stack.enter_async_context(
            start_child(stubs_command, folder / "counterparties")
        )
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
            start_child(service.command(settings), folder / "service")
        )
        await process.line()
        signing = Signing()
        for product in (trust.PRODUCT, history.PRODUCT, similar.PRODUCT):
            await signing.learn(settings.port, product.path)
        yield Running(service=process, counterparties=stubs, port=settings.port, signing=signing)


def _certificates(folder: Path) -> tuple[Path, Path]:
    """Return the file with the seller's key and certificate, and that of the authority to trust."""
    authority = trustme.CA()
    key_file, ca_file = folder / "seller.pem", folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    leaf = authority.issue_cert("*.example.com")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(key_file))
    return key_file, ca_file
