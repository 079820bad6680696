"""docs/reference/api.md: every route, generated from the OpenAPI document of a service that sells
everything (`GET /openapi.json`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import httpx
import orjson

from docs import response_examples
from docs.markdown import add_title, table
from tollgauge import app
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.clients.webhooks import WatchSettings
from tollgauge.config import Config
from tollgauge.db.engine import StoreSettings
from tollgauge.web import routes
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.paid.sale import SaleSettings
from tollgauge.web.settings import ServerSettings

Json = Mapping[str, Any]
Answers = frozenset[tuple[str, str]]

_BASE_URL: Final = "https://trust.example.com"
_TAGS: Final = {
    "free": "Free routes",
    "paid": "Paid routes",
    "watch": "Watches",
    "mcp": "Tools for agents",
    "pages": "Pages",
    "health": "Health",
}
_METHODS: Final = ("get", "post", "patch", "delete")
_PLAIN_LIST: Final = re.compile(r"\[\n[^\[\]{}]*\]")
_PROBLEM: Final = "application/problem+json"
_INTRODUCTION: Final = """\
The OpenAPI document of a running service is `GET /openapi.json`. Paid routes use x402 version 2: a
request without a payment returns 402 with the payment terms; repeat it with a payment to get the
response ([clients](../clients.md), [guarantees](../payments.md)). Prices are the defaults;
`sale.prices` changes them."""
_PROBLEMS: Final = """\
## Problems

Every error is an RFC 9457 document (`application/problem+json`): `code` is a stable identifier,
`detail` is a sentence, and `errors` lists the invalid fields. One example per status:"""
_PAYMENT_REQUIRED: Final = """\
### 402 Payment required

This is the body of a 402; the header `PAYMENT-REQUIRED` is its base64 encoding. The example omits
`extensions`, which describes the route for directories and contains the ticket of this 402."""


def api() -> str:
    """Return the page as Markdown."""
    description = asyncio.run(_description())
    operations = [
        (method.upper(), path, operations[method])
        for path, operations in description["paths"].items()
        for method in _METHODS
        if method in operations
    ]
    operations.sort(key=lambda operation: _place(operation[2]["tags"][0]))
    parts = [_INTRODUCTION, _describe_shared(operations)]
    usual = _usual(operations)
    for tag, group in groupby(operations, key=lambda operation: operation[2]["tags"][0]):
        parts.append(f"## {_TAGS.get(tag, tag)}")
        parts += [_operation(*operation, usual) for operation in group]
    parts.append(_models(description["components"]["schemas"]))
    return add_title("HTTP API", "the OpenAPI document", "\n\n".join(parts) + "\n")


@contextlib.asynccontextmanager
async def example_service() -> AsyncIterator[Dependencies]:
    """Yield a service that sells everything."""
    config = Config(
        server=ServerSettings(base_url=_BASE_URL, admin_port=0),
        store=StoreSettings(url="sqlite://"),
        sale=SaleSettings(pay_to="0x" + "ab" * 20),
        facilitator=FacilitatorSettings(url="https://facilitator.example.com"),
        watch=WatchSettings(key="a key that encrypts nothing: this service has no clients"),
    )
    async with app.open_resources(config) as service:
        yield service.server()


async def _description() -> dict[str, Any]:
    """Return the OpenAPI document of a service that sells everything."""
    async with example_service() as dependencies:
        transport = httpx.ASGITransport(routes.create(dependencies))
        async with httpx.AsyncClient(transport=transport, base_url=_BASE_URL) as http:
            answer = (await http.get("/openapi.json")).raise_for_status()
            document: dict[str, Any] = answer.json()
            return document


def _place(tag: str) -> tuple[int, str]:
    """Return the position of a tag's section; unlisted tags come last."""
    return [*_TAGS, tag].index(tag), tag


def _usual(operations: list[tuple[str, str, Any]]) -> Answers:
    """Return the responses (status and description) of all routes except the health check."""
    answers = [
        {(status, answer["description"]) for status, answer in operation["responses"].items()}
        for _, _, operation in operations
        if operation["tags"] != ["health"]
    ]
    return frozenset.intersection(*map(frozenset, answers))


