"""Name resolution and the perimeter: which names are looked up, and which addresses are refused."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pycurl
import pytest
from tests.support.hostile_server import World, hostile_world
from tests.support.recorded import FOLDER, needs_recorded_inputs

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings, Request
from tollgauge.clients.egress.resolve import Lookup, Resolver, system_lookup
from tollgauge.clients.egress.transfer import CurlTransfer, Plan
from tollgauge.core.endpoint.identity import ResourceError, parse_resource
from tollgauge.core.probe.exchange import Exchange, Fault, FaultKind

CORPUS = FOLDER / "adversarial/corpus.jsonl"
PUBLIC = "93.184.215.14"
NAME = "www.seller.com"

NOT_PUBLIC_ANSWERS: tuple[tuple[str, ...], ...] = (
    ("127.0.0.1",),
    ("::1",),
    (PUBLIC, "127.0.0.1"),
    ("127.0.0.1", PUBLIC),
    (PUBLIC, "::ffff:10.0.0.1"),
    (*[PUBLIC] * 999, "10.0.0.1"),
    ("169.254.169.254",),
    ("168.63.129.16",),
    ("64:ff9b::7f00:1",),
    ("2002:7f00:1::",),
    ("fe80::1%lo",),
    ("0.0.0.0",),
    ("::",),
    ("not an address",),
)

HOSTILE_URLS = (
    "https://127.0.0.1/",
    "https://127.1/",
    "https://0x7f000001/",
    "https://2130706433/",
    "https://0/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://localhost/",
    "https://localhost\u3002/",
    "https://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/",
    "https://user@127.0.0.1/",
    "https://127.0.0.1#@a.com/",
    "https://127.0.0.1.nip.io/",
    "https://rebinding.com/",
)


class Names:
    """A resolver with scripted answers. Like the real one, it blocks and raises; only the network
    is replaced.
    """

    def __init__(self, *answers: Sequence[str] | socket.gaierror | OSError) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    def __call__(self, host: str) -> Sequence[str]:
        answer = self._answers[min(len(self.asked), len(self._answers) - 1)]
        self.asked.append(host)
        if isinstance(answer, OSError):
            raise answer
        return answer


def egress(
    resolver: Lookup, *, names_ms: int = 10_000, ports: frozenset[int] = frozenset({443})
) -> Egress:
    """Return an egress client whose DNS deadline is long enough for a busy machine."""
    client = Egress(
        EgressSettings(
            deadline_ms=20_000,
            dns_deadline_ms=names_ms,
            dns_threads=70,
            ports=ports,
            resolver=resolver,
        )
    )
    client.start()
    return client


async def kind_of(resolver: Lookup, *, names_ms: int = 10_000) -> FaultKind:
    open_egress = egress(resolver, names_ms=names_ms)
    exchange = await open_egress.fetch(Request(url=f"https://{NAME}/"))
    await open_egress.close()
    assert isinstance(exchange.result, Fault), exchange
    assert exchange.address is None
    assert exchange.timings.connect is None
    return exchange.result.kind


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with hostile_world(tmp_path) as world:
        yield world


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Lookups that wait for this event never answer in time; they end with the test."""
    release = threading.Event()
    yield release
    release.set()


@pytest.mark.parametrize("answer", NOT_PUBLIC_ANSWERS, ids=lambda answer: answer[-1])
async def test_one_non_public_address_makes_the_name_non_public(answer: tuple[str, ...]) -> None:
    assert await kind_of(Names(answer)) is FaultKind.NOT_PUBLIC


@pytest.mark.parametrize("code", [socket.EAI_NONAME, socket.EAI_NODATA])
async def test_nonexistent_name_is_not_found(code: int) -> None:
    assert await kind_of(Names(socket.gaierror(code, "no"))) is FaultKind.DNS_NOT_FOUND


async def test_name_without_addresses_is_not_found() -> None:
    assert await kind_of(Names(())) is FaultKind.DNS_NOT_FOUND


@pytest.mark.parametrize("code", [socket.EAI_AGAIN, socket.EAI_FAIL])
async def test_failing_name_server_is_a_dns_failure(code: int) -> None:
    assert await kind_of(Names(socket.gaierror(code, "later"))) is FaultKind.DNS_FAILED


