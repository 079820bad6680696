"""Transfer: one HTTP exchange on one libcurl handle.

The socket address must be one that egress resolved for this attempt. A body that exceeds a cap or
cannot be decoded is cut, and the answer keeps its status and headers; headers that exceed a cap are
a fault. A fault's detail is always our own text, because libcurl's may contain addresses.
"""

from __future__ import annotations

import errno
import itertools
import socket
import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pycurl

from tollgauge.clients.egress.head import Head
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

if TYPE_CHECKING:
    from tollgauge.clients.egress.client import EgressSettings, Request

_BYTES_RECEIVED: Final = 128
"""Offset of tcpi_bytes_received in Linux's struct tcp_info (linux/tcp.h)."""
_RECEIVE_BUFFER: Final = 128 * 1_024
_CURL_TOO_LARGE: Final = 100
"""CURLE_TOO_LARGE, which pycurl does not define."""
_TLS_EOF: Final = "unexpected eof"
"""OpenSSL's message for an end of the stream without close_notify."""
_TLS_ALERT: Final = " alert "
"""Part of OpenSSL's message for a refusal after the handshake, as TLS 1.3 sends it."""

_KEY_EXCHANGES: Final = "X25519:prime256v1:secp384r1:secp521r1:X25519MLKEM768"
"""Key exchanges offered to servers. A key share is sent only for the first one, which nearly every
server accepts; others are negotiated with a HelloRetryRequest (RFC 8446 section 4.1.4). OpenSSL's
default also sends a share of ML-KEM, which costs as much as the rest of the handshake; requests for
a price need no protection against quantum computers.
"""
_CIPHERS: Final = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
"""OpenSSL's ciphers of TLS 1.3, the one with the cheaper hash first, as in browsers."""

_OURS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENETUNREACH, errno.ENETDOWN}
    | {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EACCES, errno.EPERM}
    | {0}  # no error of the other side: the socket could not be created or duplicated
)
_BROKEN_BODY: Final = frozenset({pycurl.E_BAD_CONTENT_ENCODING, pycurl.E_WRITE_ERROR})
"""libcurl's results for a content encoding that is unknown or broken."""
_CERTIFICATE_DEFECTS: Final = {
    9: Defect.CERTIFICATE_NOT_YET_VALID,
    10: Defect.CERTIFICATE_EXPIRED,
    18: Defect.CERTIFICATE_SELF_SIGNED,
    2: Defect.CERTIFICATE_UNKNOWN_ISSUER,
    19: Defect.CERTIFICATE_UNKNOWN_ISSUER,  # a chain up to a root that is not trusted here
    20: Defect.CERTIFICATE_UNKNOWN_ISSUER,
    21: Defect.CERTIFICATE_UNKNOWN_ISSUER,
}
"""OpenSSL's X509_V_ERR_ numbers (openssl/x509_vfy.h), as libcurl returns them."""
_OTHER_NAME: Final = ("subject name", "common name")
"""Parts of libcurl's messages for a certificate with other names. libcurl compares the names
itself, before it checks OpenSSL's result.
"""
_RESETS: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})

