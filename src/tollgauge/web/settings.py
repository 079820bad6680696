"""Where the server listens and what it calls itself: the `server` section of the configuration."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from tollgauge.web.edge.connections import ConnectionSettings
from tollgauge.web.edge.middleware import EdgeSettings

_BASE_URL: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?", re.ASCII)


def _public_url(url: str) -> str:
    if not _BASE_URL.fullmatch(url):
        raise ValueError("must be a http:// or https:// URL without a query")
    return url


Port = Annotated[int, Field(ge=0, le=65_535)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """`base_url` is the public address, without a slash at the end; `admin_port` serves metrics on
    loopback, 0 switches it off.
    """

    base_url: Annotated[str, AfterValidator(_public_url)] = "http://127.0.0.1:8402"
    host: str = "127.0.0.1"
    port: Port = 8402
    admin_port: Port = 8403
    json_logs: bool = False
    front: EdgeSettings = field(default_factory=EdgeSettings)
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)

    def __post_init__(self) -> None:
        if self.port and self.port == self.admin_port:
            raise ValueError("port and admin_port must differ")
