"""Payments for tests of the guard's journal, and processes that share a journal."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from guard.cases.sample_bundle import BASE, PAYEE

from tollgauge_guard.authorization import Authorization
from tollgauge_guard.budget import Exposure
from tollgauge_guard.decision import Refuse
from tollgauge_guard.journal import Journal, Reserved
from tollgauge_guard.offer import Terms
from tollgauge_guard.payment import Event, Payment
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase_key import Purchase, account_id, request_key, url_digest
from tollgauge_guard.units import USDC

ASSET = next(asset.address for asset in USDC if asset.network == BASE)
PAYER = "0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a"


def terms(amount: int = 5_000) -> Terms:
    return Terms(
        scheme="exact",
        method="eip3009",
        network=BASE,
        asset=ASSET,
        amount=amount,
        exposed=amount,
        exposure=amount,
        pay_to=PAYEE,
        timeout=60,
        domain_name="USD Coin",
        domain_version="2",
    )


def purchase(
    host: str = "api.example.com", path: str = "/a", payer: str = PAYER, key: str | None = None
) -> Purchase:
    url = f"https://{host}{path}"
    return Purchase(
        account=account_id([payer]),
        wallets=(payer,),
        session="session",
        key=request_key("GET", url, {}, b"") if key is None else f"key:{key}",
        host=host,
        resource=url,
        url_digest=url_digest(url),
    )


def exposure(at: int, payer: str = PAYER, host: str = "api.example.com") -> Exposure:
    return Exposure(
        account=account_id([payer]),
        network=BASE,
        asset=ASSET,
        host=host,
        session="session",
        at=at,
    )


def authorization(
    nonce: int, valid_before: int, amount: int = 5_000, payer: str = PAYER
) -> Authorization:
    return Authorization(
        scheme="exact",
        method="eip3009",
        network=BASE,
        asset=ASSET,
        payer=payer,
        pay_to=PAYEE,
        value=amount,
        valid_after=0,
        valid_before=valid_before,
        nonce=f"0x{nonce:064x}",
        signature=bytes(65),
    )


def pay(
    journal: Journal,
    number: int,
    policy: Policy,
    now: int,
    path: str = "/a",
    payer: str = PAYER,
    key: str | None = None,
) -> Payment | Refuse | None:
    """Reserve, sign and send one payment, as a guard does."""
    bought = purchase(path=path, payer=payer, key=key)
    reserved = journal.reserve(bought, terms(), payer, policy, now)
    if isinstance(reserved, Reserved):
        signed = authorization(number, now + 60, payer=payer)
        journal.sign(reserved.id, signed, f"header {number}", now)
        journal.change(reserved.id, Event.SEND, now)
        return journal.payment(reserved.id)
    return reserved


def start_payer(words: list[str], place: str, count: int, limit: int) -> subprocess.Popen[str]:
    """Start a process that pays as soon as it receives a line."""
    order = [*words, place, str(count), str(limit)]
    return subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def main(path: str, count: int, limit: int) -> None:
    """After a line of input, pay as often as the journal allows, and print a line when a payment is
    recorded and about to be sent.
    """
    sys.stdin.readline()
    journal, policy = Journal(path), Policy(max_host_day=limit, max_day=limit)
    for number in range(count):
        nonce = os.getpid() * 10**6 + number
        reserved = pay(journal, nonce, policy, int(time.time()), path=f"/{nonce}")
        if isinstance(reserved, Payment):
            sys.stdout.write(f"{nonce}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
