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
from functools import cache
from importlib import resources
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from tollgauge.monitor import ranking
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
Answer = Callable[[Mapping[str, Any]], Awaitable[bytes]]


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


@cache
def _texts() -> dict[str, dict[str, Any]]:
    """Read the texts of the tools, and whether a tool changes anything."""
    text = resources.files(__package__).joinpath("free_tools.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _tool(
    name: str, request: type[RequestModel] | None, output: Schema, answer: Answer
) -> FreeTool:
    """Return a tool with its texts; `request` is None for a tool without arguments."""
    texts = _texts()[name]
    no_arguments = {"type": "object", "properties": {}, "additionalProperties": False}
    return FreeTool(
        name=name,
        arguments=no_arguments if request is None else request.json_schema(),
        output=output,
        answer=answer,
        **texts | {"description": texts["description"].format(**_LIMITS)},
    )


@dataclass(frozen=True, slots=True)
class FreeTools:
    """The free tools of a service."""

    dependencies: Dependencies

    def all(self) -> tuple[FreeTool, ...]:
        """Return the free tools in the order of the list."""
        board, state = of_model(LeaderboardResponse), of_model(StateResponse)
        linted = of_model(LintResponse, *_LINT_FIELDS)
        return (
            _tool("x402_trust_leaderboard", LeaderboardArguments, board, self._leaderboard),
            _tool("x402_trust_preview", None, of_model(PreviewResponse), self._preview),
            _tool("x402_ecosystem_stats", None, of_model(EcosystemResponse), self._stats),
            _tool("x402_semantic_search", SearchRequest, _FOUND, self._search),
            _tool("x402_preflight", PreflightRequest, of_model(PreflightResponse), self._preflight),
            _tool("x402_lint", LintArguments, linted, self._lint),
            _tool("x402_watch_events", PollArguments, of_model(PollResponse), self._poll),
            _tool("x402_watch_edit", EditArguments, state, self._edit),
            _tool("x402_watch_cancel", OwnerArguments, state, self._cancel),
        )

    async def _leaderboard(self, arguments: Mapping[str, Any]) -> bytes:
        limit = LeaderboardArguments.read(arguments).limit
        board = await build_leaderboard(self.dependencies)
        return dump(board.model_copy(update={"endpoints": board.endpoints[:limit]}))

    async def _preview(self, _arguments: Mapping[str, Any]) -> bytes:
        return outline(await build_samples(self.dependencies))

    async def _stats(self, _arguments: Mapping[str, Any]) -> bytes:
        return dump(brief_ecosystem(await build_statistics(self.dependencies)))

    async def _search(self, arguments: Mapping[str, Any]) -> bytes:
        request = SearchRequest.read(arguments)
        found = await build_results(self.dependencies, request)
        return lists.brief_search(found, limit=request.limit)

    async def _preflight(self, arguments: Mapping[str, Any]) -> bytes:
        return dump(await judge(self.dependencies, arguments))

    async def _lint(self, arguments: Mapping[str, Any]) -> bytes:
        capture = LintArguments.read(arguments).capture
        return brief(await lint_captured(self.dependencies, capture))

    async def _poll(self, arguments: Mapping[str, Any]) -> bytes:
        with _without_header():
            poll = PollArguments.read(arguments)
            events = await read_events(
                self.dependencies,
                poll.watch_id,
                poll.secret,
                since=poll.since,
                watch_since=poll.watch_since,
            )
        return events.model_dump_json().encode()

    async def _edit(self, arguments: Mapping[str, Any]) -> bytes:
        owners = OwnerArguments.model_fields
        changes = {name: value for name, value in arguments.items() if name not in owners}
        with _without_header():
            owner = OwnerArguments.read(arguments)
            watch = await own_watch(self.dependencies, owner.watch_id, owner.secret)
        state = await change(self.dependencies, watch, owner.secret, changes)
        return state.model_dump_json().encode()

    async def _cancel(self, arguments: Mapping[str, Any]) -> bytes:
        with _without_header():
            owner = OwnerArguments.read(arguments)
            watch = await own_watch(self.dependencies, owner.watch_id, owner.secret)
        return (await end(self.dependencies, watch)).model_dump_json().encode()


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
