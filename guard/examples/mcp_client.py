"""Calls paid tools of an MCP server, guarded (its arguments: URL TOOL ARGUMENTS …)"""
# in a checkout of tollgauge: pip install './guard/python[evm,mcp]'

import asyncio
import json
import os
import sys

from eth_account import Account
from mcp import Client
from x402 import x402Client
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard import PaymentRefusedError, open_guard
from tollgauge_guard.mcp_client import GuardedTools


async def main() -> None:
    """Call each tool with its arguments (JSON), and print payments and refusals."""
    url, *calls = sys.argv[1:]
    payer = x402Client()
    register_exact_evm_client(payer, Account.from_key(os.environ["PRIVATE_KEY"]))
    bundle, key = os.environ["TOLLGAUGE_GUARD_BUNDLE"], os.environ["TOLLGAUGE_GUARD_KEY"]
    guard = open_guard(bundle=bundle, key=key)
    async with Client(url) as session:
        tools = GuardedTools(guard, payer, session, url=url)
        for name, arguments in zip(calls[::2], calls[1::2], strict=True):
            try:
                result = await tools.call_tool(name, json.loads(arguments))
            except PaymentRefusedError as error:
                print(f"refused {name}: {error}")
            else:
                print(f"{name}: {result.model_dump_json(exclude_none=True)}")
    for payment in guard.journal.payments():
        print(f"paid {payment.amount} to {payment.pay_to} for {payment.resource}: {payment.state}")


asyncio.run(main())
