"""One JSON-RPC node of an EVM chain: batched calls, and the classification of their failures.

A malformed reply raises one of the errors below and nothing else. The node's URL may contain a key:
only its host is ever shown, and never a text of the node's errors. The operator chooses the node,
so requests use httpx and not egress.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import orjson

from tollgauge.clients.peer import public_authorities
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.probe.exchange import retry_after_ms

BATCH_CALLS: Final = 100
BATCH_BYTES: Final = 1 << 20
REPLY_MAX: Final = 16 << 20  # decoded JSON takes up to 37 times as much memory
_NAME_MAX: Final = 80
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,10}", re.ASCII)
_DRIP: Final = 4
"""A whole reply may take this many times the timeout of one read."""


class RpcError(TollgaugeError):
    """A call to a node did not return a result."""


class RpcUnavailable(RpcError):  # noqa: N818 - the names say states, not bugs
    """The node did not respond, or its reply is invalid: another node may succeed."""


class RpcThrottled(RpcUnavailable):
    """The node requires fewer calls. `retry_after_s` is in seconds, 0 if not given."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint="Use a node with a higher limit, or name several.")
        self.retry_after_s = retry_after_s


class RpcRefused(RpcError):  # noqa: N818 - an answer of the node
    """The node returned a JSON-RPC error. `code` is its number."""

    def __init__(self, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class RpcReverted(RpcRefused):
    """The called contract reverted or ran out of gas. `text` is the node's message, which is only
    matched against patterns, never shown.
    """

    def __init__(self, message: str, *, code: int, text: str) -> None:
        super().__init__(message, code=code)
        self.text = text


class RpcLimit(RpcRefused):
    """A request or its result is too large for the node: request less.

    `span` is the node's suggested maximum in blocks; None without one. `topics` means that the list
    of topics or addresses is too long.
    """

    def __init__(
        self, message: str, *, code: int = 0, span: int | None = None, topics: bool = False
    ) -> None:
        super().__init__(message, code=code)
        self.span = span
        self.topics = topics


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A method and its parameters: JSON values, or `orjson.Fragment` for prepared bytes."""

    method: str
    params: Sequence[Any] = ()


class Node:
    """A connection pool to one node. `name` is its host, which is safe to show.

    `transport` replaces the network.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 10.0,
        reply_max: int = REPLY_MAX,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name: Final = _host(url)
        self._url: Final = url
        self._reply_max: Final = reply_max
        self._deadline_s: Final = timeout_s * _DRIP
        self._batch = BATCH_CALLS
        self._ids: Final = count(1)
        self._http: Final = httpx.AsyncClient(
            timeout=timeout_s,
            transport=transport,
            trust_env=False,
            verify=public_authorities(),
            headers={"content-type": "application/json", "accept-encoding": "gzip"},
        )

    async def close(self) -> None:
        """Close the pool."""
        await self._http.aclose()

    @property
    def batch_calls(self) -> int:
        """Maximum calls per batch; it decreases after the node refuses a batch."""
        return self._batch

    async def call(self, method: str, *params: Any) -> Any:
        """Return the result of one call. Raises RpcError."""
        return (await self.results([RpcCall(method, params)]))[0]

    async def results(self, calls: Sequence[RpcCall]) -> list[Any]:
        """Return the results of all calls in order. Raises the first RpcError among them."""
        results = await self.each(calls)
        for result in results:
            if isinstance(result, RpcError):
                raise result
        return results

    async def each(self, calls: Sequence[RpcCall]) -> list[Any]:
        """Return the same as `batch`, in several requests if the reply to one is too large."""
        try:
            return await self.batch(calls)
        except RpcLimit as error:
            if len(calls) == 1:
                return [error]
            half = len(calls) // 2
            return [*await self.each(calls[:half]), *await self.each(calls[half:])]

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        """Return the results of all calls in order; a refused call has an RpcError in its place.

        Raises:
            RpcError: The node returned nothing about the single calls.
        """
        results: list[Any] = []
        while len(results) < len(calls):
            rest = calls[len(results) :]
            texts = [self._text(call) for call in rest[: self._batch]]
            size = _count_fitting(texts)
            try:
                results += await self._post(rest[:size], texts[:size])
            except _BatchRefusedError as error:
                # Retry the same calls in half the size, down to single calls. The smaller size is
                # kept, because the node's limit rarely changes.
                if size == 1:
                    raise error.reason from error
                self._batch = max(1, size // 2)
        return results

    def _text(self, call: RpcCall) -> tuple[int, bytes]:
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": call.method, "params": call.params}
        return number, orjson.dumps(message)

    async def _post(
        self, calls: Sequence[RpcCall], texts: Sequence[tuple[int, bytes]]
    ) -> list[Any]:
        one = len(texts) == 1
        body = texts[0][1] if one else b"[" + b",".join(text for _, text in texts) + b"]"
        status, headers, reply = await self._exchange(body)
        # One error object for a whole batch: if it is a refusal, single calls may still work.
        if isinstance(reply, dict) and not one:
            reason = _reason(status, headers, reply, "a batch")
            raise _BatchRefusedError(reason) if isinstance(reason, RpcRefused) else reason
        answers = [reply] if one else reply
        if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
            raise _reason(status, headers, None, calls[0].method)
        # Replies are matched by ID: a batch may be answered in any order. Some nodes omit the ID
        # in an error; for a single call it is unambiguous.
        by_id = {answer["id"]: answer for answer in answers if isinstance(answer.get("id"), int)}
        if one and reply.get("id") is None and "error" in reply:
            by_id = {texts[0][0]: reply}
        return [
            _result(by_id.get(number), call.method, status=status, headers=headers)
            for call, (number, _) in zip(calls, texts, strict=True)
        ]

    async def _exchange(self, body: bytes) -> tuple[int, httpx.Headers, Any]:
        """Return status, headers and the parsed reply. Raises RpcError."""
        received = bytearray()
        try:
            async with (
                # The deadline covers the whole reply: httpx's timeout applies only to each read.
                asyncio.timeout(self._deadline_s),
                self._http.stream("POST", self._url, content=body) as response,
            ):
                encoding = response.headers.get("content-encoding", "identity")
                if encoding not in ("gzip", "identity"):
                    raise RpcUnavailable(f"A reply of {self.name} has an unknown encoding.")
                unpack = zlib.decompressobj(31).decompress if encoding == "gzip" else _take
                # Not httpx's decoders, which unpack each piece to up to a thousand times its size.
                async for piece in response.aiter_raw():
                    received += unpack(piece, self._reply_max + 1 - len(received))
                    if len(received) > self._reply_max:
                        raise RpcLimit(f"A reply of {self.name} is too large.")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, TimeoutError) as error:
            raise RpcUnavailable(f"{self.name} did not respond.") from error
        except zlib.error as error:
            raise RpcUnavailable(f"A reply of {self.name} is not gzip.") from error
        try:
            return response.status_code, response.headers, orjson.loads(received)
        except orjson.JSONDecodeError as error:
            if response.status_code == 200:
                raise RpcUnavailable(f"A reply of {self.name} is not JSON.") from error
            raise _reason(response.status_code, response.headers, None, self.name) from error


def quantity(value: object) -> int:
    """Parse a JSON-RPC number below 2^40 (a block or seconds). Raises RpcUnavailable."""
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise RpcUnavailable("A number in the node's reply is malformed.")
    return int(value, 16)


def _take(piece: bytes, most: int) -> bytes:
    """Return the first bytes of a piece that is not compressed."""
    return piece[:most]


class _BatchRefusedError(Exception):
    """The node returned one error for a whole batch; single calls may work."""

    def __init__(self, reason: RpcError) -> None:
        super().__init__()
        self.reason = reason


def _count_fitting(texts: Sequence[tuple[int, bytes]]) -> int:
    """Return how many of the calls fit into one body of BATCH_BYTES, at least one."""
    sizes = accumulate(len(text) for _, text in texts)
    return max(1, sum(size <= BATCH_BYTES for size in sizes))


def _result(reply: Any, method: str, *, status: int, headers: httpx.Headers) -> Any:
    if reply is None:
        return RpcUnavailable(f"The node did not return a result for {method}.")
    if reply.get("error") is None and "result" in reply:
        return reply["result"]
    return _reason(status, headers, reply, method)


_LIMIT: Final = re.compile(
    r"more than \d+ results|too many results|max(?:imum)? results|result size|response size|"
    r"size exceeded|too large|block range|range (?:is )?(?:too|exceed|limit|greater)|limited to|"
    r"exceeds? (?:the )?(?:max|range|limit|allowed)|exceed max|too (?:wide|big|long)|"
    r"max(?:imum)? (?:block|range|allowed)|query timeout|timed? ?out|narrow|smaller range|"
    r"too many (?:blocks|logs|topics|addresses)",
    re.ASCII | re.IGNORECASE,
)
_TOPICS: Final = re.compile(r"topic|address", re.ASCII | re.IGNORECASE)
_THROTTLED: Final = re.compile(
    r"\brate\b|too many requests|throttl|quota|capacity|compute units|request count|per second",
    re.ASCII | re.IGNORECASE,
)
_HINTED_RANGE: Final = re.compile(
    r"\[?\s*(0x[0-9a-f]{1,16}|\d{1,18})\s*(?:,|-|to)\s*(0x[0-9a-f]{1,16}|\d{1,18})\s*\]?",
    re.ASCII | re.IGNORECASE,
)
_HINTED_SPAN: Final = re.compile(
    r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d{1,9})\s*(k)?[ -]*(?:blocks?\b|range\b)"
    r"|(?:range|blocks?)[^0-9]{0,24}?(\d{1,3}(?:,\d{3})+|\d{1,9})(k)?\b",
    re.ASCII | re.IGNORECASE,
)
_TOO_LARGE_CODES: Final = frozenset({-32005, -32602, -32600, -32000, -32001, -32614, -32011, 35})
_REVERTED: Final = 3
_FAILED: Final = re.compile(r"revert|out ?of ?gas", re.ASCII | re.IGNORECASE)
_THROTTLED_CODES: Final = frozenset({429, -32429, -32016, -32007})


