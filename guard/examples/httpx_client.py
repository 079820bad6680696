"""Pays each URL of the command line that the guard allows."""
# in a checkout of tollgauge: pip install './guard/python[evm]'

import asyncio
import os
import sys

from eth_account import Account
from x402 import x402Client
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard import PaymentRefusedError, guarded


async def main() -> None:
    """Request each URL, and print payments and refusals."""
    client = x402Client()
    register_exact_evm_client(client, Account.from_key(os.environ["PRIVATE_KEY"]))
    async with guarded(
        client,
        bundle=os.environ["TOLLGAUGE_GUARD_BUNDLE"],
        key=os.environ["TOLLGAUGE_GUARD_KEY"],
        follow_redirects=True,
    ) as http:
        for url in sys.argv[1:]:
            try:
                answer = await http.get(url)
            except PaymentRefusedError as error:
                print(f"refused {url}: {error}")
            else:
                print(f"{answer.status_code} {url}: {answer.text}")
        for payment in http.guard.journal.payments():
            price = f"{payment.amount} to {payment.pay_to}"
            print(f"paid {price} for {payment.resource}: {payment.state}")


asyncio.run(main())
