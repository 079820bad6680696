"""TXT records from a name server on loopback, correct and hostile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from dns.exception import DNSException
from dns.resolver import Resolver

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.egress.resolve import query_texts
from tollgauge.core.probe.exchange import Fault, FaultKind

NAME = "_controllers.api.example.com"
POINTER = b"\xc0\x0c"


def record(data: bytes, *, kind: int = 16, name: bytes = POINTER, size: int | None = None) -> bytes:
    length = len(data) if size is None else size
    return name + kind.to_bytes(2) + b"\x00\x01\x00\x00\x0e\x10" + length.to_bytes(2) + data


def text(*parts: bytes) -> bytes:
    return record(b"".join(len(part).to_bytes() + part for part in parts))


def reply(*records: bytes, code: int = 0, count: int | None = None) -> Callable[[bytes], bytes]:
    """A reply to a query that repeats its ID and its question."""

    def answer(query: bytes) -> bytes:
        head = query[:2] + bytes([0x81, 0x80 | code]) + b"\x00\x01"
        counted = len(records) if count is None else count
        return head + counted.to_bytes(2) + bytes(4) + query[12:] + b"".join(records)

    return answer


@contextmanager
def name_server(answer: Callable[[bytes], bytes]) -> Iterator[Resolver]:
    """A resolver that asks a name server, which answers one query over TCP."""

    def serve() -> None:
        stream, _ = listener.accept()
        with stream:
            message = answer(stream.recv(4_096)[2:])
            stream.sendall(len(message).to_bytes(2) + message)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        resolver = Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], listener.getsockname()[1]
        yield resolver
        thread.join()


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((), ()),
        ((text(b"v=1;controller=x"),), ("v=1;controller=x",)),
        ((text(b"v=1;", b"controller=x"), text(b"")), ("v=1;controller=x", "")),
        (
            (record(b"\x05other" + POINTER, kind=5), record(b"\x01a", name=b"\x05other" + POINTER)),
            ("a",),
        ),
    ],
)
def test_returns_texts_of_a_name(records: tuple[bytes, ...], expected: tuple[str, ...]) -> None:
    with name_server(reply(*records)) as resolver:
        assert query_texts(resolver, NAME) == expected


def test_name_that_does_not_exist_has_no_texts() -> None:
    with name_server(reply(code=3)) as resolver:
        assert query_texts(resolver, NAME) == ()


@pytest.mark.parametrize(
    "answer",
    [
        lambda _query: b"",
        lambda query: query,
        lambda query: b"xx" + reply()(query)[2:],
        reply(code=2),
        reply(code=5),
        reply(text(b"a"), count=2),
        reply(text(b"a"), count=65_535),
        reply(record(b"\x01a", size=200)),
        reply(b"\x3f"),
        reply(POINTER),
        lambda query: reply(text(b"a"))(query)[:-1],
    ],
)
def test_unusable_answer_is_an_error(answer: Callable[[bytes], bytes]) -> None:
    with name_server(answer) as resolver, pytest.raises(DNSException):
        query_texts(resolver, NAME)


async def read_controllers(settings: EgressSettings) -> object:
    egress = Egress(settings)
    egress.start()
    try:
        return await egress.read_texts("_controllers", "api.example.com")
    finally:
        await egress.close()


async def test_mapped_host_is_not_looked_up() -> None:
    mapped = {"api.example.com": ("127.0.0.1", 1)}
    assert await read_controllers(EgressSettings(mapped=mapped)) == ()


async def test_name_server_without_an_answer_is_a_fault() -> None:
    def fail(_name: str) -> tuple[str, ...]:
        raise DNSException

    texts = await read_controllers(EgressSettings(texts=fail))
    assert isinstance(texts, Fault)
    assert texts.kind is FaultKind.DNS_FAILED
