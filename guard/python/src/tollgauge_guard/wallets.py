"""The wallets that an official client signs with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from x402 import x402Client, x402ClientSync
from x402.schemas import find_schemes_by_network

from tollgauge_guard.address import parse_account

AnyClient = x402Client | x402ClientSync


def list_wallets(client: AnyClient) -> tuple[str, ...]:
    """Return the addresses of all wallets of a client (EVM: lower case)."""
    # Most schemes share a signer: one of an EVM wallet is registered for about twenty networks.
    signers = {
        id(signer): signer
        for registry in _registries(client)
        for schemes in registry.values()
        for scheme in schemes.values()
        if (signer := _signer(scheme)) is not None
    }
    found = (parse_account(getattr(signer, "address", None)) for signer in signers.values())
    return tuple(sorted({address for address in found if address is not None}))


def find_scheme(client: AnyClient, version: int, network: str, scheme: str) -> Any:
    """Return the scheme client that would sign an offer, None without one."""
    registries = list(_registries(client))
    schemes = find_schemes_by_network(registries[version == 1], network) or {}
    return schemes.get(scheme)


def find_payer(scheme: object) -> str | None:
    """Return the address of a scheme's wallet, None if it does not show it."""
    return parse_account(getattr(_signer(scheme), "address", None))


def can_sign_for(scheme: object, extension: str) -> bool:
    """Return whether a wallet is able to sign for a gas sponsoring extension."""
    needed = {
        "eip2612GasSponsoring": "read_contract",
        "erc20ApprovalGasSponsoring": "sign_transaction",
    }
    return hasattr(_signer(scheme), needed[extension])


def _registries(client: AnyClient) -> Iterator[dict[str, Any]]:
    # The SDK has no public way to the signer of a scheme.
    yield client._schemes  # noqa: SLF001
    yield client._schemes_v1  # noqa: SLF001


def _signer(scheme: object) -> object:
    """Return the signer of a scheme, which the SDK's own keep as `_signer`."""
    return getattr(scheme, "_signer", None) or getattr(scheme, "signer", None)
