"""A LangChain agent that buys with a guard (its argument: a question)"""
# in a checkout of tollgauge: pip install './guard/python[evm,requests]' langchain langchain-openai

import os
import sys

from eth_account import Account
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from x402 import x402ClientSync
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard import CENT, Policy, guarded
from tollgauge_guard.langchain import langchain_tools

client = x402ClientSync()
register_exact_evm_client(client, Account.from_key(os.environ["PRIVATE_KEY"]))
http = guarded(
    client,
    bundle=os.environ["TOLLGAUGE_GUARD_BUNDLE"],
    key=os.environ["TOLLGAUGE_GUARD_KEY"],
    policy=Policy(max_call=5 * CENT, max_day=100 * CENT),
)
model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-4.1-mini"))
agent = create_agent(model, langchain_tools(http))
answer = agent.invoke({"messages": [("user", sys.argv[1])]})
print(answer["messages"][-1].content)
for payment in http.guard.journal.payments():
    print(f"paid {payment.amount} for {payment.resource}: {payment.state}")
