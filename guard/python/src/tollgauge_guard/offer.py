"""Offers: a seller's payment terms, and how the guard reads them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tollgauge_guard.address import parse_account, parse_address
from tollgauge_guard.codes import Code
from tollgauge_guard.policy import Policy
from tollgauge_guard.units import USDC, V1_NETWORKS, Asset, parse_amount

EXACT: Final = "exact"
UPTO: Final = "upto"
BATCH: Final = "batch-settlement"
EIP_3009: Final = "eip3009"
PERMIT2: Final = "permit2"
SOLANA: Final = "solana"
CHANNEL: Final = "channel"
DEPOSIT_FACTOR: Final = 5  # of the SDK's batch-settlement client
_SLOW_FLOWS: Final = frozenset({"upfront", "escrow"})
_GAS_EXTENSIONS: Final = ("eip2612GasSponsoring", "erc20ApprovalGasSponsoring")
_DIGITS: Final = re.compile(r"[0-9]{1,78}", re.ASCII)
_ASSETS: Final = {(asset.network, asset.address.lower()): asset for asset in USDC}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One entry of `accepts` as the seller wrote it: every field may hold any value.

    `resource_url` is the resource that the 402 names. `extensions` are the names of the extensions
    for which the wallet would sign something in addition. `is_contradicted`: the seller signed
    another offer.
    """

    scheme: object
    network: object
    asset: object
    amount: object
    pay_to: object
    timeout: object
    extra: object
    resource_url: object
    extensions: tuple[str, ...] = ()
    is_contradicted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A well-formed offer. EVM addresses are lower case.

    Attributes:
        method: how the payer signs.
        network: CAIP-2.
        amount: in atomic units of `asset`.
        exposed: the largest sum that the signature lets anyone take, in atomic units (the ceiling
            of `upto`, the deposit of `batch-settlement`).
        exposure: the same in micro-dollars.
        timeout: the validity in seconds.
        domain_name, domain_version: the token's EIP-712 domain.
        facilitator: the address that decides the amount of `upto` (`extra.facilitatorAddress`, on
            Solana `extra.receiverAuthorizer`).
        is_slow: the payment flow is `upfront` or `escrow`.
    """

    scheme: str
    method: str
    network: str
    asset: str
    amount: int
    exposed: int
    exposure: int
    pay_to: str
    timeout: int
    domain_name: str
    domain_version: str
    facilitator: str | None = None
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class BadOffer:
    """An offer that is refused regardless of its seller's record."""

    code: Code
    reason: str


