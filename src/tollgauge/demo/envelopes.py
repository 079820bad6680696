"""Correct x402 envelopes and listings of a seller, v1 and v2.

They have no lint findings; faulty sellers modify them (behaviours.py). Sources: the x402 v2
specification and its HTTP transport, the v1 body as the SDKs write it, and `info` and `schema` of
the Bazaar extension.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tollgauge.core.base.units import NETWORK_NAMES, base58_text
from tollgauge.demo.seller import DemoOffer, Seller

Json = dict[str, Any]

USDC: Final = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
BASE: Final = "eip155:8453"
POLYGON: Final = "eip155:137"
POLYGON_USDC: Final = "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359"
BASE_SEPOLIA: Final = "eip155:84532"
SOLANA: Final = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"

SOLANA_FEE_SEED: Final = hashlib.sha256(b"tollgauge demo facilitator on Solana").digest()
"""The seed of the key that pays the fees of the demo's payments on Solana."""


def _fee_payer() -> str:
    key = Ed25519PrivateKey.from_private_bytes(SOLANA_FEE_SEED)
    return base58_text(key.public_key().public_bytes_raw())


_ASSETS: Final[dict[str, tuple[str, Json]]] = {
    BASE: (USDC, {"name": "USD Coin", "version": "2"}),
    POLYGON: (POLYGON_USDC, {"name": "USD Coin", "version": "2"}),
    BASE_SEPOLIA: (
        "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
        {"name": "USDC", "version": "2"},
    ),
    SOLANA: (
        "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
        {"feePayer": _fee_payer()},
    ),
}


def v2_entry(seller: Seller, offer: DemoOffer, network: str = "") -> Json:
    """Return an `accepts` entry of x402 v2, on the seller's network unless another is given."""
    network = network or seller.network
    asset, extra = _ASSETS[network]
    return {
        "scheme": "exact",
        "network": network,
        "amount": str(offer.amount),
        "asset": asset,
        "payTo": offer.pay_to,
        "maxTimeoutSeconds": 60,
        "extra": dict(extra),
    }


def v2_envelope(seller: Seller, offer: DemoOffer, path: str) -> Json:
    """Return the object of a `PAYMENT-REQUIRED` header for a request to `path`."""
    return {
        "x402Version": 2,
        "error": "Payment required",
        "resource": {
            "url": f"https://{seller.host}{path}",
            "description": seller.description,
            "mimeType": "application/json",
            "serviceName": seller.name,
            "tags": list(seller.tags),
        },
        "accepts": [
            v2_entry(seller, offer, network) for network in (seller.network, *seller.also_on)
        ],
        "extensions": {"bazaar": bazaar(seller)},
    }


def v1_entry(seller: Seller, offer: DemoOffer) -> Json:
    """Return an `accepts` entry of x402 v1."""
    asset, extra = _ASSETS[seller.network]
    return {
        "scheme": "exact",
        "network": NETWORK_NAMES[seller.network],
        "maxAmountRequired": str(offer.amount),
        "resource": seller.url,
        "description": seller.description,
        "mimeType": "application/json",
        "payTo": offer.pay_to,
        "maxTimeoutSeconds": 60,
        "asset": asset,
        "outputSchema": {"input": _v1_input(seller), "output": {"type": "object"}},
        "extra": dict(extra),
    }


def v1_envelope(seller: Seller, offer: DemoOffer) -> Json:
    """Return the body of an x402 v1 challenge."""
    return {
        "x402Version": 1,
        "error": "X-PAYMENT header is required",
        "accepts": [v1_entry(seller, offer)],
    }


def bazaar(seller: Seller) -> Json:
    """Return the Bazaar extension: how to call the seller, and the schema of that `info`."""
    call = _v2_input(seller)
    info = {"input": call, "output": {"type": "json", "example": json.loads(seller.example)}}
    extension: Json = {"info": info, "schema": _schema(call)}
    if seller.templated:
        extension["routeTemplate"] = re.sub(r"\{([^/{}]+)\}", r":\1", seller.path)
    return extension


def _v2_input(seller: Seller) -> Json:
    call: Json = {"type": "http", "method": seller.method}
    if seller.method == "GET":
        call["queryParams"] = dict(seller.query)
    else:
        call |= {"bodyType": "json", "body": json.loads(seller.body or b"{}")}
    if seller.templated:
        call["pathParams"] = dict.fromkeys(re.findall(r"\{([^/{}]+)\}", seller.path), "23")
    return call


def _v1_input(seller: Seller) -> Json:
    call: Json = {"type": "http", "method": seller.method, "discoverable": True}
    if not seller.declares:
        return {"type": "http", "discoverable": True}
    if seller.method == "GET":
        call["queryParams"] = {
            key: {"type": "string", "required": True, "description": f"For example {value}"}
            for key, value in seller.query
        }
    else:
        fields = json.loads(seller.body or b"{}")
        call |= {
            "bodyType": "json",
            "bodyFields": {key: {"type": "string", "required": True} for key in fields},
        }
    return call


def _schema(call: Json) -> Json:
    """Return the JSON Schema 2020-12 of the extension's `info`, as the SDKs write it."""
    properties: Json = {
        "type": {"type": "string", "const": "http"},
        "method": {"type": "string", "enum": [call["method"]]},
    }
    for key in ("queryParams", "pathParams", "body"):
        if key in call:
            properties[key] = {"type": "object"}
    if "bodyType" in call:
        properties["bodyType"] = {"type": "string", "enum": ["json"]}
    required = [key for key in ("type", "method", "bodyType", "body") if key in call]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "input": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            },
            "output": {
                "type": "object",
                "properties": {"type": {"type": "string"}, "example": {"type": "object"}},
                "required": ["type"],
            },
        },
        "required": ["input"],
    }
