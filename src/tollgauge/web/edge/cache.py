"""Cache of whole answers to the most requested free routes.

Rules:
- an answer is built once, with its headers, `ETag` and gzipped form, and sent unchanged for
  FRESH_SECONDS;
- the key is path and query as sent, and whether gzip and CSV are accepted;
- while one request builds a new answer, and if that fails, other requests get the old one, for at
  most STALE_SECONDS;
- all answers together hold at most CACHE_BYTES; the least recently used is dropped first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from starlette.types import Message

from tollgauge.web.edge.messages import EVERY_ANSWER, MIN_BYTES, gzip_body, names_tag

FRESH_SECONDS: Final = 5.0
STALE_SECONDS: Final = 3_600.0
# Answers of FRESH_SECONDS are at most a few MB per second of CPU that builds them; older ones are
# only sent while a new one is built.
CACHE_BYTES: Final = 32 * 1024 * 1024
CACHE_BODY_MAX: Final = 512 * 1024

Header = tuple[bytes, bytes]
Key = tuple[bytes, bytes, bool, bool]
"""Raw path, raw query, whether gzip is accepted, and whether CSV is."""

_OF_BODY: Final = frozenset({b"content-length", b"content-encoding"})
"""Headers that an answer without a body leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """An answer of a route; only a 200 has an `etag`. It is sent until `fresh_until`, and until
    `stale_until` if no new one can be built (monotonic seconds).
    """

    status: int
    headers: list[Header]
    body: bytes
    etag: bytes = b""
    fresh_until: float = 0.0
    stale_until: float = 0.0

    @property
    def size(self) -> int:
        """The bytes of body and headers."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers)

    def messages(self, if_none_match: bytes | None) -> tuple[Message, Message]:
        """Return the ASGI messages of the answer, or of a 304 if `If-None-Match` names this version
        (RFC 9110: weakly, or `*`).
        """
        status, headers, body = self.status, self.headers, self.body
        if self.etag and if_none_match is not None and names_tag(if_none_match, self.etag):
            headers = [pair for pair in headers if pair[0] not in _OF_BODY]
            status, body = 304, b""
        return (
            {"type": "http.response.start", "status": status, "headers": headers},
            {"type": "http.response.body", "body": body},
        )


async def cached_answer(
    status: int, headers: Sequence[Header], body: bytes, *, gzip: bool
) -> CachedAnswer:
    """Make an answer from a route's status, headers and body. It gets the headers of every answer;
    with `gzip`, a large body is compressed.
    """
    fields = list(headers)
    if status != 200:
        return CachedAnswer(status=status, headers=[*fields, *EVERY_ANSWER], body=body)
    if len(body) >= MIN_BYTES:
        fields.append((b"vary", b"Accept-Encoding"))
        if gzip:
            body = await gzip_body(body)
            fields = [pair for pair in fields if pair[0] != b"content-length"]
            fields.append((b"content-encoding", b"gzip"))
            fields.append((b"content-length", str(len(body)).encode()))
    etag = b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"'
    fields.append((b"etag", etag))
    if all(name != b"cache-control" for name, _ in fields):
        fields.append((b"cache-control", b"public, max-age=60"))
    return CachedAnswer(status=status, headers=[*fields, *EVERY_ANSWER], body=body, etag=etag)


@dataclass(slots=True)
class AnswerCache:
    """Answers by key. Times are monotonic seconds."""

    answers: OrderedDict[Key, CachedAnswer] = field(default_factory=OrderedDict)
    size: int = 0
    """Bytes of all keys and answers."""

    def fresh(self, key: Key, now: float) -> CachedAnswer | None:
        """Return an answer that may be sent without calling its route."""
        answer = self.answers.get(key)
        if answer is None or now >= answer.fresh_until:
            return None
        self.answers.move_to_end(key)
        return answer

    def stale(self, key: Key, now: float) -> CachedAnswer | None:
        """Return the old answer for the caller, which builds a new one. In the meantime it
        counts as fresh for other requests.
        """
        answer = self.answers.get(key)
        if answer is None or now >= answer.stale_until:
            return None
        self.answers[key] = replace(answer, fresh_until=now + FRESH_SECONDS)
        return answer

    def keep(self, key: Key, answer: CachedAnswer, now: float) -> None:
        """Replace the old answer if the new one is a 200 that is not too large."""
        self._drop(key)
        if answer.status != 200 or len(answer.body) > CACHE_BODY_MAX:
            return
        self.answers[key] = replace(
            answer, fresh_until=now + FRESH_SECONDS, stale_until=now + STALE_SECONDS
        )
        self.size += _key_size(key) + answer.size
        while self.size > CACHE_BYTES:
            self._drop(next(iter(self.answers)))

    def _drop(self, key: Key) -> None:
        answer = self.answers.pop(key, None)
        if answer is not None:
            self.size -= _key_size(key) + answer.size


def _key_size(key: Key) -> int:
    return len(key[0]) + len(key[1])