def read_offer(
    entry: object,
    resource_url: object,
    version: int = 2,
    extensions: tuple[str, ...] = (),
    *,
    is_contradicted: bool = False,
) -> Offer:
    """Read an entry of `accepts` from JSON. Never raises.

    The version of the 402 decides which fields count: those of the other version may be present,
    and are not signed.
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
        extensions=extensions,
        is_contradicted=is_contradicted,
    )


def read_terms(offer: Offer, policy: Policy) -> Terms | BadOffer:
    """Return the terms of a well-formed offer, or the first reason why it is refused."""
    extra = offer.extra if isinstance(offer.extra, dict) else {}
    method = _method(offer, extra)
    if method is None:
        what = extra.get("assetTransferMethod")
        name = f"{offer.scheme} ({what})" if isinstance(what, str) else f"{offer.scheme}"
        return BadOffer(
            Code.SCHEME_UNSUPPORTED, f"Scheme {name} on {offer.network} is not supported."
        )
    asset = find_asset(offer.network, offer.asset, policy)
    if asset is None:
        return BadOffer(Code.ASSET_UNKNOWN, "The token is not the network's USDC.")
    amount = parse_amount(offer.amount)
    if amount is None:
        return BadOffer(Code.AMOUNT_INVALID, "The amount is not a positive number of atomic units.")
    pay_to = parse_account(offer.pay_to, asset.network)
    token = asset.address if method == SOLANA else asset.address.lower()
    if pay_to is None or pay_to == token:
        return BadOffer(Code.PAYTO_MALFORMED, "The payTo is not an address of an account.")
    if type(offer.timeout) is not int or not 1 <= offer.timeout <= policy.max_validity:
        return BadOffer(
            Code.TIMEOUT_INVALID,
            f"The payment would not be valid for 1 to {policy.max_validity} seconds.",
        )
    signing = tuple(name for name in offer.extensions if name not in policy.allow_extensions)
    if signing and method in (PERMIT2, CHANNEL):
        return BadOffer(
            Code.EXTENSION_SIGNS, f"The wallet would also sign for {', '.join(signing)}."
        )
    if offer.is_contradicted:
        return BadOffer(Code.OFFER_CONTRADICTED, "The seller signed another offer than this one.")
    name, version = _domain(extra, asset)
    exposed = _compute_exposure(method, amount, extra)
    return Terms(
        scheme=str(offer.scheme),
        method=method,
        network=asset.network,
        asset=token,
        amount=amount,
        exposed=exposed,
        exposure=asset.micro_usd(exposed),
        pay_to=pay_to,
        timeout=offer.timeout,
        domain_name=name,
        domain_version=version,
        facilitator=_facilitator(method, extra),
        is_slow=extra.get("paymentFlow") in _SLOW_FLOWS,
    )


def signing_extensions(declared: object) -> tuple[str, ...]:
    """Return the declared extensions for which a capable wallet signs something in addition."""
    names = declared if isinstance(declared, dict) else {}
    return tuple(name for name in _GAS_EXTENSIONS if name in names)


def _method(offer: Offer, extra: dict[str, object]) -> str | None:
    """Return how an offer is signed, None if the guard has no rules of evidence for it."""
    method = extra.get("assetTransferMethod", EIP_3009)
    network = offer.network if isinstance(offer.network, str) else ""
    if network.startswith("solana:"):
        is_upto = offer.scheme == UPTO and _facilitator(SOLANA, extra) is not None
        is_plain = "assetTransferMethod" not in extra
        return SOLANA if is_plain and (offer.scheme == EXACT or is_upto) else None
    match offer.scheme:
        case "exact" if method in (EIP_3009, PERMIT2):
            return str(method)
        case "upto" if method == PERMIT2 or "assetTransferMethod" not in extra:
            # Without the facilitator's address the SDK cannot sign, and anyone could settle.
            return PERMIT2 if parse_address(extra.get("facilitatorAddress")) else None
        case "batch-settlement" if method in (EIP_3009, PERMIT2):
            return CHANNEL
    return None


def _facilitator(method: str, extra: dict[str, object]) -> str | None:
    """Return who decides the amount of `upto`."""
    if method == SOLANA:
        return parse_account(extra.get("receiverAuthorizer"), "solana:")
    return parse_address(extra.get("facilitatorAddress"))


def _compute_exposure(method: str, amount: int, extra: dict[str, object]) -> int:
    """Return the atomic units that may be taken with the signature."""
    if method != CHANNEL:
        return amount
    announced = extra.get("minDeposit")
    is_number = isinstance(announced, str) and _DIGITS.fullmatch(announced) is not None
    return max(DEPOSIT_FACTOR * amount, int(str(announced)) if is_number else 0)


def find_asset(network: object, address: object, policy: Policy) -> Asset | None:
    """Return the network's USDC or a token that the policy allows."""
    if not isinstance(network, str) or not isinstance(address, str):
        return None
    key = (network, address.lower())
    allowed = {(asset.network, asset.address.lower()): asset for asset in policy.assets}
    asset = _ASSETS.get(key) or allowed.get(key)
    # Base58 is case-sensitive: another case is another token.
    is_solana = network.startswith("solana:")
    return None if asset is not None and is_solana and asset.address != address else asset


def _domain(extra: dict[str, object], asset: Asset) -> tuple[str, str]:
    """Return name and version of the token's EIP-712 domain, as the SDK takes them."""
    if "name" not in extra:
        return asset.domain_name, asset.domain_version
    name, version = extra["name"], extra.get("version", "1")
    return name if isinstance(name, str) else "", version if isinstance(version, str) else ""
