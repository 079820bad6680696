"""Offer: what a seller asks to be paid, before and after it was checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tollgauge_guard.units import V1_NETWORKS

SCHEME: Final = "exact"
EIP_3009: Final = "eip3009"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One entry of `accepts` as the seller wrote it: every field may hold anything.

    `resource_url` is what the 402 names as its resource.
    """

    scheme: object
    network: object
    asset: object
    amount: object
    pay_to: object
    timeout: object
    extra: object
    resource_url: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """An offer that is well formed: `amount` atomic units of a token (`asset`, lower-case hex) on
    `network` (CAIP-2) to `pay_to` (lower-case hex), by an authorization that is valid for `timeout`
    seconds at most. `micro_usd` is the amount in micro-dollars. `domain_name` and `domain_version`
    are the token's EIP-712 domain, with which the payer signs. `facilitator` is the address
    (lower-case hex) that the offer names as its facilitator.
    """

    network: str
    asset: str
    amount: int
    micro_usd: int
    pay_to: str
    timeout: int
    domain_name: str
    domain_version: str
    facilitator: str | None = None


def read_offer(entry: object, resource_url: object, version: int = 2) -> Offer:
    """The offer of an entry of `accepts` from JSON. Its 402 says the version of x402: the words of
    the other one, which an entry may hold beside them, are not what is signed. Never raises.
    """
    fields = entry if isinstance(entry, dict) else {}
    is_v1 = version == 1
    network = fields.get("network")
    return Offer(
        scheme=fields.get("scheme"),
        network=V1_NETWORKS.get(str(network)) if is_v1 else network,
        asset=fields.get("asset"),
        amount=fields.get("maxAmountRequired" if is_v1 else "amount"),
        pay_to=fields.get("payTo"),
        timeout=fields.get("maxTimeoutSeconds"),
        extra=fields.get("extra"),
        resource_url=fields.get("resource") if is_v1 else resource_url,
    )
