"""RequestModel: the base of every JSON request. One model says how a request is validated and how
OpenAPI, MCP, directories and the docs describe it.

Rules:
- nothing is converted: where a number is asked for, a text that holds one is invalid;
- fields that a model does not name are ignored, except one that was meant for another;
- a refusal (422) names every part that is invalid, in the words of the published schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Annotated, Any, Final, NoReturn, Self

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import CAIP2_PATTERN, legacy_network
from tollgauge.core.endpoint.identity import (
    PUBLIC,
    URL_MAX,
    Perimeter,
    Resource,
    ResourceError,
    parse_resource,
)
from tollgauge.web.edge.problem import Invalid, Problem

UNKNOWN_FIELDS: Final = (
    "Fields that the schema does not name are ignored, except one whose name nearly is a field's "
    "that is not given (`day` for `days`), or that belongs inside another field: such a request "
    "is refused with 422 and costs nothing."
)
"""What becomes of unknown fields, for the interface description."""
_KEYS: Final = (
    *("type", "anyOf", "required", "minProperties", "items", "enum", "const", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "pattern", "default", "description"),
    *("additionalProperties", "properties", "$ref", "$defs"),
)
_NEAR: Final = 0.75
"""How much of two names must agree (difflib's ratio) for one to be the other, misspelt."""
_NAME_MAX: Final = 64
_UNKNOWN_MAX: Final = 50
"""How many unknown names are looked at; more is no misspelling, and would only cost time."""


class _PublishedSchema(GenerateJsonSchema):
    """Schemas without titles, class docstrings and nulls: what may be null may be left out."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Keys in the order in which people read schemas; fields in the order of the model."""
        fields = parent_key in ("properties", "$defs")
        keys = value if fields else sorted(value, key=_KEYS.index)
        return {key: self._sorted(value[key], key) for key in keys}

    def _sorted(self, value: Any, parent_key: str) -> Any:
        if isinstance(value, list):
            return [self._sorted(item, "") for item in value]
        return self.sort(value, parent_key) if isinstance(value, dict) else value

    def field_title_should_be_set(self, _schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        own = super().model_schema(schema)
        return {
            key: own[key] for key in own if key not in ("title", "description") and own[key] != {}
        }

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


class RequestModel(BaseModel):
    """A JSON object that a route or a tool takes."""

    model_config = ConfigDict(strict=True, frozen=True)

    @classmethod
    def read(cls, document: object, perimeter: Perimeter = PUBLIC) -> Self:
        """The request in a parsed body. URLs in it are held to `perimeter`. Raises Problem 422."""
        if not isinstance(document, dict):
            raise invalid("", "The body must be a JSON object.")
        cls.check_names(document)
        try:
            return cls.model_validate(document, context=perimeter)
        except ValidationError as error:
            raise _problem(cls.json_schema(), error) from None

    @classmethod
    @cache
    def json_schema(cls) -> dict[str, Any]:
        """The request's JSON Schema as it is published, without references."""
        schema = cls.model_json_schema(schema_generator=_PublishedSchema)
        definitions = schema.pop("$defs", {})
        for field in schema.get("properties", {}).values():
            if "$ref" in field:
                field |= definitions[field.pop("$ref").rpartition("/")[2]]
        return schema

    @classmethod
    def check_names(cls, document: Mapping[str, Any]) -> None:
        """Refuse a field that was meant for another: one whose name nearly is that of a field that
        is not given, or one that belongs inside another. Otherwise the answer would be paid for,
        and not be the one that was asked for. Raises Problem 422.
        """
        known: Mapping[str, Any] = cls.json_schema().get("properties", {})
        inside = {name: parent for parent in known for name in known[parent].get("properties", ())}
        open_names = {_plain(name): name for name in known if name not in document}
        for name in islice((name for name in document if name not in known), _UNKNOWN_MAX):
            if name in inside:
                raise _unknown(name, f"it belongs inside {inside[name]}.")
            near = get_close_matches(_plain(name[:_NAME_MAX]), open_names, n=1, cutoff=_NEAR)
            if near:
                raise _unknown(name, f"did you mean {open_names[near[0]]}?")

    @classmethod
    def read_query(cls, query: Mapping[str, str]) -> Self:
        """The request in a query string; numbers are read as in JSON. Raises Problem 422."""
        fields = cls.json_schema()["properties"]
        kinds = {name: field.get("type") for name, field in fields.items()}
        return cls.read(
            {
                name: _number(text) if kinds.get(name) in ("integer", "number") else text
                for name, text in query.items()
            }
        )

    @classmethod
    def query_parameters(
        cls, examples: Mapping[str, object], *, renamed: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The fields as parameters of a query string, for the interface description.

        `renamed` are fields that have another name there; `examples` are by parameter.
        """
        schema = cls.json_schema()
        parameters = []
        for field, published in schema["properties"].items():
            name = (renamed or {}).get(field, field)
            form = {key: value for key, value in published.items() if key != "description"}
            description = published["description"]
            if default := form.pop("default", None):
                description += f". Default: {default}"
                form["default"] = default
            parameters.append(
                {
                    "name": name,
                    "in": "query",
                    "required": field in schema.get("required", ()),
                    "description": description,
                    "schema": form | {"examples": [examples[name]]},
                }
            )
        return {"parameters": parameters}

    @classmethod
    def body(cls, example: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
        """The request's body, for the interface description."""
        return {
            "required": required,
            "description": UNKNOWN_FIELDS,
            "content": {"application/json": {"schema": cls.json_schema(), "example": example}},
        }


def resource_of(value: object, perimeter: Perimeter, *, path: str = "resource") -> Resource:
    """The resource at a path of a request. Raises Problem 422."""
    if value is None:
        raise invalid(path, "The resource is missing.")
    try:
        return parse_resource(value, perimeter)
    except ResourceError as error:
        detail, errors = f"{error} {error.hint}", (Invalid(path=path, message=str(error)),)
        raise Problem(422, error.code, detail, errors=errors) from error


def invalid(path: str, message: str) -> Problem:
    """Problem 422 about one part of the input."""
    return Problem(422, "invalid-input", message, errors=(Invalid(path=path, message=message),))


def refuse(problem: Problem) -> NoReturn:
    """Refuse a field from its validator, in the words of a problem. The paths of the problem's
    errors are relative to the field.
    """
    raise PydanticCustomError("refused", "refused", {"problem": problem})


def without_fraction(value: object) -> object:
    """A validator that turns a whole number with a decimal point (5.0) into an int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _resource(value: object, info: ValidationInfo[Perimeter]) -> Resource:
    try:
        return resource_of(value, info.context, path="")
    except Problem as problem:
        refuse(problem)


ENDPOINT_URL: Final = "Full endpoint URL starting with https://, as listed in discovery"
RequestedResource = Annotated[
    Resource,
    PlainValidator(
        _resource,
        json_schema_input_type=Annotated[
            str, Field(min_length=9, max_length=URL_MAX, pattern="^https://")
        ],
    ),
    Field(description=ENDPOINT_URL),
]
"""The URL of an endpoint."""


def _network(text: str) -> str:
    network = legacy_network(text.lower()) or text
    if not CAIP2_PATTERN.fullmatch(network):
        refuse(invalid("", "A network is a CAIP-2 id such as eip155:8453, or a name such as base."))
    return network


NETWORK: Final = "The network that is paid on: a CAIP-2 id, or a name such as base"
RequestedNetwork = Annotated[str, Field(max_length=64), AfterValidator(_network)]
"""A network by its CAIP-2 id."""


def _problem(schema: Mapping[str, Any], error: ValidationError) -> Problem:
    """Problem 422 for what a model refused, in the words of the first of its errors."""
    refused = [_refusal(schema, row) for row in error.errors(include_url=False)]
    errors = tuple(part for problem in refused for part in problem.errors)
    first = refused[0]
    return Problem(422, first.code, str(first), errors=errors, extra=first.extra)


def _refusal(schema: Mapping[str, Any], row: ErrorDetails) -> Problem:
    """One of a model's errors: what a validator said, or what the schema asks for there."""
    path, field = "", schema
    for part in row["loc"]:
        if isinstance(part, int):
            path, field = f"{path}[{part}]", field.get("items", {})
        else:
            path = f"{path}.{part}" if path else part
            field = field.get("properties", {}).get(part, {})
    if row["type"] == "refused":
        problem: Problem = row["ctx"]["problem"]
        problem.errors = tuple(replace(part, path=path + part.path) for part in problem.errors)
        return problem
    if row["type"] == "missing":
        return invalid(path, f"{path} is missing.")
    return invalid(path, f"{path} must be {_wanted(field)}.")


def _wanted(field: Mapping[str, Any]) -> str:
    """What a field takes, in words."""
    match field:
        case {"enum": [*values]}:
            return f"one of {', '.join(map(str, values))}"
        case {"type": "integer" | "number" as kind, "minimum": least, "maximum": most}:
            return f"a {'whole ' if kind == 'integer' else ''}number from {least} to {most}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "array"}:
            return "a list that is not empty" if field.get("minItems") else "a list"
        case {"type": "object"}:
            return "an object"
        case {"pattern": pattern}:
            return f"a text that matches {pattern}"
    return "a text"


def _number(text: str) -> object:
    """The number in a text; otherwise the text itself, which the model then refuses."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if type(value) in (int, float) else text


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _unknown(name: str, words: str) -> Problem:
    shown = clean_text(name, limit=_NAME_MAX)
    message = f"There is no field {shown}: {words}"
    return Problem(
        422,
        "unknown-field",
        f"{message} Nothing was charged.",
        errors=(Invalid(path=shown, message=message),),
        extra={"notCharged": True},
    )
