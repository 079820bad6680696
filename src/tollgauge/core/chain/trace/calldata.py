"""Calldata: an EIP-3009 transfer read from the bytes of one call, by slicing.

Rules:
- the four functions are `transferWithAuthorization` and `receiveWithAuthorization`, each with the
  signature as `v, r, s` and as `bytes` (EIP-3009; Circle's FiatTokenV2_2);
- arguments are read as a Solidity contract reads them: what follows the arguments is a suffix
  (builder codes, ERC-8021) and changes nothing; a `bytes` argument may lie anywhere in the data
  but must lie inside it, or the contract would have reverted;
- the upper bytes of an address word are masked, as the token's compiler does; `strict` reading,
  for bytes that may be no call at all, refuses them;
- nothing here raises, whatever the bytes are.

Calls inside other calls are core/chain/trace/nesting's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.chain.trace.abi import WORD, Arguments, OutsideError

SELECTOR_SIZE: Final = 4
_FIELDS: Final = 6  # from, to, value, validAfter, validBefore, nonce


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
SELECTORS: Final = _VRS | _BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedTransfer:
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
) -> AuthorizedTransfer | None:
    """The EIP-3009 transfer whose call data begins at `start`, or None when there is none."""
    view = memoryview(data)
    selector = bytes(view[start : start + SELECTOR_SIZE])
    arguments = Arguments(view, start + SELECTOR_SIZE)
    if selector not in SELECTORS or (strict and not _plausible(arguments, selector)):
        return None
    try:
        signature, end = _vrs(arguments) if selector in _VRS else _bytes(arguments)
    except OutsideError:
        return None
    return AuthorizedTransfer(
        method=SELECTORS[selector],
        payer=arguments.address(0),
        payee=arguments.address(1),
        value=arguments.number(2),
        valid_after=arguments.number(3),
        valid_before=arguments.number(4),
        nonce=arguments.word(5),
        signature=signature,
        target=target,
        suffix=b"" if strict else bytes(view[end:]),
    )


def _vrs(arguments: Arguments) -> tuple[bytes, int]:
    """The signature as `r, s, v`, and where the arguments end."""
    v, r, s = (arguments.number(_FIELDS + place) for place in range(3))
    signature = r.to_bytes(WORD) + s.to_bytes(WORD) + bytes([v & 0xFF])
    return signature, arguments.base + (_FIELDS + 3) * WORD


def _bytes(arguments: Arguments) -> tuple[bytes, int]:
    """The signature's bytes, and where the arguments end: after its padding."""
    signature = bytes(arguments.bytes(_FIELDS))
    start = arguments.base + arguments.number(_FIELDS) + WORD
    padded = start + -(-len(signature) // WORD) * WORD
    return signature, max(arguments.base + (_FIELDS + 1) * WORD, padded)


def _plausible(arguments: Arguments, selector: bytes) -> bool:
    """Whether arguments anywhere in arbitrary bytes look like a call: address words without upper
    bytes, and a signature that follows the other arguments.
    """
    try:
        clean = max(arguments.number(0), arguments.number(1)) < 2**160
        return clean and (selector in _VRS or arguments.number(_FIELDS) == (_FIELDS + 1) * WORD)
    except OutsideError:
        return False
