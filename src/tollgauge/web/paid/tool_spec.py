"""How agents buy a product: the tool's name and texts, and how a long answer is shown in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tollgauge.web.wire.request_model import RequestModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A long answer in short, for agents: `head` gives the fields of the first page about the whole
    answer, `rows` a table with these `columns`. `lists` are the lists of the answer whose rows an
    agent can ask for as they are over HTTP.
    """

    lists: tuple[str, ...]
    columns: tuple[str, ...]
    head: Callable[[Mapping[str, Any]], dict[str, Any]]
    rows: Callable[[Mapping[str, Any]], Sequence[Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A product as a tool. `title`, `description` and `example` default to those of the product;
    `request` is the model of the arguments where it is not that of the route's body.
    """

    name: str
    title: str = ""
    description: str = ""
    request: type[RequestModel] | None = None
    example: Mapping[str, Any] | None = None
    brief: Brief | None = None
