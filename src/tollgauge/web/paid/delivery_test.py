"""The delivery test: destinations are tested before anything is charged, and their URLs encrypted
before they are stored.

Every destination gets a signed `connection_test`, up to TRIES times (docs/watching.md). If one
fails, the whole request is refused with `notCharged: true`. Responses of destinations are never
shown: they would give callers access to servers of others.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tollgauge.clients import webhooks
from tollgauge.clients.webhooks import Sent, destination_context
from tollgauge.core.probe.exchange import FaultKind, Severity
from tollgauge.core.watch import alert_text
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.changes import Change
from tollgauge.core.watch.watch_rules import Target
from tollgauge.store.ledger import payer_limit
from tollgauge.store.watches.watches import Destination
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.paid.product import PaidDependencies

TRIES: Final = 3
RETRY_WITHIN_S: Final = 5.0
"""No try begins later than this after the first: with the delivery timeout (egress), the last one
ends before published clients give up, after 20 seconds.
"""
PAUSE_S: Final = 0.5
"""Between two tries."""
_SILENCE: Final = frozenset({FaultKind.TIMEOUT.value, FaultKind.CONNECT_TIMEOUT.value})


def _silent_host(targets: Sequence[Target], results: Sequence[Sent]) -> str | None:
    """The host of the first destination that timed out, as payer_limit counts it: each try occupies
    a sale for seconds.
    """
    pairs = zip(targets, results, strict=True)
    silent = (target.host for target, sent in pairs if sent.error in _SILENCE)
    host = next(silent, None)
    return None if host is None else payer_limit.for_delivery(host)


@dataclass(frozen=True, slots=True)
class DeliveryTester:
    """Tests destinations and encrypts their URLs. No try begins more than `retry_within_s` seconds
    after the first.
    """

    dependencies: PaidDependencies
    retry_within_s: float = RETRY_WITHIN_S

    def check_ready(self, targets: Sequence[Target]) -> None:
        """Raises Problem 503 if there are destinations and no key to encrypt them."""
        if targets and not self.dependencies.sealer.ready:
            raise Problem(
                503,
                "destinations-unavailable",
                "Destinations are not available: no encryption key (TOLLGAUGE_WATCH_KEY) is "
                "configured. Omit delivery and poll instead. Nothing was charged.",
                retry_after=3600,
                extra={"notCharged": True},
            )

    async def test(
        self, targets: Sequence[Target], *, watch_id: str, resource: str, key: bytes
    ) -> list[dict[str, Any]]:
        """Test every destination concurrently; return the results as the answer shows them. Raises
        Problem 422 if any failed, 503 if too many tests are in progress.
        """
        with self.dependencies.deliveries.on({target.host for target in targets}):
            tries = (self._try(target, watch_id, resource, key) for target in targets)
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
            Invalid(path=target.field, message=f"The connection test failed: {sent.error}.")
            for target, (sent, _) in zip(targets, results, strict=True)
            if not sent.ok
        ]
        if failed:
            raise Problem(
                422,
                "destination-failed",
                "A destination failed its connection test. Nothing was charged.",
                errors=tuple(failed),
                extra={"notCharged": True, "connection_test": report},
                host=_silent_host(targets, [sent for sent, _ in results]),
            )
        return report

    async def _try(
        self, target: Target, watch_id: str, resource: str, key: bytes
    ) -> tuple[Sent, int]:
        sent = Sent(error="untried")
        message = self._test_message(target, watch_id, resource)
        loop = asyncio.get_running_loop()
        until = loop.time() + self.retry_within_s
        for number in range(1, TRIES + 1):
            sent = await webhooks.send(
                self.dependencies.live.prober.egress,
                url=target.url,
                kind=target.kind,
                event=message,
                key=key,
                now=self.dependencies.clock(),
            )
            late = loop.time() + PAUSE_S > until
            if sent.ok or sent.gone or late or number == TRIES:
                break
            await asyncio.sleep(PAUSE_S)
        return sent, number

    def _test_message(self, target: Target, watch_id: str, resource: str) -> dict[str, Any]:
        mark = hashlib.sha256(target.url.encode()).hexdigest()[:16]
        test = Change(
            type=rules.CONNECTION_TEST,
            at=self.dependencies.clock(),
            severity=Severity.INFO,
            reason="Changes of this endpoint will be sent here.",
        )
        return alert_text.build_event(
            test,
            event_id=rules.message_id(watch_id, f"test:{mark}:{self.dependencies.clock()}"),
            watch_id=watch_id,
            resource=resource,
            page="",
        )

    def seal_targets(
        self, targets: Sequence[Target], *, watch_id: str, now: int
    ) -> list[Destination]:
        """The destinations as they are stored, with their URLs encrypted."""
        sealed_destinations = []
        for number, target in enumerate(targets):
            id_ = f"dst_{number}{secrets.token_hex(12)}"
            sealed = self.dependencies.sealer.seal(
                target.url.encode(), context=destination_context(id_)
            )
            sealed_destinations.append(
                Destination(
                    id=id_,
                    watch_id=watch_id,
                    kind=target.kind,
                    sealed_url=sealed,
                    masked=target.masked,
                    created_at=now,
                )
            )
        return sealed_destinations
