"""The OpenAPI document is complete, valid and true; a fuzzer checks it."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator
from tests.support import prices
from tests.support.command_server import command
from tests.support.examples import THOROUGH
from tests.support.http_service import BASE, Clock, Running, configuration, open_service
from tests.support.paid_service import facilitator, header, payment

from tollgauge.clients.directories import file
from tollgauge.core.base.units import MINUTE_MS, parse_dollars
from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.demo.serving import serve
from tollgauge.monitor import discovery
from tollgauge.web.wire import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = {
    "/": "get",
    "/calibration": "get",
    "/calibration.json": "get",
    "/compare": "get",
    "/docs": "get",
    "/endpoint": "get",
    "/endpoint/{id}": "get",
    "/endpoint/{id}/badge.json": "get",
    "/endpoint/{id}/badge.svg": "get",
    "/healthz": "get",
    "/incidents": "get",
    "/incidents/feed.xml": "get",
    "/leaderboard": "get",
    "/lint": "get post",
    "/lint/rules": "get",
    "/lint/rules/{slug}": "get",
    "/methodology": "get",
    "/methodology/{version}": "get",
    "/provider/{host}": "get",
    "/readyz": "get",
    "/robots.txt": "get",
    "/sitemap.xml": "get",
    "/sitemap/{name}": "get",
    "/statistics": "get",
    "/trust/leaderboard": "get",
    "/trust/snapshot": "get",
    "/trust/snapshot/{id}": "get",
    "/trust/stats": "get",
    "/v1/lint": "post",
    "/v1/x402-trust": "get post",
    "/v1/x402-trust-preview": "get post",
}
ROOT = Path(__file__).resolve().parents[3]
FUZZER = """
[checks.positive_data_acceptance]
# Unpaid is 402, without a bearer 401; no pattern can say what a signed payment (400) or a
# public host (422) is.
expected-statuses = ["2xx", 307, 400, 401, 402, 404, 422]
[checks.negative_data_rejection]
# Without a payment the answer is 402, whatever the body is.
expected-statuses = [400, 401, 402, 404, 405, 413, 414, 422, 431]
"""
QUICK_FUZZER = (
    FUZZER
    + """
[[operations]]
# Without a valid payment, Gate.serve answers alike on all paid routes, and does not read the body.
include-tag = "paid"
exclude-path = "/v1/x402-trust"
phases.coverage.enabled = false
"""
)
FUZZER_WITH_MONEY = """
[checks.not_a_server_error]
# No node, no key for destinations, no way to the resource: 503 is the answer to that.
expected-statuses = ["2xx", "3xx", "4xx", 503]
[checks.positive_data_acceptance]
# A made-up header is no payment (400), nothing is known of a made-up resource (404), no pattern can
# say what a public host is (422), and this service has no node (503).
expected-statuses = ["2xx", 400, 402, 404, 422, 503]
[checks.negative_data_rejection]
# What is wrong is said in this order: the payment (400, 402), the body (400, 422), what is asked
# of it (404).
expected-statuses = [400, 402, 404, 405, 413, 414, 422, 431, 503]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("openapi") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def document(running: Running) -> Any:
    return (await running.get("/openapi.json")).json()


