"""OpenAPI descriptions of responses, by status, with examples.

`GET /openapi.json` must declare every status and schema of a route: a fuzzer in the tests checks
it. FastAPI adds the schemas of the response models.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import orjson

from tollgauge.core.sale.payment import HEADER_MAX
from tollgauge.core.sale.signature import JWKS_PATH, SIGNATURE_HEADER
from tollgauge.web.edge.messages import BODY_MAX, HEADERS_MAX, URL_MAX
from tollgauge.web.wire.examples import read_example
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
    403: ("origin-not-allowed", "This origin is not allowed to call the tools."),
    404: ("unknown-resource", "This resource is not monitored."),
    405: ("method-not-allowed", "Use POST to buy this product."),
    406: ("not-acceptable", "The Accept header must allow application/json."),
    409: ("payment-reused", "This payment already pays for another request. Sign a new payment."),
    410: ("answer-expired", "The answer to this payment was stored for 30 days."),
    413: ("body-too-large", f"Keep the body under {BODY_MAX} bytes."),
    414: ("url-too-long", f"Keep the URL under {URL_MAX} bytes."),
    416: ("range-not-satisfiable", "The file has 6029 bytes. Request a range within them."),
    421: ("host-not-allowed", "This Host is not served here."),
    422: ("resource-not-https", "The resource must start with https://."),
    429: ("rate-limited", "Too many requests from your address."),
    431: ("payment-header-too-large", f"Keep the payment under {HEADER_MAX} bytes."),
    500: ("internal", "The service failed because of an internal error."),
    503: ("store-unavailable", "The database is unavailable."),
}
"""Example of code and detail per status."""
_ANY_ROUTE: Final[Mapping[int, str]] = {
    413: f"The body exceeds {BODY_MAX // 1024} KB",
    414: f"The URL exceeds {URL_MAX // 1024} KB",
    429: "Too many requests from one address",
    431: f"The headers exceed {HEADERS_MAX // 1024} KB, or the payment header exceeds "
    f"{HEADER_MAX // 1024} KB",
    500: "Internal error",
    503: "Temporarily unavailable: the database, network, node or facilitator failed",
}
"""Problems of every route."""
QUERY: Final[dict[int, str]] = {422: "A query parameter is unknown"}
"""Problem of `web/edge/messages.query_check`, for routes without another 422."""


def read_schema(name: str) -> dict[str, Any]:
    """Read a JSON Schema of the folder `schemas`."""
    file = resources.files(__package__).joinpath(f"schemas/{name}.json")
    schema: dict[str, Any] = orjson.loads(file.read_bytes())
    return schema


PROBLEM_SCHEMA: Final = read_schema("problem")
PAYMENT_REQUIRED_SCHEMA: Final = read_schema("payment_required")
_NAMED: Final = {schema["title"]: schema for schema in (PROBLEM_SCHEMA, PAYMENT_REQUIRED_SCHEMA)}
"""Shared schemas with names, so that client generators create one class for each."""


def problems(own: Mapping[int, str] | None = None, *, page: bool = False) -> Answers:
    """Describe the problems of a route: the common ones, and its own by status.

    A `page` also returns them to browsers as HTML.
    """
    html = {"text/html": {"schema": _TEXT}} if page else {}
    return {
        status: {
            "description": text,
            "content": {"application/problem+json": _problem(status)} | html,
            "headers": _RETRY_AFTER if status in (429, 503) else {},
        }
        for status, text in sorted({**_ANY_ROUTE, **(own or {})}.items())
    }


def _success(content: Mapping[str, Any], **more: Any) -> Answers:
    return {200: {"description": "Success", "content": content, **more}}


def free(model: type[ResponseModel], example: Any, own: Mapping[int, str] | None = None) -> Answers:
    """Describe the responses of a free JSON route; a text names an example answer."""
    example = read_example(example) if isinstance(example, str) else example
    return _success({"application/json": {"example": example}}, model=model) | problems(own)


def document(
    example: Any, own: Mapping[int, str] | None = None, *, media_type: str = "application/json"
) -> Answers:
    """Describe the responses of a route with a JSON document of any form."""
    schema = {"type": "object", "additionalProperties": True}
    return _success({media_type: {"schema": schema, "example": example}}) | problems(own)


def health(state: str, optional: Mapping[str, Any] | None = None) -> Answers:
    """Describe the responses of a health route with its optional properties."""
    schema = {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"const": state}, **(optional or {})},
        "additionalProperties": False,
    }
    content = {"application/json": {"schema": schema, "example": {"status": state}}}
    return _success(content) | problems()


def add_caching(answers: Answers) -> Answers:
    """Add the `ETag` header and the 304 response of a cached route."""
    tag = {"ETag": {"description": "Validator for If-None-Match", "schema": _TEXT}}
    if 200 not in answers:
        return answers
    headers = tag | answers[200].get("headers", {})
    not_modified = {"description": "Not modified", "headers": headers}
    return answers | {200: answers[200] | {"headers": headers}, 304: not_modified}


def add_signature(answers: Answers) -> Answers:
    """Add the signature of a route whose 200 response is signed."""
    signature = {
        "description": "Detached JWS (EdDSA, b64 false) over the body's RFC 8785 form, by a key of "
        f"{JWKS_PATH}; absent if responses are not signed",
        "schema": _TEXT,
    }
    headers = {SIGNATURE_HEADER: signature} | answers[200].get("headers", {})
    return answers | {200: answers[200] | {"headers": headers}}


def page(media_type: str = "text/html", own: Mapping[int, str] | None = None) -> Answers:
    """Describe the responses of a page or image."""
    return _success({media_type: {"schema": _TEXT}}) | problems(own, page=True)


def csv(own: Mapping[int, str] | None = None) -> Answers:
    """Describe the responses of a list as CSV."""
    link = {"Link": {"description": 'The next page, as rel="next"', "schema": _TEXT}}
    return _success({"text/csv": {"schema": _TEXT}}, headers=link) | problems(own)


def file(media_type: str, own: Mapping[int, str] | None = None) -> Answers:
    """Describe the responses of a file with range requests (RFC 9110 section 14)."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    tag = {"ETag": {"description": "Validator for If-None-Match or If-Range", "schema": _TEXT}}
    text = "Detached JWS over the SHA-256 of the complete file; absent without a signing key"
    signed = {SIGNATURE_HEADER: {"description": text, "schema": _TEXT}}
    part = {"Content-Range": {"description": "Byte range and total size", "schema": _TEXT}}
    success: Answers = {
        200: {"description": "Complete file", "content": content, "headers": tag | signed},
        206: {"description": "Partial content", "content": content, "headers": tag | signed | part},
        304: {"description": "Not modified", "headers": tag | signed},
    }
    refusals = problems({416: "The range is outside the file", **(own or {})})
    refusals[416]["headers"] = part
    return success | refusals


