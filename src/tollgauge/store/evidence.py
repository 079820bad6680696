"""The evidence of one endpoint, put together from its rows as of a moment."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from tollgauge.core.endpoint import Endpoint, Listing
from tollgauge.core.evidence import ChainEvidence, Evidence
from tollgauge.core.text import injection_suspected
from tollgauge.core.units import HOUR_MS, WINDOW_MS
from tollgauge.store import discovery, endpoints, probes

RECENT_MS = 3 * HOUR_MS
"""How far back `down-now` looks (scoring.md, flags)."""


async def gather(tx: AsyncConnection, endpoint: Endpoint, *, as_of: int) -> Evidence:
    """Everything that a score of `endpoint` may depend on, as of `as_of`."""
    host = await endpoints.host_state(tx, endpoint.host)
    last = await probes.last_scored(tx, endpoint.id, as_of=as_of)
    envelope = None
    if last is not None and last.accepts is None:
        envelope = await probes.last_envelope(tx, endpoint.id, as_of=as_of)
    return Evidence(
        resource=endpoint.resource,
        as_of=as_of,
        first_seen=endpoint.first_seen,
        listed=endpoint.status is Listing.LISTED,
        templated=endpoint.templated,
        wildcard=bool(host.wildcard),
        injection=injection_suspected(f"{endpoint.service_name}\n{endpoint.description}"),
        quote=endpoint.quote,
        days=await probes.window(tx, endpoint.id, as_of=as_of),
        recent=await probes.recent(tx, endpoint.id, since=as_of - RECENT_MS),
        last=last,
        envelope=envelope,
        changes=await discovery.changes(tx, endpoint.id, since=as_of - WINDOW_MS, until=as_of),
        chain=await _chain(tx, endpoint),
    )


async def _chain(tx: AsyncConnection, endpoint: Endpoint) -> ChainEvidence | None:
    """Settlements to the advertised payTo. Nothing is indexed yet, and the evidence says so:
    no payers, none of the window covered.
    """
    if endpoint.quote is None:
        return None
    sharing = await endpoints.count_hosts_sharing(tx, endpoint.quote.network, endpoint.quote.pay_to)
    return ChainEvidence(
        network=endpoint.quote.network,
        pay_to=endpoint.quote.pay_to,
        shared_hosts=max(sharing, 1),
    )
