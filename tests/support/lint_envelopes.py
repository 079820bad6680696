"""Valid envelopes of both versions, and functions that change and lint them."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

from msgspec.structs import replace

from tollgauge.core.lint.judge import lint
from tollgauge.core.lint.rule import Example
from tollgauge.core.probe.exchange import Answer, Exchange, Lint, Severity

URL = "https://api.example.com/weather"
USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
SEPOLIA_USDC = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
PAYEE = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
BAZAAR: dict[str, Any] = {
    "info": {
        "input": {"type": "http", "method": "GET", "queryParams": {"city": "Paris"}},
        "output": {"type": "json", "example": {"fog": True}},
    },
    "schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"input": {"type": "object", "required": ["type", "method"]}},
    },
}
V2: dict[str, Any] = {
    "x402Version": 2,
    "error": "Payment required",
    "resource": {
        "url": URL,
        "description": "Weather by city",
        "mimeType": "application/json",
        "serviceName": "Example Weather",
        "tags": ["weather", "fog"],
        "iconUrl": "https://api.example.com/icon.png",
    },
    "accepts": [
        {
            "scheme": "exact",
            "network": "eip155:8453",
            "amount": "10000",
            "asset": USDC,
            "payTo": PAYEE,
            "maxTimeoutSeconds": 60,
            "extra": {"name": "USD Coin", "version": "2"},
        }
    ],
    "extensions": {"bazaar": BAZAAR},
}
V1: dict[str, Any] = {
    "x402Version": 1,
    "error": "X-PAYMENT header is required",
    "accepts": [
        {
            "scheme": "exact",
            "network": "base",
            "maxAmountRequired": "10000",
            "resource": URL,
            "description": "Weather by city",
            "mimeType": "application/json",
            "payTo": PAYEE,
            "maxTimeoutSeconds": 60,
            "asset": USDC,
            "outputSchema": None,
            "extra": {"name": "USD Coin", "version": "2"},
        }
    ],
}
GOOD_HEADERS = Example().headers
MISSING: Any = object()


def change_envelope(envelope: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of an envelope with one member set, or removed if the value is MISSING."""
    root = copy.deepcopy(envelope)
    holder: Any = root
    *parents, last = path.split(".")
    for key in parents:
        holder = holder[int(key) if key.isdigit() else key]
    if value is MISSING:
        del holder[last]
    else:
        holder[last] = value
    return root


def change_example(example: Example, path: str, value: Any) -> Example:
    """A copy of an example with one member of its envelope set, or removed if MISSING."""
    return replace(example, envelope=change_envelope(example.envelope, path, value))


def encode_envelope(document: object) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def lint_answer(header: object = None, body: object = None, **answer: Any) -> Lint:
    return lint(exchange_with(header, body, **answer))


def exchange_with(
    header: object = None,
    body: object = None,
    *,
    status: int = 402,
    raw: str | None = None,
    more: tuple[tuple[str, str], ...] = GOOD_HEADERS,
    url: str = URL,
    method: str = "GET",
) -> Exchange:
    value = raw if raw is not None else encode_envelope(header) if header is not None else None
    headers = more if value is None else (*more, ("payment-required", value))
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    answer = Answer(status=status, headers=headers, body=content)
    return Exchange(url=url, method=method, at=0, result=answer)


def fired_rules(result: Lint, *, at_least: Severity | None = None) -> set[str]:
    wanted = {None: set(Severity), Severity.WARN: {Severity.WARN, Severity.ERROR}}[at_least]
    return {finding.rule for finding in result.findings if finding.severity in wanted}


def wheres(result: Lint, rule: str) -> set[str]:
    return {finding.where for finding in result.findings if finding.rule == rule}
