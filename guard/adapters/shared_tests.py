"""The tests that every Python adapter passes; a module for one framework supplies `Adapter`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from hostile import FILE, list_calls
from world import (
    PRIVATE_KEY,
    Seller,
    assert_safe,
    guard_options,
    run_seller,
    scripted_model,
    write_bundle,
)
from x402 import x402Client, x402ClientSync
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard import GuardError, State, guarded

HERE = Path(__file__).parent
ACCOUNT = Account.from_key(PRIVATE_KEY)


@dataclass(frozen=True)
class Adapter:
    """What differs between frameworks.

    `tools(http, others)` is the function under test, `run(tools, url)` an agent whose model is at
    this URL, `call(tool, arguments)` one call of the tool as the framework makes it, `other(name)`
    a tool of the framework with this name.
    """

    tools: Callable[..., list[Any]]
    run: Callable[[list[Any], str], None]
    call: Callable[[Any, dict[str, Any]], Any]
    other: Callable[[str], Any]
    example: str
    is_async: bool = False


@pytest.fixture
def seller() -> Iterator[Seller]:
    with run_seller() as running:
        yield running


@pytest.fixture
def http(adapter: Adapter, seller: Seller, tmp_path: Path) -> Any:
    payer = x402Client() if adapter.is_async else x402ClientSync()
    return guarded(register_exact_evm_client(payer, ACCOUNT), **guard_options(tmp_path, seller.url))


def test_agent_pays_a_good_endpoint_and_is_refused_at_a_bad_one(
    adapter: Adapter, seller: Seller, http: Any
) -> None:
    calls = [{"url": f"{seller.url}/good"}, {"url": f"{seller.url}/bad"}]
    with scripted_model(calls) as model:
        adapter.run(adapter.tools(http), model.url)
    assert [path for path, _ in seller.payments] == ["/good"]
    paid, refused = model.results
    assert "sunny" in paid
    assert "payment-refused" in refused
    assert "avoid" in refused
    assert_safe(paid + refused)
    (payment,) = http.guard.journal.payments()
    assert (payment.amount, payment.state) == (5_000, State.DELIVERED)


def test_model_sees_four_parameters(adapter: Adapter, http: Any) -> None:
    with scripted_model([]) as model:
        adapter.run(adapter.tools(http), model.url)
    (tool,) = model.seen[0]["tools"]
    parameters = tool["function"]["parameters"]
    assert set(parameters["properties"]) == {"url", "method", "headers", "body"}


def test_no_argument_changes_a_decision(adapter: Adapter, seller: Seller, http: Any) -> None:
    calls = json.loads(FILE.read_text().replace("ORIGIN", seller.url))
    assert len(calls) == 200
    policy = http.guard.policy
    tool = adapter.tools(http)[-1]
    for arguments in calls:
        try:
            result = adapter.call(tool, arguments)
        except Exception as error:  # noqa: BLE001  # the framework's own validation
            assert not isinstance(error, GuardError), arguments
            continue
        assert_safe(str(result).replace("x402", ""))
    assert seller.payments == []
    assert http.guard.journal.payments() == ()
    assert http.guard.policy is policy
    assert "sunny" in str(adapter.call(tool, {"url": f"{seller.url}/good"}))


def test_unresolved_payment_reaches_the_model_as_data(
    adapter: Adapter, seller: Seller, http: Any
) -> None:
    tool = adapter.tools(http)[-1]
    adapter.call(tool, {"url": f"{seller.url}/good"})
    (payment,) = http.guard.journal.payments()
    seller.fails = True
    first = str(adapter.call(tool, {"url": f"{seller.url}/good?n=1"}))
    seller.moves = True
    second = str(adapter.call(tool, {"url": f"{seller.url}/good?n=1"}))
    assert "500" in first
    assert "payment-unresolved" in second
    assert_safe(first + second)
    assert len(http.guard.journal.payments()) == 2
    assert payment.state is State.DELIVERED


@pytest.mark.parametrize("name", ["make_http_request_with_x402", "retry_with_x402", "pay_402"])
def test_another_tool_that_pays_is_rejected(adapter: Adapter, http: Any, name: str) -> None:
    with pytest.raises(GuardError, match="pays by x402"):
        adapter.tools(http, [adapter.other(name)])


def test_other_tools_are_kept(adapter: Adapter, http: Any) -> None:
    other = adapter.other("search")
    kept, paid = adapter.tools(http, [other])
    assert kept is other
    assert paid.name == "paid_request"
    with pytest.raises(GuardError, match="registered already"):
        adapter.tools(http, [paid])


def test_client_without_a_guard_is_rejected(adapter: Adapter) -> None:
    import requests

    with pytest.raises(GuardError, match="no guard"):
        adapter.tools(requests.Session())


def test_example_runs(adapter: Adapter, seller: Seller, tmp_path: Path) -> None:
    named = write_bundle(tmp_path, seller.url)
    with scripted_model([{"url": f"{seller.url}/good"}]) as model:
        environment = os.environ | named
        environment |= {"PRIVATE_KEY": PRIVATE_KEY, "HOME": str(tmp_path)}
        environment |= {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model.url}
        done = subprocess.run(
            [sys.executable, HERE.parent / "examples" / adapter.example, "How is the weather?"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "I have finished." in done.stdout
    assert f"paid 5000 for {seller.url}/good: delivered" in done.stdout
    assert [path for path, _ in seller.payments] == ["/good"]


def test_hostile_arguments_are_those_of_the_generator() -> None:
    assert json.loads(FILE.read_text()) == list_calls()
