"""What the routes of watches share: ids, the names of their JSON, and a watch's links."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import ConfigDict

from tollgauge.core.watch.watch import WatchState
from tollgauge.web.wire.shape import OneOf, Shape

ID: Final = re.compile(r"wat_[0-9a-f]{24}", re.ASCII)
ID_PATTERN: Final = f"^{ID.pattern}$"
"""The same for JSON Schema."""
EXAMPLE_ID: Final = "wat_0123456789abcdef01234567"
EXAMPLE_BASE_URL: Final = "https://trust.example.com"


WatchStateName = Annotated[
    str, OneOf([state for state in WatchState if state is not WatchState.PENDING])
]
"""The state of a watch that its owner sees: nobody sees one before its payment has settled."""


class SnakeShape(Shape):
    """A JSON object in snake_case, as published clients know it."""

    model_config = ConfigDict(alias_generator=None, extra="forbid", frozen=True)


def links(base_url: str, watch_id: str, *names: str) -> dict[str, str]:
    """Some of the URLs of a watch, by the names of their fields."""
    watch_url = f"{base_url}/v1/watch/{watch_id}"
    urls = {
        "poll_url": f"{watch_url}/events",
        "renew_url": f"{watch_url}/renew",
        "rotate_url": f"{watch_url}/rotate",
        "edit_url": watch_url,
        "cancel_url": watch_url,
    }
    return {name: urls[name] for name in names}
