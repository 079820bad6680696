"""Pays each URL of the command line that the guard allows."""
# in a checkout of tollgauge: pip install './guard/python[evm,requests]'

import os
import sys

from eth_account import Account
from x402 import x402ClientSync
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard import PaymentRefusedError, guarded

client = x402ClientSync()
register_exact_evm_client(client, Account.from_key(os.environ["PRIVATE_KEY"]))
session = guarded(
    client,
    bundle=os.environ["TOLLGAUGE_GUARD_BUNDLE"],
    key=os.environ["TOLLGAUGE_GUARD_KEY"],
)
for url in sys.argv[1:]:
    try:
        answer = session.get(url, timeout=30)
    except PaymentRefusedError as error:
        print(f"refused {url}: {error}")
    else:
        print(f"{answer.status_code} {url}: {answer.text}")
for payment in session.guard.journal.payments():
    print(f"paid {payment.amount} to {payment.pay_to} for {payment.resource}: {payment.state}")
