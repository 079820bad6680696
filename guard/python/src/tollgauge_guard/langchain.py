"""LangChain and LangGraph: the tools of an agent with a paying tool that the guard controls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.tools import StructuredTool

from tollgauge_guard.paid_tool import (
    DESCRIPTION,
    NAME,
    PaidRequest,
    PaidTool,
    refuse_other_payers,
)


def langchain_tools(http: Any, tools: Iterable[Any] = ()) -> list[Any]:
    """Return the tools of an agent and the paying tool.

    Args:
        http: what `guarded` returned. An `x402ClientSync` serves `invoke` and `ainvoke`, an
            `x402Client` only `ainvoke`.
        tools: the other tools of the agent.

    Raises:
        GuardError: one of the other tools pays by x402 itself.
    """
    paid = PaidTool(http)

    async def call(**arguments: Any) -> dict[str, object]:
        return await paid.call(PaidRequest(**arguments))

    def call_sync(**arguments: Any) -> dict[str, object]:
        return paid.call_sync(PaidRequest(**arguments))

    tool = StructuredTool.from_function(
        func=call_sync,
        coroutine=call,
        name=NAME,
        description=DESCRIPTION,
        args_schema=PaidRequest,
    )
    return [*refuse_other_payers(tools), tool]
