"""`tollgauge doctor`: asks once whatever the configuration names outside of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import typer

from tollgauge.cli.inputs import load_config
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, progress_bar, show
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import SECOND_MS

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from tollgauge.clients.chain.rpc import Node
    from tollgauge.clients.egress.client import Egress
    from tollgauge.config import Config
    from tollgauge.jobs.discover import Source

TIMEOUT_S: Final = 20
"""How long one of them may take."""
BLOCK_LATE_S: Final = 600
"""A node whose newest block is older does not follow its chain."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was asked, whether it will do, and what it said or what is wrong with it."""

    name: str
    good: bool
    words: str


def doctor(config: ConfigFile = None, as_json: Json = False) -> None:
    """Ask the facilitator, the nodes, the directories and the references that the configuration
    names, once. Exit 1 when one of them will not do.

    Nothing is paid, and nothing is stored. `config check` judges the settings, `status` the
    service.
    """
    checks = asyncio.run(_checks(load_config(config)))
    lines = [f"{'good' if check.good else 'bad '}  {check.name}: {check.words}" for check in checks]
    show([asdict(check) for check in checks], lines or [_NOBODY], as_json=as_json)
    raise typer.Exit(GOOD if all(check.good for check in checks) else BAD)


_NOBODY: Final = (
    "The configuration names no facilitator, no node, no directory and no reference: there is "
    "nobody to ask."
)


async def _checks(config: Config) -> list[Check]:
    from tollgauge.clients.egress.client import Egress

    egress, nodes = Egress(config.egress), config.rpc.nodes()
    egress.start()
    try:
        with progress_bar() as progress:
            checks = []
            for name, asking in _questions(config, egress, nodes):
                progress(f"asking {name}", 0, 0)
                checks.append(await _check(name, asking))
            return checks
    finally:
        await egress.close()
        for node in nodes:
            await node.close()


def _questions(
    config: Config, egress: Egress, nodes: list[Node]
) -> Iterator[tuple[str, Awaitable[str]]]:
    """Each name with what asks it; that gives what it said, and raises TollgaugeError."""
    if config.facilitator.url:
        yield "facilitator", _facilitator(config)
    for node in nodes:
        yield f"node {node.name}", _node(node, config.sale.network)
    for source in config.sources:
        yield f"directory {source.name}", _directory(egress, source)
    for url in config.references:
        yield f"reference {url}", _reference(egress, url)


async def _check(name: str, asking: Awaitable[str]) -> Check:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return Check(name, good=True, words=await asking)
    except TimeoutError:
        return Check(name, good=False, words=f"It did not answer within {TIMEOUT_S} seconds.")
    except TollgaugeError as error:
        return Check(name, good=False, words=str(error))


async def _facilitator(config: Config) -> str:
    from tollgauge.clients.facilitator import Facilitator

    facilitator, network = Facilitator(config.facilitator), config.sale.network
    try:
        networks = await facilitator.networks()
    finally:
        await facilitator.close()
    if network not in networks:
        others = clean_text(", ".join(sorted(networks)), limit=200) or "no network"
        raise TollgaugeError(f"It settles exact payments on {others}, and not on {network}.")
    return f"it settles exact payments on {network}"


async def _node(node: Node, network: str) -> str:
    from tollgauge.app import now_ms
    from tollgauge.clients.chain.rpc import quantity

    chain = quantity(await node.call("eth_chainId"))
    if network != f"eip155:{chain}":
        raise TollgaugeError(f"It is a node of eip155:{chain}, and {network} is sold on.")
    block = await node.call("eth_getBlockByNumber", "latest", False)
    age_s = now_ms() // SECOND_MS - quantity(block["timestamp"])
    if age_s > BLOCK_LATE_S:
        raise TollgaugeError(f"Its newest block is {age_s} seconds old: it is behind its chain.")
    return f"it follows {network}, at block {quantity(block['number'])}"


async def _directory(egress: Egress, source: Source) -> str:
    from tollgauge.app import now_ms
    from tollgauge.core.directory.page import entries
    from tollgauge.jobs.discover import first_page

    page = await first_page(egress, source, now=now_ms())
    of = f" of {page.total}" if page.total else ""
    return f"entries on its first page: {len(entries(page))}{of}"


async def _reference(egress: Egress, url: str) -> str:
    from tollgauge.clients.egress.client import Request
    from tollgauge.core.probe.exchange import Answer

    result = (await egress.fetch(Request(url=url))).result
    if isinstance(result, Answer):
        return f"it answers with status {result.status}"
    raise TollgaugeError(f"It gives no HTTP answer ({result.kind.value}).")
