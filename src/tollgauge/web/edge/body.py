"""The JSON body of a request, by strict rules (core/base/strictjson)."""

from __future__ import annotations

from starlette.requests import Request

from tollgauge.core.base import strictjson
from tollgauge.web.edge.limits import BODY_MAX
from tollgauge.web.edge.problem import Problem, body_too_large


async def read_body(request: Request, *, bodyless: bool = False) -> object:
    """The request's JSON document. Where it may be `bodyless`, no body is an empty object. Raises
    Problem 413 or 400.
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
