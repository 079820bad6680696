"""The control server on loopback that switches the faults of a running demo.

`GET /faults` lists the faults and their state; `PUT` and `DELETE /faults/{seller}/{kind}`
switch a fault on and off; `GET /alerts` shows the deliveries to the market's webhook. It is plain
HTTP for this machine only: requests with another host name are rejected, and browsers do not let
pages of other origins send these methods.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.demo.faults import FaultError, Faults, Kind
from tollgauge.demo.receiver import Receiver
from tollgauge.demo.serving import serve
from tollgauge.web.settings import LOOPBACK

_HOSTS: Final = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")
_TIMEOUT_SECONDS: Final = 30.0


class ControlError(TollgaugeError):
    """The running demo did not respond, or rejected the request."""


@contextlib.asynccontextmanager
async def run_control(faults: Faults, receiver: Receiver, *, port: int = 0) -> AsyncIterator[str]:
    """Serve faults and deliveries; yields the URL. If `port` is taken, a free one is used."""
    async with serve(_app(faults, receiver), port=port) as bound:
        yield f"http://{LOOPBACK}:{bound}"


def switch(url: str, seller: str, kind: str, *, on: bool) -> dict[str, Any]:
    """Switch a fault of the demo whose control server is at `url`. Returns what `state` returns.

    Raises ControlError if the demo does not answer or the seller or fault does not exist.
    """
    return _request("PUT" if on else "DELETE", f"{url}/faults/{seller}/{kind}")


def state(url: str) -> dict[str, Any]:
    """The faults (`kinds`: name to meaning) and those that are `on` (seller to names)."""
    return _request("GET", f"{url}/faults")


def _app(faults: Faults, receiver: Receiver) -> Starlette:
    async def alerts(request: Request) -> Response:
        return _check_host(request) or JSONResponse({"alerts": receiver.deliveries()})

    async def show(request: Request) -> Response:
        return _check_host(request) or _state(faults)

    async def change(request: Request) -> Response:
        refused = _check_host(request)
        if refused is not None:
            return refused
        seller, kind = request.path_params["seller"], request.path_params["kind"]
        try:
            faults.switch(seller, kind, on=request.method == "PUT")
        except FaultError as error:
            return JSONResponse({"error": str(error), "hint": error.hint}, status_code=404)
        return _state(faults)

    return Starlette(
        routes=[
            Route("/alerts", alerts, methods=["GET"]),
            Route("/faults", show, methods=["GET"]),
            Route("/faults/{seller}/{kind}", change, methods=["PUT", "DELETE"]),
        ]
    )


def _check_host(request: Request) -> Response | None:
    if _HOSTS.fullmatch(request.headers.get("host", "")):
        return None
    return JSONResponse(
        {"error": "This server answers requests to 127.0.0.1 only."}, status_code=421
    )


def _state(faults: Faults) -> Response:
    kinds = {kind.value: kind.meaning for kind in Kind}
    return JSONResponse({"kinds": kinds, "on": faults.on()})


def _request(method: str, url: str) -> dict[str, Any]:
    try:
        response = httpx.request(method, url, timeout=_TIMEOUT_SECONDS, trust_env=False)
        document = response.json()
    except (httpx.HTTPError, ValueError):
        raise ControlError(
            f"No demo responds at {url.partition('/faults')[0]}.",
            hint="Start one with `make demo`, which prints the command to use.",
        ) from None
    if response.status_code != 200 or not isinstance(document, dict):
        error = document if isinstance(document, dict) else {}
        raise ControlError(
            str(error.get("error", "The demo rejected the request.")),
            hint=str(error.get("hint", "")),
        )
    return document
