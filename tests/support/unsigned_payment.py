"""A payment for the first route with an invalid signature."""

from __future__ import annotations

import base64
import json

from tests.support.http_service import (
    NOW,
    PAY_TO,
)

ASSET = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"


def payment(**signed: str) -> str:
    """Return a payment that is valid except for its made-up signature."""
    authorization = {
        "from": "0x" + "cd" * 20,
        "to": PAY_TO,
        "value": "5000",
        "validAfter": "0",
        "validBefore": str(NOW // 1000 + 300),
        "nonce": f"0x{1:064x}",
    } | signed
    document = {
        "x402Version": 2,
        "accepted": {
            "scheme": "exact",
            "network": "eip155:8453",
            "asset": ASSET,
            "amount": "5000",
            "payTo": PAY_TO,
            "maxTimeoutSeconds": 300,
        },
        "payload": {"signature": "0x" + "1b" * 65, "authorization": authorization},
    }
    return base64.b64encode(json.dumps(document).encode()).decode()
