"""A seller on loopback for tests of the guard: it asks for a payment and accepts any.

It neither verifies nor settles; tests only check which payments reach it.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from eth_account import Account
from guard.cases.sample_bundle import BASE, PAYEE

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.guard.bundle import TrustRecord
from tollgauge.core.score.score import ShownDemand

USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
ACCOUNT = Account.from_key("0x" + "11" * 32)
"""The wallet that pays in tests."""
OTHER_PAYEE = "0x8ba1f109551bd432803012645ac136ddd64dba72"


@dataclass(frozen=True)
class Answer:
    """A response of the seller. With `is_cut`, it closes the connection instead."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"ok": true}'
    is_cut: bool = False


@dataclass(frozen=True)
class Call:
    """One request to the seller. `payment` is the payment in it."""

    method: str
    path: str
    host: str
    body: bytes
    payment: dict[str, Any] | None


@dataclass
class Seller:
    """`ask` changes the offer of the 402, `required` the whole 402, `answer` the response to a
    payment.
    """

    port: int
    amount: str = "5000"
    pay_to: str = PAYEE
    ask: Callable[[dict[str, Any]], None] = lambda _offer: None
    change: Callable[[dict[str, Any]], None] = lambda _required: None
    answer: Callable[[Call], Answer] = lambda _call: receipt()
    unpaid: Callable[[Call], Answer | None] = lambda _call: None
    calls: list[Call] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def payments(self) -> list[dict[str, Any]]:
        """Return the received payments in order."""
        return [call.payment for call in self.calls if call.payment is not None]

    def respond(self, call: Call) -> Answer:
        self.calls.append(call)
        if call.payment is not None:
            return self.answer(call)
        return self.unpaid(call) or self.payment_required(call)

    def payment_required(self, call: Call) -> Answer:
        offer = {
            "scheme": "exact",
            "network": BASE,
            "asset": USDC,
            "amount": self.amount,
            "payTo": self.pay_to,
            "maxTimeoutSeconds": 60,
            "extra": {"name": "USD Coin", "version": "2"},
        }
        self.ask(offer)
        required: dict[str, Any] = {
            "x402Version": 2,
            "resource": {"url": f"http://{call.host}{call.path}"},
            "accepts": [offer],
        }
        self.change(required)
        return Answer(402, {"PAYMENT-REQUIRED": encode_header(required)}, b"{}")


def encode_header(document: object) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def receipt(status: int = 200, transaction: str = "0x" + "ab" * 32) -> Answer:
    settled = {"success": True, "transaction": transaction, "network": BASE, "payer": "0x"}
    return Answer(status, {"PAYMENT-RESPONSE": encode_header(settled)})


@contextmanager
def run_seller() -> Iterator[Seller]:
    """A running seller."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            is_chunked = self.headers.get("Transfer-Encoding") == "chunked"
            length = int(self.headers.get("Content-Length", 0))
            body = b"".join(self.chunks()) if is_chunked else self.rfile.read(length)
            text = self.headers.get("PAYMENT-SIGNATURE") or self.headers.get("X-PAYMENT")
            payment = json.loads(base64.b64decode(text)) if text else None
            host = self.headers["Host"]
            answer = seller.respond(Call(self.command, self.path, host, body, payment))
            if answer.is_cut:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_POST = do_GET  # noqa: N815  # its name there

        def chunks(self) -> Iterator[bytes]:
            """Split a body into chunks (RFC 9112, section 7.1)."""
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seller = Seller(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield seller
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


CASES_FOLDER: Final = Path(__file__).parents[2] / "guard/cases"


DEMAND: Final = ("payers", "volume", "proven_payers", "proven_volume")


def record_of(row: Sequence[Any], pay_to: Sequence[str], resource: str = "") -> TrustRecord:
    """Return the record of a line of the bundle; `pay_to` is its table of addresses."""
    _, recommendation, grade, score, offers, flags, demand, _, as_of = row[:9]
    return TrustRecord(
        resource=resource,
        recommendation=recommendation,
        grade=grade,
        score_tenths=None if score is None else round(score * 10),
        offers=tuple(
            KnownOffer(network, scheme, pay_to[index], amount and int(amount))
            for network, scheme, index, amount in offers
        ),
        flags=tuple(flags),
        demand=None if demand is None else ShownDemand(**dict(zip(DEMAND, demand, strict=True))),
        as_of=as_of * SECOND_MS,
    )
