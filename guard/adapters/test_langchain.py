"""The adapter for LangChain and LangGraph, in an agent of the framework."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from shared_tests import *  # noqa: F403  # the tests of every adapter
from shared_tests import Adapter, http, seller
from world import Seller, scripted_model

from tollgauge_guard.langchain import langchain_tools

__all__ = ["adapter", "http", "seller"]


def agent_of(tools: list[Any], url: str) -> Any:
    return create_agent(ChatOpenAI(model="scripted", base_url=url, api_key="none"), tools)


def run(tools: list[Any], url: str) -> None:
    agent_of(tools, url).invoke({"messages": [("user", "Buy.")]})


def call(tool: Any, arguments: dict[str, Any]) -> Any:
    return tool.invoke(arguments)


def other(name: str) -> Any:
    return StructuredTool.from_function(lambda a: a, name=name, description="another tool")


@pytest.fixture
def adapter() -> Adapter:
    return Adapter(langchain_tools, run, call, other, "langchain_agent.py")


def test_asynchronous_agent_pays(adapter: Adapter, seller: Seller, http: Any) -> None:
    with scripted_model([{"url": f"{seller.url}/good"}]) as model:
        agent = agent_of(adapter.tools(http), model.url)
        asyncio.run(agent.ainvoke({"messages": [("user", "Buy.")]}))
    assert [path for path, _ in seller.payments] == ["/good"]
