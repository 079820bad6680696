"""ResponseModel, the base of all JSON responses, and the conversion of values to JSON.

Values arrive as integers in the unit of their name, and become decimals, dollars and ISO times.
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
    """Annotation of a field with a fixed set of values."""

    values: Iterable[str | int]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.literal_schema([*self.values])


Grade = Annotated[str, OneOf(GRADES)]
Recommendation = Annotated[str, OneOf(RECOMMENDATIONS)]
Severity = Annotated[str, OneOf(finding.Severity)]
Percent = Annotated[float, Field(ge=0, le=100)]
Chance = Annotated[float, Field(ge=0, le=1)]


def camel(name: str) -> str:
    """Convert a field name to camelCase; `30d` and `24h` keep their lower case."""
    return re.sub(r"30D\b|24H\b", lambda match: match[0].lower(), to_camel(name))


class ResponseModel(BaseModel):
    """A JSON object with camelCase names and no other fields."""

    model_config = ConfigDict(
        alias_generator=camel, populate_by_name=True, extra="forbid", frozen=True
    )


def absent_if_null() -> Any:
    """Declare a field that is omitted instead of null."""
    return Field(default=None, exclude_if=_is_null)


def _is_null(value: object) -> bool:
    return value is None


def dump(model: ResponseModel) -> bytes:
    """Encode a response as JSON."""
    return orjson.dumps(model.model_dump(by_alias=True))


def tenths(value: int | None) -> Any:
    """Convert tenths to a number with one decimal."""
    return None if value is None else value / 10


def permille(value: int | None) -> float | None:
    """Convert thousandths to a share from 0 to 1."""
    return None if value is None else value / 1000


def micro_usd(value: int | None) -> Any:
    """Convert millionths of a dollar to dollars."""
    return None if value is None else value / 1_000_000


def iso(at: int | None) -> Any:
    """Format a timestamp (ms UTC) as ISO 8601, with milliseconds only if they are not zero."""
    if at is None:
        return None
    day_number, of_day = divmod(at, DAY_MS)
    seconds, ms = divmod(of_day, 1_000)
    time = f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{_date(day_number)}T{time}.{ms:03d}Z" if ms else f"{_date(day_number)}T{time}Z"


def day(at: int) -> str:
    """Format the UTC date of a timestamp (ms UTC)."""
    return _date(at // DAY_MS)


@lru_cache(maxsize=1_024)
def _date(day_number: int) -> str:
    # Cached: responses contain the same few days again and again.
    return date_of(day_number).isoformat()
