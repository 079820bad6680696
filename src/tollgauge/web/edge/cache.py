"""Cache of whole answers to the free routes that are read most, each for FRESH_SECONDS.

Rules:
- an answer is built once, with its headers, its `ETag`, its gzipped form and its 304; sending it
  again only copies bytes;
- the key is path and query as they were sent, and whether gzip and whether CSV is accepted;
- while one request builds a new answer, and where that fails, other requests get the old one, for
  STALE_SECONDS at most;
- all answers together hold at most CACHE_BYTES; the least recently used is dropped first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from starlette.types import Message

from tollgauge.web.edge.compress import MIN_BYTES, gzipped
from tollgauge.web.edge.conditional import names_tag
from tollgauge.web.edge.headers import EVERY_ANSWER

FRESH_SECONDS: Final = 5.0
STALE_SECONDS: Final = 3_600.0
CACHE_BYTES: Final = 64 * 1024 * 1024
CACHE_BODY_MAX: Final = 512 * 1024

Header = tuple[bytes, bytes]
Key = tuple[bytes, bytes, bool, bool]
"""Raw path, raw query, whether gzip is accepted, and whether CSV is."""

_OF_BODY: Final = frozenset({b"content-length", b"content-encoding"})
"""Headers that an answer without a body leaves out."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A whole answer as two ASGI messages. Raises ValueError for a header that holds a line break:
    a server would write it as it is.
    """

    start: Message
    body: Message
    size: int
    """The bytes of the body and the headers."""

    @classmethod
    def of(cls, status: int, headers: Sequence[Header], body: bytes = b"") -> Ready:
        """The two messages of an answer."""
        fields = [part for header in headers for part in header]
        if any(b"\r" in part or b"\n" in part for part in fields):
            raise ValueError("a header holds a line break")
        return cls(
            {"type": "http.response.start", "status": status, "headers": list(headers)},
            {"type": "http.response.body", "body": body},
            len(body) + sum(map(len, fields)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """An answer of a route. Only a 200 has an `etag`, and `unmodified`, the 304 to a request that
    names this `etag`. It is sent until `fresh_until`, and until `stale_until` where no new one can
    be built; both are monotonic seconds.
    """

    status: int
    whole: Ready
    unmodified: Ready | None = None
    etag: bytes = b""
    fresh_until: float = 0.0
    stale_until: float = 0.0

    @property
    def size(self) -> int:
        """The bytes of its forms."""
        return self.whole.size + (self.unmodified.size if self.unmodified else 0)

    def reply(self, if_none_match: bytes | None) -> Ready:
        """What answers a request with this `If-None-Match` (RFC 9110: weak comparison, or `*`)."""
        if self.unmodified is None or if_none_match is None:
            return self.whole
        if if_none_match == self.etag:
            return self.unmodified
        return self.unmodified if names_tag(if_none_match, self.etag) else self.whole


async def cached_answer(
    status: int, headers: Sequence[Header], body: bytes, *, gzip: bool
) -> CachedAnswer:
    """An answer from a route's status, headers and body, with the headers of every answer; with
    `gzip`, a large body is compressed.
    """
    if status != 200:
        whole = Ready.of(status, [*headers, *EVERY_ANSWER], body)
        return CachedAnswer(status=status, whole=whole)
    fields = list(headers)
    if len(body) >= MIN_BYTES:
        fields.append((b"vary", b"Accept-Encoding"))
        if gzip:
            body = await gzipped(body)
            fields = [pair for pair in fields if pair[0] != b"content-length"]
            fields.append((b"content-encoding", b"gzip"))
            fields.append((b"content-length", str(len(body)).encode()))
    etag = b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"'
    fields.append((b"etag", etag))
    if all(name != b"cache-control" for name, _ in fields):
        fields.append((b"cache-control", b"public, max-age=60"))
    fields += EVERY_ANSWER
    return CachedAnswer(
        status=status,
        whole=Ready.of(status, fields, body),
        unmodified=Ready.of(304, [pair for pair in fields if pair[0] not in _OF_BODY]),
        etag=etag,
    )


@dataclass(slots=True)
class AnswerCache:
    """Answers by key. Instants are monotonic seconds."""

    answers: OrderedDict[Key, CachedAnswer] = field(default_factory=OrderedDict)
    size: int = 0
    """Bytes of all keys and answers."""

    def fresh(self, key: Key, now: float) -> CachedAnswer | None:
        """The answer that may be sent as it is."""
        answer = self.answers.get(key)
        if answer is None or now >= answer.fresh_until:
            return None
        self.answers.move_to_end(key)
        return answer

    def stale(self, key: Key, now: float) -> CachedAnswer | None:
        """The old answer, while the caller builds a new one; for other requests it is fresh again
        meanwhile.
        """
        answer = self.answers.get(key)
        if answer is None or now >= answer.stale_until:
            return None
        self.answers[key] = replace(answer, fresh_until=now + FRESH_SECONDS)
        return answer

    def keep(self, key: Key, answer: CachedAnswer, now: float) -> None:
        """Keep a new answer in place of the old one, if it is a 200 that is not too large."""
        self._drop(key)
        if answer.status != 200 or len(answer.whole.body["body"]) > CACHE_BODY_MAX:
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
