"""RequestModel, the base of all JSON requests: validation, and the published schema.

Values are not converted: a string is not accepted for a number. Unknown fields are ignored unless
they look like a misspelled field. A 422 lists all invalid fields.
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
from tollgauge.core.base.units import CAIP2_PATTERN, LEGACY_NETWORKS
from tollgauge.core.endpoint.identity import (
    PUBLIC,
    URL_MAX,
    Perimeter,
    Resource,
    ResourceError,
    Transport,
    parse_resource,
    transport_of,
)
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.wire import openapi

UNKNOWN_FIELDS: Final = (
    "Unknown fields are ignored, with two exceptions: a probable misspelling of an omitted field "
    "(`day` for `days`), and a field that belongs inside another field. Such a request is rejected "
    "with 422 and is not charged."
)
"""Handling of unknown fields, for OpenAPI."""
_SIMILARITY_MIN: Final = 0.75
"""Minimum similarity (difflib's ratio) of a misspelled name."""
_NAME_MAX: Final = 64
_UNKNOWN_MAX: Final = 50
"""Number of unknown names that are checked for misspellings."""


class _PublishedSchema(GenerateJsonSchema):
    """Schemas without titles, class docstrings and nulls: nullable fields are optional."""

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
    """The JSON body of a route, or the arguments of a tool."""

    model_config = ConfigDict(strict=True, frozen=True)

    @classmethod
    def read(cls, document: object, perimeter: Perimeter = PUBLIC) -> Self:
        """Validate a parsed body; URLs must be inside `perimeter`. Raises Problem 422."""
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
        """Return the published JSON Schema of the request, without references."""
        schema = cls.model_json_schema(schema_generator=_PublishedSchema)
        definitions = schema.pop("$defs", {})
        for field in schema.get("properties", {}).values():
            if "$ref" in field:
                field |= definitions[field.pop("$ref").rpartition("/")[2]]
        return schema

    @classmethod
    def check_names(cls, document: Mapping[str, Any]) -> None:
        """Reject misspelled and misplaced fields. Raises Problem 422.

        If they were ignored, the caller would pay for a different response than intended.
        """
        known: Mapping[str, Any] = cls.json_schema().get("properties", {})
        inside = {name: parent for parent in known for name in known[parent].get("properties", ())}
        open_names = {_plain(name): name for name in known if name not in document}
        for name in islice((name for name in document if name not in known), _UNKNOWN_MAX):
            if name in inside:
                raise _unknown_field(name, f"it belongs inside {inside[name]}.")
            near = get_close_matches(
                _plain(name[:_NAME_MAX]), open_names, n=1, cutoff=_SIMILARITY_MIN
            )
            if near:
                raise _unknown_field(name, f"did you mean {open_names[near[0]]}?")

    @classmethod
    def read_query(cls, query: Mapping[str, str]) -> Self:
        """Validate a query string; numbers are parsed as in JSON. Raises Problem 422."""
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
        """Describe the fields as query parameters, for OpenAPI.

        Args:
            examples: Examples by parameter.
            renamed: Fields with another name in the query string.
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
        """Describe the request body, for OpenAPI."""
        body = openapi.body(cls.json_schema(), example, required=required)
        return body | {"description": UNKNOWN_FIELDS}


def read_resource(value: object, perimeter: Perimeter, *, path: str = "resource") -> Resource:
    """Parse the resource in a field of a request. Raises Problem 422."""
    if value is None:
        raise invalid(path, "The resource is missing.")
    try:
        return parse_resource(value, perimeter)
    except ResourceError as error:
        detail, errors = f"{error} {error.hint}", (Invalid(path=path, message=str(error)),)
        raise Problem(422, error.code, detail, errors=errors) from error


def invalid(path: str, message: str) -> Problem:
    """Return Problem 422 about one field."""
    return Problem(422, "invalid-input", message, errors=(Invalid(path=path, message=message),))


def refuse(problem: Problem) -> NoReturn:
    """Reject a field in its validator; the paths of the problem are relative to the field."""
    raise PydanticCustomError("refused", "refused", {"problem": problem})


def without_fraction(value: object) -> object:
    """Convert an integral float (5.0) to an int; a validator."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _resource(value: object, info: ValidationInfo[Perimeter]) -> Resource:
    try:
        return read_resource(value, info.context, path="")
    except Problem as problem:
        refuse(problem)


ENDPOINT_URL: Final = "Full https:// URL of the endpoint, as listed in discovery"
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


def _reject_a2a(resource: Resource) -> Resource:
    if transport_of(resource.url) is Transport.A2A:
        text = "A2A agents are listed and not checked. Send an HTTP endpoint or an MCP tool."
        refuse(invalid("", text))
    return resource


ProbedResource = Annotated[RequestedResource, AfterValidator(_reject_a2a)]
"""A resource that can be probed."""


def _network(text: str) -> str:
    network = LEGACY_NETWORKS.get(text.lower(), text)
    if not CAIP2_PATTERN.fullmatch(network):
        refuse(invalid("", "network must be a CAIP-2 ID such as eip155:8453, or a name like base."))
    return network


NETWORK: Final = "Payment network: a CAIP-2 ID, or a name such as base"
RequestedNetwork = Annotated[str, Field(max_length=64), AfterValidator(_network)]
"""A network by its CAIP-2 id."""


def _problem(schema: Mapping[str, Any], error: ValidationError) -> Problem:
    """Convert a validation error to Problem 422; its detail is that of the first error."""
    refused = [_refusal(schema, row) for row in error.errors(include_url=False)]
    errors = tuple(part for problem in refused for part in problem.errors)
    first = refused[0]
    return Problem(422, first.code, str(first), errors=errors, extra=first.extra)


def _refusal(schema: Mapping[str, Any], row: ErrorDetails) -> Problem:
    """Convert one error: the problem of a validator, or the requirement of the schema."""
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
    return invalid(path, f"{path} must be {_describe_values(field)}.")


def _describe_values(field: Mapping[str, Any]) -> str:
    """Describe the values that a field accepts."""
    match field:
        case {"enum": [*values]}:
            return f"one of {', '.join(map(str, values))}"
        case {"type": "integer" | "number" as kind, "minimum": least, "maximum": most}:
            return f"a {'whole ' if kind == 'integer' else ''}number from {least} to {most}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "array"}:
            return "a non-empty list" if field.get("minItems") else "a list"
        case {"type": "object"}:
            return "an object"
        case {"pattern": pattern}:
            return f"a string that matches {pattern}"
    return "a string"


def _number(text: str) -> object:
    """Parse a number; return other text unchanged, so that the model rejects it."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if type(value) in (int, float) else text


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _unknown_field(name: str, hint: str) -> Problem:
    shown = clean_text(name, limit=_NAME_MAX)
    message = f"Unknown field {shown}: {hint}"
    return Problem(
        422,
        "unknown-field",
        f"{message} Nothing was charged.",
        errors=(Invalid(path=shown, message=message),),
        extra={"notCharged": True},
    )
