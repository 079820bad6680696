"""The official x402 clients, with every scheme of the installed SDKs, and their signatures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from eth_account import Account
from solders.keypair import Keypair
from tests.support.lint_envelopes import URL, encode_envelope
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
FAMILIES: Final = ("evm", "svm", "tvm")
SCRIPT: Final = Path(__file__).with_name("typescript_client.mjs")
NO_NODE: Final = "http://127.0.0.1:9"
_KEY: Final = "0x" + "11" * 32


def ton_signer(network: str, node: str) -> WalletV5R1MnemonicSigner:
    """A wallet on TON with a throwaway key."""
    config = WalletV5R1Config(network=network, secret_key=b"\x11" * 64, provider_base_url=node)
    return WalletV5R1MnemonicSigner(config)


def python_client(
    families: Iterable[str] = FAMILIES, node: str = NO_NODE, *, ton: str = "tvm:-239"
) -> x402HTTPClientSync:
    """Return the official Python client with every scheme of the given families and no spending
    limit. The wallet on TON is for one network.
    """
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
            inner.register(network, ExactTvmScheme(ton_signer(ton, node)))
    inner.set_spend_controls(False)
    return x402HTTPClientSync(inner)


def python_refusal(client: x402HTTPClientSync, document: object, *, header: bool = True) -> str:
    """Return why the Python client does not pay by an envelope in the header or the body, or an
    empty text if it signs.
    """
    headers = {"PAYMENT-REQUIRED": encode_envelope(document)} if header else {}
    body = b"{}" if header else json.dumps(document).encode()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the SDK uses a deprecated client of Solana
            sent, _ = client.handle_402_response(headers, body, URL)
    except Exception as error:  # noqa: BLE001 - any failure of a foreign client is a refusal
        return str(error) or type(error).__name__
    return "" if sent else "nothing was sent"


def question(
    document: object, families: Sequence[str] | None = None, *, header: bool = True
) -> Document:
    """Return the input of the TypeScript program for an envelope."""
    asked: Document = {"header": encode_envelope(document) if header else None}
    asked["body"] = None if header else document
    return asked if families is None else {**asked, "families": list(families)}


def ask_typescript(questions: Sequence[object], node: str = NO_NODE) -> list[Any]:
    """Return the results of the TypeScript program, from one process."""
    done = subprocess.run(
        ["node", str(SCRIPT)],
        input=json.dumps(list(questions)).encode(),
        env={**os.environ, "SOLANA_RPC": node},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers: list[Any] = json.loads(done.stdout)
    return answers