def _describe_shared(operations: list[tuple[str, str, Any]]) -> str:
    """Describe the shared responses: an example of 402, and of the problem for each status."""
    examples: dict[str, Any] = {}
    terms: Any = None
    for method, _, operation in operations:
        for status, answer in operation["responses"].items():
            content = answer.get("content", {})
            if _PROBLEM in content:
                examples.setdefault(status, content[_PROBLEM]["example"])
            elif status == "402" and method == "POST":
                terms = terms or content["application/json"]["example"]
    codes = [
        (status, f"`{example['code']}`", example["detail"])
        for status, example in sorted(examples.items())
    ]
    shown = {name: value for name, value in terms.items() if name != "extensions"}
    return "\n\n".join(
        (
            _PROBLEMS,
            table(("status", "code", "detail"), codes),
            f"A complete example:\n\n{_json(examples['422'])}",
            "## Any route\n\nEach route may also return these responses:",
            table(("status", "means"), sorted(_usual(operations))),
            f"{_PAYMENT_REQUIRED}\n\n{_json(shown)}",
        )
    )


def _operation(method: str, path: str, operation: Json, usual: Answers) -> str:
    """Describe one route: its price, parameters, body and responses."""
    parts = [f"### {method} {path}", f"{operation.get('summary', '')}."]
    if price := operation.get("x-payment-info", {}).get("price", {}).get("amount"):
        parts.append(f"Price: ${price}.")
    if parameters := operation.get("parameters"):
        parts.append(
            table(("parameter", "in", "required", "type", "description"), _parameters(parameters))
        )
    for content in operation.get("requestBody", {}).get("content", {}).values():
        parts += _body(content)
    answers = [
        (
            status,
            answer["description"],
            ", ".join(f"`{kind}`" for kind in answer.get("content", {})),
        )
        for status, answer in sorted(operation["responses"].items())
        if (status, answer["description"]) not in usual
    ]
    parts.append(table(("status", "means", "content"), answers))
    content = operation["responses"].get("200", {}).get("content", {})
    example = content.get("application/json", {})
    if "example" in example:
        model = _type(example.get("schema", {}))
        parts.append(f"An example of 200, {model}:\n\n{_json(example['example'])}")
    elif "text/csv" in content:
        parts.append(f"An example of 200:\n\n```text\n{response_examples.endpoint_csv()}```")
    return "\n\n".join(part for part in parts if part)


def _parameters(parameters: list[Json]) -> Iterator[tuple[object, ...]]:
    for parameter in parameters:
        yield (
            f"`{parameter['name']}`",
            parameter["in"],
            "yes" if parameter.get("required") else "no",
            _type(parameter.get("schema", {})),
            parameter.get("description", ""),
        )


def _body(content: Json) -> Iterator[str]:
    """Describe the fields of a request's body, with an example."""
    schema = content.get("schema", {})
    if rows := list(_fields(schema)):
        yield f"The body:\n\n{_field_table(rows)}"
    elif schema:
        yield f"The body: {_type(schema)}."
    if "example" in content:
        yield _json(content["example"])


def _models(schemas: Json) -> str:
    """Describe every named object in responses."""
    parts = ["## Response models\n\nThe objects that responses consist of."]
    for name, schema in sorted(schemas.items()):
        rows = list(_fields(schema))
        words = " ".join(schema.get("description", "").split())
        parts.append(f"### {name}\n\n{words}".rstrip())
        parts.append(_field_table(rows) if rows else f"{_type(schema).capitalize()}.")
    return "\n\n".join(parts)


def _fields(schema: Json) -> Iterator[tuple[object, ...]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        words = field.get("description", "")
        yield f"`{name}`", _type(field), "yes" if name in required else "no", words


def _field_table(rows: list[tuple[object, ...]]) -> str:
    return table(("field", "type", "required", "description"), rows)


def _type(schema: Json) -> str:
    """Describe a schema in a few words, with a link if it has a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if kinds := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, kinds)))
    if "const" in schema:
        return f"`{orjson.dumps(schema['const']).decode()}`"
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        kind = f"list of {_type(schema.get('items', {}))}"
    return kind + _limits(schema)


def _limits(schema: Json) -> str:
    """Describe the range of a number, the length of a list or text, and the pattern of a text."""
    words = [
        f"{text} {schema[key]}"
        for key, text in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("minItems", "at least"),
            ("maxItems", "at most"),
            ("maxLength", "at most"),
        )
        if key in schema
    ]
    if "pattern" in schema:
        words.append(f"`{schema['pattern']}`")
    return f" ({', '.join(words)})" if words else ""


def _json(value: Any) -> str:
    """Format a block of JSON; lists of numbers or texts stay on one line."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return f"```json\n{_PLAIN_LIST.sub(_on_one_line, text)}\n```"


def _on_one_line(plain: re.Match[str]) -> str:
    return " ".join(plain[0].split()).replace("[ ", "[").replace(" ]", "]")
