"""LintCache: what the linter said of the last 402 of each endpoint.

A judgement is a function of the URL, the method, the body and a few headers: where these are the
same as the last time, so is the judgement. Sellers whose answers differ each time gain nothing.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import orjson

from tollgauge.core.endpoint.finding import Lint
from tollgauge.core.lint import HEADERS_READ, lint
from tollgauge.core.probe.exchange import Answer, Exchange

ENDPOINTS_MAX: Final = 20_000
"""How many endpoints a process remembers: some 25 MB."""
_TERMS_MAX: Final = 4
_FINDINGS_MAX: Final = 16
"""A judgement with more is not kept: a seller decides how large it is."""


class LintCache:
    """Judgements by endpoint. Beyond `most` endpoints, those that came first are remembered: to
    forget the oldest would help nobody where all are probed in turn.
    """

    def __init__(self, most: int = ENDPOINTS_MAX) -> None:
        self._most = most
        self._kept: dict[str, tuple[bytes, Lint]] = {}

    def lint(self, endpoint_id: str, exchange: Exchange) -> Lint:
        """What the linter says of an exchange with an endpoint."""
        answer = exchange.result
        if not isinstance(answer, Answer) or answer.status != 402:
            return lint(exchange)
        headers = tuple([header for header in answer.headers if header[0] in HEADERS_READ])
        asked = orjson.dumps((exchange.url, exchange.method, headers))  # which says where it ends
        digest = sha256(asked + answer.body).digest()
        kept = self._kept.get(endpoint_id)
        if kept is not None and kept[0] == digest:
            return kept[1]
        # The linter sees what the digest is of, and no more.
        seen = Answer(status=answer.status, headers=headers, body=answer.body)
        judged = lint(Exchange(url=exchange.url, method=exchange.method, at=0, result=seen))
        if kept is not None:
            del self._kept[endpoint_id]
        small = len(judged.terms) <= _TERMS_MAX and len(judged.findings) <= _FINDINGS_MAX
        if small and len(self._kept) < self._most:
            self._kept[endpoint_id] = digest, judged
        return judged
