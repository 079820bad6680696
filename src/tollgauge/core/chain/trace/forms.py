"""Forms: the values of nodes, client libraries and explorers, as JSON-RPC writes them.

| who | what differs |
|---|---|
| JSON-RPC (Ethereum execution API), cast | numbers as 0x-hex, `status` 0x1, also inside `result` |
| viem, wagmi | `status` is a word; a BigInt is a number, `"5"`, `"5n"` or `{__type, value}` |
| ethers 6 | the receipt's `hash`, a log's `index`; ethers 5: `{type: "BigNumber", hex}` |
| web3.py | numbers; bytes as `HexBytes('0x…')`, or as hex without 0x |
| web3.js | `status` is true or false |
| Blockscout (REST API v2) | `{hash}` for an address, topics filled up with null, ISO times |
| Etherscan | decimal strings, `txreceipt_status`, `isError`; `0x` for a log index of 0 |

Every function raises ValueError for a value of none of these forms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tollgauge.core.base.units import EVM_ADDRESS_PATTERN

BYTES: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*", re.ASCII)
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,19}n?", re.ASCII)
_HEX_BYTES: Final = re.compile(r"HexBytes\((['\"])([^'\"]*)\1\)")
_BARE: Final = re.compile(r"[0-9a-fA-F]*", re.ASCII)

HASH: Final = ("hash", "transactionHash", "transaction_hash", "tx_hash")
DATA: Final = ("input", "data", "raw_input")
BLOCK: Final = ("blockNumber", "block_number", "block")
BLOCK_HASH: Final = ("blockHash", "block_hash")
TIME: Final = ("blockTimestamp", "timestamp", "timeStamp")
CHAIN: Final = ("chainId", "chain_id")
LOG_INDEX: Final = ("logIndex", "index", "log_index")
STATUS: Final = ("status", "txreceipt_status", "success")
MORE: Final = "next_page_params"
"""What Blockscout adds to a page of logs that others follow."""

_WORDS: Final = {
    "success": True,
    "ok": True,
    "reverted": False,
    "error": False,
    "failed": False,
    "failure": False,
}


def named(fields: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, object]:
    """The first of some names that has a value, and the value; the first name and None if none."""
    for name in names:
        if fields.get(name) is not None:
            return name, fields[name]
    return names[0], None


def number(value: object) -> int:
    """A number from 0 to 2**64 - 1."""
    if isinstance(value, dict):  # a BigInt of wagmi, a BigNumber of ethers 5
        value = value.get("value") if value.get("__type") == "bigint" else value.get("hex")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return value
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise ValueError("is not a number")
    return int(value, 16) if value.startswith("0x") else int(value.removesuffix("n"))


def milliseconds(value: object) -> int:
    """An instant in milliseconds UTC, from 1970 on: a number of seconds, or an ISO text."""
    if isinstance(value, str) and "-" in value:
        at = datetime.fromisoformat(value)
        value = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    return number(value) * 1_000


def hexadecimal(value: object, pattern: re.Pattern[str]) -> str:
    """Bytes as lower-case hex with 0x."""
    if isinstance(value, str):
        quoted = _HEX_BYTES.fullmatch(value)
        text = quoted[2] if quoted else value
        text = f"0x{text}" if _BARE.fullmatch(text) else text
        if pattern.fullmatch(text):
            return text.lower()
    raise ValueError("is not the expected hex")


def address(value: object) -> str:
    """An address, also where it is an object with its `hash`."""
    return hexadecimal(value.get("hash") if isinstance(value, dict) else value, EVM_ADDRESS_PATTERN)


def outcome(fields: Mapping[str, Any]) -> bool | None:
    """Whether a transaction succeeded; None where nothing says it."""
    _, value = named(fields, STATUS)
    if value is None or value == "":
        wrong = fields.get("isError")
        return None if wrong is None else number(wrong) == 0
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if isinstance(value, str) and value.lower() == "pending":
        return None
    status = number(value)
    if status > 1:
        raise ValueError("is neither 0 nor 1")
    return status == 1
