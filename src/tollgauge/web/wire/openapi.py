"""The parts of the interface description: what each status means, with an example of each.

`GET /openapi.json` describes exactly what the routes do: tests run a fuzzer that reads it, and no
status may be undeclared and no schema violated. The table in web/routes puts these parts together;
FastAPI adds the schemas of the response models.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from tollgauge.core.sale import answer_signature
from tollgauge.core.sale.payment import HEADER_MAX
from tollgauge.web.edge.input import BODY_MAX, HEADERS_MAX, URL_MAX
from tollgauge.web.wire.response_model import ResponseModel

if TYPE_CHECKING:
    from fastapi import FastAPI

Answers = dict[int | str, dict[str, Any]]
"""OpenAPI responses by status, as FastAPI takes them."""

_FOREIGN: Final = ("HTTPValidationError", "ValidationError")
_TEXT: Final = {"type": "string"}
_RETRY_AFTER: Final = {
    "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}
}
_CODES: Final[Mapping[int, tuple[str, str]]] = {
    400: ("json-invalid", "The body is not JSON."),
    401: ("unauthorized", "Send the watch's secret: Authorization: Bearer <secret>."),
    403: ("origin-not-allowed", "Pages of this origin may not call the tools."),
    404: ("unknown-resource", "Nothing is known of this resource."),
    405: ("method-not-allowed", "This is sold by POST."),
    406: ("not-acceptable", "Accept application/json: answers are JSON."),
    409: ("payment-reused", "This payment already pays for another request. Sign a new payment."),
    410: ("answer-expired", "This payment's answer was kept for 30 days."),
    413: ("body-too-large", f"Keep the body under {BODY_MAX} bytes."),
    414: ("url-too-long", f"Keep the URL under {URL_MAX} bytes."),
    416: ("range-not-satisfiable", "The file has 6029 bytes: ask for a range within them."),
    421: ("host-not-allowed", "This service does not answer to this Host."),
    422: ("resource-not-https", "The resource must start with https://."),
    429: ("rate-limited", "Too many requests from your address."),
    431: ("payment-header-too-large", f"Keep the payment under {HEADER_MAX} bytes."),
    500: ("internal", "This is a fault of ours."),
    503: ("store-unavailable", "Our database cannot serve now."),
}
"""An example of the code and the detail of each status."""
_ANY_ROUTE: Final[Mapping[int, str]] = {
    413: f"The body is over {BODY_MAX // 1024} KB",
    414: f"The URL is over {URL_MAX // 1024} KB",
    429: "Too many requests from one address",
    431: f"The headers are over {HEADERS_MAX // 1024} KB, or the payment header is over "
    f"{HEADER_MAX // 1024} KB",
    500: "A fault of ours",
    503: "We cannot tell now: our database, network, node or facilitator failed",
}
"""What any route may answer."""
QUERY: Final[dict[int, str]] = {422: "A query parameter that this route does not take"}
"""The refusal of `web/edge/input.query_check`, for routes without another 422."""
PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "title": "Problem",
    "type": "object",
    "description": "RFC 9457; `code` is a stable slug, `errors` names the invalid parts",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "code": _TEXT,
        "cause": {"type": "string", "description": "Of 503 at /readyz: what the database has"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {"path": _TEXT, "message": _TEXT},
            },
        },
    },
}
PAYMENT_REQUIRED_SCHEMA: Final[dict[str, Any]] = {
    "title": "PaymentRequired",
    "type": "object",
    "description": "x402 v2 PaymentRequired; the header PAYMENT-REQUIRED is its base64",
    "required": ["x402Version", "error", "resource", "accepts"],
    "properties": {
        "x402Version": {"const": 2},
        "error": _TEXT,
        "resource": {"type": "object", "required": ["url"], "properties": {"url": _TEXT}},
        "accepts": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["scheme", "network", "asset", "amount", "payTo", "maxTimeoutSeconds"],
                "properties": {
                    "scheme": {"const": "exact"},
                    "network": _TEXT,
                    "asset": _TEXT,
                    "amount": {"type": "string", "pattern": "^(0|[1-9][0-9]{0,77})$"},
                    "payTo": _TEXT,
                    "maxTimeoutSeconds": {"type": "integer"},
                    "extra": {"type": "object"},
                },
            },
        },
        "extensions": {"type": "object"},
    },
}
_NAMED: Final = {schema["title"]: schema for schema in (PROBLEM_SCHEMA, PAYMENT_REQUIRED_SCHEMA)}
"""Schemas that many answers share, under names of their own: client generators write one class for
each.
"""


def problems(words: Mapping[int, str] | None = None, *, page: bool = False) -> Answers:
    """The problems of a route: what any may answer, and its own by status. A `page` shows a
    browser the same as HTML.
    """
    html = {"text/html": {"schema": _TEXT}} if page else {}
    return {
        status: {
            "description": text,
            "content": {"application/problem+json": _problem(status)} | html,
            "headers": _RETRY_AFTER if status in (429, 503) else {},
        }
        for status, text in sorted({**_ANY_ROUTE, **(words or {})}.items())
    }


def free(model: type[ResponseModel], example: Any, own: Mapping[int, str] | None = None) -> Answers:
    """The answers of a free JSON route."""
    return {
        200: {
            "model": model,
            "description": "Success",
            "content": {"application/json": {"example": example}},
        }
    } | problems(own)


def document(example: Any, own: Mapping[int, str] | None = None) -> Answers:
    """The answers of a route that gives a document of a form of its own."""
    schema = {"type": "object", "additionalProperties": True}
    content = {"application/json": {"schema": schema, "example": example}}
    return {200: {"description": "Success", "content": content}} | problems(own)


READY: Final[Mapping[str, Any]] = {
    "probesLateSeconds": {
        "type": "object",
        "description": "Present while probes are late: how long the host has waited that waits "
        "longest, of all and of watched endpoints",
        "additionalProperties": {"type": "integer"},
    },
    "detail": {
        "type": "string",
        "description": "Present while there is no signing key: it says that nothing is signed",
    },
    "loadingPercent": {
        "type": "integer",
        "description": "Present while the demo loads its history: how much of it is there",
    },
}
"""What `/readyz` may say beside its status."""


def health(state: str, beside: Mapping[str, Any] | None = None) -> Answers:
    """The answers of a health route; `beside` are the properties that it may have."""
    schema = {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"const": state}, **(beside or {})},
        "additionalProperties": False,
    }
    content = {"application/json": {"schema": schema, "example": {"status": state}}}
    return {200: {"description": "Success", "content": content}} | problems()


def cached(answers: Answers) -> Answers:
    """The answers of a cached route: with an `ETag`, and 304 for a request that names it."""
    tag = {"ETag": {"description": "Send it back as If-None-Match", "schema": _TEXT}}
    if 200 not in answers:
        return answers
    headers = tag | answers[200].get("headers", {})
    not_modified = {
        "description": "Not modified: If-None-Match names what you have",
        "headers": headers,
    }
    return answers | {200: answers[200] | {"headers": headers}, 304: not_modified}


def signed(answers: Answers) -> Answers:
    """The answers of a route whose 200 is signed where the service has a key."""
    signature = {
        "description": "Detached JWS (EdDSA, b64 false) over the body's RFC 8785 form, by a key of "
        f"{answer_signature.JWKS}; absent where nothing is signed",
        "schema": _TEXT,
    }
    headers = {answer_signature.HEADER: signature} | answers[200].get("headers", {})
    return answers | {200: answers[200] | {"headers": headers}}


def page(media_type: str = "text/html", own: Mapping[int, str] | None = None) -> Answers:
    """The answers of a page or picture."""
    content = {media_type: {"schema": _TEXT}}
    success: Answers = {200: {"description": "Success", "content": content}}
    return success | problems(own, page=True)


def csv(own: Mapping[int, str] | None = None) -> Answers:
    """The answers of a list as CSV."""
    link = {"Link": {"description": 'The next page, as rel="next"', "schema": _TEXT}}
    success = {
        "description": "Success",
        "content": {"text/csv": {"schema": _TEXT}},
        "headers": link,
    }
    return {200: success} | problems(own)


def file(media_type: str, own: Mapping[int, str] | None = None) -> Answers:
    """The answers of a file, which can be had in parts (RFC 9110 section 14). It may be signed."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    tag = {"ETag": {"description": "Send it back as If-None-Match or If-Range", "schema": _TEXT}}
    words = "A detached JWS over the SHA-256 of the whole file; absent without a key"
    signed = {answer_signature.HEADER: {"description": words, "schema": _TEXT}}
    part = {"Content-Range": {"description": "Which bytes, and of how many", "schema": _TEXT}}
    success: Answers = {
        200: {"description": "The whole file", "content": content, "headers": tag | signed},
        206: {"description": "A part", "content": content, "headers": tag | signed | part},
        304: {"description": "Not modified: you have it", "headers": tag | signed},
    }
    refusals = problems({416: "The file has no such bytes", **(own or {})})
    refusals[416]["headers"] = part
    return success | refusals


