"""The wallet in the demo's pages: a JSON-RPC wallet (EIP-1193) that the service signs for.

It has one account of the local chain. Everyone knows its key, which is worth nothing on any other
chain, so it signs for every caller. The demo adds these routes to its service; no other one has
them.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tollgauge.core.base.units import evm_chain_id
from tollgauge.web.dependencies import Service
from tollgauge.web.route import Routes

ROUTES: Final = Routes(tag="pages", internal=True)
_UNSUPPORTED: Final = 4200
_INVALID: Final = -32602


@ROUTES.get("/demo/wallet.js", {})
async def script() -> Response:
    """Return the script that announces the wallet to the page (EIP-6963)."""
    text = resources.files("tollgauge.demo").joinpath("wallet.js").read_bytes()
    return Response(text, media_type="text/javascript; charset=utf-8")


@ROUTES.post("/demo/wallet", {})
async def answer(service: Service, request: Request) -> Response:
    """Return the result of one call, or its error with a code of EIP-1193 or EIP-1474."""
    try:
        call = orjson.loads(await request.body())
        result = _result(service, call["method"], call.get("params", []))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return _error(_INVALID, "The demo wallet cannot read this call.")
    if result is None:
        return _error(_UNSUPPORTED, f"The demo wallet cannot do {call['method']}.")
    return JSONResponse({"result": result})


def _result(service: Service, method: str, params: Any) -> Any:
    """Return the result of a call, None for a method that the demo's page does not need."""
    # 0.3 s of CPU time, which only a demo with a wallet needs.
    from eth_account import Account

    account = Account.from_key(service.demo.buyer_key)
    match method:
        case "eth_accounts" | "eth_requestAccounts":
            return [account.address]
        case "eth_chainId":
            return hex(evm_chain_id(service.settings.network))
        case "eth_signTypedData_v4":
            typed = params[1] if isinstance(params[1], dict) else orjson.loads(params[1])
            signed = account.sign_typed_data(full_message=typed)
            return "0x" + bytes(signed.signature).hex()
        case _:
            return None


def _error(code: int, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}})
