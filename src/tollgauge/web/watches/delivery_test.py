"""Connect: destinations are tried before anything is charged, and sealed before they are stored.

Every destination gets a signed `connection_test`, up to three times (docs/watching.md). One
that fails refuses the whole request with `notCharged: true`; what it answered is never shown, or
this would be a way to read other people's servers.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tollgauge.clients import webhooks
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.seal import Sealer, destination_context
from tollgauge.clients.webhooks import Sent, Signing
from tollgauge.core import notice
from tollgauge.core import watch as rules
from tollgauge.core.exchange import FaultKind
from tollgauge.core.watch import Target
from tollgauge.store.watches.destinations import Destination
from tollgauge.web.edge.problem import Invalid, Problem

TRIES: Final = 3
PAUSE_S: Final = 0.5


_SILENCE: Final = frozenset({FaultKind.TIMEOUT.value, FaultKind.CONNECT_TIMEOUT.value})


def _silent_host(targets: Sequence[Target], results: Sequence[Sent]) -> str | None:
    """The host of the first destination that did not answer in time: each try of it holds a sale
    for seconds.
    """
    pairs = zip(targets, results, strict=True)
    return next((target.host for target, sent in pairs if sent.error in _SILENCE), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryTester:
    """What trying and sealing need."""

    egress: Egress
    sealer: Sealer
    clock: Callable[[], int]
    base_url: str

    def check_ready(self, targets: Sequence[Target]) -> None:
        """Raises Problem 503 where there are destinations and no key to seal them."""
        if targets and not self.sealer.ready:
            raise Problem(
                503,
                "destinations-unavailable",
                "This server has no key to keep destinations with (TOLLGAUGE_WATCH_KEY), so it "
                "takes none. Leave delivery out and poll instead. Nothing was charged.",
                retry_after=3600,
                extra={"notCharged": True},
            )

    async def test(
        self, targets: Sequence[Target], *, watch_id: str, resource: str, signing: Signing
    ) -> list[dict[str, Any]]:
        """Try every destination, all at once; what to say of each. Raises Problem 422 when any
        did not take the test.
        """
        tries = (self._try(each, watch_id, resource, signing) for each in targets)
        results = await asyncio.gather(*tries)
        report = [
            {
                "destination": target.masked,
                "kind": target.kind.value,
                "ok": sent.ok,
                "tries": tries,
                "result": sent.error or "ok",
            }
            for target, (sent, tries) in zip(targets, results, strict=True)
        ]
        failed = [
            Invalid(path=target.field, message=f"It did not take the test: {sent.error}.")
            for target, (sent, _) in zip(targets, results, strict=True)
            if not sent.ok
        ]
        if failed:
            raise Problem(
                422,
                "destination-failed",
                "A destination did not take its connection test. Nothing was charged.",
                errors=tuple(failed),
                extra={"notCharged": True, "connection_test": report},
                host=_silent_host(targets, [sent for sent, _ in results]),
            )
        return report

    async def _try(
        self, target: Target, watch_id: str, resource: str, signing: Signing
    ) -> tuple[Sent, int]:
        sent = Sent(error="untried")
        told = self._told(target, watch_id, resource)
        for number in range(1, TRIES + 1):
            sent = await webhooks.send(
                self.egress,
                url=target.url,
                kind=target.kind,
                event=told,
                signing=signing,
                now=self.clock(),
            )
            if sent.ok or sent.gone:
                return sent, number
            if number < TRIES:
                await asyncio.sleep(PAUSE_S)
        return sent, TRIES

    def _told(self, target: Target, watch_id: str, resource: str) -> dict[str, Any]:
        mark = hashlib.sha256(target.url.encode()).hexdigest()[:16]
        return notice.event(
            type_=rules.CONNECTION_TEST,
            at=self.clock(),
            reason="Changes of this endpoint will be told here.",
            event_id=rules.message_id(watch_id, f"test:{mark}:{self.clock()}"),
            watch_id=watch_id,
            resource=resource,
            page="",
        )

    def kept(self, targets: Sequence[Target], *, watch_id: str, now: int) -> list[Destination]:
        """The destinations as they are stored."""
        found = []
        for number, target in enumerate(targets):
            id_ = f"dst_{number}{secrets.token_hex(12)}"
            sealed = self.sealer.seal(target.url.encode(), context=destination_context(id_))
            found.append(
                Destination(
                    id=id_,
                    watch_id=watch_id,
                    kind=target.kind,
                    sealed_url=sealed,
                    masked=target.masked,
                    created_at=now,
                )
            )
        return found
