"""The loop of sellers' files: fetch `/.well-known/tollgauge.json` from due hosts and verify the
signatures of announced payTo changes.

Requests go through egress under the host's lease. monitor/seller_files decides which hosts are due
and which announcements are stored; core/directory/seller_file parses the file.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import Request
from tollgauge.core.base.signature import recover_signer, text_digest
from tollgauge.core.base.units import MINUTE_MS, SECOND_MS, Clock
from tollgauge.core.directory.seller_file import (
    PATH,
    Announcement,
    SellerFile,
    SignedStatement,
    SiteList,
    read,
)
from tollgauge.core.endpoint.identity import ResourceError
from tollgauge.core.probe.exchange import Answer, Fault
from tollgauge.core.probe.schedule import HOST_PAUSE_MAX_MS, pause_ms
from tollgauge.db.engine import Store
from tollgauge.monitor import seller_files
from tollgauge.store.schedule import hosts

BATCH: Final = 16  # hosts per round, fetched concurrently
LEASE_MS: Final = MINUTE_MS  # longer than a fetch and the verification of its signatures
_ACCEPT: Final = (("Accept", "application/json"),)
# An unreadable response with one of these statuses means that the host has no file; after a server
# error (5xx) the stored file is kept.
_GONE: Final = range(200, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class SellerFiles:
    """Dependencies and settings of the loop.

    `clock` returns ms UTC. `prover` verifies signatures of contract wallets, which are rejected
    without it. `host_gap_ms` is the minimum pause between two requests to a host.
    """

    store: Store
    egress: Egress
    clock: Clock
    prover: Prover | None
    host_gap_ms: int
    owner: str

    async def run(self) -> dict[str, object]:
        """Fetch up to BATCH due files. The tally counts requests and files."""
        now = self.clock()
        claimed = await self.store.writing(
            seller_files.claim, owner=self.owner, now=now, limit=BATCH, lease_ms=LEASE_MS
        )
        files = await asyncio.gather(*(self._fetch(host) for host in claimed))
        return {"asked": len(files), "files": sum(files), "busy": len(claimed) >= BATCH}

    async def _fetch(self, host: str) -> bool:
        """Fetch and store one host's file; return whether it has one."""
        request = Request(url=f"https://{host}{PATH}", headers=_ACCEPT)
        try:
            result = (await self.egress.fetch(request, at=self.clock())).result
        except ResourceError:  # a host that may no longer be requested
            result = Answer(status=404)
        file = _parse(result, host)
        valid: list[Announcement | SiteList] = []
        if file is not None:
            file, valid = await self._verify(file)
        await self.store.writing(self._store, host, result, file, valid)
        return file is not None

    def _store(
        self,
        tx: Connection,
        host: str,
        result: Answer | Fault,
        file: SellerFile | None,
        valid: list[Announcement | SiteList],
    ) -> None:
        """Store a host's file and release the host."""
        now = self.clock()
        announced = [one for one in valid if isinstance(one, Announcement)]
        lists = [one for one in valid if isinstance(one, SiteList)]
        gone = isinstance(result, Answer) and result.status in _GONE
        seller_files.record(tx, host, file, announced, lists, now=now, gone=gone)
        pause = max(self.host_gap_ms, min(pause_ms(result, now=now), HOST_PAUSE_MAX_MS))
        hosts.release(tx, {host: now + pause}, owner=self.owner, now=now)

    async def _verify(self, file: SellerFile) -> tuple[SellerFile, list[Announcement | SiteList]]:
        """Return the file with the problems of its statements, and the statements with valid
        signatures.
        """
        valid: list[Announcement | SiteList] = []
        problems = []
        statements: tuple[SignedStatement[Announcement] | SignedStatement[SiteList], ...] = (
            *file.announcements,
            *file.site_lists,
        )
        for signed in statements:
            if problem := await self._find_problem(signed.statement, signed.signature):
                problems.append(f"`{signed.place}`: {problem}")
            else:
                valid.append(signed.statement)
        return replace(file, problems=(*file.problems, *problems)), valid

    async def _find_problem(self, statement: Announcement | SiteList, signature: bytes) -> str:
        """Return the problem of a statement's dates or signature, or an empty string."""
        if isinstance(statement, Announcement):
            if statement.not_before * SECOND_MS < self.clock():
                return ""  # in the past: stored earlier if it was announced in time
            signer, member, where = statement.before, "from", "for this host"
        else:
            if not statement.is_valid(self.clock()):
                return "it has expired, or `issued` is in the future."
            signer, member, where = statement.pay_to, "payTo", "of this list"
        digest = text_digest(statement.text)
        if recover_signer(digest, signature) == signer:
            return ""
        wrong = f"the signature was not made by `{member}` over the text {where}."
        if self.prover is None:
            return wrong
        try:
            accepted = await self.prover.accepts(statement.network, signer, digest, signature)
        except RpcError:
            return f"no node could verify the signature of the wallet `{member}`."
        return "" if accepted else wrong


def _parse(result: Answer | Fault, host: str) -> SellerFile | None:
    """Return the file in a response, or None."""
    if isinstance(result, Fault) or result.status != 200 or result.truncated:
        return None
    return read(result.body, host)
