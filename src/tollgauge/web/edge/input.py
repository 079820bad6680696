"""Reading requests: size limits, strict JSON bodies, and known query parameters.

The size limit of a payment header is part of the protocol: core/sale/payment.HEADER_MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import Request

from tollgauge.core.base import strictjson
from tollgauge.core.base.text import clean_text
from tollgauge.core.sale.payment import HEADER_MAX
from tollgauge.web.edge.problem import Invalid, Problem

URL_MAX: Final = 4_096
"""Path and query, in bytes."""
BODY_MAX: Final = 65_536
HEADERS_MAX: Final = 32_768
"""The names and values of all headers, in bytes."""
_NAME_MAX: Final = 64


def body_too_large() -> Problem:
    """413 for a body above the limit."""
    return Problem(413, "body-too-large", f"Keep the body under {BODY_MAX} bytes.")


def payment_header_too_large() -> Problem:
    """431 for a payment above the limit."""
    detail = f"Keep the payment under {HEADER_MAX} bytes."
    return Problem(431, "payment-header-too-large", detail)


async def read_body(request: Request, *, bodyless: bool = False) -> object:
    """Return the request's JSON document. If it may be `bodyless`, no body is an empty object.
    Raises Problem 413 or 400.
    """
    body = await request.body()
    if not body and bodyless:
        return {}
    if not body:
        raise Problem(400, "json-invalid", "The body is empty: send a JSON object.")
    if len(body) > BODY_MAX:
        raise body_too_large()
    try:
        return strictjson.loads(body)
    except strictjson.StrictJsonError as error:
        raise Problem(400, "json-invalid", str(error)) from error


def query_check(read_by_handler: Sequence[str] = ()) -> Callable[[Request], None]:
    """Make a FastAPI dependency that refuses query parameters that the route does not take: an
    answer that ignores one would not be what the caller asked for.

    `read_by_handler` are parameters that the handler reads from the request; the others are those
    of its signature. The dependency raises Problem 422.
    """

    def check(request: Request) -> None:
        parameters = request.scope["route"].dependant.query_params
        known = [*read_by_handler, *(name for one in parameters for name in _names(one))]
        unknown = next((name for name in request.query_params if name not in known), None)
        if unknown is None:
            return
        shown = clean_text(unknown, limit=_NAME_MAX)
        takes = "This route takes no parameters."
        if known:
            takes = f"This route takes {', '.join(known)}; in a value write & as %26."
        message = f"There is no parameter {shown}. {takes}"
        errors = (Invalid(path=shown, message=message),)
        raise Problem(422, "unknown-parameter", message, errors=errors)

    return check


def _names(parameter: Any) -> Iterator[str]:
    """Yield the names of a FastAPI parameter, which may be a model with several."""
    model = parameter.field_info.annotation
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        yield parameter.alias
        return
    for name, field in model.model_fields.items():
        yield field.alias or name
