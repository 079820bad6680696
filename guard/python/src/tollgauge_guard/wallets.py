"""Wallets: which accounts an official client signs with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from x402 import x402Client, x402ClientSync
from x402.schemas import find_schemes_by_network

from tollgauge_guard.address import parse_address

AnyClient = x402Client | x402ClientSync


def payers_of(client: AnyClient) -> tuple[str, ...]:
    """The addresses (lower-case hex) of all accounts that a client signs with on EVM chains."""
    found = {
        address
        for registry in _registries(client)
        for schemes in registry.values()
        for scheme in schemes.values()
        if (address := _address(scheme)) is not None
    }
    return tuple(sorted(found))


def payer_of(client: AnyClient, version: int, network: str, scheme: str) -> str | None:
    """The address that would sign an offer, None where the client does not show it."""
    registries = list(_registries(client))
    schemes = find_schemes_by_network(registries[version == 1], network) or {}
    return _address(schemes.get(scheme))


def _registries(client: AnyClient) -> Iterator[dict[str, Any]]:
    # The SDK has no public way to the signer of a scheme.
    yield client._schemes  # noqa: SLF001
    yield client._schemes_v1  # noqa: SLF001


def _address(scheme: object) -> str | None:
    """The address of a scheme's signer, which the SDK's own keep as `_signer`."""
    signer = getattr(scheme, "_signer", None) or getattr(scheme, "signer", None)
    return parse_address(getattr(signer, "address", None))
