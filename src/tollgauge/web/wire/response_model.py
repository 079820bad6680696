"""ResponseModel, the base of every JSON object in an answer, and how figures are written in JSON.

Names are camelCase, an unknown field is an error, and a field whose absence means something
(`absent_if_null`) is left out when it is null. Figures arrive as integers in the unit that their
name says, and become decimals, dollars and ISO times here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from tollgauge.core.base.units import DAY_MS, date_of
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


def tenths(value: int | None) -> Any:
    """Tenths of a point or percent as a number with one decimal."""
    return None if value is None else value / 10


def permille(value: int | None) -> float | None:
    """Thousandths as a share from 0 to 1."""
    return None if value is None else value / 1000


def micro_usd(value: int | None) -> Any:
    """Millionths of a dollar as dollars with six decimals."""
    return None if value is None else value / 1_000_000


def iso(at: int | None) -> Any:
    """An instant as ISO 8601 UTC with `Z`, in whole seconds unless it has milliseconds."""
    if at is None:
        return None
    day_number, of_day = divmod(at, DAY_MS)
    seconds, ms = divmod(of_day, 1_000)
    time = f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{_date(day_number)}T{time}.{ms:03d}Z" if ms else f"{_date(day_number)}T{time}Z"


def day(at: int) -> str:
    """An instant as its UTC date."""
    return _date(at // DAY_MS)


@lru_cache(maxsize=1_024)
def _date(day_number: int) -> str:
    """A UTC day as its date; answers name the same few days again and again."""
    return date_of(day_number).isoformat()
