"""The probe exchange with real servers: the attempts, their end, and the learned method."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.hostile_server import World, hostile_world

from tollgauge.clients import x402
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.x402 import Way, ways
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.probe.exchange import Answer, Fault, FaultKind

NOW = 1_760_000_000_000
OSLO = b'{"city":"Oslo"}'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with hostile_world(tmp_path) as world:
        yield world


@pytest.fixture
async def egress(world: World) -> AsyncIterator[Egress]:
    client = Egress(EgressSettings(deadline_ms=2_000, mapped=world.mapped, ca_file=world.ca_file))
    client.start()
    yield client
    await client.close()


def endpoint(
    path: str,
    *,
    host: str = "good",
    method: str | None = None,
    body: bytes | None = None,
    learned: str | None = None,
    query: str = "",
) -> Endpoint:
    resource = f"https://{host}.sellers.example{path}"
    return Endpoint(
        id=endpoint_id(resource),
        resource=resource,
        host=f"{host}.sellers.example",
        method=method,
        body=body,
        learned=learned,
        query=query,
        first_seen=0,
        last_seen=0,
    )


def methods(world: World) -> list[str]:
    return [request.split(b" ", 1)[0].decode() for request in world.requests]


async def test_declared_input_is_sent(egress: Egress, world: World) -> None:
    listed = endpoint("/declared-body", method="POST", body=OSLO, query="units=m")
    probe = await x402.exchange(egress, listed, now=NOW)
    assert isinstance(probe.exchange.result, Answer)
    assert probe.exchange.result.status == 402
    assert (probe.exchange.at, probe.exchange.method) == (NOW, "POST")
    assert probe.learned == "POST"
    (request,) = world.requests
    assert request.startswith(b"POST /declared-body?units=m HTTP/1.1\r\n")
    assert b"\r\nAccept: application/json\r\n" in request
    assert b"\r\nContent-Type: application/json\r\n" in request
    assert request.endswith(OSLO)


async def test_probe_never_pays(egress: Egress, world: World) -> None:
    await x402.exchange(egress, endpoint("/always-404"), now=NOW)
    text = b"".join(world.requests).lower()
    assert b"payment" not in text
    assert b"authorization" not in text


async def test_get_is_tried_first_without_a_declared_method(egress: Egress, world: World) -> None:
    probe = await x402.exchange(egress, endpoint("/get-only-404"), now=NOW)
    assert (methods(world), probe.learned) == (["GET"], "GET")
    assert b"content-type" not in world.requests[0].lower()


async def test_post_of_an_empty_object_is_tried_second(egress: Egress, world: World) -> None:
    probe = await x402.exchange(egress, endpoint("/post-only"), now=NOW)
    assert (methods(world), probe.learned) == (["GET", "POST"], "POST")
    assert world.requests[-1].endswith(b"\r\n\r\n{}")
    assert probe.exchange.at >= NOW


async def test_method_that_worked_before_is_tried_first(egress: Egress, world: World) -> None:
    await x402.exchange(egress, endpoint("/post-only", learned="POST"), now=NOW)
    assert methods(world) == ["POST"]


async def test_method_that_no_longer_works_is_unlearned(egress: Egress, world: World) -> None:
    probe = await x402.exchange(egress, endpoint("/get-only-404", learned="POST"), now=NOW)
    assert (methods(world), probe.learned) == (["POST", "GET"], "GET")


async def test_response_without_402_leads_to_the_next_attempt(egress: Egress, world: World) -> None:
    listed = endpoint("/get-only-200", method="POST", body=OSLO)
    probe = await x402.exchange(egress, listed, now=NOW)
    assert (methods(world), probe.learned) == (["POST", "GET"], "GET")


async def test_empty_object_can_work_if_the_declared_body_does_not(
    egress: Egress, world: World
) -> None:
    listed = endpoint("/post-only", method="POST", body=OSLO)
    probe = await x402.exchange(egress, listed, now=NOW)
    assert (methods(world), probe.learned) == (["POST", "GET", "POST"], "POST {}")
    world.requests.clear()
    again = endpoint("/post-only", method="POST", body=OSLO, learned=probe.learned)
    assert (await x402.exchange(egress, again, now=NOW)).learned == "POST {}"
    assert methods(world) == ["POST"]


@pytest.mark.parametrize("status", [200, 204, 400, 404, 405, 415, 422])
async def test_probe_without_a_402_reports_the_first_attempt(
    egress: Egress, world: World, status: int
) -> None:
    listed = endpoint(f"/always-{status}", method="PUT", body=OSLO, learned="DELETE")
    probe = await x402.exchange(egress, listed, now=NOW)
    assert methods(world) == ["DELETE", "PUT", "GET"]
    assert (probe.exchange.method, probe.exchange.at) == ("DELETE", NOW)
    assert probe.learned == "DELETE"


@pytest.mark.parametrize("path", ["/always-500", "/always-503", "/always-429", "/always-403"])
async def test_other_statuses_end_the_probe(egress: Egress, world: World, path: str) -> None:
    await x402.exchange(egress, endpoint(path), now=NOW)
    assert methods(world) == ["GET"]


async def test_redirects_end_the_probe(egress: Egress, world: World) -> None:
    await x402.exchange(egress, endpoint("/redirect"), now=NOW)
    assert methods(world) == ["GET"]
    assert world.canary_hits == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/silence", FaultKind.TIMEOUT), ("/empty", FaultKind.EMPTY), ("/nul", FaultKind.MALFORMED)],
)
async def test_fault_ends_the_probe(
    egress: Egress, world: World, path: str, kind: FaultKind
) -> None:
    probe = await x402.exchange(egress, endpoint(path, learned="GET"), now=NOW)
    assert isinstance(probe.exchange.result, Fault)
    assert probe.exchange.result.kind is kind
    assert (methods(world), probe.learned) == (["GET"], "GET")


async def test_host_that_is_no_longer_public_is_a_fault(egress: Egress) -> None:
    probe = await x402.exchange(egress, endpoint("/x", host="unmapped"), now=NOW)
    assert isinstance(probe.exchange.result, Fault)
    assert probe.exchange.result.kind is FaultKind.NOT_PUBLIC


@pytest.mark.parametrize(
    ("otherwise", "expected", "requests"),
    [("/silence", None, 2), ("/always-404", False, 1), ("/echo", True, 2)],
)
async def test_wildcard_answers_402_with_the_same_terms_on_every_path(
    egress: Egress, world: World, otherwise: str, expected: bool | None, requests: int
) -> None:
    world.otherwise = otherwise
    sold = "https://good.sellers.example/some/thing"
    assert await x402.wildcard(egress, sold, method="GET", now=NOW) is expected
    paths = [request.split(b" ", 2)[1].decode().split("/") for request in world.requests]
    assert len(paths) == requests
    assert paths[0][1] == "some"
    assert len(paths[0][2]) == len("thing")
    assert paths[0][2] != "thing"
    assert [path[2] for path in paths[1:]] == ["thing"] * (requests - 1)


async def test_parameter_in_a_path_is_not_a_wildcard(egress: Egress, world: World) -> None:
    """One changed segment may be another argument of the resource; the other segments may not
    change.
    """
    world.otherwise = "/always-404"
    assert (
        await x402.wildcard(egress, "https://good.sellers.example/echo", method="GET", now=NOW)
        is False
    )
    assert not await x402.siblings_sell(
        egress, "https://good.sellers.example/echo", method="GET", now=NOW
    )
    world.otherwise = "/echo"
    assert await x402.siblings_sell(
        egress, "https://good.sellers.example/v1/echo", method="POST", now=NOW
    )
    assert world.requests[-1].startswith(b"POST /v1/")


def test_no_listing_causes_more_than_three_requests() -> None:
    listed = endpoint("/x", method="PUT", body=OSLO, learned="PATCH")
    assert ways(listed) == (
        Way(method="PATCH", body=b"{}"),
        Way(method="PUT", body=OSLO),
        Way(method="GET"),
    )


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "OPTIONS", "", "G\r\nET"])
def test_disallowed_method_is_skipped(method: str) -> None:
    assert ways(endpoint("/x", method=method)) == (
        Way(method="GET"),
        Way(method="POST", body=b"{}"),
    )


def test_declared_get_has_no_body() -> None:
    assert ways(endpoint("/x", method="get", body=OSLO))[0] == Way(method="GET")


async def test_declared_query_that_is_too_long_is_omitted(egress: Egress, world: World) -> None:
    """Otherwise a seller could declare such a query during an outage, and the outage would not be
    seen.
    """
    listed = endpoint("/echo", query="q=" + "x" * 2_048)
    probe = await x402.exchange(egress, listed, now=NOW)
    assert isinstance(probe.exchange.result, Answer)
    assert world.requests[0].startswith(b"GET /echo HTTP/1.1\r\n")