def _reason(status: int, headers: httpx.Headers, reply: Any, what: str) -> RpcError:
    """Classify a refusal by HTTP status, JSON-RPC code and the phrases that providers use."""
    error = reply.get("error") if isinstance(reply, dict) else None
    text = _words(error)
    code = error.get("code") if isinstance(error, dict) else None
    code = code if isinstance(code, int) else 0
    if status == 429 or code in _THROTTLED_CODES:
        return RpcThrottled(f"The node throttles {what}.", retry_after_s=_retry_after(headers))
    if status == 413:
        return RpcLimit(f"{what} is too large for the node.", topics=True)
    if error is None:
        return RpcUnavailable(f"The node returned {status} for {what}.")
    if code == _REVERTED or _FAILED.search(text):
        return RpcReverted(f"The contract reverted {what}.", code=code, text=text)
    if _LIMIT.search(text) and (code in _TOO_LARGE_CODES or code not in range(-32768, -31999)):
        return RpcLimit(
            f"The node limits {what} (code {code}).",
            code=code,
            span=_hinted_span(text),
            topics=bool(_TOPICS.search(text)) and "block" not in text.lower(),
        )
    if _THROTTLED.search(text):
        return RpcThrottled(f"The node throttles {what}.", retry_after_s=_retry_after(headers))
    if code == -32603 or status >= 500:
        return RpcUnavailable(f"The node failed at {what} (code {code}).")
    return RpcRefused(f"The node refused {what} (code {code}).", code=code)


