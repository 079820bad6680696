"""Calldata: an EIP-3009 transfer read from the bytes of one call, by slicing.

Rules:
- the four functions are `transferWithAuthorization` and `receiveWithAuthorization`, each with the
  signature as `v, r, s` and as `bytes` (EIP-3009; Circle's FiatTokenV2_2);
- arguments are read as a Solidity contract reads them: what follows the arguments is a suffix
  (builder codes, ERC-8021) and changes nothing; a `bytes` argument may lie anywhere in the data
  but must lie inside it, or the contract would have reverted;
- the upper bytes of an address word are masked, as the token's compiler does; `strict` reading,
  for bytes that may be no call at all, refuses them;
- no bytes whatever raise.

Calls inside other calls are core/trace/nesting's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

WORD: Final = 32
_FIELDS: Final = 6  # from, to, value, validAfter, validBefore, nonce
_CLEAN: Final = bytes(12)


class Method(StrEnum):
    """The functions of EIP-3009 that move money."""

    TRANSFER = "transferWithAuthorization"
    RECEIVE = "receiveWithAuthorization"


_VRS: Final = {
    bytes.fromhex("e3ee160e"): Method.TRANSFER,
    bytes.fromhex("ef55bec6"): Method.RECEIVE,
}
"""`(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)`."""
_BYTES: Final = {
    bytes.fromhex("cf092995"): Method.TRANSFER,
    bytes.fromhex("88b7ab63"): Method.RECEIVE,
}
"""`(address,address,uint256,uint256,uint256,bytes32,bytes)`."""
SELECTORS: Final = (*_VRS, *_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorized:
    """One call to an EIP-3009 transfer. Hex is lower case, `valid_…` are unix seconds.

    `target` is the called contract, None where the bytes do not name it; it is the token, or a
    proxy in front of it. `signature` is `r, s, v` or whatever bytes the payer's wallet takes.
    """

    method: Method
    payer: str
    payee: str
    value: int
    valid_after: int
    valid_before: int
    nonce: str
    signature: bytes
    target: str | None = None
    suffix: bytes = b""

    @property
    def key(self) -> tuple[str, str]:
        """Payer and nonce: what a token lets happen only once."""
        return self.payer, self.nonce


def read_call(
    data: bytes | memoryview, target: str | None = None, *, start: int = 0, strict: bool = False
) -> Authorized | None:
    """The EIP-3009 transfer whose call data begins at `start`, or None when there is none."""
    view = memoryview(data)
    selector = bytes(view[start : start + 4])
    body = start + 4
    if selector in _VRS:
        signed = _vrs(view, body)
        method = _VRS[selector]
    elif selector in _BYTES:
        signed = _bytes(view, body, strict=strict)
        method = _BYTES[selector]
    else:
        return None
    if signed is None or (strict and not _plausible(view, body)):
        return None
    signature, end = signed
    return Authorized(
        method=method,
        payer=_address(view, body),
        payee=_address(view, body + WORD),
        value=word(view, body + 2 * WORD),
        valid_after=word(view, body + 3 * WORD),
        valid_before=word(view, body + 4 * WORD),
        nonce="0x" + view[body + 5 * WORD : body + 6 * WORD].hex(),
        signature=signature,
        target=target,
        suffix=b"" if strict else bytes(view[end:]),
    )


def word(view: memoryview, at: int) -> int:
    """The 32-byte number at an offset that is known to lie inside."""
    return int.from_bytes(view[at : at + WORD])


def _vrs(view: memoryview, body: int) -> tuple[bytes, int] | None:
    """The signature as `r, s, v`, and where the arguments end."""
    at = body + _FIELDS * WORD
    end = at + 3 * WORD
    if len(view) < end:
        return None
    return bytes(view[at + WORD : end]) + bytes(view[at + WORD - 1 : at + WORD]), end


def _bytes(view: memoryview, body: int, *, strict: bool) -> tuple[bytes, int] | None:
    """The signature's bytes, and where the arguments end: after its padding."""
    head = body + (_FIELDS + 1) * WORD
    if len(view) < head:
        return None
    offset = word(view, head - WORD)
    if offset > len(view) or (strict and offset != (_FIELDS + 1) * WORD):
        return None
    first = body + offset + WORD
    if first > len(view):
        return None
    length = word(view, first - WORD)
    if length > len(view) - first:
        return None
    padded = first + -(-length // WORD) * WORD
    return bytes(view[first : first + length]), max(head, padded)


def _plausible(view: memoryview, body: int) -> bool:
    """Whether both address words are clean: what a scan of arbitrary bytes asks for."""
    return view[body : body + 12] == _CLEAN and view[body + WORD : body + WORD + 12] == _CLEAN


def _address(view: memoryview, at: int) -> str:
    return "0x" + view[at + 12 : at + WORD].hex()
