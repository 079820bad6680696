"""Classify what libcurl reports about a failed transfer.

A fault's detail is always our own text, because libcurl's may contain addresses.
"""

from __future__ import annotations

import errno
from typing import Any, Final

import pycurl

from tollgauge.core.probe.exchange import Defect, Fault, FaultKind

_CURL_TOO_LARGE: Final = 100
"""CURLE_TOO_LARGE, which pycurl does not define."""
TLS_EOF: Final = "unexpected eof"
"""OpenSSL's message for an end of the stream without close_notify."""
_TLS_ALERT: Final = " alert "
"""Part of OpenSSL's message for a refusal after the handshake, as TLS 1.3 sends it."""
_LOCAL_ERRORS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENETUNREACH, errno.ENETDOWN}
    | {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EACCES, errno.EPERM}
    | {0}  # no error of the other side: the socket could not be created or duplicated
)
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


def classify_failure(
    handle: Any, code: int, message: str, *, empty: bool, complete: bool, socket_failed: bool
) -> Fault:
    """Return the fault of a failed transfer.

    Args:
        handle: The curl handle.
        code: libcurl's result.
        message: libcurl's or OpenSSL's text.
        empty: No line of a response was received.
        complete: The header of the final response was received.
        socket_failed: This machine could not set up a socket.
    """
    number = handle.getinfo(pycurl.OS_ERRNO)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return _timeout(handle, code, complete=complete)
    if code == pycurl.E_COULDNT_CONNECT and (number in _LOCAL_ERRORS or socket_failed):
        return make_fault(FaultKind.LOCAL, "this machine could not open the connection", code)
    if code in (pycurl.E_COULDNT_CONNECT, pycurl.E_SSL_CONNECT_ERROR) and number in _RESETS:
        return make_fault(FaultKind.RESET, "the connection broke before it could be used", code)
    if code == pycurl.E_RECV_ERROR and TLS_EOF in message and empty:
        code = pycurl.E_GOT_NOTHING
    elif code == pycurl.E_GOT_NOTHING and not empty:
        code = pycurl.E_FTP_WEIRD_SERVER_REPLY
    if code == pycurl.E_RECV_ERROR and _TLS_ALERT in message:
        code = pycurl.E_SSL_CONNECT_ERROR
    kind, text = _FAULTS.get(code, (FaultKind.LOCAL, "the transfer failed on this machine"))
    return make_fault(kind, text, code, _certificate_defect(handle, code, message))


def _certificate_defect(handle: Any, code: int, message: str) -> Defect | None:
    """Return the rule that a certificate broke; None if it is another one."""
    if code != pycurl.E_PEER_FAILED_VERIFICATION:
        return None
    if any(part in message for part in _OTHER_NAME):
        return Defect.CERTIFICATE_WRONG_NAME
    return _CERTIFICATE_DEFECTS.get(handle.getinfo(pycurl.SSL_VERIFYRESULT))


def _timeout(handle: Any, code: int, *, complete: bool) -> Fault:
    if not handle.getinfo(pycurl.CONNECT_TIME_T):
        return make_fault(FaultKind.CONNECT_TIMEOUT, "no connection within the deadline", code)
    if not handle.getinfo(pycurl.APPCONNECT_TIME_T):
        return make_fault(FaultKind.TIMEOUT, "no TLS handshake within the deadline", code)
    part = "the answer did not end" if complete else "no answer came"
    return make_fault(FaultKind.TIMEOUT, f"{part} within the deadline", code)


def make_fault(kind: FaultKind, text: str, code: int, defect: Defect | None = None) -> Fault:
    """Return a fault with libcurl's result in its text."""
    return Fault(kind=kind, detail=f"{text} (curl {code})", defect=defect)
