"""Servers behind the gate as separate processes, which can be killed, or stopped until they are
sent SIGCONT, at a named point.

Run as a module, it is a fork server: for each line of JSON on standard input, it forks a server and
prints its process ID and port. Forking saves the imports; each server is a real process with its
own connections, and SIGKILL ends it as it ends any other. The servers end with the fork server, and
the fork server ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.support.ledger_world import LedgerWorld
from tests.support.processes import end_with_parent

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.facilitator import Facilitator, FacilitatorSettings
from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import Store, StoreUnavailable
from tollgauge.web.edge.problem import Problem, store_unavailable
from tollgauge.web.paid import gate as gate_module
from tollgauge.web.paid.gate import Gate
from tollgauge.web.paid.sale import HeldClaim, Sale
from tollgauge.web.paid.settle import Settler

POINTS: Final = (
    "after the claim",
    "after verify",
    "after the answer is made",
    "after the answer and the intent are stored",
    "after the facilitator answered",
    "after the outcome is written",
)
ARMED: Final[dict[str, signal.Signals]] = {}


def point(name: str) -> None:
    assert name in POINTS
    if name in ARMED:
        os.kill(os.getpid(), ARMED.pop(name))


class KillableFacilitator(Facilitator):
    """The client, with a point after its settle call."""

    async def settle(self, *arguments: Any, **more: Any) -> Any:
        row = await super().settle(*arguments, **more)
        point("after the facilitator answered")
        return row


class KillableGate(Gate):
    """The gate, with points after its steps. The product has no code for them."""

    async def _claim(self, *arguments: Any, **more: Any) -> Any:
        claim = await super()._claim(*arguments, **more)
        point("after the claim")
        return claim

    async def _verify(self, *arguments: Any, **more: Any) -> Any:
        verified = await super()._verify(*arguments, **more)
        point("after verify")
        return verified

    async def _compute(self, *arguments: Any, **more: Any) -> Any:
        answer = await super()._compute(*arguments, **more)
        point("after the answer is made")
        return answer

    @property
    def settlement(self) -> Settler:
        return KillableSettlement(self.store, self.facilitator, self.clock, self.chain)


class KillableSettlement(Settler):
    """The gate's settlement, with points after its steps."""

    async def store_intent(self, *arguments: Any, **more: Any) -> Any:
        row = await super().store_intent(*arguments, **more)
        assert row.state is State.SETTLING
        point("after the answer and the intent are stored")
        return row

    async def conclude(self, *arguments: Any, **more: Any) -> Any:
        row = await super().conclude(*arguments, **more)
        point("after the outcome is written")
        return row


def serve(order: dict[str, str], listener: socket.socket) -> None:
    """Become a server.

    `database`, `facilitator` and `node` are URLs; `folder` contains the clock and the list of the
    handler's runs. `kill` names the point at which to die, `stop` the one at which to stop, once. A
    server with such a point does not wait for a payment in flight, because no other server works on
    it.
    """
    ARMED.update({order["kill"]: signal.SIGKILL, order["stop"]: signal.SIGSTOP})
    if order["waits"] == "no":
        vars(gate_module)["POLL_DELAYS_S"] = (0.0,)
    folder = Path(order["folder"])
    gate = KillableGate(
        store=Store.open(order["database"]),
        facilitator=KillableFacilitator(
            FacilitatorSettings(url=order["facilitator"], settle_timeout_s=5)
        ),
        clock=lambda: int((folder / "clock").read_text()),
        chain=Prover([Node(order["node"], timeout_s=5)]),
    )

    async def answer(request: Request) -> Response:
        try:
            return await gate.serve(request, sale(folder))
        except Problem as problem:
            return problem.response()
        except StoreUnavailable:  # as web/routes does
            return store_unavailable().response()

    app = Starlette(routes=[Route("/v1/a", answer, methods=["POST"])])
    config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False, ws="none")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


def sale(folder: Path) -> Sale:
    """The world's sale, whose handler writes its own line to a file at each run."""

    async def compute(_order: object, _claim: HeldClaim) -> bytes:
        body = json.dumps({"run": os.urandom(8).hex()}).encode()
        with (folder / "runs").open("ab") as runs:
            runs.write(body + b"\n")
        await asyncio.sleep(0.1)
        return body

    known = LedgerWorld().sale()
    return Sale(
        offer=known.offer, description="", validate=lambda document: document, compute=compute
    )


def run_fork_server(become: Callable[[dict[str, str], socket.socket], None]) -> None:
    """Fork a server for each request on standard input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # exit codes of servers are not needed
    end_with_parent()
    for line in sys.stdin:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            end_with_parent()
            os.close(0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # only the fork server may hold that pipe
            become(json.loads(line), listener)
            os._exit(0)
        born = {"pid": child, "port": listener.getsockname()[1]}
        sys.stdout.write(json.dumps(born) + "\n")
        sys.stdout.flush()
        listener.close()


if __name__ == "__main__":
    run_fork_server(serve)
