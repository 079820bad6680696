"""Query parameters that a route does not take are refused, not ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import Request

from tollgauge.core.base.text import clean_text
from tollgauge.web.edge.problem import Invalid, Problem

_NAME_MAX: Final = 64


def query_check(read_by_handler: Sequence[str] = ()) -> Callable[[Request], None]:
    """Make a dependency of a route (FastAPI) that refuses parameters that the route does not take,
    because the answer would ignore what the caller meant by them.

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
    """The names of a parameter of FastAPI, which may be a model of several."""
    model = parameter.field_info.annotation
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        yield parameter.alias
        return
    for name, field in model.model_fields.items():
        yield field.alias or name
