"""What the routes of watches share: ids, the names of their JSON, and a watch's links."""

from __future__ import annotations

import re
from typing import Final

from pydantic import ConfigDict

from tollgauge.web import wire

ID: Final = re.compile(r"wat_[0-9a-f]{24}", re.ASCII)
EXAMPLE_ID: Final = "wat_0123456789abcdef01234567"


class SnakeShape(wire.Shape):
    """A JSON object whose names are as published clients know them."""

    model_config = ConfigDict(alias_generator=None, extra="forbid", frozen=True)


def links(base_url: str, watch_id: str, *names: str) -> dict[str, str]:
    """Some of the URLs of a watch, by field."""
    here = f"{base_url}/v1/watch/{watch_id}"
    every = {
        "poll_url": f"{here}/events",
        "renew_url": f"{here}/renew",
        "rotate_url": f"{here}/rotate",
        "edit_url": here,
        "cancel_url": here,
    }
    return {name: every[name] for name in names}
