"""An agent with ten cents a day that asks before it pays strangers (its arguments: URL …)"""
# in a checkout of tollgauge: pip install './guard/python[evm]'

import asyncio
import os
import sys

from eth_account import Account
from x402 import x402Client
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard import CENT, Ask, PaymentRefusedError, Policy, Unknown, guarded

POLICY = Policy(max_call=3 * CENT, max_host_day=5 * CENT, max_day=10 * CENT, unknown=Unknown.ASK)


def ask(question: Ask, url: str) -> bool:
    """Allow half a cent. A person could answer here."""
    agreed = question.terms.exposure <= CENT // 2
    print(f"asked about {url}: {question.reason} {'Yes.' if agreed else 'No.'}")
    return agreed


async def main() -> None:
    """Request each URL, and print payments and refusals."""
    client, env = x402Client(), os.environ
    register_exact_evm_client(client, Account.from_key(env["PRIVATE_KEY"]))
    bundle, key = env["TOLLGAUGE_GUARD_BUNDLE"], env["TOLLGAUGE_GUARD_KEY"]
    async with guarded(client, bundle=bundle, key=key, policy=POLICY, ask=ask) as http:
        for url in sys.argv[1:]:
            try:
                print(f"paid {url}: {(await http.get(url)).text}")
            except PaymentRefusedError as error:
                print(f"refused {url}: {error}")


asyncio.run(main())
