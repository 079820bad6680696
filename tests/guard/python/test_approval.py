"""Approval: the owner's function, the queue with the approver's key, and MCP elicitation."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from guard.cases.sample_bundle import Row
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ElicitResult
from tests.support.guard_seller import Seller
from x402 import x402Client

from tollgauge_guard import (
    Code,
    GuardedClient,
    GuardError,
    PaymentRefusedError,
    guarded,
)
from tollgauge_guard.approval import (
    VALID_S,
    Approval,
    answer_question,
    list_questions,
    new_key,
)
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.cli_journal import APPROVER_KEY
from tollgauge_guard.mcp_client import Elicitation

SECRET, PUBLIC = new_key()
Open = Callable[..., GuardedClient]


@pytest.fixture
def opened(
    seller: Seller,
    payer: x402Client,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
    tmp_path: Path,
) -> Open:
    def make(**options: Any) -> GuardedClient:
        bundle = FixedBundle(bundle_of({f"{seller.url}/data": known("caution")}))
        journal, transport = tmp_path / "journal.sqlite", httpx.AsyncHTTPTransport(verify=False)
        return guarded(payer, bundle=bundle, journal=journal, transport=transport, **options)

    return make


async def read_refusal(http: GuardedClient, url: str) -> Code:
    with pytest.raises(PaymentRefusedError) as caught:
        await http.get(url)
    return caught.value.code


def only_question(http: GuardedClient) -> Approval:
    (question,) = list_questions(http.guard.journal.file, int(time.time()))
    return question


async def test_approved_offer_is_paid_once(seller: Seller, opened: Open) -> None:
    async with opened(approver=PUBLIC) as http:
        for _ in range(2):  # the question is not asked twice
            assert await read_refusal(http, f"{seller.url}/data") == Code.CAUTION
        question = only_question(http)
        assert question.prompt.startswith("Pay $0.005 to 0x")
        answer_question(http.guard.journal.file, question, allow=True, secret=SECRET)
        assert (await http.get(f"{seller.url}/data")).status_code == 200
        assert await read_refusal(http, f"{seller.url}/data") == Code.CAUTION
    assert len(seller.payments) == 1


async def test_approval_is_for_one_offer(seller: Seller, opened: Open) -> None:
    async with opened(approver=PUBLIC) as http:
        await read_refusal(http, f"{seller.url}/data")
        answer_question(http.guard.journal.file, only_question(http), allow=True, secret=SECRET)
        seller.amount = "5001"
        assert await read_refusal(http, f"{seller.url}/data") == Code.CAUTION
    assert not seller.payments


async def test_refusing_answer_refuses_the_payment(seller: Seller, opened: Open) -> None:
    async with opened(approver=PUBLIC) as http:
        await read_refusal(http, f"{seller.url}/data")
        answer_question(http.guard.journal.file, only_question(http), allow=False, secret=SECRET)
        assert await read_refusal(http, f"{seller.url}/data") == Code.CAUTION
    assert not seller.payments


async def test_approval_expires(seller: Seller, opened: Open) -> None:
    async with opened(approver=PUBLIC) as http:
        await read_refusal(http, f"{seller.url}/data")
        answer_question(http.guard.journal.file, only_question(http), allow=True, secret=SECRET)
        later = time.time() + VALID_S + 1
        http.guard.clock = lambda: later
        assert await read_refusal(http, f"{seller.url}/data") == Code.CAUTION


@pytest.mark.parametrize("how", ["another key", "written by the agent", "changed code"])
async def test_only_the_approver_s_signature_counts(
    seller: Seller, opened: Open, tmp_path: Path, how: str
) -> None:
    async with opened(approver=PUBLIC) as http:
        await read_refusal(http, f"{seller.url}/data")
        secret = new_key()[0] if how == "another key" else SECRET
        question = only_question(http)
        answer_question(http.guard.journal.file, question, allow=True, secret=secret)
        with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite")) as rows, rows:
            if how == "written by the agent":
                rows.execute("UPDATE approvals SET signature = 'AAAA'")
            if how == "changed code":
                rows.execute("UPDATE approvals SET expires_at = expires_at + 1000")
        assert await read_refusal(http, f"{seller.url}/data") == Code.CAUTION
    assert not seller.payments


async def test_owner_s_function_comes_before_the_queue(seller: Seller, opened: Open) -> None:
    async with opened(approver=PUBLIC, ask=lambda _question, _url: False) as http:
        await read_refusal(http, f"{seller.url}/data")
        assert list_questions(http.guard.journal.file, int(time.time())) == ()


def test_unreadable_key_is_an_error(opened: Open) -> None:
    with pytest.raises(GuardError, match="public key cannot be read"):
        opened(approver="x")


async def test_command_answers_the_questions(
    seller: Seller,
    opened: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tollgauge_guard import cli

    words = ["approve", "--journal", str(tmp_path / "journal.sqlite")]
    async with opened(approver=PUBLIC) as http:
        await read_refusal(http, f"{seller.url}/data")
        assert cli.main(words) == 2
        assert f"{APPROVER_KEY} is not set" in capsys.readouterr().err
        monkeypatch.setenv(APPROVER_KEY, SECRET)
        assert cli.main([*words, "--list"]) == 0
        monkeypatch.setattr("builtins.input", lambda _prompt: "y")
        assert cli.main(words) == 0
        assert "caution: The service recommends caution." in capsys.readouterr().out
        assert (await http.get(f"{seller.url}/data")).status_code == 200
        assert cli.main(words) == 0
        assert "No question waits." in capsys.readouterr().out


@pytest.mark.parametrize("answer", ["yes", "no", "decline", "not declared"])
async def test_mcp_client_requests_consent_of_its_user(
    seller: Seller, opened: Open, answer: str
) -> None:
    elicitation, asked = Elicitation(), list[str]()
    agent = MCPServer("agent")

    @agent.tool(name="buy")
    async def buy(ctx: Context[Any]) -> str:
        async with opened(ask=elicitation) as http:
            with elicitation.during(ctx):
                try:
                    return str((await http.get(f"{seller.url}/data")).status_code)
                except PaymentRefusedError as error:
                    return str(error.code)

    async def respond(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        if answer == "decline":
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"allow": answer == "yes"})

    callback: Any = None if answer == "not declared" else respond
    # Elicitation during a call exists in the versions with a handshake.
    async with Client(agent, elicitation_callback=callback, mode="legacy") as session:
        result = await session.call_tool("buy", {})
    said = result.model_dump_json()
    assert ("200" in said) == (answer == "yes")
    assert len(asked) == (answer != "not declared")
    assert len(seller.payments) == (answer == "yes")
