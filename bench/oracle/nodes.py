"""An EVM, a Solana and a TON node on one loopback port, with the replies that the official clients
need before they sign: every mint has 6 decimals, every TON account is new, every transfer succeeds,
and every contract of an EVM network returns zero.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from pytoniq_core.boc.address import Address
from pytoniq_core.boc.builder import Builder
from x402.mechanisms.tvm.constants import SUPPORTED_NETWORKS

from bench.oracle.clients import ton_signer

TOKEN_PROGRAM: Final = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"  # noqa: S105 - an address
BLOCKHASH: Final = "EkSnNWid2cvwEVnVx9aBqawnmiCNiDgp3gUdkDPTKN1N"
JETTON_WALLET: Final = "0:" + "5a" * 32
_MINT: Final = bytes(4) + bytes(32) + bytes(8) + bytes([6, 1]) + bytes(4) + bytes(32)
_FEES: Final = {"compute_ph": {"success": True, "gas_fees": "1"}, "storage_ph": {}}
_EVM: Final = {"eth_call": "0x" + "0" * 64, "eth_getTransactionCount": "0x0"}


def _mint_account() -> dict[str, Any]:
    return {
        "data": [base64.b64encode(_MINT).decode(), "base64"],
        "executable": False,
        "lamports": 1,
        "owner": TOKEN_PROGRAM,
        "rentEpoch": 0,
        "space": len(_MINT),
    }


def _json_rpc(method: str) -> Any:
    if method.startswith("eth_"):
        return _EVM.get(method, "0x1")
    if method == "getSlot":
        return 1
    value = (
        {"blockhash": BLOCKHASH, "lastValidBlockHeight": 1}
        if method == "getLatestBlockhash"
        else _mint_account()
    )
    return {"context": {"slot": 1}, "value": value}


def _ton(path: str, payers: dict[str, str]) -> Any:
    """Reply to a request to the node of a network: /tvm:-239/api/v3/..."""
    network, _, path = path.partition("?")[0].lstrip("/").partition("/")
    if path == "api/v3/accountStates":
        return {"accounts": []}
    if path == "api/v3/runGetMethod":
        cell = Builder().store_address(Address(JETTON_WALLET)).end_cell()
        value = base64.b64encode(cell.to_boc()).decode()
        return {"exit_code": 0, "stack": [{"type": "cell", "value": value}]}
    sent = {"decoded_opcode": "jetton_transfer", "source": payers[network]}
    received = {"decoded_opcode": "jetton_internal_transfer", "source": JETTON_WALLET}
    return {
        "transactions": {
            "sent": {"account": JETTON_WALLET, "in_msg": sent, "description": _FEES},
            "received": {"account": "0:" + "6b" * 32, "in_msg": received, "description": _FEES},
        }
    }


@contextmanager
def chain_nodes() -> Iterator[str]:
    """Run the nodes; yield their URL."""
    payers = {network: ton_signer(network, "").address for network in SUPPORTED_NETWORKS}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(_ton(self.path, payers))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "jsonrpc" not in asked:
                return self.reply(_ton(self.path, payers))
            result = _json_rpc(asked["method"])
            self.reply({"jsonrpc": "2.0", "id": asked["id"], "result": result})
            return None

        def reply(self, document: Any) -> None:
            text = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
