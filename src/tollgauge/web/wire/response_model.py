"""ResponseModel: the base of every JSON object on the wire, its names and its words.

Names are camelCase, an unknown field is an error, and a field whose absence means something
(`absent_if_null`) is left out when it is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from tollgauge.core.endpoint import finding
from tollgauge.core.lists.rated_endpoint import GRADES
from tollgauge.core.score.advice import RECOMMENDATIONS


@dataclass(frozen=True, slots=True)
class OneOf:
    """Annotates a field that takes only these values."""

    values: Iterable[str | int]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.literal_schema([*self.values])


Grade = Annotated[str, OneOf(GRADES)]
Recommendation = Annotated[str, OneOf(RECOMMENDATIONS)]
Severity = Annotated[str, OneOf(finding.Severity)]
Percent = Annotated[float, Field(ge=0, le=100)]
Chance = Annotated[float, Field(ge=0, le=1)]


def camel(name: str) -> str:
    """A field's name on the wire: camelCase, with the windows' `30d` and `24h` kept small."""
    return re.sub(r"30D\b|24H\b", lambda match: match[0].lower(), to_camel(name))


class ResponseModel(BaseModel):
    """A JSON object with camelCase names and no others."""

    model_config = ConfigDict(
        alias_generator=camel, populate_by_name=True, extra="forbid", frozen=True
    )


def absent_if_null() -> Any:
    """A field that is left out when it is null, because its absence means something."""
    return Field(default=None, exclude_if=_is_null)


def _is_null(value: object) -> bool:
    return value is None


def dump(model: ResponseModel) -> bytes:
    """A response as JSON bytes."""
    return orjson.dumps(model.model_dump(by_alias=True))
