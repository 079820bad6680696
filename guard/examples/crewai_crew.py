"""A CrewAI crew that buys with a guard (its argument: a question)"""
# in a checkout of tollgauge: pip install './guard/python[evm,requests]' crewai

import os
import sys

from crewai import LLM, Agent, Crew, Task
from eth_account import Account
from x402 import x402ClientSync
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard import CENT, Policy, guarded
from tollgauge_guard.crewai import crewai_tools

client = x402ClientSync()
register_exact_evm_client(client, Account.from_key(os.environ["PRIVATE_KEY"]))
http = guarded(
    client,
    bundle=os.environ["TOLLGAUGE_GUARD_BUNDLE"],
    key=os.environ["TOLLGAUGE_GUARD_KEY"],
    policy=Policy(max_call=5 * CENT, max_day=100 * CENT),
)
buyer = Agent(
    role="Buyer",
    goal="Answer questions with data from paid endpoints",
    backstory="You buy data.",
    llm=LLM(model=os.environ.get("MODEL", "openai/gpt-4.1-mini")),
    tools=crewai_tools(http),
)
task = Task(description=sys.argv[1], expected_output="an answer", agent=buyer)
print(Crew(agents=[buyer], tasks=[task]).kickoff())
for payment in http.guard.journal.payments():
    print(f"paid {payment.amount} for {payment.resource}: {payment.state}")
