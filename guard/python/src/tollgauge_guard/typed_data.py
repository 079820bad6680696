"""EIP-712 hashes of the messages that payers sign, and the recovery of their signers."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from eth_hash.auto import keccak

_EOA_SIGNATURE: Final = 65
_PERMIT2: Final = "0x000000000022d473030f116ddee9f6b43ac78ba3"
_DOMAIN: Final = (
    b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
_PERMIT2_DOMAIN: Final = b"EIP712Domain(string name,uint256 chainId,address verifyingContract)"
_TRANSFER: Final = (
    b"TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,"
    b"uint256 validBefore,bytes32 nonce)"
)
_TOKEN_TYPE: Final = b"TokenPermissions(address token,uint256 amount)"
_EXACT_WITNESS: Final = b"Witness(address to,uint256 validAfter)"
_UPTO_WITNESS: Final = b"Witness(address to,address facilitator,uint256 validAfter)"
_PERMIT: Final = (
    b"PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,"
    b"uint256 deadline,Witness witness)"
)


@cache
def hash_constant(text: bytes) -> bytes:
    """Return the hash of a constant text. At import it would load keccak, which takes 60 ms."""
    return keccak(text)


def hash_transfer(
    domain: tuple[str, str, int, str],
    *,
    payer: str,
    pay_to: str,
    value: int,
    valid_after: int,
    valid_before: int,
    nonce: str,
) -> bytes:
    """Return the hash of an EIP-3009 transfer; `domain` is name, version, chain and token."""
    message = keccak(
        hash_constant(_TRANSFER)
        + _word(int(payer, 16))
        + _word(int(pay_to, 16))
        + _word(value)
        + _word(valid_after)
        + _word(valid_before)
        + bytes.fromhex(nonce[2:])
    )
    return keccak(b"\x19\x01" + _hash_domain(*domain) + message)


@lru_cache(maxsize=256)
def _hash_domain(name: str, version: str, chain: int, token: str) -> bytes:
    return keccak(
        hash_constant(_DOMAIN)
        + keccak(name.encode())
        + keccak(version.encode())
        + _word(chain)
        + _word(int(token, 16))
    )


def hash_permit2(
    chain: int,
    *,
    token: str,
    amount: int,
    spender: str,
    nonce: int,
    deadline: int,
    pay_to: str,
    valid_after: int,
    facilitator: str | None,
) -> bytes:
    """Return the hash of a Permit2 transfer with x402's witness; `upto` names a facilitator."""
    separator = keccak(
        hash_constant(_PERMIT2_DOMAIN)
        + hash_constant(b"Permit2")
        + _word(chain)
        + _word(int(_PERMIT2, 16))
    )
    witness_type = _EXACT_WITNESS if facilitator is None else _UPTO_WITNESS
    named = b"" if facilitator is None else _word(int(facilitator, 16))
    witness = keccak(
        hash_constant(witness_type) + _word(int(pay_to, 16)) + named + _word(valid_after)
    )
    permitted = keccak(hash_constant(_TOKEN_TYPE) + _word(int(token, 16)) + _word(amount))
    message = keccak(
        hash_constant(_PERMIT + _TOKEN_TYPE + witness_type)
        + permitted
        + _word(int(spender, 16))
        + _word(nonce)
        + _word(deadline)
        + witness
    )
    return keccak(b"\x19\x01" + separator + message)


def recover_signer(digest: bytes, signature: bytes) -> str | None:
    """Return the account (lower-case hex) that signed a hash, None if that cannot be read."""
    from eth_keys.datatypes import Signature  # installed with every EVM signer of the SDK
    from eth_keys.exceptions import BadSignature
    from eth_utils.exceptions import ValidationError

    if len(signature) != _EOA_SIGNATURE:
        return None
    r_s, v = signature[:64], signature[64]
    try:
        read = Signature(r_s + bytes([v - 27 if v >= 27 else v]))
        return str(read.recover_public_key_from_msg_hash(digest).to_address())
    except (BadSignature, ValidationError):
        return None


def _word(value: int) -> bytes:
    return value.to_bytes(32)
