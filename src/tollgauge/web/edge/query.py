"""Query parameters that a route does not take are refused, not ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import Request

from tollgauge.core.base.text import clean_text
from tollgauge.web.edge.problem import Invalid, Problem

_NAME_MAX: Final = 64


def check_query(request: Request) -> None:
    """Refuse a query parameter that the route does not take, because the answer would ignore what
    the caller meant by it. A dependency of routes (FastAPI). Raises Problem 422.
    """
    parameters = request.scope["route"].dependant.query_params
    known = [name for parameter in parameters for name in _names(parameter)]
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is None:
        return
    shown = clean_text(unknown, limit=_NAME_MAX)
    takes = "This route takes no parameters."
    if known:
        takes = f"This route takes {', '.join(known)}; in a value write & as %26."
    message = f"There is no parameter {shown}. {takes}"
    raise Problem(422, "unknown-parameter", message, errors=(Invalid(path=shown, message=message),))


def _names(parameter: Any) -> Iterator[str]:
    """The names of a parameter of FastAPI, which may be a model of several."""
    model = parameter.field_info.annotation
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        yield parameter.alias
        return
    for name, field in model.model_fields.items():
        yield field.alias or name
