"""A minimal ASGI application for comparison: it answers each request with prepared bytes.

`python -m bench.bare` listens on a free loopback port under uvicorn with the settings of the
service (uvloop, httptools, no access log, one process) and its stock protocol. It prints the port,
and then one line of JSON for each line of standard input:
- `{"do": "cpu"}`: the CPU seconds of this process, all threads, since its start;
- `{"do": "answer", "status": …, "headers": [[name, value], …], "body": …}`: from now on every
  request is answered with this; `body` is base64.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import sys
import time
from typing import Any, Final

import orjson
import uvicorn
import uvloop
from starlette.types import Message, Receive, Scope, Send

from bench.child import print_json

HOST: Final = "127.0.0.1"


class Bare:
    """The application: sends two prepared messages."""

    def __init__(self) -> None:
        self.start: Message = {"type": "http.response.start", "status": 204, "headers": []}
        self.body: Message = {"type": "http.response.body", "body": b""}

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer a request."""
        await send(self.start)
        await send(self.body)

    def obey(self, order: dict[str, Any]) -> dict[str, object]:
        """Execute a command of the measurement and return its result."""
        if order["do"] == "cpu":
            return {"cpu_s": time.process_time()}
        headers = [(name.encode(), value.encode()) for name, value in order["headers"]]
        self.start = {**self.start, "status": order["status"], "headers": headers}
        self.body = {**self.body, "body": base64.b64decode(order["body"])}
        return {}


async def serve(app: Bare) -> None:
    """Serve and execute commands until standard input ends."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    with socket.create_server((HOST, 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        print_json(listener.getsockname()[1])
        while line := await asyncio.to_thread(sys.stdin.readline):
            print_json(app.obey(orjson.loads(line)))
        server.should_exit = True
        await running


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Bare()))