async def test_it_is_openapi_3_1_of_interface_version_2(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == "2.2.0"
    assert document["info"]["title"] == "tollgauge"


async def test_openapi_contains_every_route(document: Any) -> None:
    methods = {path: set(row) for path, row in document["paths"].items()}
    for path, wanted in ROUTES.items():
        assert methods.get(path) == set(wanted.split()), path


async def test_json_bodies_have_examples_that_match_their_schemas(document: Any) -> None:
    seen = 0
    for where, body in json_bodies(document):
        assert "example" in body, where
        schema = {**body["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(body["example"])
        seen += 1
    assert seen > 80


async def test_limits_of_integers_are_integers(document: Any) -> None:
    limits = [
        schema[key]
        for schema in _schemas(document)
        if schema.get("type") == "integer"
        for key in ("minimum", "maximum")
        if key in schema
    ]

    assert len(limits) > 20
    assert [limit for limit in limits if not isinstance(limit, int)] == []


async def test_parameters_have_examples_and_operations_have_summaries(document: Any) -> None:
    names = []
    for path, row in document["paths"].items():
        for operation in row.values():
            assert operation["summary"], path
            names.append(operation["operationId"])
            for parameter in operation.get("parameters", ()):
                assert parameter["description"], path
                examples = parameter["schema"].get("examples") or parameter.get("example")
                assert parameter["in"] == "header" or examples, path
    assert len(names) == len(set(names))


async def test_paid_routes_have_a_price_and_a_402_response(document: Any) -> None:
    operation = document["paths"]["/v1/x402-trust"]["post"]
    assert operation["x-payment-info"] == {
        "price": {"mode": "fixed", "currency": "USD", "amount": "0.005000"},
        "protocols": [{"x402": {}}],
    }
    payment_required = operation["responses"]["402"]
    assert "PAYMENT-REQUIRED" in payment_required["headers"]
    example = payment_required["content"]["application/json"]["example"]
    assert example["accepts"][0]["amount"] == "5000"
    assert all(
        "x-payment-info" not in operation
        for path, row in document["paths"].items()
        for operation in row.values()
        if "paid" not in operation["tags"]
    )


async def test_openapi_contains_the_server_url(document: Any, tmp_path: Path) -> None:
    assert document["servers"] == [{"url": BASE}]
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document))
    listed = {item["resource"] for item in file.read(path).items if isinstance(item, dict)}
    assert listed == {BASE + path for path in prices.PRICES}


async def test_schemas_have_unique_names_for_client_generators(document: Any) -> None:
    schemas = document["components"]["schemas"]
    names = [*schemas, *(schema["title"] for schema in schemas.values())]
    assert not [name for name in names if not re.fullmatch("[A-Z][A-Za-z0-9]*", name)]
    assert [schema["title"] for schema in schemas.values()] == [*schemas]
    assert len({name.lower() for name in schemas}) == len(schemas) > 40


async def test_all_references_resolve(document: Any) -> None:
    names = set(references(document))
    assert names <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert len(names) > 40


async def test_paid_routes_describe_their_responses(document: Any) -> None:
    described = {
        path: row["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        for path, row in document["paths"].items()
        if "paid" in row.get("post", {}).get("tags", ())
    }
    assert described.keys() == prices.PRICES.keys()
    for schema in described.values():
        name = schema["$ref"].rpartition("/")[2]
        assert document["components"]["schemas"][name]["properties"]


async def test_problems_share_one_schema(document: Any) -> None:
    bodies = [
        (media_type, status, body["schema"])
        for row in document["paths"].values()
        for operation in row.values()
        for status, answer in operation["responses"].items()
        for media_type, body in answer.get("content", {}).items()
    ]
    problems = [schema for media_type, _, schema in bodies if "problem+json" in media_type]
    payment_required = [schema for media_type, status, schema in bodies if status == "402"]
    assert len(problems) > 100
    assert all(problem == {"$ref": "#/components/schemas/Problem"} for problem in problems)
    assert all(
        schema == {"$ref": "#/components/schemas/PaymentRequired"} for schema in payment_required
    )


async def test_union_of_number_and_text_has_no_const(document: Any) -> None:
    """Generators that find a `const` among alternatives refuse every other one."""
    snapshot = document["components"]["schemas"]["SnapshotResponse"]["properties"]
    either = snapshot["advertisedPriceUsd"]["anyOf"]
    assert [schema["type"] for schema in either] == ["number", "string"]
    assert either[1]["enum"] == ["not advertised"]
    assert "const" not in either[1]


async def test_openapi_is_compressed_if_accepted(running: Running) -> None:
    plain = await running.get("/openapi.json", headers={"accept-encoding": "identity"})
    zipped = await running.get("/openapi.json", headers={"accept-encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert zipped.json() == plain.json()
    sizes = [int(answer.headers["content-length"]) for answer in (plain, zipped)]
    assert sizes[1] < sizes[0] / 8
    for answer in (plain, zipped):
        assert answer.headers["vary"] == "Accept-Encoding"
        assert "public" in answer.headers["cache-control"]


async def test_each_encoding_has_a_separate_etag(running: Running) -> None:
    tags = {}
    for coding in ("identity", "gzip"):
        headers = {"accept-encoding": coding}
        tags[coding] = (await running.get("/openapi.json", headers=headers)).headers["etag"]
        same = await running.get("/openapi.json", headers=headers | {"if-none-match": tags[coding]})
        assert (same.status_code, same.content) == (304, b"")
        assert (same.headers["etag"], same.headers["vary"]) == (tags[coding], "Accept-Encoding")
    assert tags["identity"] != tags["gzip"]
    for coding, other in (("identity", "gzip"), ("gzip", "identity")):
        headers = {"accept-encoding": coding, "if-none-match": tags[other]}
        assert (await running.get("/openapi.json", headers=headers)).status_code == 200


async def test_small_answer_is_not_compressed(running: Running) -> None:
    answer = await running.get("/trust/stats", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers
    assert "vary" not in answer.headers


async def test_fuzzer_finds_no_undocumented_response(running: Running, tmp_path: Path) -> None:
    if THOROUGH:
        await fuzz(running.app, tmp_path, FUZZER)
    else:
        await fuzz(running.app, tmp_path, QUICK_FUZZER, "--phases=examples,coverage")


@dataclass
class Payer:
    """Pays for every unpaid request to a paid route, each time with a new payment.

    Ten minutes pass before each request, because a host is not probed twice in quick succession.
    """

    app: Any
    clock: Clock
    prices: dict[str, str]
    nonces: Any = field(default_factory=lambda: itertools.count(1))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        route = re.sub("^/v1/watch/[^/]+/renew$", prices.RENEW, scope.get("path", ""))
        sold = scope.get("method") == "POST" and route in self.prices
        self.clock.now += 10 * MINUTE_MS
        if sold and b"payment-signature" not in names:
            header = (b"payment-signature", self._sign(self.prices[route]))
            scope = {**scope, "headers": [*scope["headers"], header]}
        await self.app(scope, receive, send)

    def _sign(self, price: str) -> bytes:
        value = parse_dollars(price)
        return header(payment(next(self.nonces), value=value, now=self.clock.now)).encode()


async def test_paying_fuzzer_finds_no_undocumented_response(
    tmp_path: Path, market_database: Callable[[Path], str]
) -> None:
    """Its payments are good as far as the facilitator tells, so that answers leave."""
    asked: Counter[str] = Counter()
    async with facilitator(asked) as settings:
        url = market_database(tmp_path / "service.db")
        config = replace(configuration(store_url=url), facilitator=settings)
        # No seller of the market has this name, so its lookup fails immediately.
        config = replace(config, egress=replace(config.egress, resolver=resolve_unknown))
        async with open_service(config) as running:
            resource, now = parse_resource(examples.RESOURCE), running.clock()
            await running.service.store.writing(
                discovery.adopt, resource, source="request", now=now
            )
            payer = Payer(running.app, running.clock, dict(prices.PRICES))
            await fuzz(
                payer,
                tmp_path,
                FUZZER_WITH_MONEY,
                "--include-tag=paid",
                "--phases=examples,fuzzing",
            )
    assert asked["/settle"] > 1


def resolve_unknown(host: str) -> tuple[str, ...]:
    """A resolver that knows no name."""
    raise socket.gaierror(socket.EAI_NONAME, host)


async def fuzz(app: Any, folder: Path, settings: str, *options: str) -> None:
    """Run the fuzzer against the OpenAPI document."""
    config = folder / "schemathesis.toml"
    config.write_text(settings)
    async with serve(app) as port:
        process = await asyncio.create_subprocess_exec(
            *command("-c", "from schemathesis.cli import schemathesis; schemathesis()"),
            f"--config-file={config}",
            "run",
            f"http://127.0.0.1:{port}/openapi.json",
            "--checks=all",
            f"--max-examples={12 if THOROUGH else 4}",
            "--seed=8402",
            "--generation-database=none",
            "--no-color",
            "--warnings=off",
            *options,
            cwd=folder,
            # Only this variable: for each request, the environment is searched for proxies. The
            # folder contains the characters of each encoding, which take seconds to collect.
            env={"HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()[:8000]
    assert b"no issues found" in out.lower(), out.decode()[-2000:]


def references(node: Any) -> Iterator[str]:
    """Every `$ref` below a node, examples left out."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for key, value in node.items():
            if key not in ("example", "examples"):
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def _schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a document."""
    if isinstance(part, dict):
        yield part
    values = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for value in values:
        yield from _schemas(value)


def json_bodies(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield every JSON request and response body with its location."""
    for path, row in document["paths"].items():
        for method, operation in row.items():
            parts = {"request": operation.get("requestBody", {})} | operation["responses"]
            for status, part in parts.items():
                for media_type, body in part.get("content", {}).items():
                    if "json" in media_type:
                        yield f"{method} {path} {status}", body
