"""Fixtures for the tests of the guard: a seller, a wallet, and a bundle that knows the seller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from guard.cases.sample_bundle import BASE, Row, body, public_key, signature
from tests.support.guard_seller import ACCOUNT, Seller, run_seller
from x402 import x402Client, x402ClientSync
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge_guard.bundle import Bundle, read_bundle
from tollgauge_guard.signature import pin_keys


@pytest.fixture(scope="module")
def running_seller() -> Iterator[Seller]:
    with run_seller() as seller:
        yield seller


@pytest.fixture
def seller(running_seller: Seller) -> Seller:
    """The module's seller in its initial state."""
    running_seller.__init__(running_seller.port)  # type: ignore[misc]  # resets all fields
    return running_seller


@pytest.fixture
def payer() -> x402Client:
    return register_exact_evm_client(x402Client(), ACCOUNT)


@pytest.fixture
def payer_sync() -> x402ClientSync:
    return register_exact_evm_client(x402ClientSync(), ACCOUNT)


@pytest.fixture
def known(seller: Seller) -> Callable[..., Row]:
    """A record of the seller's endpoint."""

    def record(
        recommendation: str = "proceed", grade: str | None = "B", amount: str = "5000"
    ) -> Row:
        return [recommendation, grade, 84.0, [[BASE, "exact", 0, amount]], [], None, None]

    return record


@pytest.fixture
def bundle_of() -> Callable[..., Bundle]:
    """A bundle of some records, signed by the tests' key."""

    def make(records: dict[str, Row], as_of: int | None = None) -> Bundle:
        packed = body(records, int(time.time()) - 60 if as_of is None else as_of)
        return read_bundle(packed, signature(packed), pin_keys(public_key()))

    return make
