"""Call data and logs of an EIP-3009 payment, as a node returns them."""

from __future__ import annotations

from typing import Any

from eth_abi.abi import encode
from eth_account import Account

USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
OTHER = "0x" + "0f" * 20
PAYER = Account.from_key(b"\1" * 32)
PAYEE = "0x" + "bb" * 20
TX = "0x" + "7a" * 32
BLOCK = "0x" + "b0" * 32
_TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
_USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
_TYPES = ["address", "address", "uint256", "uint256", "uint256", "bytes32", "bytes"]
_FIELDS = [
    {"name": name, "type": kind}
    for name, kind in zip(
        ("from", "to", "value", "validAfter", "validBefore", "nonce"), _TYPES, strict=False
    )
]


def call(value: int = 5, nonce: int = 1, *, receive: bool = False, after: int = 0) -> str:
    """Return a signed call as 0x-hex."""
    values = (PAYER.address, PAYEE, value, after, 2**256 - 1, nonce.to_bytes(32))
    domain = {"name": "USD Coin", "version": "2", "chainId": 8453, "verifyingContract": USDC}
    kind = "ReceiveWithAuthorization" if receive else "TransferWithAuthorization"
    names = [field["name"] for field in _FIELDS]
    signed = PAYER.sign_typed_data(
        domain, {kind: _FIELDS}, dict(zip(names, values, strict=True))
    ).signature
    selector = "0x88b7ab63" if receive else "0xcf092995"
    return selector + encode(_TYPES, (*values, bytes(signed))).hex()


def word(address: str) -> str:
    return "0x" + "0" * 24 + address[2:].lower()


def used_log(nonce: int = 1, token: str = USDC, index: int = 3) -> dict[str, Any]:
    return {
        "address": token,
        "topics": [_USED, word(PAYER.address), f"0x{nonce:064x}"],
        "data": "0x",
        "logIndex": hex(index),
    }


def transfer_log(
    value: int = 5, payee: str = PAYEE, token: str = USDC, index: int = 4
) -> dict[str, Any]:
    return {
        "address": token,
        "topics": [_TRANSFER, word(PAYER.address), word(payee)],
        "data": f"0x{value:064x}",
        "logIndex": hex(index),
    }


def transaction_of(data: str = "0x", to: str = USDC, **changes: Any) -> dict[str, Any]:
    tx = {
        "hash": TX,
        "chainId": "0x2105",
        "from": OTHER,
        "to": to,
        "input": data,
        "blockNumber": "0x10",
        "blockHash": BLOCK,
    }
    return tx | changes


def receipt_with(*logs: dict[str, Any], status: str = "0x1", **changes: Any) -> dict[str, Any]:
    receipt = {
        "transactionHash": TX,
        "status": status,
        "logs": list(logs),
        "blockNumber": "0x10",
        "blockHash": BLOCK,
    }
    return receipt | changes