@pytest.mark.parametrize(
    "error", [socket.gaierror(socket.EAI_MEMORY, "full"), OSError(24, "too many open files")]
)
async def test_failing_local_resolver_is_a_local_fault(error: OSError) -> None:
    assert await kind_of(Names(error)) is FaultKind.LOCAL


async def test_name_is_resolved_once_per_attempt() -> None:
    names = Names(("127.0.0.1",))
    await kind_of(names)
    assert names.asked == [NAME]


async def test_mapped_name_is_not_looked_up(world: World) -> None:
    names = Names((PUBLIC,))
    open_egress = Egress(EgressSettings(mapped=world.mapped, ca_file=world.ca_file, resolver=names))
    open_egress.start()
    exchange = await open_egress.fetch(Request(url="https://good.sellers.example/always-200"))
    await open_egress.close()
    assert exchange.address == "127.0.0.1"
    assert names.asked == []


async def test_slow_lookup_ends_at_the_dns_deadline(stuck: threading.Event) -> None:
    def slow(_host: str) -> Sequence[str]:
        stuck.wait(20)
        return (PUBLIC,)

    async with asyncio.timeout(15):
        assert await kind_of(slow, names_ms=300) is FaultKind.DNS_FAILED


async def test_sixty_slow_lookups_do_not_delay_another(stuck: threading.Event) -> None:
    def some_slow(host: str) -> Sequence[str]:
        if host.startswith("slow"):
            stuck.wait(20)
        return ("127.0.0.1",)

    open_egress = egress(some_slow, names_ms=2_000)
    slow = [
        asyncio.create_task(open_egress.fetch(Request(url=f"https://slow{number}.com/")))
        for number in range(60)
    ]
    await asyncio.sleep(0)
    exchange = await open_egress.fetch(Request(url="https://quick.com/"))
    assert _kind(exchange) is FaultKind.NOT_PUBLIC
    assert not any(task.done() for task in slow)
    assert {_kind(item) for item in await asyncio.gather(*slow)} == {FaultKind.DNS_FAILED}
    await open_egress.close()


async def test_no_free_lookup_thread_is_a_local_fault(stuck: threading.Event) -> None:
    def slow(_host: str) -> Sequence[str]:
        stuck.wait(20)
        return (PUBLIC,)

    resolver = Resolver(slow, threads=2, timeout_ms=50)
    answers = await asyncio.gather(*(resolver.resolve(f"h{number}.com") for number in range(3)))
    kinds = [answer.kind for answer in answers if isinstance(answer, Fault)]
    assert sorted(kinds) == sorted([FaultKind.DNS_FAILED, FaultKind.DNS_FAILED, FaultKind.LOCAL])
    stuck.set()
    async with asyncio.timeout(15):
        while True:  # the threads become free once the lookups have ended
            again = await resolver.resolve("h.com")
            if not isinstance(again, Fault) or again.detail.startswith("this machine has no route"):
                break
            await asyncio.sleep(0.01)


