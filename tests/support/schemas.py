"""Comparison of answers with the published schemas of their models."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tollgauge.web.wire.response_model import ResponseModel


@cache
def _validator(model: type[ResponseModel]) -> Draft202012Validator:
    return Draft202012Validator(model.model_json_schema(mode="serialization"))


def check_answer(model: type[ResponseModel], answer: Any) -> None:
    """Fail if an answer does not match the published schema of its model."""
    _validator(model).validate(answer)
