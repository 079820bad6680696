"""The loop of sellers' files: fetch `/.well-known/tollgauge.json` of hosts that are due, and check
who signed the changes of payTo that they announce.

A request goes through egress, with its caps and its deadline, under the host's lease. When a host
is due and what is stored, monitor/seller_files decides; what a file means,
core/directory/seller_file.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.clients.egress.client import Egress, Request
from tollgauge.core.base.signature import recovered, text_digest
from tollgauge.core.base.units import MINUTE_MS, SECOND_MS, Clock
from tollgauge.core.directory.seller_file import (
    PATH,
    Announcement,
    SellerFile,
    SignedAnnouncement,
    read,
)
from tollgauge.core.endpoint.identity import ResourceError
from tollgauge.core.probe.exchange import Answer, Fault
from tollgauge.core.probe.schedule import HOST_PAUSE_MAX_MS, pause_ms
from tollgauge.db.engine import Store
from tollgauge.monitor import seller_files
from tollgauge.store.schedule import hosts

BATCH: Final = 16
"""How many hosts are asked at once."""
LEASE_MS: Final = MINUTE_MS
"""Longer than a request and its signatures take."""
_ACCEPT: Final = (("Accept", "application/json"),)
_GONE: Final = range(200, 500)
"""Statuses that say that there is no file, where it is none that can be read: an error of the
server (5xx) says nothing of the file.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SellerFiles:
    """What the loop needs: the store, egress, the clock (ms UTC), the nodes that check signatures
    of contract wallets (None: these cannot be checked), the least pause between two requests to a
    host, and the name of the leases' owner.
    """

    store: Store
    egress: Egress
    clock: Clock
    prover: Prover | None
    host_gap_ms: int
    owner: str

    async def run(self) -> dict[str, object]:
        """Ask up to BATCH hosts that are due; counts those that were asked, and the files."""
        now = self.clock()
        claimed = await self.store.writing(
            seller_files.claim, owner=self.owner, now=now, limit=BATCH, lease_ms=LEASE_MS
        )
        files = await asyncio.gather(*(self._ask(host) for host in claimed))
        return {"asked": len(files), "files": sum(files), "busy": len(claimed) >= BATCH}

    async def _ask(self, host: str) -> bool:
        """Ask one host and store its file; whether it has one."""
        request = Request(url=f"https://{host}{PATH}", headers=_ACCEPT)
        try:
            result = (await self.egress.fetch(request, at=self.clock())).result
        except ResourceError:  # a name that may no longer be asked
            result = Answer(status=404)
        file = _file(result, host)
        announced: tuple[Announcement, ...] = ()
        if file is not None:
            file, announced = await self._checked(file)
        await self.store.writing(self._store, host, result, file, announced)
        return file is not None

    def _store(
        self,
        tx: Connection,
        host: str,
        result: Answer | Fault,
        file: SellerFile | None,
        announced: tuple[Announcement, ...],
    ) -> None:
        """Store what a host answered, and end its lease."""
        now = self.clock()
        gone = isinstance(result, Answer) and result.status in _GONE
        seller_files.record(tx, host, file, announced, now=now, gone=gone)
        pause = max(self.host_gap_ms, min(pause_ms(result, now=now), HOST_PAUSE_MAX_MS))
        hosts.release(tx, {host: now + pause}, owner=self.owner, now=now)

    async def _checked(self, file: SellerFile) -> tuple[SellerFile, tuple[Announcement, ...]]:
        """The file with what is wrong with its signatures, and the announcements that are good."""
        good, problems = [], []
        for signed in file.announcements:
            problem = await self._problem(signed)
            if problem:
                problems.append(f"`{signed.place}`: {problem}")
            else:
                good.append(signed.announcement)
        return replace(file, problems=(*file.problems, *problems)), tuple(good)

    async def _problem(self, signed: SignedAnnouncement) -> str:
        """What is wrong with the signature of an announcement, empty where it is good."""
        item = signed.announcement
        if item.not_before * SECOND_MS < self.clock():
            return ""  # an old one that was read in time is stored already
        digest = text_digest(item.text)
        if recovered(digest, signed.signature) == item.before:
            return ""
        wrong = "the signature is not that of `from` over the text for this host."
        if self.prover is None:
            return wrong
        try:
            accepted = await self.prover.accepts(
                item.network, item.before, digest, signed.signature
            )
        except RpcError:
            return "the chain could not be asked whether the wallet `from` signed this."
        return "" if accepted else wrong


def _file(result: Answer | Fault, host: str) -> SellerFile | None:
    """The file that an answer holds, None where it holds none."""
    if isinstance(result, Fault) or result.status != 200 or result.truncated:
        return None
    return read(result.body, host)
