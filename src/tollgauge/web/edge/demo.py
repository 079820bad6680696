"""Parts of `tollgauge demo`: a wallet in its pages, and the progress of loading its history.

Rules:
- the wallet is served only if the configuration contains the demo's buyer, which config/rules
  rejects for a service that others can reach;
- the wallet has one account of the local chain. Everyone knows its key, which is worth nothing on
  any other chain, so the server signs for every caller;
- pages of the demo refuse every other wallet: the local chain has the number of a real one, and a
  real wallet would sign a payment that is good there too.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, Final

import orjson
from pydantic import StringConstraints
from pydantic.dataclasses import dataclass as pydantic_dataclass
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tollgauge.core.base.units import evm_chain_id

WALLET_PATH: Final = "/demo/wallet"
SCRIPT_PATH: Final = "/demo/wallet.js"
WALLET_RDNS: Final = "dev.tollgauge.demo"
"""The reverse domain name by which the demo's wallet announces itself (EIP-6963)."""

_UNSUPPORTED: Final = 4200
_INVALID: Final = -32602


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Settings of the running demo; empty in any other service."""

    buyer_key: Annotated[str, StringConstraints(pattern=r"^(0x[0-9a-f]{64})?$")] = ""
    """Private key of an account that has money on the local chain. It is public, and worthless
    elsewhere.
    """
    chain_name: str = ""
    """Name of the local chain on pages."""
    control_url: str = ""
    """URL of the demo's control server, which `tollgauge demo fault` uses."""


@dataclass(slots=True)
class Loading:
    """Progress of loading the demo's history: `percent` of `days`, None if nothing is loading. It
    changes over time.
    """

    days: int = 0
    percent: int | None = None

    @property
    def words(self) -> str:
        """The text on pages, such as `loading 30 days of history: 42%`, or nothing."""
        if self.percent is None:
            return ""
        what = f"{self.days} days of history" if self.days else "the first round"
        return f"loading {what}: {self.percent}%"


@dataclass(frozen=True, slots=True)
class DemoWallet:
    """A JSON-RPC wallet (EIP-1193): accounts, chain and signatures."""

    settings: DemoSettings
    network: str

    async def script(self) -> Response:
        """Return the script that announces the wallet to the page (EIP-6963)."""
        script = resources.files("tollgauge.web.pages").joinpath("demo_wallet.js").read_bytes()
        return Response(script, media_type="text/javascript; charset=utf-8")

    async def answer(self, request: Request) -> Response:
        """Return the result of one call, or its error with a code of EIP-1193 or EIP-1474."""
        try:
            call = orjson.loads(await request.body())
            result = self._result(call["method"], call.get("params", []))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):
            return _error(_INVALID, "The demo wallet cannot read this call.")
        if result is None:
            return _error(_UNSUPPORTED, f"The demo wallet cannot do {call['method']}.")
        return JSONResponse({"result": result})

    def _result(self, method: str, params: Any) -> Any:
        """Return the result of a call, None for a method that the demo's page does not need."""
        match method:
            case "eth_accounts" | "eth_requestAccounts":
                return [_account(self.settings.buyer_key).address]
            case "eth_chainId":
                return hex(evm_chain_id(self.network))
            case "eth_signTypedData_v4":
                typed = params[1] if isinstance(params[1], dict) else orjson.loads(params[1])
                signed = _account(self.settings.buyer_key).sign_typed_data(full_message=typed)
                return "0x" + bytes(signed.signature).hex()
            case _:
                return None


def _account(key: str) -> Any:
    # An EVM library that only the demo needs; it raises the recursion limit, which app lowers.
    limit = sys.getrecursionlimit()
    from eth_account import Account

    sys.setrecursionlimit(limit)
    return Account.from_key(key)


def _error(code: int, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}})
