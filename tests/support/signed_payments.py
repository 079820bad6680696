"""Payments with real signatures, for the offer of tests/web/paid/test_gate."""

from __future__ import annotations

import base64
import json
from typing import Any

from eth_account import Account
from tests.support.gate_world import ASSET, NOW, payment

DOMAIN = {"name": "USD Coin", "version": "2", "chainId": 8453, "verifyingContract": ASSET}
FIELDS = {
    "TransferWithAuthorization": [
        {"name": "from", "type": "address"},
        {"name": "to", "type": "address"},
        {"name": "value", "type": "uint256"},
        {"name": "validAfter", "type": "uint256"},
        {"name": "validBefore", "type": "uint256"},
        {"name": "nonce", "type": "bytes32"},
    ]
}


def account(number: int) -> Any:
    return Account.from_key(f"0x{number:064x}")


def sign_payment(
    payer: int, nonce: int, *, by: int | None = None, until_s: int = NOW // 1000 + 300
) -> str:
    """Return a payment of the payer with that key, signed with it or with another."""
    document = json.loads(base64.b64decode(payment(nonce)))
    message = document["payload"]["authorization"] | {
        "from": account(payer).address,
        "validBefore": str(until_s),
    }
    typed = message | {
        "value": int(message["value"]),
        "validAfter": int(message["validAfter"]),
        "validBefore": int(message["validBefore"]),
        "nonce": bytes.fromhex(message["nonce"][2:]),
    }
    signature = account(by or payer).sign_typed_data(DOMAIN, FIELDS, typed)
    document["payload"] = {
        "authorization": message,
        "signature": "0x" + bytes(signature.signature).hex(),
    }
    return base64.b64encode(json.dumps(document).encode()).decode()
