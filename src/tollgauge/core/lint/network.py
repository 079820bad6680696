"""Rules about the scheme and the network of one entry, and about Solana and TON.

Network names and clusters are those of the official clients (core/base/units), written as CAIP-2.
Chains that are not evaluated get no error: at most a warning about a payee of another chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tollgauge.core.base.units import (
    ASSETS,
    CAIP2_PATTERN,
    LEGACY_NETWORKS,
    SDK,
    V1_NETWORKS,
    V1_NETWORKS_DIVIDED,
)
from tollgauge.core.lint.accepts import AcceptsEntry, atomic_amount
from tollgauge.core.lint.accounts import fits_other_chain, solana_key, ton_address
from tollgauge.core.lint.rule import error, note, warning
from tollgauge.core.probe.exchange import ALL_CLIENTS

_CHAIN: Final = re.compile(r"eip155:([1-9][0-9]{0,15})", re.ASCII)
_SAFE_INTEGER: Final = 2**53 - 1
_MISWRITTEN: Final = frozenset({"eip155", "solana", "evm", "eth", *LEGACY_NETWORKS})
"""Wrong namespaces that sellers write for eip155 or solana."""
_TON_COINS_MAX: Final = 2**120
_TON_CELLS: Final = re.compile(r"te6c[0-9A-Za-z+/]+={0,2}", re.ASCII)
"""A bag of cells (BoC) in base64; it starts with the magic number b5ee9c72."""
_MINTS: Final = frozenset(address for network, address in ASSETS if network in SDK.solana_networks)


@error("scheme")
def scheme_form(entry: AcceptsEntry) -> bool:
    """`scheme` is missing, is not a string, or is a known scheme in upper case or with whitespace.
    Clients compare it exactly.
    """
    scheme = entry.scheme
    plain = scheme.strip().lower()
    return not scheme or (plain != scheme and plain in entry.schemes)


@warning(stops=ALL_CLIENTS)
def scheme_unknown(entry: AcceptsEntry) -> Iterator[str]:
    """A scheme that no official client supports on this kind of network in this version, or a
    transfer by ERC-7710, which is specified but not implemented. Clients of the scheme's author may
    support it, so the envelope is valid, but a stock client cannot pay.
    """
    scheme = entry.scheme
    if entry.evm and scheme == "exact" and entry.method == "erc7710":
        yield entry.at("extra.assetTransferMethod")
    if entry.evaluated and scheme and scheme.strip().lower() not in entry.schemes:
        yield entry.at("scheme")


@error("network")
def network_form(entry: AcceptsEntry) -> bool:
    """The network is missing, has the form of the other version, or has a wrong namespace in place
    of `eip155` or `solana`. Clients of version 2 require the colon and compare the namespace
    exactly; clients of version 1 accept a fixed list of names.
    """
    text = entry.text("network")
    namespace = text.partition(":")[0]
    miswritten = namespace.strip().lower() in _MISWRITTEN and namespace not in ("eip155", "solana")
    return not text or (":" in text) != (entry.version == 2) or (entry.version == 2 and miswritten)


@error("network")
def network_chain(entry: AcceptsEntry) -> bool:
    """`eip155:` without a valid chain ID, or with one above 2^53, which JavaScript cannot
    represent. Clients cannot build the signature's domain.
    """
    match = _CHAIN.fullmatch(entry.network)
    chain = int(match[1]) if match else 0
    return entry.network.startswith("eip155:") and not 0 < chain <= _SAFE_INTEGER


@warning("network")
def network_caip2(entry: AcceptsEntry) -> bool:
    """A network with a colon that CAIP-2 does not allow. Some official mechanisms use such names
    (Algorand has its base64 genesis hash), so this is only a warning.
    """
    text = entry.network
    return entry.version == 2 and ":" in text and not CAIP2_PATTERN.fullmatch(text)


@error("network")
def network_unknown(entry: AcceptsEntry) -> bool:
    """A version 1 network name that the official clients do not know. They stop with an error."""
    name = entry.text("network")
    plain = entry.version == 1 and name != "" and ":" not in name
    return plain and entry.evaluated and name not in V1_NETWORKS


@note("network")
def network_divided(entry: AcceptsEntry) -> bool:
    """A version 1 network name that one official client does not support, or maps to another chain
    ID than the other client does.
    """
    return entry.version == 1 and entry.text("network") in V1_NETWORKS_DIVIDED


@note("network")
def network_not_evaluated(entry: AcceptsEntry) -> bool:
    """A chain whose rules the linter does not know. It does not report whether clients can pay
    there.
    """
    return entry.chain != "" and not entry.evaluated


@warning("payTo")
def payto_network(entry: AcceptsEntry) -> bool:
    """A payee that does not look like an account of its chain, which is not evaluated: for example
    an EVM address on Stellar.
    """
    payee = entry.text("payTo")
    return payee != "" and not entry.formats_apply and not fits_other_chain(entry.chain, payee)


@error("network")
def solana_cluster(entry: AcceptsEntry) -> bool:
    """A cluster of Solana that clients do not know, such as `solana:mainnet`."""
    return entry.network.startswith("solana:") and entry.network not in SDK.solana_networks


@error("asset")
def solana_mint(entry: AcceptsEntry) -> bool:
    """A known mint of another cluster. Clients read the mint from the chain before they sign, and
    do not find it.
    """
    mint = entry.account("asset")
    known = entry.network in SDK.solana_networks and mint in _MINTS
    return entry.solana and known and (entry.network, mint) not in ASSETS


@error("extra.memo")
def solana_memo(entry: AcceptsEntry) -> bool:
    """A memo that clients refuse to put into the transaction."""
    memo = entry.extra.get("memo")
    return (
        entry.solana
        and isinstance(memo, str)
        and len(memo.encode("utf-8", "replace")) > SDK.memo_bytes
    )


@error("extra.feePayer")
def fee_payer_missing(entry: AcceptsEntry) -> bool:
    """An entry on Solana without the account that pays the network fee."""
    return entry.solana and not entry.extra.get("feePayer")


@error("extra.feePayer")
def fee_payer_form(entry: AcceptsEntry) -> bool:
    """A fee payer that is not an account on Solana."""
    payer = entry.extra.get("feePayer")
    return entry.solana and bool(payer) and solana_key(payer) is None


@error("network")
def ton_network(entry: AcceptsEntry) -> bool:
    """A network of TON that clients do not know."""
    return entry.ton and entry.network not in SDK.ton_networks


@error("extra.areFeesSponsored")
def ton_fees(entry: AcceptsEntry) -> bool:
    """`exact` on TON that does not state that the facilitator pays the fees."""
    return entry.ton and entry.extra.get("areFeesSponsored") is not True


@error()
def ton_transfer(entry: AcceptsEntry) -> Iterator[str]:
    """Members of a jetton transfer (TEP-74) that TON clients cannot use."""
    if not entry.ton:
        return
    amount = entry.extra.get("forwardTonAmount", 0)
    whole = atomic_amount(str(amount)) if isinstance(amount, int | str) else None
    if isinstance(amount, bool) or whole is None or whole >= _TON_COINS_MAX:
        yield entry.at("extra.forwardTonAmount")
    destination = entry.extra.get("responseDestination")
    if destination is not None and ton_address(destination) is None:
        yield entry.at("extra.responseDestination")
    payload = entry.extra.get("forwardPayload")
    if payload is not None and not (isinstance(payload, str) and _TON_CELLS.fullmatch(payload)):
        yield entry.at("extra.forwardPayload")
