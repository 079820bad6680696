"""The adapter for the OpenAI Agents SDK, in an agent of the framework."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents.tool_context import ToolContext
from openai import AsyncOpenAI
from shared_tests import *  # noqa: F403  # the tests of every adapter
from shared_tests import Adapter, http, seller

from tollgauge_guard.openai_agents import openai_agents_tools

__all__ = ["adapter", "http", "seller"]
set_tracing_disabled(True)


def run(tools: list[Any], url: str) -> None:
    client = AsyncOpenAI(base_url=url, api_key="none")
    model = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
    asyncio.run(Runner.run(Agent(name="Buyer", model=model, tools=tools), "Buy."))


def call(tool: Any, arguments: dict[str, Any]) -> Any:
    text = json.dumps(arguments)
    context = ToolContext(None, tool_name=tool.name, tool_call_id="1", tool_arguments=text)
    return asyncio.run(tool.on_invoke_tool(context, text))


def other(name: str) -> Any:
    def echo(a: str) -> str:
        """Return a text."""
        return a

    return function_tool(echo, name_override=name)


@pytest.fixture
def adapter() -> Adapter:
    return Adapter(openai_agents_tools, run, call, other, "openai_agent.py")
