"""Transfer: one HTTP exchange on one libcurl handle.

The socket address must be one that egress resolved for this attempt. A body that exceeds a cap or
cannot be decoded is cut, and the answer keeps its status and headers; headers that exceed a cap are
a fault (clients/egress/faults).
"""

from __future__ import annotations

import itertools
import re
import socket
import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pycurl

from tollgauge.clients.egress.faults import TLS_EOF, classify_failure, make_fault
from tollgauge.clients.egress.request import EgressSettings, Request
from tollgauge.core.endpoint.identity import Resource
from tollgauge.core.probe.exchange import (
    BODY_METHODS,
    Answer,
    Defect,
    Exchange,
    Fault,
    FaultKind,
    Timings,
)

_BYTES_RECEIVED: Final = 128
"""Offset of tcpi_bytes_received in Linux's struct tcp_info (linux/tcp.h)."""
_RECEIVE_BUFFER: Final = 128 * 1_024
_KEY_EXCHANGES: Final = "X25519:prime256v1:secp384r1:secp521r1:X25519MLKEM768"
"""Key exchanges offered to servers. A key share is sent only for the first one, which nearly every
server accepts; others are negotiated with a HelloRetryRequest (RFC 8446 section 4.1.4). OpenSSL's
default also sends a share of ML-KEM, which costs as much as the rest of the handshake; requests for
a price need no protection against quantum computers.
"""
_CIPHERS: Final = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
"""OpenSSL's ciphers of TLS 1.3, the one with the cheaper hash first, as in browsers."""

_BROKEN_BODY: Final = frozenset({pycurl.E_BAD_CONTENT_ENCODING, pycurl.E_WRITE_ERROR})
"""libcurl's results for a content encoding that is unknown or broken."""
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field name (RFC 9110 section 5.6.2)."""
_LENGTH_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = len(str(_LENGTH_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters of one transfer.

    Attributes:
        addresses: Already checked.
        dial_port: Differs from the resource's port only for mapped names.
        timeout_ms: Remaining time of the attempt in milliseconds.
        at: Start of the attempt (milliseconds UTC); only recorded.
    """

    request: Request
    resource: Resource
    addresses: tuple[str, ...]
    dial_port: int
    timeout_ms: int
    settings: EgressSettings
    ca_file: str
    at: int = 0


