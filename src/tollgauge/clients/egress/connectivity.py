"""Whether *we* are connected, asked before anyone else is blamed."""

from __future__ import annotations

import asyncio

from tollgauge.clients.egress.client import Egress, Request
from tollgauge.core.exchange import Answer


async def connected(egress: Egress, references: tuple[str, ...]) -> bool | None:
    """True when any reference URL of our own choice gives any HTTP answer, False when none does,
    None when there are none to ask.
    """
    if not references:
        return None
    exchanges = (egress.fetch(Request(url=url, method="GET")) for url in references)
    return any(isinstance(exchange.result, Answer) for exchange in await asyncio.gather(*exchanges))