def either(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """One answer in two media types, between which `Accept` chooses."""
    return {**other, **one, "content": {**one["content"], **other["content"]}}


def redirect() -> Answers:
    """The answers of a page that leads to that of what is asked for, where that is known."""
    where = {"description": "The page", "required": True, "schema": _TEXT}
    success: Answers = {307: {"description": "The page is there", "headers": {"Location": where}}}
    own = {
        404: "Nothing is known of it",
        422: "It is missing, or no public https URL",
    }
    return page(own=own) | success


def paid(
    model: type[ResponseModel],
    example: Any,
    payment_required: Any,
    refusals: Mapping[int, str] | None = None,
) -> Answers:
    """The answers of a paid route; `payment_required` is an example of its 402, `refusals` what its
    own problem statuses mean.
    """
    own = {
        400: "The JSON does not parse, or the payment header is malformed; nothing was charged",
        409: "The payment already pays for another request, or it was settled on chain and this "
        "service has no record of it (`payment-settled-unknown`, with the transaction)",
        410: "The stored answer of this payment was dropped after 30 days",
        422: "Well-formed but invalid input; nothing was charged",
        429: "Too many requests from one address, or too many answers that one payer left unpaid; "
        "nothing was charged",
        503: "We cannot tell; send the same request with the same payment again",
        **(refusals or {}),
    }
    receipt = {"description": "base64 of the x402 v2 SettleResponse", "schema": _TEXT}
    return free(model, example, own) | {
        200: {
            "model": model,
            "description": "Paid and settled; the receipt is PAYMENT-RESPONSE",
            "content": {"application/json": {"example": example}},
            "headers": {"PAYMENT-RESPONSE": receipt},
        },
        402: _payment_required(payment_required),
    }


def payment_preview(payment_required: Any) -> Answers:
    """The answers to a GET of a paid route, which sells nothing: an example of its terms."""
    refused = {405: "A payment came with it, which buys by POST only; nothing was charged"}
    return {402: _payment_required(payment_required)} | problems(refused)


def _payment_required(example: Any) -> dict[str, Any]:
    terms = {"description": "base64 of the body", "required": True, "schema": _TEXT}
    return {
        "description": "Payment required; the terms are in PAYMENT-REQUIRED and in the body",
        "content": {
            "application/json": {"schema": _ref(PAYMENT_REQUIRED_SCHEMA), "example": example}
        },
        "headers": {"PAYMENT-REQUIRED": terms},
    }


def _add_bearer(document: dict[str, Any]) -> None:
    """Describe the bearer of a watch, for the routes that need it."""
    scheme = {
        "type": "http",
        "scheme": "bearer",
        "description": "A watch's secret, as its paid answer showed it",
    }
    document["components"].setdefault("securitySchemes", {})["bearer"] = scheme


def description(app: FastAPI) -> dict[str, Any]:
    """The interface description. FastAPI's own leaves nulls out of examples, and adds a 422 of
    another form to every route with a parameter; both are corrected. It takes a quarter second.
    """
    document = app.openapi()
    _drop_foreign_errors(document)
    document["components"]["schemas"] |= _NAMED
    _add_bearer(document)
    _add_examples(document, app)
    return document


def _add_examples(document: dict[str, Any], app: FastAPI) -> None:
    """Put the examples of the routes in place of FastAPI's, which lack their nulls."""
    from fastapi.routing import APIRoute

    for route in app.routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        for method in route.methods or ():
            operation = document["paths"][route.path][method.lower()]
            for status, answer in route.responses.items():
                for media_type, body in answer.get("content", {}).items():
                    if "example" in body:
                        content = operation["responses"][str(status)]["content"]
                        content[media_type]["example"] = body["example"]


def _drop_foreign_errors(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name in _FOREIGN:
        schemas.pop(name, None)
    for row in document["paths"].values():
        for operation in row.values():
            content = operation["responses"].get("422", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            if schema.get("$ref", "").endswith(_FOREIGN):
                del operation["responses"]["422"]


@cache
def _problem(status: int) -> dict[str, Any]:
    code, detail = _CODES[status]
    example = {
        "type": f"urn:tollgauge:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    return {"schema": _ref(PROBLEM_SCHEMA), "example": example}


def _ref(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema['title']}"}
