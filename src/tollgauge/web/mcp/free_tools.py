"""The free tools: their schemas and handlers. Their texts are in free_tools.toml.

Names, texts and schemas are static, because an agent reads them as instructions: they
contain no text of providers and no configuration. The tools of a watch's owner take the secret as
an argument, because a client cannot set a header for one call; arguments are never logged.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from tollgauge.monitor import ranking
from tollgauge.store.watches.watches import Watch
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import build_leaderboard, build_samples, build_statistics
from tollgauge.web.free.endpoint_lists import SearchRequest, build_results
from tollgauge.web.free.lint import CAPTURE_TEXT, Capture, lint_captured
from tollgauge.web.free.preflight import PreflightRequest, PreflightResponse, judge
from tollgauge.web.mcp.output_schema import Schema, of_model
from tollgauge.web.watches.edit import EditRequest, StateResponse, change, end
from tollgauge.web.watches.poll import CURSOR, PollResponse, read_events
from tollgauge.web.watches.watch_secret import own_watch
from tollgauge.web.wire import lists
from tollgauge.web.wire.lint_answers import LintResponse, brief
from tollgauge.web.wire.request_model import RequestModel
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.snapshots import LeaderboardResponse
from tollgauge.web.wire.statistics_answers import EcosystemResponse, brief_ecosystem
from tollgauge.web.wire.trust import PreviewResponse, outline
from tollgauge.web.wire.watch_models import ID_PATTERN

_Cursor = Annotated[str, Field(json_schema_extra={"pattern": f"^{CURSOR.pattern}$"})]


class LeaderboardArguments(RequestModel):
    """The arguments of the leaderboard."""

    limit: Annotated[int, Field(ge=1, le=ranking.SIZE)] = Field(
        10, description="Maximum number of endpoints, best first"
    )


class LintArguments(RequestModel):
    """The arguments of the linter."""

    capture: Capture = Field(description=CAPTURE_TEXT)


class OwnerArguments(RequestModel):
    """A watch and the secret of its owner."""

    watch_id: str = Field(description="ID of the watch", json_schema_extra={"pattern": ID_PATTERN})
    secret: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Secret of the watch, returned once when it was bought",
    )


class PollArguments(OwnerArguments):
    """The arguments of the poll."""

    since: _Cursor = Field("0", description="`next_cursor` of the previous poll")
    watch_since: _Cursor = Field("0", description="`watch_events_cursor` of the previous poll")


class EditArguments(EditRequest, OwnerArguments):
    """The arguments of an edit."""

    model_config = ConfigDict(json_schema_extra=None)


_FOUND: Final[Schema] = {
    "type": "object",
    "required": ["match", "results"],
    "properties": {
        "match": {"type": "string"},
        "results": {
            "type": "array",
            "items": {"type": "object", "required": list(lists.BRIEF)},
        },
        "leftOut": {"type": "integer"},
    },
}
_LINT_FIELDS: Final = (
    "payable",
    "payableBy",
    "compliant",
    "version",
    "findings",
    "terms",
    "corrected",
)


_LIMITS: Final = {"site_rows": ranking.SITE_ROWS, "size": ranking.SIZE}
"""The numbers in descriptions."""
_TEXTS: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    resources.files(__package__).joinpath("free_tools.toml").read_text(encoding="utf-8")
)
"""The texts of the tools, and whether a tool changes anything."""
Answer = Callable[[Dependencies, Mapping[str, Any]], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeTool:
    """A free tool: texts, schemas and handler. `answer` raises Problem."""

    name: str
    title: str
    description: str
    arguments: Mapping[str, Any]
    output: Schema
    answer: Answer
    read_only: bool = True
    destructive: bool = False


TOOLS: Final[dict[str, FreeTool]] = {}
"""The free tools by name, in the order of the list."""


def _tool(
    name: str, request: type[RequestModel] | None, output: Schema
) -> Callable[[Answer], Answer]:
    """Declare a tool at its handler; `request` is None for a tool without arguments."""
    no_arguments = {"type": "object", "properties": {}, "additionalProperties": False}

    def declare(answer: Answer) -> Answer:
        texts = _TEXTS[name]
        TOOLS[name] = FreeTool(
            name=name,
            arguments=no_arguments if request is None else request.json_schema(),
            output=output,
            answer=answer,
            **texts | {"description": texts["description"].format(**_LIMITS)},
        )
        return answer

    return declare


@_tool("x402_trust_leaderboard", LeaderboardArguments, of_model(LeaderboardResponse))
async def _leaderboard(service: Dependencies, arguments: Mapping[str, Any]) -> bytes:
    limit = LeaderboardArguments.read(arguments).limit
    board = await build_leaderboard(service)
    return dump(board.model_copy(update={"endpoints": board.endpoints[:limit]}))


@_tool("x402_trust_preview", None, of_model(PreviewResponse))
async def _preview(service: Dependencies, _arguments: Mapping[str, Any]) -> bytes:
    return outline(await build_samples(service))


@_tool("x402_ecosystem_stats", None, of_model(EcosystemResponse))
async def _stats(service: Dependencies, _arguments: Mapping[str, Any]) -> bytes:
    return dump(brief_ecosystem(await build_statistics(service)))


@_tool("x402_semantic_search", SearchRequest, _FOUND)
async def _search(service: Dependencies, arguments: Mapping[str, Any]) -> bytes:
    request = SearchRequest.read(arguments)
    return lists.brief_search(await build_results(service, request), limit=request.limit)


@_tool("x402_preflight", PreflightRequest, of_model(PreflightResponse))
async def _preflight(service: Dependencies, arguments: Mapping[str, Any]) -> bytes:
    return dump(await judge(service, arguments))


@_tool("x402_lint", LintArguments, of_model(LintResponse, *_LINT_FIELDS))
async def _lint(service: Dependencies, arguments: Mapping[str, Any]) -> bytes:
    return brief(await lint_captured(service, LintArguments.read(arguments).capture))


@_tool("x402_watch_events", PollArguments, of_model(PollResponse))
async def _poll(service: Dependencies, arguments: Mapping[str, Any]) -> bytes:
    with _without_header():
        poll = PollArguments.read(arguments)
        cursors = {"since": poll.since, "watch_since": poll.watch_since}
        return dump(await read_events(service, poll.watch_id, poll.secret, **cursors))


@_tool("x402_watch_edit", EditArguments, of_model(StateResponse))
async def _edit(service: Dependencies, arguments: Mapping[str, Any]) -> bytes:
    owners = OwnerArguments.model_fields
    changes = {name: value for name, value in arguments.items() if name not in owners}
    watch, secret = await _authenticate(service, arguments)
    return dump(await change(service, watch, secret, changes))


@_tool("x402_watch_cancel", OwnerArguments, of_model(StateResponse))
async def _cancel(service: Dependencies, arguments: Mapping[str, Any]) -> bytes:
    watch, _ = await _authenticate(service, arguments)
    return dump(await end(service, watch))


async def _authenticate(service: Dependencies, arguments: Mapping[str, Any]) -> tuple[Watch, str]:
    """Return the watch and the secret that the arguments name. Raises Problem."""
    with _without_header():
        owner = OwnerArguments.read(arguments)
        return await own_watch(service, owner.watch_id, owner.secret), owner.secret


@contextlib.contextmanager
def _without_header() -> Iterator[None]:
    """Report a rejected secret in terms of the arguments, because a tool has no header."""
    try:
        yield
    except Problem as problem:
        if problem.status == 401 or any(error.path == "secret" for error in problem.errors):
            message = "Invalid secret. Pass `watch_id` and `secret` from the purchase answer."
            raise Problem(401, "unauthorized", message) from problem
        raise