_FAULTS: Final = {
    pycurl.E_COULDNT_CONNECT: (FaultKind.CONNECT, "the connection was refused or unreachable"),
    pycurl.E_SSL_CONNECT_ERROR: (FaultKind.TLS, "the TLS handshake failed"),
    pycurl.E_PEER_FAILED_VERIFICATION: (FaultKind.TLS_INVALID, "the certificate is not valid"),
    pycurl.E_SSL_ISSUER_ERROR: (FaultKind.TLS_INVALID, "the certificate's issuer is not valid"),
    pycurl.E_SSL_INVALIDCERTSTATUS: (FaultKind.TLS_INVALID, "the certificate's status is bad"),
    pycurl.E_SSL_CIPHER: (FaultKind.TLS, "no cipher in common"),
    pycurl.E_GOT_NOTHING: (FaultKind.EMPTY, "the connection ended without an answer"),
    pycurl.E_RECV_ERROR: (FaultKind.RESET, "the connection broke while receiving"),
    pycurl.E_SEND_ERROR: (FaultKind.RESET, "the connection broke while sending"),
    pycurl.E_PARTIAL_FILE: (FaultKind.RESET, "the connection ended inside the body"),
    pycurl.E_UNSUPPORTED_PROTOCOL: (FaultKind.MALFORMED, "the answer is not HTTP/1"),
    pycurl.E_FTP_WEIRD_SERVER_REPLY: (FaultKind.MALFORMED, "the answer is not valid HTTP"),
    _CURL_TOO_LARGE: (FaultKind.OVERSIZE, "the headers are too large"),
}


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
        if len(data) <= room:
            return len(data)
        self._cut = True
        return 0

    def _on_progress(self, *_: int) -> int:
        # Bytes are counted by the kernel: libcurl does not count chunk framing and decoded bytes.
        if sum(map(_count_received, self._sockets)) > self.plan.settings.wire_cap:
            self._cut = True
            return 1
        return 0

    def failed(self, detail: str) -> Exchange:
        """Return an exchange for a transfer that failed on this machine."""
        return self._exchange(Fault(kind=FaultKind.LOCAL, detail=detail))

    def _exchange(self, result: Answer | Fault) -> Exchange:
        plan = self.plan
        return Exchange(
            url=plan.resource.probe_url, method=plan.request.method, at=plan.at, result=result
        )

    def finished(self, code: int, message: str, *, delay_ms: int) -> Exchange:
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
            return _fault(FaultKind.MALFORMED, "the answer is not valid HTTP", code)
        if head.complete and head.length_too_large():
            text = "the answer declares a length that is not possible"
            return _fault(FaultKind.MALFORMED, text, code, Defect.LENGTH_TOO_LARGE)
        if not head.complete:
            if head.oversize or self._cut:
                return _fault(FaultKind.OVERSIZE, "the headers are too large", code)
            return self._fault(code, message)
        cut = self._cut or head.oversize or code in _BROKEN_BODY
        if not (code == 0 or cut or self._ends_without_close_notify(code, message)):
            return self._fault(code, message)
        return Answer(
            status=self.handle.getinfo(pycurl.RESPONSE_CODE),
            headers=tuple(head.headers),
            body=bytes(self._body),
            truncated=cut,
            defect=Defect.LENGTH_AND_TRANSFER_ENCODING if head.framed_twice() else None,
        )

    def _ends_without_close_notify(self, code: int, message: str) -> bool:
        """Whether an unframed body ended without TLS close_notify, which common clients accept."""
        return code == pycurl.E_RECV_ERROR and _TLS_EOF in message and not self._head.framed()

    def _fault(self, code: int, message: str) -> Fault:
        number = self.handle.getinfo(pycurl.OS_ERRNO)
        if self._other_address:
            return _fault(FaultKind.NOT_PUBLIC, "an address that was not resolved for it", code)
        if code == pycurl.E_OPERATION_TIMEDOUT:
            return self._timeout(code)
        if code == pycurl.E_COULDNT_CONNECT and (number in _OURS or self._socket_failed):
            return _fault(FaultKind.LOCAL, "this machine could not open the connection", code)
        if code in (pycurl.E_COULDNT_CONNECT, pycurl.E_SSL_CONNECT_ERROR) and number in _RESETS:
            return _fault(FaultKind.RESET, "the connection broke before it could be used", code)
        if code == pycurl.E_RECV_ERROR and _TLS_EOF in message and self._head.empty:
            code = pycurl.E_GOT_NOTHING
        elif code == pycurl.E_GOT_NOTHING and not self._head.empty:
            code = pycurl.E_FTP_WEIRD_SERVER_REPLY
        if code == pycurl.E_RECV_ERROR and _TLS_ALERT in message:
            code = pycurl.E_SSL_CONNECT_ERROR
        kind, text = _FAULTS.get(code, (FaultKind.LOCAL, "the transfer failed on this machine"))
        return _fault(kind, text, code, self._certificate_defect(code, message))

    def _certificate_defect(self, code: int, message: str) -> Defect | None:
        """Return the rule that a certificate broke; None if it is another one."""
        if code != pycurl.E_PEER_FAILED_VERIFICATION:
            return None
        if any(words in message for words in _OTHER_NAME):
            return Defect.CERTIFICATE_WRONG_NAME
        return _CERTIFICATE_DEFECTS.get(self.handle.getinfo(pycurl.SSL_VERIFYRESULT))

    def _timeout(self, code: int) -> Fault:
        if not self.handle.getinfo(pycurl.CONNECT_TIME_T):
            return _fault(FaultKind.CONNECT_TIMEOUT, "no connection within the deadline", code)
        if not self.handle.getinfo(pycurl.APPCONNECT_TIME_T):
            return _fault(FaultKind.TIMEOUT, "no TLS handshake within the deadline", code)
        part = "the answer did not end" if self._head.complete else "no answer came"
        return _fault(FaultKind.TIMEOUT, f"{part} within the deadline", code)

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


def _fault(kind: FaultKind, text: str, code: int, defect: Defect | None = None) -> Fault:
    return Fault(kind=kind, detail=f"{text} (curl {code})", defect=defect)


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