class CurlTransfer:
    """One handle from `open` to `close`. Everything after construction runs on the thread of
    clients/egress/curl_loop.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.handle: Any = None
        self._share: Any = None
        self._head = Head(plan.settings.header_cap)
        self._body = bytearray()
        self._sockets: list[socket.socket] = []
        self._cut = False
        self._is_enough = False
        self._other_address = False
        self._socket_failed = False

    def open(self) -> Any:
        """Create the handle, ready for a multi handle. Raises `pycurl.error`."""
        self.handle = pycurl.Curl()
        # A DNS share per transfer: entries in the multi handle's cache would outlive the attempt
        # and be used for the next one to the same host, without a new check.
        self._share = pycurl.CurlShare()
        self._share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_DNS)
        self.handle.setopt(pycurl.SHARE, self._share)
        self._set_route()
        self._set_limits()
        self._set_request()
        self._set_callbacks()
        return self.handle

    def close(self) -> None:
        """Free the handle and the sockets. The handle must have left its multi handle."""
        for connection in self._sockets:
            connection.close()
        if self.handle is not None:
            self.handle.close()
            self.handle = None
        if self._share is not None:
            self._share.close()

    def _set_route(self) -> None:
        plan, handle, host = self.plan, self.handle, self.plan.resource.host
        addresses = ",".join(f"[{item}]" if ":" in item else item for item in plan.addresses)
        handle.setopt(pycurl.URL, plan.resource.probe_url)
        handle.setopt(pycurl.PATH_AS_IS, 1)
        handle.setopt(pycurl.RESOLVE, [f"{host}:{plan.dial_port}:{addresses}"])
        if plan.dial_port != plan.resource.port:
            route = f"{host}:{plan.resource.port}:{host}:{plan.dial_port}"
            handle.setopt(pycurl.CONNECT_TO, [route])
        handle.setopt(pycurl.RESOLVER_START_FUNCTION, _no_other_lookup)
        handle.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)

    def _set_limits(self) -> None:
        plan, handle = self.plan, self.handle
        for option, value in (
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTPS),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PROXY, ""),
            (pycurl.NOPROXY, "*"),
            (pycurl.NETRC, pycurl.NETRC_IGNORED),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.HTTP09_ALLOWED, 0),
            (pycurl.SSL_VERIFYPEER, 1),
            (pycurl.SSL_VERIFYHOST, 2),
            (pycurl.SSL_SESSIONID_CACHE, 0),
            (pycurl.SSL_EC_CURVES, _KEY_EXCHANGES),
            (pycurl.TLS13_CIPHERS, _CIPHERS),
            (pycurl.CAINFO, plan.ca_file),
            (pycurl.OPT_CERTINFO, 1),
            (pycurl.FRESH_CONNECT, 1),
            (pycurl.FORBID_REUSE, 1),
            (pycurl.NOSIGNAL, 1),
            (pycurl.TIMEOUT_MS, plan.timeout_ms),
            (pycurl.CONNECTTIMEOUT_MS, min(plan.settings.connect_deadline_ms, plan.timeout_ms)),
        ):
            handle.setopt(option, value)
        handle.unsetopt(pycurl.CAPATH)  # otherwise the directory compiled into the wheel is used

    def _set_request(self) -> None:
        request, handle = self.plan.request, self.handle
        headers = (*request.headers, ("User-Agent", self.plan.settings.user_agent))
        body = request.body
        if request.method in BODY_METHODS and body is None:
            body = b""
        if request.method == "HEAD":
            handle.setopt(pycurl.NOBODY, 1)
        elif body is not None:
            handle.setopt(pycurl.POST, 1)
            handle.setopt(pycurl.POSTFIELDS, body)
        handle.setopt(pycurl.CUSTOMREQUEST, request.method)
        names = {name.lower() for name, _ in headers}
        # "Name:" without a value removes a header that libcurl would add.
        removed = [f"{name}:" for name in ("Expect", "Content-Type") if name.lower() not in names]
        handle.setopt(pycurl.ENCODING, "")  # decode responses even though none is requested
        lines = [f"{name}: {value}" for name, value in headers]
        handle.setopt(pycurl.HTTPHEADER, [*lines, *removed, "Accept-Encoding: identity"])

    def _set_callbacks(self) -> None:
        self.handle.setopt(pycurl.HEADERFUNCTION, self._on_header)
        self.handle.setopt(pycurl.WRITEFUNCTION, self._on_body)
        self.handle.setopt(pycurl.NOPROGRESS, 0)
        self.handle.setopt(pycurl.XFERINFOFUNCTION, self._on_progress)

    def _open_socket(self, _purpose: int, address: Any) -> Any:
        # The last check before connecting: libcurl may only use an address that was resolved and
        # checked for this attempt. A link-local scope could change the destination.
        if not self._is_allowed(address.addr):
            self._other_address = True
            return pycurl.SOCKET_BAD
        try:
            connection = socket.socket(address.family, address.socktype, address.protocol)
            # libcurl uses a duplicate. This one counts bytes and is closed with the transfer.
            self._sockets.append(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            if (source := self.plan.settings.source_address) and _family(source) == address.family:
                connection.bind((source, 0))
        except OSError:
            self._socket_failed = True
            return pycurl.SOCKET_BAD
        return connection

    def _is_allowed(self, address: Sequence[Any]) -> bool:
        host, port = address[0], address[1]
        unscoped = len(address) < 4 or address[3] == 0
        return host in self.plan.addresses and port == self.plan.dial_port and unscoped

    def _on_header(self, line: bytes) -> int:
        return len(line) if self._head.feed(line) else 0

    def _on_body(self, data: bytes) -> int:
        room = self.plan.settings.body_cap - len(self._body)
        self._body += data[:room]
        if len(data) > room:
            self._cut = True
            return 0
        ends_body = self.plan.request.ends_body
        self._is_enough = ends_body is not None and ends_body(data)
        return 0 if self._is_enough else len(data)  # libcurl ends the transfer

    def _on_progress(self, *_: int) -> int:
        # Bytes are counted by the kernel: libcurl does not count chunk framing and decoded bytes.
        if sum(map(_count_received, self._sockets)) > self.plan.settings.wire_cap:
            self._cut = True
            return 1
        return 0

    def build_local_failure(self, detail: str) -> Exchange:
        """Return an exchange for a transfer that failed on this machine."""
        return self._exchange(Fault(kind=FaultKind.LOCAL, detail=detail))

    def _exchange(self, result: Answer | Fault) -> Exchange:
        plan = self.plan
        return Exchange(
            url=plan.resource.probe_url, method=plan.request.method, at=plan.at, result=result
        )

    def build_exchange(self, code: int, message: str, *, delay_ms: int) -> Exchange:
        """Return the exchange of a finished transfer, without the total time.

        `code` is libcurl's, 0 for success; `delay_ms` is the largest delay of the thread.
        """
        return replace(
            self._exchange(self._result(code, message)),
            timings=self._timings(delay_ms),
            address=self.handle.getinfo(pycurl.PRIMARY_IP) or None,
            tls_not_after=_not_after(self.handle.getinfo(pycurl.INFO_CERTINFO)),
        )

    def _result(self, code: int, message: str) -> Answer | Fault:
        head = self._head
        if head.malformed or (head.complete and head.contradicts_itself()):
            return make_fault(FaultKind.MALFORMED, "the answer is not valid HTTP", code)
        if head.complete and head.length_too_large():
            text = "the answer declares a length that is not possible"
            return make_fault(FaultKind.MALFORMED, text, code, Defect.LENGTH_TOO_LARGE)
        if not head.complete:
            if head.oversize or self._cut:
                return make_fault(FaultKind.OVERSIZE, "the headers are too large", code)
            return self._fault(code, message)
        is_broken = code in _BROKEN_BODY and not self._is_enough
        cut = self._cut or head.oversize or is_broken
        is_ended = code == 0 or self._is_enough
        if not (is_ended or cut or self._ends_without_close_notify(code, message)):
            return self._fault(code, message)
        return Answer(
            status=self.handle.getinfo(pycurl.RESPONSE_CODE),
            headers=tuple(head.headers),
            body=bytes(self._body),
            truncated=cut,
            defect=Defect.LENGTH_AND_TRANSFER_ENCODING if head.has_two_framings() else None,
        )

    def _ends_without_close_notify(self, code: int, message: str) -> bool:
        """Whether an unframed body ended without TLS close_notify, which common clients accept."""
        return code == pycurl.E_RECV_ERROR and TLS_EOF in message and not self._head.is_framed()

    def _fault(self, code: int, message: str) -> Fault:
        if self._other_address:
            return make_fault(FaultKind.NOT_PUBLIC, "an address that was not resolved for it", code)
        return classify_failure(
            self.handle,
            code,
            message,
            empty=self._head.empty,
            complete=self._head.complete,
            socket_failed=self._socket_failed,
        )

    def _timings(self, delay_ms: int) -> Timings:
        options = (
            pycurl.NAMELOOKUP_TIME_T,
            pycurl.CONNECT_TIME_T,
            pycurl.APPCONNECT_TIME_T,
            pycurl.STARTTRANSFER_TIME_T,
        )
        marks = map(self.handle.getinfo, options)
        connect, tls, first = (_phase(*pair) for pair in itertools.pairwise(marks))
        # libcurl sets the time of the first byte when a transfer ends, even without one.
        ttfb = None if self._head.empty else first
        return Timings(connect=connect, tls=tls, ttfb=ttfb, delay=delay_ms)


def _phase(start: int, end: int) -> int | None:
    """Return the milliseconds between two times of libcurl (microseconds), None if not reached."""
    return max(0, (end - start + 500) // 1_000) if end else None


def _no_other_lookup() -> int:
    """Forbid libcurl its own name lookups: all addresses are in RESOLVE."""
    return 1


def _count_received(connection: socket.socket) -> int:
    """Return the bytes that the kernel received on a connection; 0 if unknown."""
    if not hasattr(socket, "TCP_INFO"):
        return 0
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED + 8)
    return int.from_bytes(info[_BYTES_RECEIVED:], sys.byteorder)


def _not_after(chain: Sequence[Sequence[tuple[str, str]]]) -> int | None:
    """Return the end of the leaf certificate's validity (milliseconds UTC)."""
    try:
        return ssl.cert_time_to_seconds(dict(chain[0])["Expire date"]) * 1_000 if chain else None
    except (KeyError, ValueError):
        return None


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class Head:
    """The header read so far, from lines that libcurl passes one by one.

    Interim responses (1xx) are counted and dropped, trailers are counted and ignored. `cap` limits
    all lines together, in bytes.

    `complete`: the header of the final response has ended. `oversize`: the cap was exceeded.
    `malformed`: a line that common clients reject.
    """

    def __init__(self, cap: int) -> None:
        self._room = cap
        self._interim = False
        self._started = False
        self.headers: list[tuple[str, str]] = []
        self.complete = False
        self.oversize = False
        self.malformed = False

    @property
    def empty(self) -> bool:
        """Whether no line was received."""
        return not (self._started or self._interim or self.complete)

    def feed(self, line: bytes) -> bool:
        """Read one line; False ends the transfer."""
        self._room -= len(line)
        if self._room < 0:
            self.oversize = True
            return False
        if not self.complete:
            self._read(line.rstrip(b"\r\n"))
        return not self.malformed

    def _read(self, line: bytes) -> None:
        if not self._started:
            status = line.split(b" ", 2)[1:2]
            self._interim = status != [] and status[0][:1] == b"1" and status[0] != b"101"
            self._started = True
        elif not line:
            self.complete = not self._interim
            self._started = False
        elif not self._interim:
            name, _, value = line.partition(b":")
            # Clients differ on names that are not tokens; Node and h11 reject the response.
            self.malformed = not _TOKEN.fullmatch(name)
            self.headers.append((name.decode("latin-1").lower(), _text(value)))

    def is_framed(self) -> bool:
        """Whether the end of the body is marked; otherwise it is the end of the stream."""
        return any(name in ("content-length", "transfer-encoding") for name, _ in self.headers)

    def contradicts_itself(self) -> bool:
        """Whether there are several different content lengths (RFC 9112 section 6.3)."""
        return len({value for name, value in self.headers if name == "content-length"}) > 1

    def length_too_large(self) -> bool:
        """Whether a content length is 2^63 or more, which clients cannot represent."""
        lengths = [value.lstrip("0") for name, value in self.headers if name == "content-length"]
        return any(
            length.isdecimal() and (len(length) > _DIGITS_MAX or int(length) > _LENGTH_MAX)
            for length in lengths
        )

    def has_two_framings(self) -> bool:
        """Whether a content length and a transfer encoding both define the end of the body."""
        return {"content-length", "transfer-encoding"} <= {name for name, _ in self.headers}


def _text(value: bytes) -> str:
    return value.strip(b" \t").decode("latin-1")
