"""ResponseModel, the base of all JSON responses, and the types of its fields.

A response is built from objects of core, whose figures are integers. The type of a field converts
the figure: `Percent` divides tenths by ten, `Time` formats milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Self

import orjson
from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from tollgauge.core.base.units import DAY_MS, SECOND_MS, iso, iso_day, usd
from tollgauge.core.lists.rated_endpoint import GRADES
from tollgauge.core.probe import exchange
from tollgauge.core.score.advice import RECOMMENDATIONS


@dataclass(frozen=True, slots=True)
class OneOf:
    """Annotation of a field with a fixed set of values."""

    values: Iterable[str | int]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.literal_schema([*self.values])


def camel(name: str) -> str:
    """Convert a field name to camelCase; `30d` and `24h` keep their lower case."""
    return re.sub(r"30D\b|24H\b", lambda match: match[0].lower(), to_camel(name))


class ResponseModel(BaseModel):
    """A JSON object with camelCase names and no other fields."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=camel),
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        from_attributes=True,
    )

    @classmethod
    def build(cls, *sources: object, **given: Any) -> Self:
        """Build a response from the attributes of objects.

        A nested model is built from the attribute's value in the same way.

        Args:
            sources: The first object that has the attribute of a field provides its value.
            given: The values of other fields.
        """
        values = dict(given)
        for name, attribute in _attributes(cls):
            if name in given:
                continue
            for source in sources:
                if (value := getattr(source, attribute, _ABSENT)) is not _ABSENT:
                    values[name] = value
                    break
        return cls(**values)


_ABSENT: Final = object()


@cache
def _attributes(model: type[ResponseModel]) -> tuple[tuple[str, str], ...]:
    """Return the fields of a model, each with the attribute that provides its value."""
    return tuple(
        (name, str(field.validation_alias or name)) for name, field in model.model_fields.items()
    )


def from_attribute(attribute: str) -> Any:
    """Declare a field whose value is the attribute of another name."""
    return Field(validation_alias=attribute)


def absent_if_null(attribute: str | None = None) -> Any:
    """Declare a field that is omitted instead of null."""
    return Field(default=None, exclude_if=_is_null, validation_alias=attribute)


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
    return None if value is None else usd(value)


Grade = Annotated[str, OneOf(GRADES)]
Recommendation = Annotated[str, OneOf(RECOMMENDATIONS)]
Severity = Annotated[str, OneOf(exchange.Severity)]
Percent = Annotated[float, Field(ge=0, le=100), BeforeValidator(tenths)]
"""0 to 100, from tenths."""
Chance = Annotated[float, Field(ge=0, le=1), BeforeValidator(permille)]
"""0 to 1, from thousandths."""
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(lambda hundredths: hundredths / 100)]
"""0 to 1, from hundredths."""
Dollars = Annotated[float, BeforeValidator(usd)]
"""Dollars, from millionths."""
Millionths = Annotated[float, BeforeValidator(lambda value: value / 1_000_000)]
"""A number, from millionths."""
Amount = Annotated[str, BeforeValidator(str)]
"""A decimal string of atomic units: JSON numbers lose digits above 2**53."""
Time = Annotated[str, BeforeValidator(iso)]
"""ISO 8601, from milliseconds UTC."""
Day = Annotated[str, BeforeValidator(lambda day: iso_day(day * DAY_MS))]
"""A date, from the number of a UTC day."""
UnixSeconds = Annotated[int, BeforeValidator(lambda at: at // SECOND_MS)]
"""Whole seconds, from milliseconds UTC."""
NULL_IF_EMPTY = BeforeValidator(lambda value: value or None)
"""Annotation of a nullable field: an empty text, an empty list and 0 become null."""
