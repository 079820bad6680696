"""The environment of the adapters' tests: a seller, a signed bundle, and a scripted model.

The model implements OpenAI's chat completions and responses over HTTP, so that the frameworks run
unchanged.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "cases"))
import sample_bundle as sample

PRIVATE_KEY: Final = "0x" + "11" * 32
USDC: Final = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
PRICES: Final = {"/good": "5000", "/bad": "5000", "/dear": "2000000"}


class Seller:
    """Asks to be paid and delivers. `/bad` is avoided by the bundle, `/dear` costs $2."""

    def __init__(self) -> None:
        self.payments: list[tuple[str, dict[str, Any]]] = []
        self.url = ""
        self.fails = False  # answers payments with 500
        self.moves = False  # asks for another amount than before


class Model:
    """Calls a tool with each of the scripted arguments, then ends. `seen` are its requests."""

    def __init__(self, calls: Sequence[Mapping[str, object] | str]) -> None:
        self.calls, self.seen, self.url = list(calls), [], ""  # type: ignore[var-annotated]

    def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the response to a request of the Responses API."""
        self.seen.append(request)
        items = request["input"] if isinstance(request["input"], list) else []
        done = sum(item.get("type") == "function_call_output" for item in items)
        if done < len(self.calls):
            call = self.calls[done]
            text = call if isinstance(call, str) else json.dumps(call)
            output: dict[str, Any] = {"type": "function_call", "id": f"f{done}"}
            output |= {"call_id": f"call_{done}", "name": "paid_request", "arguments": text}
        else:
            part = {"type": "output_text", "text": "I have finished.", "annotations": []}
            output = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
        details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
        details["output_tokens_details"] = {"reasoning_tokens": 0}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
        head = {"id": "r", "object": "response", "created_at": 1, "model": "scripted"}
        head |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
        return head | {"output": [output | {"status": "completed"}], "usage": usage}

    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the response to a request of the Chat Completions API."""
        self.seen.append(request)
        done = sum(message["role"] == "tool" for message in request["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": "I have finished."}
        reason = "stop"
        if done < len(self.calls):
            call = self.calls[done]
            text = call if isinstance(call, str) else json.dumps(call)
            function = {"name": "paid_request", "arguments": text}
            tool = {"id": f"call_{done}", "type": "function", "function": function}
            message |= {"content": None, "tool_calls": [tool]}
            reason = "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": "scripted"}
        return head | {"choices": [choice], "usage": usage}

    @property
    def results(self) -> list[str]:
        """The results of its calls, as the model received them."""
        last = self.seen[-1]
        if "input" in last:
            items = [item for item in last["input"] if isinstance(item, dict)]
            return [str(item["output"]) for item in items if "output" in item]
        return [_text(message) for message in last["messages"] if message["role"] == "tool"]


@contextmanager
def run_seller() -> Iterator[Seller]:
    """Run the seller."""
    seller = Seller()

    def answer(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        path = handler.path.partition("?")[0]
        header = handler.headers.get("PAYMENT-SIGNATURE") or handler.headers.get("X-PAYMENT")
        if header is None:
            amount = "4000" if seller.moves else PRICES.get(path, "5000")
            required = _encode(_build_402(handler, amount))
            _send(handler, 402, {}, {"PAYMENT-REQUIRED": required})
            return
        seller.payments.append((path, json.loads(base64.b64decode(header))))
        if seller.fails:
            _send(handler, 500, {}, {})
            return
        receipt = {"success": True, "transaction": "0x" + "ab" * 32, "network": sample.BASE}
        _send(handler, 200, {"weather": "sunny"}, {"PAYMENT-RESPONSE": _encode(receipt)})

    with _serve(answer) as seller.url:
        yield seller


@contextmanager
def scripted_model(calls: Sequence[Mapping[str, object] | str]) -> Iterator[Model]:
    """Run a model that makes these calls."""
    model = Model(calls)

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        reply = model.respond if handler.path.endswith("/responses") else model.complete
        _send(handler, 200, reply(json.loads(body)), {})

    with _serve(answer) as url:
        model.url = f"{url}/v1"
        yield model


def write_bundle(folder: Path, origin: str) -> dict[str, str]:
    """Write a bundle that knows the seller; returns the variables that name it and its key."""
    now = int(time.time())
    records: dict[str, list[object]] = {}
    for path, price in PRICES.items():
        advice = "avoid" if path == "/bad" else "proceed"
        offers = [[sample.BASE, "exact", 0, price]]  # to the first address of the table
        records[f"{origin}{path}"] = [advice, "B", 84.0, offers, [], None, None]
    records[f"{origin}/mcp#tool=weather"] = records[f"{origin}/good"]
    body = sample.body(records, now)
    (folder / "bundle").write_bytes(body)
    (folder / "bundle.jws").write_text(sample.signature(body))
    key = json.dumps(sample.public_key())
    return {"TOLLGAUGE_GUARD_BUNDLE": str(folder / "bundle"), "TOLLGAUGE_GUARD_KEY": key}


def guard_options(folder: Path, origin: str) -> dict[str, Any]:
    """Return the options of a guard whose bundle knows the seller."""
    from tollgauge_guard import MEMORY, Policy, Unknown

    named = write_bundle(folder, origin)
    return {
        "bundle": named["TOLLGAUGE_GUARD_BUNDLE"],
        "key": json.loads(named["TOLLGAUGE_GUARD_KEY"]),
        "journal": MEMORY,
        "policy": Policy(unknown=Unknown.REFUSE),
    }


def assert_safe(result: str) -> None:
    """Check that a result for a model has no address and no setting."""
    for word in ("0x", "max_call", "policy", "remedy", "trust", sample.PAYEE):
        assert word not in result, result


def _build_402(handler: BaseHTTPRequestHandler, amount: str) -> dict[str, object]:
    offer = {
        "scheme": "exact",
        "network": sample.BASE,
        "asset": USDC,
        "amount": amount,
        "payTo": sample.PAYEE,
        "maxTimeoutSeconds": 60,
        "extra": {"name": "USD Coin", "version": "2"},
    }
    url = f"http://{handler.headers['Host']}{handler.path}"
    return {"x402Version": 2, "resource": {"url": url}, "accepts": [offer]}


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else json.dumps(content)


def _encode(document: object) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def _send(
    handler: BaseHTTPRequestHandler, status: int, document: object, headers: Mapping[str, str]
) -> None:
    body = json.dumps(document).encode()
    handler.send_response(status)
    for name, value in ({"Content-Type": "application/json"} | dict(headers)).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


@contextmanager
def _serve(answer: Any) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            answer(self, self.rfile.read(length))

        do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815  # names there

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(folder: str) -> None:
    """Serve tests in other languages, until the input ends.

    Prints the addresses, then answers each line with one: a script for the model (a JSON array)
    with `null`, and anything else with the payments, results and tools that were seen so far.
    """
    with run_seller() as seller, scripted_model([]) as model:
        named = write_bundle(Path(folder), seller.url)
        _print({"seller": seller.url, "model": model.url, **named})
        for line in sys.stdin:
            order = json.loads(line)
            if isinstance(order, list):
                model.calls, model.seen = order, []
                _print(None)
            else:
                seller.fails, seller.moves = order.get("fails", False), order.get("moves", False)
                seen = model.seen[-1] if model.seen else {}
                paths = [path for path, _ in seller.payments]
                results = model.results if seen else []
                _print({"payments": paths, "results": results, "tools": seen.get("tools", [])})


def _print(document: object) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
