"""Listening: the addresses that a process serves at, taken before it starts anything else.

Rules:
- an address is ours from `listening` on: two processes that start at once do not both get it;
- one that cannot be had is a ListenError of one line. A worker whose metrics have no free port
  does its work without them, and says so in the log.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tollgauge.core.errors import TollgaugeError
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

    public: socket.socket | None = None
    admin: socket.socket | None = None

    @property
    def port(self) -> int:
        """The port of the routes."""
        return 0 if self.public is None else int(self.public.getsockname()[1])


@contextlib.contextmanager
def listening(
    host: str, port: int, *, admin_port: int = 0, serve: bool = True, setting: str = "server.port"
) -> Iterator[Listeners]:
    """The sockets of a process: of its routes where it does `serve` (port 0 takes any free one),
    and of its metrics on loopback (0: none). They are closed at the end. Raises ListenError.
    """
    with contextlib.ExitStack() as taken:
        public = taken.enter_context(_bound(host, port, setting)) if serve else None
        admin = None
        try:
            if admin_port:
                bound = _bound(LOOPBACK, admin_port, "server.admin_port")
                admin = taken.enter_context(bound)
        except ListenError as error:
            if serve:
                raise
            log().warning("metrics.off", problem=str(error))
        yield Listeners(public=public, admin=admin)


def _bound(host: str, port: int, setting: str) -> socket.socket:
    """A listening socket at an address of this machine. Raises ListenError.

    Named as TCP, else asyncio leaves Nagle's delay on the connections that it accepts. It listens
    at once: Linux lets several sockets be bound to an address that nobody listens on.
    """
    try:
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        with contextlib.ExitStack() as undo:
            undo.callback(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
            undo.pop_all()
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
