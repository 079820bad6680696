"""Receiver: a webhook of the demo market that keeps what watches send it.

It has its own host name on the market's TLS, takes every POST of JSON, and remembers the
latest deliveries. It checks no signature, because it does not have the watches' secrets.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import orjson

from tollgauge.core.probe.exchange import Answer
from tollgauge.demo.seller import DOMAIN, DemoRequest

RECEIVER_HOST: Final = f"receiver.{DOMAIN}"
RECEIVER_URL: Final = f"https://{RECEIVER_HOST}/alerts"
_DELIVERIES_MAX: Final = 100


class Receiver:
    """The latest deliveries, oldest first: `at` (ms UTC) and the `body` that came."""

    def __init__(self) -> None:
        self._deliveries: deque[dict[str, Any]] = deque(maxlen=_DELIVERIES_MAX)

    def answer(self, request: DemoRequest, now: int) -> Answer:
        """Take a delivery; anything else than a POST of JSON is refused."""
        if request.method != "POST":
            return Answer(status=405, headers=(("allow", "POST"),))
        try:
            body = orjson.loads(request.body)
        except orjson.JSONDecodeError:
            return Answer(status=400)
        self._deliveries.append({"at": now, "body": body})
        return Answer(status=204)

    def deliveries(self) -> list[dict[str, Any]]:
        """The latest deliveries, oldest first."""
        return list(self._deliveries)
