"""Where the server listens: the `server` section of the configuration, and a process's sockets.

Sockets are bound before a process starts anything else, and listen immediately, so that of two
processes only one gets an address. An address that cannot be bound is a ListenError of one line; a
worker whose metrics port is in use runs without metrics, and logs that.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.observe import log
from tollgauge.web.edge.connections import ConnectionSettings
from tollgauge.web.edge.middleware import EdgeSettings

LOOPBACK: Final = "127.0.0.1"
WALLET_RDNS: Final = "dev.tollgauge.demo"
"""The reverse domain name by which the demo's wallet announces itself (EIP-6963)."""
_PRIVILEGED: Final = 1024
_BASE_URL: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?", re.ASCII)


def _public_url(url: str) -> str:
    if not _BASE_URL.fullmatch(url):
        raise ValueError("must be an http:// or https:// URL without a query")
    return url


Port = Annotated[int, Field(ge=0, le=65_535)]


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Listening addresses and the public address."""

    base_url: Annotated[str, AfterValidator(_public_url)] = "http://127.0.0.1:8402"
    """Public address without a trailing slash, used in links, offers and responses. Default: the
    listening address.
    """
    host: str = "127.0.0.1"
    """Listening address. Use 0.0.0.0 or :: for all interfaces."""
    port: Port = 8402
    """Port of the API and the pages."""
    admin_port: Port = 8403
    """Port of /metrics and the status page, on loopback only. 0 disables it."""
    admin_hosts: tuple[str, ...] = ()
    """Host names accepted on admin_port in addition to localhost, for example behind a proxy.
    Others receive 400.
    """
    json_logs: bool = False
    """Write logs as JSON lines."""
    guards: str = ""
    """Folder with the packages of the payment guards (`make packages`), which GET /guard
    serves. Default: none.
    """
    front: EdgeSettings = field(default_factory=EdgeSettings)
    """Rate limits per client address."""
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    """Timeouts and connection limits for clients."""

    def __post_init__(self) -> None:
        if self.port and self.port == self.admin_port:
            raise ValueError("port and admin_port must differ")


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Settings of the running demo; empty in any other service.

    Pages of the demo refuse every wallet but its own (demo/wallet): the local chain has the number
    of a real one, and a real wallet would sign a payment that is good there too. config/rules
    rejects the settings for a service that others can reach.
    """

    buyer_key: Annotated[str, StringConstraints(pattern=r"^(0x[0-9a-f]{64})?$")] = ""
    """Private key of an account that has money on the local chain. It is public, and worthless
    elsewhere.
    """
    chain_name: str = ""
    """Name of the local chain on pages."""
    control_url: str = ""
    """URL of the demo's control server, which `tollgauge demo fault` uses."""


class ListenError(TollgaugeError):
    """An address that this process cannot listen on; `setting` names its port."""

    def __init__(self, host: str, port: int, setting: str, error: OSError) -> None:
        super().__init__(f"Cannot listen on {host}, port {port}: {_advice(port, setting, error)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The listening sockets for the routes and for the metrics; each may be absent."""

    public: socket.socket | None
    admin: socket.socket | None

    @property
    def port(self) -> int:
        """The port of the routes."""
        return 0 if self.public is None else int(self.public.getsockname()[1])


def listen(server: ServerSettings, *, serve: bool) -> contextlib.AbstractContextManager[Listeners]:
    """Bind the sockets of a process, before its resources are opened. Raises ListenError."""
    return bind_listeners(server.host, server.port, admin_port=server.admin_port, serve=serve)


@contextlib.contextmanager
def bind_listeners(
    host: str, port: int, *, admin_port: int = 0, serve: bool = True, setting: str = "server.port"
) -> Iterator[Listeners]:
    """Bind the sockets of a process: with `serve` one for its routes (port 0 takes any free one),
    and one for its metrics on loopback (`admin_port` 0: none). They are closed at the end. Raises
    ListenError.
    """
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(_bind(host, port, setting)) if serve else None
        admin = None
        try:
            if admin_port:
                bound = _bind(LOOPBACK, admin_port, "server.admin_port")
                admin = stack.enter_context(bound)
        except ListenError as error:
            if serve:
                raise
            log().warning("metrics.off", problem=str(error))
        yield Listeners(public=public, admin=admin)


def _bind(host: str, port: int, setting: str) -> socket.socket:
    """Return a listening socket at an address of this machine. Raises ListenError.

    The protocol is set to TCP, because asyncio disables Nagle's algorithm only for sockets that
    name it. The socket listens immediately, because Linux lets several sockets bind an address on
    which none listens.
    """
    try:
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        with contextlib.ExitStack() as on_error:
            on_error.callback(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
            on_error.pop_all()
    except OSError as error:
        raise ListenError(host, port, setting, error) from error
    return listener


def _advice(port: int, setting: str, error: OSError) -> str:
    """Describe the error of an address, and how to fix it."""
    if isinstance(error, socket.gaierror):
        return "this name has no address; set server.host to an address of this machine"
    match error.errno:
        case errno.EADDRINUSE:
            return f"another program listens there; stop it, or set {setting} to another port"
        case errno.EACCES | errno.EPERM if port < _PRIVILEGED:
            return (
                f"ports below {_PRIVILEGED} need a privilege that this user lacks; set {setting} "
                "to a higher port, and put a proxy in front"
            )
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address; set server.host to one that it has"
        case _:
            return f"this machine does not allow it; set server.host or {setting}"
