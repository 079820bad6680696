"""Where the server listens and what it calls itself: the `server` section of the configuration."""

from __future__ import annotations

import contextlib
import re
from dataclasses import field
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from tollgauge.web.edge.connections import ConnectionSettings
from tollgauge.web.edge.listen import Listeners, listening
from tollgauge.web.edge.middleware import EdgeSettings

_BASE_URL: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?", re.ASCII)


def _public_url(url: str) -> str:
    if not _BASE_URL.fullmatch(url):
        raise ValueError("must be a http:// or https:// URL without a query")
    return url


Port = Annotated[int, Field(ge=0, le=65_535)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where we listen, and what we call ourselves."""

    base_url: Annotated[str, AfterValidator(_public_url)] = "http://127.0.0.1:8402"
    """The public address, without a slash at its end: it stands in links, offers and answers. Left
    out, it is where we listen.
    """
    host: str = "127.0.0.1"
    """Where to listen; 0.0.0.0 or :: for every address."""
    port: Port = 8402
    """The port of the API and the pages."""
    admin_port: Port = 8403
    """The port of /metrics and the status, on loopback only; 0 switches it off."""
    admin_hosts: tuple[str, ...] = ()
    """Names beside localhost by which admin_port is asked, as behind a proxy; others get 400."""
    json_logs: bool = False
    """JSON lines for machines instead of text for a terminal."""
    front: EdgeSettings = field(default_factory=EdgeSettings)
    """What one address may ask."""
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    """How long a client may take, and how many connections it may hold."""

    def __post_init__(self) -> None:
        if self.port and self.port == self.admin_port:
            raise ValueError("port and admin_port must differ")


def listen(server: ServerSettings, *, serve: bool) -> contextlib.AbstractContextManager[Listeners]:
    """Take the addresses of a process, before its resources are opened. Raises ListenError when it
    is entered.
    """
    return listening(server.host, server.port, admin_port=server.admin_port, serve=serve)
