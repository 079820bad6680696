"""The tables of the official SDKs in core/base/sdk.json: schemes, networks, tokens and contracts.

`python -m bench.oracle.tables` writes the file from the installed packages and prints what changed.
Where the two SDKs state different values for one token, the value of TypeScript is used.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from x402.mechanisms.evm import constants as evm
from x402.mechanisms.evm.batch_settlement import constants as channels
from x402.mechanisms.evm.default_assets import DEFAULT_ASSETS as EVM_ASSETS
from x402.mechanisms.evm.v1.constants import V1_NETWORK_CHAIN_IDS
from x402.mechanisms.svm import constants as svm
from x402.mechanisms.svm.default_assets import DEFAULT_ASSETS as SOLANA_ASSETS
from x402.mechanisms.tvm.default_assets import DEFAULT_ASSETS as TON_ASSETS

from bench.oracle.clients import ask_typescript, python_client

TABLES: Final = Path(__file__).parents[2] / "src/tollgauge/core/base/sdk.json"


def build_tables() -> dict[str, Any]:
    """Return the tables of the installed packages."""
    (script,) = ask_typescript(["tables"])
    python = _python_schemes()
    names = {one for edition, one, _ in python if edition == 1}
    chains = {name: f"eip155:{chain}" for name, chain in V1_NETWORK_CHAIN_IDS.items()}
    chains |= svm.V1_TO_V2_NETWORK_MAP
    typescript = [(edition, network, scheme) for edition, network, scheme in script["schemes"]]
    v1_networks = {
        "python": {name: chains[name] for name in sorted(names)},
        "typescript": dict(sorted(script["v1Networks"].items())),
    }
    contracts = {
        *(evm.PERMIT2_ADDRESS, channels.BATCH_SETTLEMENT_ADDRESS),
        *(evm.X402_EXACT_PERMIT2_PROXY_ADDRESS, evm.X402_UPTO_PERMIT2_PROXY_ADDRESS),
        *script["contracts"],
    }
    return {
        "versions": {"x402": version("x402"), **dict(sorted(script["versions"].items()))},
        "schemes": {
            "python": _group_schemes(python, chains),
            "typescript": _group_schemes(typescript, script["v1Networks"]),
        },
        "v1Networks": v1_networks,
        "solanaNetworks": sorted(svm.V1_TO_V2_NETWORK_MAP.values()),
        "tonNetworks": sorted(TON_ASSETS),
        "gatewayNetworks": sorted(script["gatewayNetworks"]),
        "assets": [
            asset
            for _, asset in sorted(
                {**_assets(_PYTHON_ASSETS), **_assets(script["assets"])}.items(),
                key=lambda row: row[0][0],  # the first token of a network is its default
            )
        ],
        "contracts": sorted(address.lower() for address in contracts),
        "escrows": sorted(address.lower() for address in script["escrows"]),
        "tokenPrograms": script["tokenPrograms"],
        "memoBytes": min(script["memoBytes"], svm.MAX_MEMO_BYTES),
        "withdrawDelay": [channels.MIN_WITHDRAW_DELAY, channels.MAX_WITHDRAW_DELAY],
    }


_PYTHON_ASSETS: Final[dict[str, Any]] = {**EVM_ASSETS, **SOLANA_ASSETS, **TON_ASSETS}


def _python_schemes() -> list[tuple[int, str, str]]:
    """Return (version, network or pattern, scheme) of the Python client."""
    # The synchronous client has no public way to list what it registered; its inner client does.
    registered = python_client()._client.get_registered_schemes()  # noqa: SLF001
    return [
        (edition, row["network"], row["scheme"])
        for edition, rows in registered.items()
        for row in rows
    ]


def _group_schemes(
    rows: list[tuple[int, str, str]], chains: dict[str, str]
) -> dict[str, list[str]]:
    """Return the schemes by CAIP-2 namespace and version, as in `eip155 2`."""
    found: dict[str, set[str]] = {}
    for edition, network, scheme in rows:
        namespace = chains.get(network, network).partition(":")[0]
        found.setdefault(f"{namespace} {edition}", set()).add(scheme)
    return {key: sorted(schemes) for key, schemes in sorted(found.items())}


def _assets(table: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the default tokens of an SDK by network and address."""
    return {
        (network, token["asset"].lower()): {
            "network": network,
            "address": token["asset"].lower() if token["asset"][:2] == "0x" else token["asset"],
            "symbol": token["symbol"],
            "decimals": token["decimals"],
            "domain_name": token.get("name", ""),
            "domain_version": token.get("version", ""),
            "eip3009": "name" in token and _method(token) != "permit2",
        }
        for network, tokens in table.items()
        for token in tokens
    }


def _method(token: dict[str, Any]) -> str | None:
    return token.get("asset_transfer_method", token.get("assetTransferMethod"))


def encode_tables(tables: dict[str, Any]) -> str:
    """Return tables as the text of the file: one line per row."""
    lines = []
    for key, value in tables.items():
        if isinstance(value, dict):
            rows = [f"    {json.dumps(name)}: {_row(item)}" for name, item in value.items()]
            lines.append(f"  {json.dumps(key)}: {{\n" + ",\n".join(rows) + "\n  }")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            rows = [f"    {_row(item)}" for item in value]
            lines.append(f"  {json.dumps(key)}: [\n" + ",\n".join(rows) + "\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {_row(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _row(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


def changes(before: str, after: str) -> Iterator[str]:
    """Yield the differences between two texts of the file, line by line."""
    yield from difflib.unified_diff(
        before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=0
    )


def main() -> None:
    """Write the file and print what changed."""
    before = TABLES.read_text(encoding="utf-8") if TABLES.exists() else ""
    after = encode_tables(build_tables())
    TABLES.write_text(after, encoding="utf-8")
    lines = list(changes(before, after))
    sys.stdout.write("\n".join(lines or ["The tables are those of the installed SDKs."]) + "\n")


if __name__ == "__main__":
    main()
