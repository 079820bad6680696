"""The adapter for CrewAI, in a crew of the framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Task
from crewai.tools.base_tool import Tool
from shared_tests import *  # noqa: F403  # the tests of every adapter
from shared_tests import Adapter, http, seller
from world import Seller, guard_options
from x402 import x402Client

from tollgauge_guard import GuardError, guarded
from tollgauge_guard.crewai import crewai_tools
from tollgauge_guard.paid_tool import PaidRequest

__all__ = ["adapter", "http", "seller"]


def run(tools: list[Any], url: str) -> None:
    llm = LLM(model="openai/gpt-4.1-mini", base_url=url, api_key="none")
    buyer = Agent(role="Buyer", goal="Buy", backstory="You buy.", llm=llm, tools=tools)
    Crew(
        agents=[buyer], tasks=[Task(description="Buy.", expected_output="-", agent=buyer)]
    ).kickoff()


def call(tool: Any, arguments: dict[str, Any]) -> Any:
    return tool.to_structured_tool().invoke(arguments)


def other(name: str) -> Any:
    def echo(**arguments: Any) -> str:
        return str(arguments)

    return Tool(name=name, description="another tool", args_schema=PaidRequest, func=echo)


@pytest.fixture
def adapter() -> Adapter:
    return Adapter(crewai_tools, run, call, other, "crewai_crew.py")


def test_asynchronous_client_is_rejected(seller: Seller, tmp_path: Path) -> None:
    http = guarded(x402Client(), **guard_options(tmp_path, seller.url))
    with pytest.raises(GuardError, match="synchronous client"):
        crewai_tools(http)
