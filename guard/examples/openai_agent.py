"""An agent of the OpenAI Agents SDK that buys with a guard (its argument: a question)"""
# in a checkout of tollgauge: pip install './guard/python[evm]' openai-agents

import asyncio
import os
import sys

from agents import Agent, Runner
from eth_account import Account
from x402 import x402Client
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard import CENT, Policy, guarded
from tollgauge_guard.openai_agents import openai_agents_tools

POLICY = Policy(max_call=5 * CENT, max_day=100 * CENT)


async def main() -> None:
    """Answer the question, and print the payments."""
    client = x402Client()
    register_exact_evm_client(client, Account.from_key(os.environ["PRIVATE_KEY"]))
    bundle, key = os.environ["TOLLGAUGE_GUARD_BUNDLE"], os.environ["TOLLGAUGE_GUARD_KEY"]
    async with guarded(client, bundle=bundle, key=key, policy=POLICY) as http:
        model = os.environ.get("MODEL", "gpt-4.1-mini")
        agent = Agent(name="Buyer", model=model, tools=openai_agents_tools(http))
        print((await Runner.run(agent, sys.argv[1])).final_output)
        for payment in http.guard.journal.payments():
            print(f"paid {payment.amount} for {payment.resource}: {payment.state}")


asyncio.run(main())
