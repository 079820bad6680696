"""`tollgauge bench index`: the speed of indexing settlements.

Measured are decoding (JSON-RPC bytes to settlement records, on one core); the complete loop, which
fetches from a canned node in another process, decodes, and stores in an SQLite file; the cost of
following a chain with 30,000 wallets and blocks of 2 seconds; and the cost of computing the sums of
all wallets, at a tenth of the planned size; and the cost of each kind of chain (bench/chains). The
decoder is compared with eth-abi, which must find the same transfers. CPU seconds are of this
process, all threads.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import orjson
import sqlalchemy as sa
from eth_abi.abi import decode

from bench.canned import BLOCK_SECONDS, CHAIN_ID, TOKEN, World, settlements, wallet
from bench.chains import PAY_TOS, measure_chains
from bench.indexer import open_indexer, quiet_settings
from bench.measurement import Measurement, Report, peak_mb
from tollgauge.app import now_ms
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.chain.settlement import (
    TRANSFER,
    list_entries,
    match_transfers,
    read_logs,
)
from tollgauge.db.engine import Store
from tollgauge.jobs import index
from tollgauge.jobs.index_visit import IndexState
from tollgauge.store.chain import transfers, volumes

DECODED: Final = 5_000_000
STORED: Final = 400_000
CHUNK: Final = 10_000
FOLLOWED_WALLETS: Final = 30_000
FOLLOWED_PAIRS: Final = 23
"""A million settlements a day at blocks of 2 seconds."""
SUMMED_WALLETS: Final = 3_000
SUMMED_PAYERS: Final = 20_000
SUMMED_A_DAY: Final = 30_000
FAVOURITES: Final = 5
"""Number of wallets that a payer pays repeatedly."""


def run(
    decoded: int = DECODED,
    stored: int = STORED,
    followed: int = 60,
    summed: int = SUMMED_A_DAY,
    pay_tos: tuple[int, ...] = PAY_TOS,
) -> Report:
    """Measure decoding, indexing, following, sums and each kind of chain.

    Args:
        decoded: logs to decode.
        stored: logs to store.
        followed: blocks to follow.
        summed: day sums on each of 30 days.
        pay_tos: numbers of payTo addresses on each chain.
    """
    decoding = measure_decoding(decoded)
    indexing = asyncio.run(measure_indexing(stored))
    following = asyncio.run(measure_following(followed))
    summing = asyncio.run(measure_sums(summed))
    costs, on_solana = asyncio.run(measure_chains(pay_tos))
    together = sum(of_chain[max(pay_tos)].share_of_a_core for of_chain in costs.values())
    decoded_on_solana = on_solana["transactions_per_cpu_s"]
    rate, stored_rate = decoding["logs_per_cpu_s"], indexing["logs_per_s"]
    share, cost = following["share_of_a_core"], summing["cpu_us_per_row"]
    return Report(
        measurements=(
            _least("decode", rate, unit="logs per CPU second", goal=150_000),
            _least("store", stored_rate, unit="logs per second", goal=10_000),
            Measurement(name="follow a chain", figure=share, unit="cores", goal=0.1),
            Measurement(name="four chains", figure=round(together, 4), unit="cores", goal=0.2),
            _least("decode Solana", decoded_on_solana, unit="per CPU second", goal=20_000),
            Measurement(name="decode growth", figure=decoding["growth_mb"], unit="MB", goal=32),
            Measurement(name="store growth", figure=indexing["growth_mb"], unit="MB", goal=64),
            Measurement(name="sums", figure=cost, unit="us of CPU per row", goal=40),
            Measurement(name="sums growth", figure=summing["growth_mb"], unit="MB", goal=256),
        ),
        details={
            "decode": decoding,
            "index": indexing,
            "follow": following,
            "sums": summing,
            "solana": on_solana,
            "a_day": {
                name: {str(count): asdict(cost) for count, cost in of_chain.items()}
                for name, of_chain in costs.items()
            },
        },
    )


def _least(name: str, figure: float, *, unit: str, goal: float) -> Measurement:
    return Measurement(name=name, figure=figure, unit=unit, goal=goal, bound="least")


def measure_decoding(total: int) -> dict[str, Any]:
    """Decode replies of CHUNK logs each into records."""
    replies = list(_replies(20))
    wallets = frozenset(bytes.fromhex(wallet(number)[26:]) for number in range(500))
    _decode(replies[0], wallets)
    gc.collect()
    before, done, records = _memory_mb(), 0, 0
    cpu, wall = time.process_time(), time.perf_counter()
    while done < total:
        records += _decode(replies[(done // CHUNK) % len(replies)], wallets)
        done += CHUNK
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "logs": done,
        "settlements": records,
        "bytes_per_log": round(len(replies[0]) / CHUNK),
        "logs_per_cpu_s": round(done / cpu),
        "logs_per_s": round(done / wall),
        "growth_mb": round(_memory_mb() - before, 1),
        "peer_eth_abi_logs_per_cpu_s": _peer(replies[0]),
    }


def _decode(reply: bytes, wallets: frozenset[bytes]) -> int:
    logs = read_logs(orjson.loads(reply)["result"], token=TOKEN)
    settlements_read = match_transfers(logs.transfers, logs.used)
    return len(list_entries(settlements_read.transfers, wallets, logs.stamps))


def _replies(count: int) -> Iterator[bytes]:
    """Yield replies of CHUNK logs each: 50 blocks of 100 settlements."""
    world = World(blocks=0, pairs=100, wallets=500, payers=5_000, began=1_700_000_000)
    for first in range(0, 50 * count, 50):
        logs = [
            log
            for number in range(first, first + 50)
            for _, used, _, moved in settlements(world, number)
            for log in (used, moved)
        ]
        yield b'{"jsonrpc":"2.0","id":1,"result":[' + b",".join(logs) + b"]}"


def _peer(reply: bytes) -> int:
    """Decode the reply with the ABI library, which must find the same transfers."""
    cpu = time.process_time()
    seen = set()
    logs = orjson.loads(reply)["result"]
    for log in logs:
        kind, *topics = log["topics"]
        types = ("address", "address") if kind == TRANSFER else ("address", "bytes32")
        words = [
            decode([type_], bytes.fromhex(word[2:]))[0]
            for type_, word in zip(types, topics, strict=True)
        ]
        if kind == TRANSFER:
            (value,) = decode(["uint256"], bytes.fromhex(log["data"][2:]))
            seen.add((int(log["logIndex"], 16), log["blockHash"], *words, value))
    speed = round(len(logs) / (time.process_time() - cpu))
    ours = {
        (
            move.log_index,
            "0x" + move.block_hash.hex(),
            "0x" + move.sender.hex(),
            "0x" + move.receiver.hex(),
            move.value,
        )
        for move in read_logs(logs, token=TOKEN).transfers
    }
    if seen != ours:
        raise AssertionError("eth-abi decodes the transfers differently.")
    return speed


async def measure_indexing(logs: int) -> dict[str, Any]:
    """Index an existing chain until all of it is stored."""
    pairs = 25
    world = World(
        blocks=logs // (2 * pairs),
        pairs=pairs,
        wallets=500,
        payers=20_000,
        began=int(time.time()) - DAY_MS // 1_000,
    )
    settings = replace(quiet_settings(), audit=10**9, fills=4)
    async with open_indexer(world, settings) as (store, chain, *_):
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        stored, memory, state = 0, [], IndexState()
        while True:
            tally = await index.run(store, chain, state, settings=settings, clock=now_ms)
            stored += int(str(tally.get("entries", 0)))
            memory.append(_memory_mb())
            if not tally.get("busy"):
                break
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        query = sa.select(sa.func.count()).select_from(transfers.transfer)
        rows = await store.reading(lambda tx: tx.execute(query).scalar_one())
    return {
        "logs": 2 * stored,
        "rows": rows,
        "seconds": round(wall, 2),
        "logs_per_s": round(2 * stored / wall),
        "logs_per_cpu_s": round(2 * stored / cpu),
        "growth_mb": round(max(memory) - memory[len(memory) // 10], 1),
    }


async def measure_following(blocks: int) -> dict[str, Any]:
    """Follow the tip with 30,000 wallets, with the loop's time between rounds."""
    world = World(
        blocks=50,
        pairs=FOLLOWED_PAIRS,
        wallets=FOLLOWED_WALLETS,
        payers=200_000,
        began=int(time.time()) - 200,
    )
    settings = replace(quiet_settings(), audit=150)
    step = max(1, round(settings.every_ms / 1_000 / BLOCK_SECONDS))
    state = IndexState()
    async with open_indexer(world, settings) as (store, chain, grow, _):
        for _ in range(10):
            if not (await index.run(store, chain, state, settings=settings, clock=now_ms)).get(
                "busy"
            ):
                break
        cpu, wall = time.process_time(), time.perf_counter()
        done = records = 0
        while done < blocks:
            await grow(step)
            tally = await index.run(store, chain, state, settings=settings, clock=now_ms)
            done += int(str(tally.get("blocks", 0)))
            records += int(str(tally.get("entries", 0)))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "wallets": FOLLOWED_WALLETS,
        "blocks": done,
        "settlements": records,
        "blocks_per_round": step,
        "cpu_ms_per_block": round(1_000 * cpu / done, 1),
        "wall_ms_per_block": round(1_000 * wall / done, 1),
        "share_of_a_core": round(cpu / done / BLOCK_SECONDS, 4),
    }


