"""Problem: every error that a caller sees, as `application/problem+json` (RFC 9457).

`code` is a stable slug; the text of a foreign exception is never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import orjson
from starlette.responses import Response

from tollgauge.core.base.errors import TollgaugeError

_AGAIN: Final = "Send the same request again; a payment that came with it is never charged twice."


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """One invalid part of the input: its path, such as `resource`, and the error."""

    path: str
    message: str


class Problem(TollgaugeError):  # noqa: N818 - RFC 9457 names it so
    """An answer other than success.

    `retry_after` is in seconds. `wasted` marks a request that failed after work was done for it,
    through no fault of this service; `host` is the host that caused it, if any
    (store/ledger/payer_limit). `headers` are sent in addition to those of every problem.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: tuple[Invalid, ...] = (),
        retry_after: int | None = None,
        extra: dict[str, object] | None = None,
        wasted: bool = False,
        host: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.errors = errors
        self.retry_after = retry_after
        self.extra = extra or {}
        self.wasted = wasted or host is not None
        self.host = host
        self.own_headers = headers or {}

    def response(self) -> Response:
        """The problem as an HTTP response."""
        body: dict[str, object] = {
            "type": f"urn:tollgauge:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": str(self),
            "code": self.code,
        }
        if self.errors:
            body["errors"] = [{"path": e.path, "message": e.message} for e in self.errors]
        return Response(
            orjson.dumps(body | self.extra),
            status_code=self.status,
            media_type="application/problem+json",
            headers=self.headers(),
        )

    def headers(self) -> dict[str, str]:
        """The headers of the problem, whatever form its body takes."""
        headers = {"Cache-Control": "no-store", **self.own_headers}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return headers


def store_unavailable() -> Problem:
    """503 while the database cannot serve."""
    detail = f"Our database cannot serve now. {_AGAIN}"
    return Problem(503, "store-unavailable", detail, retry_after=5)


def internal_error() -> Problem:
    """500 for an unexpected exception."""
    return Problem(500, "internal", f"This is an error of the service. {_AGAIN}")