def _hinted_span(text: str) -> int | None:
    """Parse the number of blocks that an error message suggests.

    `try with this block range [0x1, 0x5]` is 5, `limited to a 10,000 range` is 10000.
    """
    for match in _HINTED_RANGE.finditer(text):
        first, last = (
            int(number, 0) if "x" in number else int(number, 10) for number in match.groups()
        )
        if "," not in match[0] or "x" in match[0].lower() or "[" in match[0]:
            return last - first + 1 if last >= first else None
    for match in _HINTED_SPAN.finditer(text):
        number = int((match[1] or match[3]).replace(",", ""))
        return max(1, number * (1_000 if match[2] or match[4] else 1))
    return None


def _words(error: Any) -> str:
    """Return the text of an error object. It is only matched against patterns, never shown."""
    if isinstance(error, str):
        return error[:1_000]
    if not isinstance(error, dict):
        return ""
    data = error.get("data")
    details = data.values() if isinstance(data, dict) else (data,)
    texts = (error.get("message"), *details)
    return " ".join(text for text in texts if isinstance(text, str))[:1_000]


def _retry_after(headers: httpx.Headers) -> float:
    """Return the node's Retry-After in seconds, at most an hour; 0 without one."""
    wait_ms = retry_after_ms(headers.get("retry-after"), now=None) or 0
    return min(wait_ms / 1_000, 3_600.0)


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "the node")[:_NAME_MAX]
    except ValueError:
        return "the node"
