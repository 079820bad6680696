"""The open resources that the routes use, created once by the composition root (app.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends
from starlette.requests import Request

from tollgauge.core.endpoint.identity import ID_PATTERN
from tollgauge.core.sale.signature import PublicKey
from tollgauge.db.engine import Store
from tollgauge.web.edge.health import Loading
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.gate import Gate
from tollgauge.web.paid.product import PaidDependencies
from tollgauge.web.settings import DemoSettings

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies(PaidDependencies):
    """The resources of all routes. A product gets the same object as PaidDependencies, whose store
    is read-only, because a sale writes only under its payment's claim (docs/payments.md).

    Probes are late when a host has waited for `late_ms`. `public_keys` include those of older
    signatures. `guard_packages` are files by name. `demo` and `loading` are only
    used by `tollgauge demo`.
    """

    store: Store
    gate: Gate
    edge: EdgeSettings
    late_ms: int
    public_keys: tuple[PublicKey, ...]
    successions: tuple[str, ...]
    guard_packages: Mapping[str, bytes]
    demo: DemoSettings
    loading: Loading

    async def read_now(self, read: Callable[..., R], *arguments: object) -> R:
        """Call a function of monitor/reports as of now."""
        return await self.store.reading(read, *arguments, now=self.clock())

    async def read_endpoint(
        self, read: Callable[..., R | None], endpoint_id: str, **arguments: int
    ) -> R:
        """Read something by endpoint ID. Raises Problem 404 for an unknown or invalid ID."""
        result = None
        if ID_PATTERN.fullmatch(endpoint_id):
            result = await self.store.reading(read, endpoint_id, **arguments)
        if result is None:
            raise unknown_resource()
        return result


async def _dependencies(request: Request) -> Dependencies:
    dependencies: Dependencies = request.app.state.dependencies
    return dependencies


Service = Annotated[Dependencies, Depends(_dependencies)]
"""The dependencies of the application, as the parameter of a handler."""


def unknown_resource() -> Problem:
    """Return Problem 404 for a resource that is not monitored, or not public."""
    return Problem(
        404,
        "unknown-resource",
        "This resource is not monitored. POST it to /v1/x402-trust to probe it now.",
    )


def unknown_pay_to() -> Problem:
    """Return Problem 404 for an address that is not the payTo of any endpoint."""
    return Problem(404, "unknown-payto", "No monitored endpoint has this payTo address.")


def unknown_wallet() -> Problem:
    """Return Problem 404 for an address that no public endpoint names or named."""
    return Problem(
        404,
        "unknown-payto",
        "No monitored endpoint names this address as its payTo, now or in the last 90 days.",
    )


def unknown_host() -> Problem:
    """Return Problem 404 for a host without endpoints."""
    return Problem(404, "unknown-host", "No endpoint of this host is known.")
