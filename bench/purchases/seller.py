"""A seller on the official Python middleware: `python seller.py fastapi|flask FACILITATOR_URL`.

It prints its port. Every path costs $0.001.
"""

from __future__ import annotations

import socket
import sys
from importlib import import_module
from typing import Any

from x402.http import (
    FacilitatorConfig,
    HTTPFacilitatorClient,
    HTTPFacilitatorClientSync,
    PaymentOption,
)
from x402.http.types import RouteConfig
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.server import x402ResourceServer, x402ResourceServerSync

NETWORK = "eip155:8453"
OPTION = PaymentOption(
    scheme="exact",
    pay_to="0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
    price="$0.001",
    network=NETWORK,
    max_timeout_seconds=60,
)
ROUTES = {"/*": RouteConfig(accepts=[OPTION])}


def main(framework: str, facilitator_url: str) -> None:
    """Serve until the process is ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = FacilitatorConfig(url=facilitator_url)
        (serve_fastapi if framework == "fastapi" else serve_flask)(config, listener)


def serve_fastapi(config: FacilitatorConfig, listener: socket.socket) -> None:
    """Serve with FastAPI on uvicorn."""
    import uvicorn
    from fastapi import FastAPI
    from x402.http.middleware.fastapi import payment_middleware

    server = x402ResourceServer(HTTPFacilitatorClient(config))
    server.register(NETWORK, ExactEvmServerScheme())  # type: ignore[no-untyped-call, arg-type]
    app = FastAPI()
    app.middleware("http")(payment_middleware(ROUTES, server))

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    def deliver(path: str) -> dict[str, str]:
        return {"delivered": path}

    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])


def serve_flask(config: FacilitatorConfig, listener: socket.socket) -> None:
    """Serve with Flask on werkzeug."""
    flask: Any = import_module("flask")
    middleware: Any = import_module("x402.http.middleware.flask")
    serving: Any = import_module("werkzeug.serving")
    server = x402ResourceServerSync(HTTPFacilitatorClientSync(config))
    server.register(NETWORK, ExactEvmServerScheme())  # type: ignore[no-untyped-call, arg-type]
    app = flask.Flask("seller")
    middleware.payment_middleware(app, ROUTES, server)

    def deliver(path: str) -> dict[str, str]:
        return {"delivered": path}

    app.add_url_rule("/<path:path>", view_func=deliver, methods=["GET", "POST"])

    serving.make_server("127.0.0.1", 0, app, threaded=True, fd=listener.fileno()).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
