"""CrewAI: the tools of an agent with a paying tool that the guard controls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from crewai.tools.base_tool import Tool

from tollgauge_guard.errors import GuardError
from tollgauge_guard.paid_tool import (
    DESCRIPTION,
    NAME,
    PaidRequest,
    PaidTool,
    refuse_other_payers,
)


def crewai_tools(http: Any, tools: Iterable[Any] = ()) -> list[Any]:
    """Return the tools of an agent and the paying tool.

    Args:
        http: what `guarded` returned for an `x402ClientSync`: CrewAI calls tools synchronously.
        tools: the other tools of the agent.

    Raises:
        GuardError: the client is asynchronous, or one of the other tools pays by x402 itself.
    """
    paid = PaidTool(http)
    if paid.is_async:
        raise GuardError("CrewAI needs a synchronous client.", hint="guarded(x402ClientSync(), …)")

    def call(**arguments: Any) -> str:
        return json.dumps(paid.call_sync(PaidRequest(**arguments)))

    tool = Tool(name=NAME, description=DESCRIPTION, args_schema=PaidRequest, func=call)
    return [*refuse_other_payers(tools), tool]
