"""A webhook of the demo market that keeps the latest deliveries of watches.

It has its own host name on the market's TLS listener and accepts every POST of JSON. It does not
verify signatures, because it does not have the watches' secrets.
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
    """The latest deliveries, oldest first: time (`at`, ms UTC) and `body`."""

    def __init__(self) -> None:
        self._deliveries: deque[dict[str, Any]] = deque(maxlen=_DELIVERIES_MAX)

    def answer(self, request: DemoRequest, now: int) -> Answer:
        """Accept a POST of JSON and reject other requests."""
        if request.method != "POST":
            return Answer(status=405, headers=(("allow", "POST"),))
        try:
            body = orjson.loads(request.body)
        except orjson.JSONDecodeError:
            return Answer(status=400)
        self._deliveries.append({"at": now, "body": body})
        return Answer(status=204)

    def deliveries(self) -> list[dict[str, Any]]:
        """Return the latest deliveries, oldest first."""
        return list(self._deliveries)