def test_system_resolver_treats_names_as_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def getaddrinfo(host: object, *_: object, **__: object) -> list[object]:
        asked.append(host)
        return [(socket.AF_INET, 1, 6, "", (PUBLIC, 0)), (socket.AF_INET, 1, 6, "", (PUBLIC, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert system_lookup(NAME) == (PUBLIC,)
    assert asked == [NAME.encode() + b"."]


@pytest.mark.parametrize(
    "address",
    [
        ("127.0.0.1", 443),
        ("::1", 443, 0, 0),
        (PUBLIC, 444),
        ("93.184.215.15", 443),
        ("2606:4700::1", 443, 0, 7),
    ],
)
def test_final_socket_address_is_checked_again(address: tuple[object, ...]) -> None:
    transfer = CurlTransfer(_plan())
    family = socket.AF_INET6 if ":" in str(address[0]) else socket.AF_INET
    asked = _socket_address(address, family)
    assert transfer._open_socket(0, asked) == pycurl.SOCKET_BAD
    asked.family, asked.addr = socket.AF_INET, (PUBLIC, 443)
    agreed = transfer._open_socket(0, asked)
    assert isinstance(agreed, socket.socket)
    transfer.close()
    assert agreed.fileno() == -1


def test_socket_that_cannot_be_bound_is_closed_with_its_transfer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[socket.socket] = []

    class RecordedSocket(socket.socket):
        def __init__(self, *args: int) -> None:
            super().__init__(*args)
            opened.append(self)

    monkeypatch.setattr(socket, "socket", RecordedSocket)
    # 192.0.2.1 (RFC 5737) is not an address of this machine.
    transfer = CurlTransfer(_plan(EgressSettings(source_address="192.0.2.1")))
    asked = _socket_address((PUBLIC, 443), socket.AF_INET)
    assert transfer._open_socket(0, asked) == pycurl.SOCKET_BAD
    transfer.close()
    assert [connection.fileno() for connection in opened] == [-1]


def _plan(settings: EgressSettings | None = None) -> Plan:
    return Plan(
        request=Request(url=f"https://{NAME}/"),
        resource=parse_resource(f"https://{NAME}/"),
        addresses=(PUBLIC, "2606:4700::1"),
        dial_port=443,
        timeout_ms=1,
        settings=settings or EgressSettings(),
        ca_file="",
    )


def _socket_address(address: tuple[object, ...], family: socket.AddressFamily) -> SimpleNamespace:
    return SimpleNamespace(family=family, socktype=socket.SOCK_STREAM, protocol=6, addr=address)


@pytest.mark.parametrize("answer", ["127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1"])
async def test_loopback_is_never_connected_to(world: World, answer: str) -> None:
    await _assert_untouched(world, HOSTILE_URLS, Names((answer,)))


@needs_recorded_inputs
async def test_no_url_of_the_corpus_connects_to_loopback(world: World) -> None:
    cases = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    urls = [
        case["input"].replace("http://", "https://", 1)
        for case in cases
        if case["group"] in ("lit", "enc", "url")
    ]
    assert len(urls) > 40
    await _assert_untouched(world, urls, Names(("127.0.0.1",)))


@needs_recorded_inputs
def test_dns_cases_of_the_corpus_are_covered() -> None:
    cases = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    assert {case["id"] for case in cases if case["group"] == "dns"} == {
        "dns-01",  # rebinding: test_one_non_public_..., and public_world.py for the second answer
        "dns-03",  # ::ffff:10.0.0.1: test_one_non_public_...
        "dns-05",  # 60 slow names: test_sixty_slow_lookups_...
        "dns-07",  # 1000 addresses: test_one_non_public_..., and public_world.py for the eight
    }


async def _assert_untouched(world: World, urls: Sequence[str], resolver: Lookup) -> None:
    """Nothing reaches the canary. Its port is allowed, so only addresses can protect it."""
    open_egress = egress(resolver, ports=frozenset({80, 443, world.canary_port}))
    for url in urls:
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        for text in (url, f"{scheme}://{host}:{world.canary_port}{slash}{path}"):
            try:
                exchange = await open_egress.fetch(Request(url=text))
            except ResourceError:
                continue
            assert _kind(exchange) is FaultKind.NOT_PUBLIC, text
    await open_egress.close()
    assert world.canary_hits == []


def _kind(exchange: Exchange) -> FaultKind:
    assert isinstance(exchange.result, Fault), exchange
    return exchange.result.kind


def _has_namespaces() -> bool:
    """Whether a network namespace is available, in which public addresses can exist on loopback."""
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.skipif(not _has_namespaces(), reason="needs a network namespace: unshare -n and ip")
def test_perimeter_accepts_public_addresses(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        ["unshare", "-n", sys.executable, "-m", "tests.support.public_world", str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen == {
        "answer": ["402", PUBLIC],
        "ipv6 answer": ["402", "2606:2800:21f:cb07::1"],
        "second answer is loopback": "address-not-public",
        "lookups": [NAME, NAME],
        "no route": "local-failure",
        "an address without a route beside one with": ["402", PUBLIC],
        "refused beside one without a route": "connect-failed",
        "a thousand addresses": ["402", PUBLIC],
        "tried of a thousand": 8,
        "answers that differ at one time": [
            "['402', '2606:2800:21f:cb07::1']",
            f"['402', '{PUBLIC}']",
        ],
        "wrong name": "tls-invalid",
    }
