"""OpenAI Agents SDK: the tools of an agent with a paying tool that the guard controls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agents import FunctionTool
from pydantic import ValidationError

from tollgauge_guard.paid_tool import (
    DESCRIPTION,
    NAME,
    PaidRequest,
    PaidTool,
    refuse_other_payers,
)


def openai_agents_tools(http: Any, tools: Iterable[Any] = ()) -> list[Any]:
    """Return the tools of an agent and the paying tool.

    Args:
        http: what `guarded` returned.
        tools: the other tools of the agent.

    Raises:
        GuardError: one of the other tools pays by x402 itself.
    """
    paid = PaidTool(http)

    async def call(_context: Any, arguments: str) -> str:
        try:
            request = PaidRequest.model_validate_json(arguments or "{}")
        except ValidationError as error:
            return json.dumps({"error": "invalid-request", "message": error.errors()[0]["msg"]})
        return json.dumps(await paid.call(request))

    tool = FunctionTool(
        name=NAME,
        description=DESCRIPTION,
        params_json_schema=PaidRequest.model_json_schema(),
        on_invoke_tool=call,
        strict_json_schema=False,  # headers are an open map
    )
    return [*refuse_other_payers(tools), tool]
