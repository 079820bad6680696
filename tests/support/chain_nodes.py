"""A Solana and a TON node on a loopback port, with the replies that the official clients need
before they sign: every mint has 6 decimals, every TON account is new, every transfer succeeds.
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

from tollgauge.demo.chain import Chain, word
from tollgauge.demo.envelopes import USDC

TOKEN_PROGRAM: Final = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"
BLOCKHASH: Final = "EkSnNWid2cvwEVnVx9aBqawnmiCNiDgp3gUdkDPTKN1N"
JETTON_WALLET: Final = "0:" + "5a" * 32
_MINT: Final = bytes(4) + bytes(32) + bytes(8) + bytes([6, 1]) + bytes(4) + bytes(32)
_FEES: Final = {"compute_ph": {"success": True, "gas_fees": "1"}, "storage_ph": {}}


def _mint_account() -> dict[str, Any]:
    return {
        "data": [base64.b64encode(_MINT).decode(), "base64"],
        "executable": False,
        "lamports": 1,
        "owner": TOKEN_PROGRAM,
        "rentEpoch": 0,
        "space": len(_MINT),
    }


def _solana(method: str) -> Any:
    if method == "getSlot":
        return 1
    value = (
        {"blockhash": BLOCKHASH, "lastValidBlockHeight": 1}
        if method == "getLatestBlockhash"
        else _mint_account()
    )
    return {"context": {"slot": 1}, "value": value}


def _ton(path: str, payer: str) -> Any:
    if path == "/api/v3/accountStates":
        return {"accounts": []}
    if path == "/api/v3/runGetMethod":
        cell = Builder().store_address(Address(JETTON_WALLET)).end_cell()
        value = base64.b64encode(cell.to_boc()).decode()
        return {"exit_code": 0, "stack": [{"type": "cell", "value": value}]}
    sent = {"decoded_opcode": "jetton_transfer", "source": payer}
    received = {"decoded_opcode": "jetton_internal_transfer", "source": JETTON_WALLET}
    return {
        "transactions": {
            "sent": {"account": JETTON_WALLET, "in_msg": sent, "description": _FEES},
            "received": {"account": "0:" + "6b" * 32, "in_msg": received, "description": _FEES},
        }
    }


@contextmanager
def chain_nodes(ton_payer: str) -> Iterator[str]:
    """Run both nodes; yield their URL. `ton_payer` is the account whose transfer succeeds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(_ton(self.path.partition("?")[0], ton_payer))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "jsonrpc" not in asked:
                return self.reply(_ton(self.path, ton_payer))
            result = _solana(asked["method"])
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


async def balance(chain: Chain, address: str) -> int:
    """Return the atomic USDC of an address."""
    call = {"to": USDC, "data": "0x70a08231" + word(int(address, 16))}
    return int(await chain.rpc("eth_call", call, "latest"), 16)
