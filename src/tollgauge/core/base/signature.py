"""Signatures of wallets: the signer of a digest, and the digests of texts and of typed data.

An externally owned account signs with secp256k1, and its address can be recovered from the
signature. Contract wallets (ERC-1271) define their own signatures: no address can be recovered, and
only the chain can verify them (clients/chain/authorization).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from coincurve import PublicKey
from eth_hash.auto import keccak

_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
"""Half of the curve's order (SEC 2). Tokens reject signatures with a larger `s` (EIP-2)."""
_LENGTH: Final = 65


def recover_signer(digest: bytes, signature: bytes) -> str | None:
    """Return the address (lower-case hex) that signed a 32-byte digest with `r, s, v`; None if the
    signature is invalid.
    """
    if len(signature) != _LENGTH:
        return None
    r_s, v = signature[:64], signature[64]
    recovery = v - 27 if v >= 27 else v
    if recovery not in (0, 1) or int.from_bytes(r_s[32:]) > _HALF_ORDER:
        return None
    try:
        key = PublicKey.from_signature_and_message(r_s + bytes([recovery]), digest, hasher=None)
    except ValueError:
        return None
    return "0x" + keccak(key.format(compressed=False)[1:])[-20:].hex()


def derive_address(private_key: bytes) -> str:
    """Return the address (EIP-55) of a private key (32 bytes). Raises ValueError for an invalid
    key.
    """
    if len(private_key) != 32:
        raise ValueError("a private key has 32 bytes")
    public_key = PublicKey.from_secret(private_key).format(compressed=False)
    return add_checksum("0x" + keccak(public_key[1:])[-20:].hex())


def add_checksum(address: str) -> str:
    """Return an address with its checksum (EIP-55). `address` is in lower case."""
    # eth_utils has this function, but its import takes 60 ms.
    digits = address[2:]
    pairs = zip(digits, keccak(digits.encode()).hex(), strict=False)
    return "0x" + "".join(digit.upper() if nibble > "7" else digit for digit, nibble in pairs)


def text_digest(text: str) -> bytes:
    """Return the digest that `personal_sign` signs for a text (EIP-191, version 0x45)."""
    message = text.encode()
    return keccak(b"\x19Ethereum Signed Message:\n" + str(len(message)).encode() + message)


def typed_digest(domain: bytes, message: bytes) -> bytes:
    """Return the digest that `eth_signTypedData` signs: from `hash_domain` and `hash_struct`."""
    return keccak(b"\x19\x01" + domain + message)


@lru_cache(maxsize=256)
def hash_domain(name: str, version: str, chain_id: int, contract: str = "") -> bytes:
    """Return the hash of an EIP-712 domain. `contract` is hex; empty for a domain without one."""
    members = "string name,string version,uint256 chainId"
    if not contract:
        return hash_struct(f"EIP712Domain({members})", name, version, chain_id)
    address = bytes.fromhex(contract[2:])
    type_ = f"EIP712Domain({members},address verifyingContract)"
    return hash_struct(type_, name, version, chain_id, address)


def hash_struct(type_: str, *members: str | int | bytes) -> bytes:
    """Return the EIP-712 hash of a struct: `str` for strings, `int` for unsigned numbers, and
    `bytes` for addresses and words.
    """
    words = [_hash_type(type_)]
    for member in members:
        if isinstance(member, str):
            words.append(keccak(member.encode()))
        else:
            number = member if isinstance(member, int) else int.from_bytes(member)
            words.append(number.to_bytes(32))
    return keccak(b"".join(words))


@cache
def _hash_type(type_: str) -> bytes:
    return keccak(type_.encode())
