"""Signed: which token an authorization was signed for, by its signature alone.

A call names the contract that is called, which may be a proxy in front of the token. The payer
signed for one token on one chain (EIP-712 domain) and for one of the two functions (EIP-3009 type
hash): where the signature recovers to the payer, that token and that function are proven without
a node. Signatures of contract wallets (ERC-1271) recover to nobody and prove nothing here.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from eth_utils.crypto import keccak

from tollgauge.core.base.signature import recovered
from tollgauge.core.base.units import ASSETS, Asset, evm_chain_id, known_asset
from tollgauge.core.chain.trace.calldata import AuthorizedTransfer, Method
from tollgauge.core.sale.payment import Payment

_FIELDS: Final = (
    "(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)
_TYPE_HASHES: Final = {
    Method.TRANSFER: keccak(text="TransferWithAuthorization" + _FIELDS),
    Method.RECEIVE: keccak(text="ReceiveWithAuthorization" + _FIELDS),
}
_DOMAIN: Final = keccak(
    text="EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)


def asset_signed_for(call: AuthorizedTransfer, network: str) -> Asset | None:
    """The known asset of a network (CAIP-2) that a call's payer signed for, or None."""
    for asset in ASSETS.values():
        if asset.network == network and _signer(call, asset) == call.payer:
            return asset
    return None


@lru_cache(maxsize=1024)  # admission asks again for every payment in work
def signed_by_payer(payment: Payment) -> bool:
    """Whether a payment's signature is that of the account it names as its payer. False is
    no verdict on a contract wallet (ERC-1271), whose signatures only the chain can judge.
    """
    call = AuthorizedTransfer(
        method=Method.TRANSFER,
        payer=payment.payer,
        payee=payment.to,
        value=payment.value,
        valid_after=payment.valid_after,
        valid_before=payment.valid_before,
        nonce=payment.nonce,
        signature=bytes.fromhex(payment.signature[2:]),
    )
    asset = known_asset(payment.network, payment.asset)
    return asset is not None and _signer(call, asset) == payment.payer


def _signer(call: AuthorizedTransfer, asset: Asset) -> str | None:
    """Who signed, if the call were for this asset."""
    return recovered(keccak(b"\x19\x01" + _domain(asset) + _message(call)), call.signature)


@cache
def _domain(asset: Asset) -> bytes:
    chain_id = evm_chain_id(asset.network)
    return keccak(
        _DOMAIN
        + keccak(text=asset.domain_name)
        + keccak(text=asset.domain_version)
        + chain_id.to_bytes(32)
        + _word(asset.address)
    )


def _message(call: AuthorizedTransfer) -> bytes:
    numbers = (call.value, call.valid_after, call.valid_before, int(call.nonce, 16))
    return keccak(
        _TYPE_HASHES[call.method]
        + _word(call.payer)
        + _word(call.payee)
        + b"".join(number.to_bytes(32) for number in numbers)
    )


def _word(address: str) -> bytes:
    return bytes.fromhex(address[2:]).rjust(32, b"\0")
