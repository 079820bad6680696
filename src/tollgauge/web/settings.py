"""Where the server listens and what it calls itself: the `server` section of the configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tollgauge.web.edge.connections import ConnectionSettings
from tollgauge.web.edge.middleware import EdgeSettings

_BASE_URL: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?", re.ASCII)
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """`base_url` is the public address, without a slash at the end; `admin_port` serves metrics on
    loopback, 0 switches it off. Raises ValueError.
    """

    base_url: str = "http://127.0.0.1:8402"
    host: str = "127.0.0.1"
    port: int = 8402
    admin_port: int = 8403
    json_logs: bool = False
    front: EdgeSettings = field(default_factory=EdgeSettings)
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)

    def __post_init__(self) -> None:
        if not _BASE_URL.fullmatch(self.base_url):
            raise ValueError("base_url must be a http:// or https:// URL without a query")
        if not all(0 <= port <= _PORT_MAX for port in (self.port, self.admin_port)):
            raise ValueError(f"port and admin_port must be 0 to {_PORT_MAX}")
        if self.port and self.port == self.admin_port:
            raise ValueError("port and admin_port must differ")
