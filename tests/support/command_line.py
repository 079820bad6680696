"""The result of a command, and input for commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tests.support.http_service import PAY_TO

TOLLGAUGE = str(Path(sys.executable).parent / "tollgauge")


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


Command = Callable[..., Done]


def captured_exchange(**changes: Any) -> dict[str, Any]:
    """Return an exchange of a correct seller with x402 v1."""
    entry = {
        "scheme": "exact",
        "network": "base",
        "maxAmountRequired": "10000",
        "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
        "payTo": PAY_TO,
        "resource": "https://api.example.com/weather",
        "description": "Weather",
        "mimeType": "application/json",
        "maxTimeoutSeconds": 60,
        "extra": {"name": "USD Coin", "version": "2"},
    } | changes
    body = {"x402Version": 1, "error": "payment required", "accepts": [entry]}
    return {
        "status": 402,
        "headers": {"content-type": "application/json"},
        "body": json.dumps(body),
        "url": "https://api.example.com/weather",
    }