async def measure_sums(a_day: int) -> dict[str, Any]:
    """Compute the sums of all wallets from 30 days of sums per wallet, day and payer."""
    dice, today = random.Random(1), now_ms() // DAY_MS  # noqa: S311 - a reproducible market
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{Path(folder) / 'bench.db'}")
        try:
            await store.migrate()
            for day in range(today - 29, today + 1):
                await store.writing(_insert_day, day, a_day, dice)
            gc.collect()
            before, cpu = _memory_mb(), time.process_time()
            measured = await store.reading(volumes.measure_chain, CHAIN_ID, as_of=now_ms())
            computed = measured.demands
            cpu, after = time.process_time() - cpu, _memory_mb()
            began = time.perf_counter()
            await store.writing(volumes.DEMANDS.save, CHAIN_ID, computed, as_of=now_ms())
            saved = time.perf_counter() - began
            began = time.perf_counter()
            for address, _ in computed[:500]:
                text = "0x" + address.hex()
                await store.reading(volumes.demands_of, CHAIN_ID, [text], as_of=now_ms())
            read = time.perf_counter() - began
            query = sa.select(sa.func.count()).select_from(transfers.transfer_day)
            rows = await store.reading(lambda tx: tx.execute(query).scalar_one())
        finally:
            await store.close()
    return {
        "wallets": len(computed),
        "rows": rows,
        "with_proven_payers": sum(1 for _, demand in computed if demand.proven_payers),
        "cpu_s": round(cpu, 1),
        "cpu_us_per_row": round(1e6 * cpu / rows, 1),
        "growth_mb": round(after - before, 1),
        "save_s": round(saved, 2),
        "read_ms": round(1_000 * read / min(500, len(computed)), 2),
    }


def _insert_day(tx: sa.Connection, day: int, count: int, dice: random.Random) -> None:
    """Insert a day on which payers pay their usual wallets, and sometimes another one."""
    places = set()
    for _ in range(count):
        payer = int(SUMMED_PAYERS * dice.random() ** 2)
        choice = dice.randrange(FAVOURITES + 1)
        if choice < FAVOURITES:
            place = (payer * FAVOURITES + choice) * 7_919 % SUMMED_WALLETS / SUMMED_WALLETS
        else:
            place = dice.random()
        places.add((int(SUMMED_WALLETS * place**3), payer))
    row = {"chain": CHAIN_ID, "transfers": 3, "paid": "60000", "returned": "0"}
    keys = [(wallet.to_bytes(20), payer.to_bytes(20, "little")) for wallet, payer in sorted(places)]
    tx.execute(
        transfers.transfer_day.insert(),
        [row | {"day": day, "wallet": wallet, "other": payer} for wallet, payer in keys],
    )


def _memory_mb() -> float:
    """Return the current memory of this process, or its peak if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_mb()
    return pages * resource.getpagesize() / 2**20
