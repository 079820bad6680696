"""Listening sockets: the addresses that a process serves at, bound before it starts anything else.

Rules:
- `listening` binds and listens at once, so that of two processes only one gets an address;
- an address that cannot be bound is a ListenError of one line. A worker whose metrics port is in
  use runs without metrics, and logs that.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.observe import log

LOOPBACK: Final = "127.0.0.1"
_PRIVILEGED: Final = 1024


class ListenError(TollgaugeError):
    """An address that this process cannot listen on; `setting` names its port."""

    def __init__(self, host: str, port: int, setting: str, error: OSError) -> None:
        super().__init__(f"Cannot listen on {host}, port {port}: {_advice(port, setting, error)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Sockets that listen: for the routes, and for the metrics; None where there is none."""

    public: socket.socket | None
    admin: socket.socket | None

    @property
    def port(self) -> int:
        """The port of the routes."""
        return 0 if self.public is None else int(self.public.getsockname()[1])


@contextlib.contextmanager
def listening(
    host: str, port: int, *, admin_port: int = 0, serve: bool = True, setting: str = "server.port"
) -> Iterator[Listeners]:
    """The sockets of a process: with `serve` one for its routes (port 0 takes any free one), and
    one for its metrics on loopback (`admin_port` 0: none). They are closed at the end. Raises
    ListenError.
    """
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(_bound(host, port, setting)) if serve else None
        admin = None
        try:
            if admin_port:
                bound = _bound(LOOPBACK, admin_port, "server.admin_port")
                admin = stack.enter_context(bound)
        except ListenError as error:
            if serve:
                raise
            log().warning("metrics.off", problem=str(error))
        yield Listeners(public=public, admin=admin)


def _bound(host: str, port: int, setting: str) -> socket.socket:
    """A listening socket at an address of this machine. Raises ListenError.

    The protocol is named, because asyncio turns Nagle's delay off only for sockets that say TCP. It
    listens at once, because Linux lets several sockets bind an address that nobody listens on.
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
    """What is wrong with an address, and what to do."""
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
