"""Envelopes for the official clients: good ones for every scheme, network, version and transfer
method of the SDKs, and broken ones, field by field and in the order of `accepts`.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.oracle.clients import URL, Challenge, Document
from tollgauge.core.base.units import ASSETS, SDK, V1_NETWORKS, Asset, chain_of

PAYEE: Final = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
OTHER: Final = "0x93053f1e7A5eFEDa532Fe69CbbE43cBEc3A0F13f"
USDC: Final = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
SOLANA: Final = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
SOLANA_PAYEE: Final = "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4"
SOLANA_KEY: Final = "GsbwXfJraMomNxBcjYLcG3mxkBUiyWXAB32fGbSMQRdW"
FEE_PAYER: Final = "EwWqGE4ZFKLofuestmU4LDdK7XM1N4ALgdZccwYugwGd"
TON: Final = "tvm:-239"
TON_PAYEE: Final = "0:" + "3c" * 32
GATEWAY_WALLET: Final = "0x77777777Dcc4d5A8B6E418Fd04D8997ef11000eE"
UNKNOWN: Final = Asset("eip155:424242", "0x" + "ab" * 20, "Another Dollar", default=False)
"""A token on a chain that no table lists."""
MISSING: Final[Any] = object()

_FORMS: Final[dict[str, tuple[str, Document]]] = {
    "exact": ("exact", {}),
    "exact permit2": ("exact", {"assetTransferMethod": "permit2"}),
    "upto": ("upto", {"facilitatorAddress": OTHER}),
    "batch": ("batch-settlement", {"receiverAuthorizer": OTHER, "withdrawDelay": 86_400}),
    "batch permit2": (
        "batch-settlement",
        {"receiverAuthorizer": OTHER, "withdrawDelay": 900, "assetTransferMethod": "permit2"},
    ),
    "capture": (
        "auth-capture",
        {
            "captureAuthorizer": OTHER,
            "feeRecipient": OTHER,
            "captureDeadline": 1_900_000_000,
            "refundDeadline": 1_900_086_400,
            "minFeeBps": 0,
            "maxFeeBps": 100,
        },
    ),
}
"""The forms of payment on an EVM network: scheme, and members of `extra` without the domain."""
_CIRCLE_ONLY: Final = {
    "name": "GatewayWalletBatched",
    "version": "1",
    "verifyingContract": GATEWAY_WALLET,
}
SPONSORING: Final = ("eip2612GasSponsoring", "erc20ApprovalGasSponsoring")


@dataclass(frozen=True, slots=True)
class Case:
    """A challenge for the clients. `name` states the form of payment and the change."""

    name: str
    challenge: Challenge


def evm_entry(form: str, token: Asset, **extra: Any) -> Document:
    """Return a good entry of version 2 on an EVM network."""
    scheme, members = _FORMS[form]
    domain = {"name": token.domain_name, "version": token.domain_version}
    return _entry(scheme, token, PAYEE, {**domain, **members, **extra})


def gateway_entry(token: Asset) -> Document:
    """Return a good entry of Circle Gateway."""
    return {**_entry("exact", token, PAYEE, dict(_CIRCLE_ONLY)), "maxTimeoutSeconds": 604_900}


def solana_entry(scheme: str, token: Asset) -> Document:
    """Return a good entry of version 2 on Solana."""
    extra: Document = {"feePayer": FEE_PAYER}
    if scheme == "upto":
        extra |= {"receiverAuthorizer": SOLANA_KEY, "withdrawDelay": 3_600}
    return _entry(scheme, token, SOLANA_PAYEE, extra)


def ton_entry(token: Asset) -> Document:
    """Return a good entry on TON."""
    return _entry("exact", token, TON_PAYEE, {"areFeesSponsored": True})


def _entry(scheme: str, token: Asset, payee: str, extra: Document) -> Document:
    asset = USDC if token.address == USDC.lower() else token.address
    return {
        "scheme": scheme,
        "network": token.network,
        "amount": "10000",
        "asset": asset,
        "payTo": payee,
        "maxTimeoutSeconds": 60,
        "extra": extra,
    }


def first_version(entry: Document, name: str) -> Document:
    """Return an entry of version 1 on a network of version 1."""
    members = {key: value for key, value in entry.items() if key not in ("amount", "extra")}
    return {
        **members,
        "network": name,
        "maxAmountRequired": entry["amount"],
        "resource": URL,
        "description": "Weather by city",
        "mimeType": "application/json",
        "outputSchema": {"input": {"type": "http", "method": "GET"}},
        "extra": entry["extra"],
    }


def offer(*entries: object, **extensions: object) -> Challenge:
    """Return a challenge of version 2 with entries."""
    envelope: Document = {
        "x402Version": 2,
        "error": "Payment required",
        "resource": {"url": URL, "description": "Weather by city", "tags": ["weather"]},
        "accepts": list(entries),
        "extensions": {"bazaar": {"info": {}, "schema": {}}, **extensions},
    }
    return Challenge(envelope)


def offer_v1(*entries: object) -> Challenge:
    """Return a challenge of version 1 with entries, in the body."""
    envelope = {"x402Version": 1, "error": "X-PAYMENT is required", "accepts": list(entries)}
    return Challenge(envelope, in_header=False)


def good_cases() -> Iterator[Case]:
    """Yield a good envelope of every scheme, network, version and transfer method."""
    for token in (*ASSETS.values(), UNKNOWN):
        where = f"{token.symbol} on {token.network}"
        if chain_of(token.network) is not None:
            for form in _FORMS:
                if token.eip3009 or "permit2" in form or form == "upto":
                    yield Case(f"{form}, {where}", offer(evm_entry(form, token)))
            yield Case(f"gateway, {where}", offer(gateway_entry(token)))
        elif token.network.startswith("tvm:"):
            yield Case(f"exact, {where}", offer(ton_entry(token)))
        else:
            for scheme in ("exact", "upto"):
                yield Case(f"{scheme}, {where}", offer(solana_entry(scheme, token)))
    for name, network in V1_NETWORKS.items():
        known = (asset for asset in ASSETS.values() if asset.network == network)
        token = next(known, UNKNOWN)
        entry = solana_entry("exact", token) if ":" in network and "solana" in network else None
        entry = entry or evm_entry("exact", token)
        yield Case(f"exact, version 1, {name}", offer_v1(first_version(entry, name)))
    for extension in SPONSORING:
        entry = evm_entry("exact permit2", _BASE)
        declared = {"info": {"description": "sponsored"}, "schema": {"type": "object"}}
        yield Case(f"exact permit2, {extension}", offer(entry, **{extension: declared}))


_BASE: Final = ASSETS["eip155:8453", USDC.lower()]
_SOLANA_USDC: Final = next(asset for asset in ASSETS.values() if asset.network == SOLANA)
_TON_USDT: Final = next(asset for asset in ASSETS.values() if asset.network == TON)
_V1_BASE: Final = first_version(evm_entry("exact", _BASE), "base")
_V1_SOLANA: Final = first_version(solana_entry("exact", _SOLANA_USDC), "solana")

BASES: Final[dict[str, Challenge]] = {
    **{form: offer(evm_entry(form, _BASE)) for form in _FORMS},
    "gateway": offer(gateway_entry(_BASE)),
    "solana exact": offer(solana_entry("exact", _SOLANA_USDC)),
    "solana upto": offer(solana_entry("upto", _SOLANA_USDC)),
    "ton": offer(ton_entry(_TON_USDT)),
    "version 1": offer_v1(_V1_BASE),
    "version 1 solana": offer_v1(_V1_SOLANA),
}
"""One good envelope of each form, whose members are changed one by one."""

_BAD_CHECKSUM: Final = "0x209693bC6afc0C5328bA36FaF03C514EF312287C"
_ODD: Final[tuple[Any, ...]] = (MISSING, None, "", [], {}, True, 0, 5, -1, 1.5, "x")
_FEW: Final[tuple[Any, ...]] = (MISSING, None, 5, "x")
_ADDRESSES: Final = (
    *(PAYEE, PAYEE.lower(), "0x" + PAYEE[2:].upper(), "0X" + PAYEE[2:], PAYEE[2:], PAYEE[:-1]),
    *(_BAD_CHECKSUM, "0x" + "0" * 40, USDC, "USDC", "0xYOUR_WALLET", "seller.eth", f" {PAYEE}"),
)
_KEYS: Final = (
    *(SOLANA_KEY, SOLANA_KEY[:-1], "0x" + "ab" * 20, "1" * 32),
    *("0:" + "3C" * 32, "EQ", "x" * 48, "USDT"),
)
_NUMBERS: Final = (
    *("10000", "0", "1", "010", "-1", "+1", "1.0", "0.01", "1e4", "0x10", " 1", "1 ", "1_000"),
    *("$1", "1,000", "5000000", str(2**64 - 1), str(2**64), str(2**119), str(2**120)),
    *(str(2**127), str(2**128), str(2**255), str(2**256), 10_000, 10_000.0),
)
_DOMAIN: Final = {"name": "USD Coin", "version": "2"}
_ENTRY_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "scheme": ("exact", "Exact", "upto", "batch-settlement", "auth-capture", "exact ", "upon"),
    "network": (
        *("eip155:8453", "eip155:1", "eip155:0", "eip155:08453", "eip155:x", "EIP155:8453"),
        *("eip155", "eip155:", "eip155:8453:1", "eip155:9007199254740992", "eip155:1e3", "base"),
        *("Base", "monad", "sepolia", "bsc", "arbitrum", "story", "8453", "solana:mainnet"),
        *("tvm:-3", "tvm:-1", "tvm:0", SOLANA, "stellar:pubnet"),
    ),
    "amount": _NUMBERS,
    "maxAmountRequired": _NUMBERS,
    "asset": (USDC.lower(), "0x" + "ab" * 20, *_ADDRESSES, *_KEYS),
    "payTo": (*_ADDRESSES, *_KEYS),
    "maxTimeoutSeconds": (60, "60", 60.0, 60.5, 5, 6, 10**4, 2**53, 2**60, 10**30),
    "resource": (URL, {"url": URL}),
    "description": ("Weather",),
    "mimeType": ("text/plain",),
    "outputSchema": ({"input": {}}, "x"),
    "extra": (_DOMAIN, [_DOMAIN], json.dumps(_DOMAIN)),
    "more": ({"x": 1},),
}
_EXTRA_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "name": ("USD Coin", "USDC", "usd coin", "GatewayWalletBatched"),
    "version": ("2", "1", 2, 1),
    "assetTransferMethod": ("eip3009", "permit2", "erc7710", "EIP3009", "default"),
    "paymentFlow": ("authorization", "upfront", "escrow", "later"),
    "facilitatorAddress": _ADDRESSES,
    "receiverAuthorizer": (*_ADDRESSES, *_KEYS),
    "withdrawDelay": (900, 899, 2_592_000, 2_592_001, 2**32 - 1, 2**32, "900", 900.0, 900.5),
    "minDeposit": ("1000000", 1, "x"),
    "captureAuthorizer": _ADDRESSES,
    "feeRecipient": _ADDRESSES,
    "captureDeadline": (1_900_000_000, 1.5, "1900000000", 2**48, 1),
    "refundDeadline": (1_900_086_400, 1, 2**48, 2**48 - 1),
    "minFeeBps": (0, 100, 101, 70_000),
    "maxFeeBps": (0, 10_000, 10_001, "100"),
    "authCaptureEscrow": ("0xf96815976523E00e65Be8f34cA5e64b4f41EB19c", *_ADDRESSES),
    "verifyingContract": (GATEWAY_WALLET, GATEWAY_WALLET.lower(), *_ADDRESSES),
    "feePayer": _KEYS,
    "tokenProgram": SDK.token_programs,
    "memo": ("x" * 256, "x" * 257),
    "areFeesSponsored": ("true",),
    "forwardTonAmount": (0, "5", "0.1", str(2**120)),
    "responseDestination": (TON_PAYEE, "EQ"),
    "forwardPayload": ("te6cckEBAQEAAgAAAEysuc0=",),
    "more": ({"x": 1},),
}
_TOP_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "x402Version": (1, 2, 3, "2", "1", 2.0, 2.5),
    "error": ("Payment required",),
    "resource": ({"url": URL}, URL, {}, {"url": ""}, {"url": 5}, {"url": URL, "tags": "a"}),
    "accepts": ({}, ["exact"], [[]], [None]),
    "extensions": ({}, {"bazaar": None}),
    "more": ({"x": 1},),
}
_OPTIONAL: Final = frozenset(
    {
        *("assetTransferMethod", "paymentFlow", "authCaptureEscrow", "tokenProgram", "memo"),
        *("forwardTonAmount", "responseDestination", "forwardPayload", "error", "extensions"),
    }
)
"""Members that a client reads although the good envelopes lack them."""
_RENAMED: Final = {
    "x402Version": ("x402version", "x402_version"),
    "accepts": ("Accepts", "accept"),
    "payTo": ("payto", "pay_to", "PayTo"),
    "amount": ("Amount", "maxAmountRequired"),
    "maxAmountRequired": ("maxamountrequired", "max_amount_required", "amount"),
    "maxTimeoutSeconds": ("maxtimeoutseconds", "max_timeout_seconds"),
    **{key: (key.title(),) for key in ("asset", "network", "scheme", "extra", "name", "version")},
}
"""Names of members in a wrong case."""


def broken_cases(
    name: str, base: Challenge, *, values: Sequence[Any] | None = None
) -> Iterator[Case]:
    """Yield an envelope with each member missing, with every odd value, and with a wrong name.

    With `values`, each member of the envelope gets only these, and no other is added.
    """
    for holder, table in (
        ("", _TOP_VALUES),
        ("accepts.0", _ENTRY_VALUES),
        ("accepts.0.extra", _EXTRA_VALUES),
    ):
        present = _holder(base.envelope, holder)
        for key, listed in table.items():
            is_read = key in present or key in _OPTIONAL
            tried = [*_ODD, *listed] if is_read else ["x", listed[0]]
            if values is not None:
                tried = [*values] if key in present else []
            for value in tried:
                envelope = _with_member(base.envelope, holder, key, value)
                shown = "missing" if value is MISSING else json.dumps(value)[:60]
                where = f"{holder}.{key}".lstrip(".")
                yield Case(f"{name}, {where}: {shown}", Challenge(envelope, base.in_header))
        for key, names in _RENAMED.items():
            for other in names:
                envelope = copy.deepcopy(base.envelope)
                members = _holder(envelope, holder)
                if key in members:
                    members[other] = members.pop(key)
                    yield Case(f"{name}, {key} as {other}", Challenge(envelope, base.in_header))


def _with_member(envelope: Document, holder: str, key: str, value: Any) -> Document:
    """Return a copy with one member set or, for MISSING, left out."""
    copied: Document = copy.deepcopy(envelope)
    members = _holder(copied, holder)
    members.pop(key, None)
    if value is not MISSING:
        members[key] = copy.deepcopy(value)
    return copied


def _holder(envelope: Any, path: str) -> Document:
    at: Any = envelope
    for part in filter(None, path.split(".")):
        at = at[int(part) if part.isdigit() else part]
    holder: Document = at
    return holder


def _change(entry: Document, **members: Any) -> Document:
    return {key: value for key, value in {**entry, **members}.items() if value is not MISSING}


_EXACT: Final = evm_entry("exact", _BASE)
_UPTO: Final = evm_entry("upto", _BASE)
_ENTRIES: Final[dict[str, object]] = {
    "exact": _EXACT,
    "permit2 upfront": evm_entry("exact permit2", _BASE, paymentFlow="upfront"),
    "unknown flow": evm_entry("exact", _BASE, paymentFlow="later"),
    "capture": evm_entry("capture", _BASE),
    "subscription": _change(_EXACT, scheme="subscription"),
    "upto without facilitator": _change(_UPTO, extra=_DOMAIN),
    "payee broken": _change(_EXACT, payTo="0xYOUR_WALLET"),
    "payee broken, upfront": _change(
        evm_entry("exact", _BASE, paymentFlow="upfront"), payTo="0xYOUR_WALLET"
    ),
    "no domain": _change(_EXACT, extra={}),
    "gateway": gateway_entry(_BASE),
    "gateway without contract": _change(
        gateway_entry(_BASE), extra={"name": "GatewayWalletBatched", "version": "1"}
    ),
    "gateway on another chain": gateway_entry(
        ASSETS["eip155:1", "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48"]
    ),
    "solana": solana_entry("exact", _SOLANA_USDC),
    "solana upto": solana_entry("upto", _SOLANA_USDC),
    "solana without fee payer": _change(solana_entry("exact", _SOLANA_USDC), extra={}),
    "ton": ton_entry(_TON_USDT),
    "ton without sponsor": _change(ton_entry(_TON_USDT), extra={}),
    "stellar": _change(_EXACT, network="stellar:pubnet"),
    "no amount": _change(_EXACT, amount=MISSING),
    "amount as number": _change(_EXACT, amount=10_000),
    "no network": _change(_EXACT, network=MISSING),
    "extra null": _change(evm_entry("exact permit2", _BASE), extra=None),
    "no timeout": _change(_EXACT, maxTimeoutSeconds=MISSING),
    "text": "exact",
    "null": None,
    "empty object": {},
}
"""Entries that stand next to each other in `accepts`."""
_V1_ENTRIES: Final[dict[str, object]] = {
    "exact": _V1_BASE,
    "payee broken": _change(_V1_BASE, payTo="0xYOUR_WALLET"),
    "unknown network": _change(_V1_BASE, network="some-new-chain"),
    "unknown flow": _change(_V1_BASE, extra={**_DOMAIN, "paymentFlow": "later"}),
    "upfront": _change(_V1_BASE, extra={**_DOMAIN, "paymentFlow": "upfront"}),
    "solana": _V1_SOLANA,
    "no resource": _change(_V1_BASE, resource=MISSING),
    "no amount": _change(_V1_BASE, maxAmountRequired=MISSING),
    "text": "exact",
    "null": None,
}


def ordered_cases() -> Iterator[Case]:
    """Yield envelopes with every pair of entries, in both orders."""
    for make, entries in ((offer, _ENTRIES), (offer_v1, _V1_ENTRIES)):
        for pair in itertools.permutations(entries, 2):
            yield Case(f"{pair[0]}, then {pair[1]}", make(*(entries[name] for name in pair)))


def all_cases(*, every_network: bool = False) -> Iterator[Case]:
    """Yield the good, the broken and the ordered envelopes.

    Members are broken in one envelope of each form; with `every_network`, also in every good one.
    """
    good = list(good_cases())
    yield from good
    for name, base in BASES.items():
        yield from broken_cases(name, base)
    if every_network:
        for case in good:
            yield from broken_cases(case.name, case.challenge, values=_FEW)
    yield from ordered_cases()