def either(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a response in two media types, selected by `Accept`."""
    return {**other, **one, "content": {**one["content"], **other["content"]}}


def body(
    schema: Mapping[str, Any],
    example: Any,
    *,
    media_type: str = "application/json",
    required: bool = True,
) -> dict[str, Any]:
    """Describe the body of a request."""
    return {
        "required": required,
        "content": {media_type: {"schema": schema, "example": example}},
    }


def redirect() -> Answers:
    """Describe the responses of a page that redirects to the requested endpoint or host."""
    where = {"description": "URL of the page", "required": True, "schema": _TEXT}
    success: Answers = {307: {"description": "Redirect", "headers": {"Location": where}}}
    own = {
        404: "The endpoint or host is not monitored",
        422: "The parameter is missing or not a public https URL",
    }
    return page(own=own) | success


def describe_paid(
    model: type[ResponseModel],
    example: Any,
    payment_required: Any,
    refusals: Mapping[int, str] | None = None,
) -> Answers:
    """Describe the responses of a paid route.

    Args:
        model: The model of the 200 response.
        example: An example of the 200 response.
        payment_required: An example of the 402 response.
        refusals: The route's own problems by status.
    """
    own = {
        400: "The body is not JSON, or the payment header is malformed; not charged",
        409: "The payment was already used for another request, or it was settled on chain but is "
        "not in the ledger of this service (`payment-settled-unknown`, with the transaction)",
        410: "The stored response to this payment was deleted after 30 days",
        422: "Invalid input; not charged",
        429: "Too many requests from one address, or too many unpaid responses of one payer; not "
        "charged",
        503: "The state of the payment is unknown; send the same request with the same payment "
        "again",
        **(refusals or {}),
    }
    receipt = {"description": "base64 of the x402 v2 SettleResponse", "schema": _TEXT}
    return free(model, example, own) | {
        200: {
            "model": model,
            "description": "Success; PAYMENT-RESPONSE contains the receipt",
            "content": {"application/json": {"example": example}},
            "headers": {"PAYMENT-RESPONSE": receipt},
        },
        402: _payment_required(payment_required),
    }


def payment_preview(payment_required: Any) -> Answers:
    """Describe the responses to a GET of a paid route, which only returns its terms."""
    refused = {405: "The request contains a payment; use POST. Not charged"}
    return {402: _payment_required(payment_required)} | problems(refused)


def _payment_required(example: Any) -> dict[str, Any]:
    terms = {"description": "base64 of the body", "required": True, "schema": _TEXT}
    return {
        "description": "Payment required; PAYMENT-REQUIRED and the body contain the terms",
        "content": {
            "application/json": {"schema": _ref(PAYMENT_REQUIRED_SCHEMA), "example": example}
        },
        "headers": {"PAYMENT-REQUIRED": terms},
    }


def _add_bearer(document: dict[str, Any]) -> None:
    """Add the security scheme of the watch routes."""
    scheme = {
        "type": "http",
        "scheme": "bearer",
        "description": "Secret of a watch, returned when it was bought",
    }
    document["components"].setdefault("securitySchemes", {})["bearer"] = scheme


def description(app: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document. This takes about 250 ms."""
    # FastAPI omits nulls from examples, and adds its own 422 to every route with a parameter.
    document = app.openapi()
    _drop_foreign_errors(document)
    document["components"]["schemas"] |= _NAMED
    _add_bearer(document)
    _add_examples(document, app)
    _restore_integers(document)
    return document


def _add_examples(document: dict[str, Any], app: FastAPI) -> None:
    """Replace FastAPI's examples, which lack nulls, by those of the routes."""
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


def _restore_integers(part: Any) -> None:
    """Make the limits of integers integers again: FastAPI writes 0 as 0.0."""
    if isinstance(part, dict) and part.get("type") == "integer":
        for key in {"minimum", "maximum"} & part.keys():
            part[key] = int(part[key])
    children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for child in children:
        _restore_integers(child)


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
