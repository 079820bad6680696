"""Call data: EIP-3009 transfers in the bytes of one call, and the replies of `eth_call`.

Rules:
- the four functions are `transferWithAuthorization` and `receiveWithAuthorization`, each with the
  signature as `v, r, s` and as `bytes` (EIP-3009; Circle's FiatTokenV2_2);
- arguments are read in place, as a Solidity contract reads them. Each offset and length is checked
  before it is followed. Bytes after the arguments (builder codes, ERC-8021) are ignored; a `bytes`
  argument may be anywhere in the data but must be inside it, or the contract would have reverted;
- the upper bytes of an address word are masked, as the token's compiler does; `strict` reading,
  for bytes that may not be a call, rejects them;
- no function raises on any bytes, except the methods of Arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.base.text import clean_text
from tollgauge.core.chain.forms import PROXIES
from tollgauge.core.endpoint.terms import EIP3009, PERMIT2, UPTO

WORD: Final = 32
SELECTOR_SIZE: Final = 4
_FIELDS: Final = 6  # from, to, value, validAfter, validBefore, nonce
_PERMIT_WORDS: Final = 5  # value, deadline, r, s, v of the EIP-2612 permit of settleWithPermit
SYMBOL_CALL: Final = "0x95d89b41"
DECIMALS_CALL: Final = "0x313ce567"
SYMBOL_MAX: Final = 16
DECIMALS_MAX: Final = 77
_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2}){1,4096}", re.ASCII)


class OutsideError(Exception):
    """An offset or length that leaves the data."""


def word(view: memoryview, at: int) -> int:
    """Return the 32-byte number at an offset that is known to be inside."""
    return int.from_bytes(view[at : at + WORD])


@dataclass(frozen=True, slots=True)
class Arguments:
    """ABI-encoded arguments, whose offsets count from `base`. Methods raise OutsideError."""

    view: memoryview
    base: int

    def number(self, index: int) -> int:
        """Return the 32-byte number at `index`."""
        at = self.base + index * WORD
        if at + WORD > len(self.view):
            raise OutsideError
        return word(self.view, at)

    def word(self, index: int) -> str:
        """Return the 32 bytes at `index` as hex."""
        return f"0x{self.number(index):064x}"

    def address(self, index: int) -> str:
        """Return the address at `index`, its upper bytes masked."""
        return f"0x{self.number(index) & (2**160 - 1):040x}"

    def at(self, index: int) -> Arguments:
        """Return the dynamic argument whose offset is at `index`."""
        offset = self.number(index)
        if offset > len(self.view):
            raise OutsideError
        return Arguments(self.view, self.base + offset)

    def items(self, index: int) -> tuple[int, Arguments]:
        """Return the length of the array at `index`, and its elements."""
        array = self.at(index)
        length = array.number(0)
        elements = Arguments(self.view, array.base + WORD)
        if length * WORD > len(self.view) - elements.base:
            raise OutsideError
        return length, elements

    def bytes(self, index: int) -> memoryview:
        """Return the `bytes` argument whose offset is at `index`."""
        argument = self.at(index)
        length, start = argument.number(0), argument.base + WORD
        if length > len(self.view) - start:
            raise OutsideError
        return self.view[start : start + length]


class Method(StrEnum):
    """The functions that move money: of EIP-3009 tokens, and of the x402 Permit2 proxies."""

    TRANSFER = "transferWithAuthorization"
    RECEIVE = "receiveWithAuthorization"
    SETTLE = "settle"
    SETTLE_WITH_PERMIT = "settleWithPermit"


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
"""Functions of EIP-3009."""
_SETTLE: Final = {
    (PERMIT2, bytes.fromhex("13cd3b53")): Method.SETTLE,
    (PERMIT2, bytes.fromhex("fa340378")): Method.SETTLE_WITH_PERMIT,
    (UPTO, bytes.fromhex("ff11e7b4")): Method.SETTLE,
    (UPTO, bytes.fromhex("016c1748")): Method.SETTLE_WITH_PERMIT,
}
"""Functions of the proxies, by form of payment and selector."""
PROXY_SELECTORS: Final = frozenset(selector for _, selector in _SETTLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedTransfer:
    """One call to an EIP-3009 transfer, or to a Permit2 proxy (`form`, core/chain/forms). Hex is
    lower case, `valid_…` are Unix seconds.

    `target` is the called contract, None if the bytes do not name it; it is the token, or a proxy
    in front of it. For a Permit2 proxy it is the token that the payer signed for. `signature` is
    `r, s, v`, or any bytes that the payer's wallet accepts.
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
    form: str = EIP3009

    @property
    def key(self) -> tuple[str, str]:
        """Payer and nonce, which a token accepts only once."""
        return self.payer, self.nonce


def read_call(
    data: bytes | memoryview, target: str | None = None, *, start: int = 0, strict: bool = False
) -> AuthorizedTransfer | None:
    """Return the transfer whose call data starts at `start`, or None: a call of EIP-3009, or of a
    Permit2 proxy.
    """
    view = memoryview(data)
    selector = bytes(view[start : start + SELECTOR_SIZE])
    arguments = Arguments(view, start + SELECTOR_SIZE)
    form = PROXIES.get(target or "")
    if form is not None and (method := _SETTLE.get((form, selector))) is not None:
        return _read_settlement(arguments, form, method)
    if selector not in SELECTORS or (strict and not _is_plausible(arguments, selector)):
        return None
    try:
        signature, end = _read_vrs(arguments) if selector in _VRS else _read_signature(arguments)
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


def _read_settlement(arguments: Arguments, form: str, method: Method) -> AuthorizedTransfer | None:
    """Return the transfer that a call of a Permit2 proxy requests; None if its data is cut.

    The arguments are the permit (token, amount, nonce, deadline), for `upto` the settled amount,
    the owner, the witness (to, for `upto` the facilitator, validAfter) and the signature.
    """
    at = _PERMIT_WORDS if method is Method.SETTLE_WITH_PERMIT else 0
    extra = 1 if form == UPTO else 0
    try:
        signature = arguments.bytes(at + 7 + 2 * extra)
        return AuthorizedTransfer(
            method=method,
            payer=arguments.address(at + 4 + extra),
            payee=arguments.address(at + 5 + extra),
            value=arguments.number(at + 4) if extra else arguments.number(at + 1),
            valid_after=arguments.number(at + 6 + 2 * extra),
            valid_before=arguments.number(at + 3),
            nonce=arguments.word(at + 2),
            signature=bytes(signature),
            target=arguments.address(at),
            form=form,
        )
    except OutsideError:
        return None


def _read_vrs(arguments: Arguments) -> tuple[bytes, int]:
    """Return the signature as `r, s, v`, and the end of the arguments."""
    v, r, s = (arguments.number(_FIELDS + index) for index in range(3))
    signature = r.to_bytes(WORD) + s.to_bytes(WORD) + bytes([v & 0xFF])
    return signature, arguments.base + (_FIELDS + 3) * WORD


def _read_signature(arguments: Arguments) -> tuple[bytes, int]:
    """Return the signature's bytes, and the end of the arguments after its padding."""
    signature = bytes(arguments.bytes(_FIELDS))
    start = arguments.base + arguments.number(_FIELDS) + WORD
    padded = start + -(-len(signature) // WORD) * WORD
    return signature, max(arguments.base + (_FIELDS + 1) * WORD, padded)


def _is_plausible(arguments: Arguments, selector: bytes) -> bool:
    """Return whether arguments in arbitrary bytes look like a call: address words without upper
    bytes, and a signature that follows the other arguments.
    """
    try:
        clean = max(arguments.number(0), arguments.number(1)) < 2**160
        return clean and (selector in _VRS or arguments.number(_FIELDS) == (_FIELDS + 1) * WORD)
    except OutsideError:
        return False


def read_symbol(reply: object) -> str | None:
    """Return the symbol in a reply, or None."""
    data = _read_reply(reply)
    if len(data) == WORD:
        raw = data.rstrip(b"\0")
    elif len(data) >= 2 * WORD and word(memoryview(data), 0) == WORD:
        length = word(memoryview(data), WORD)
        raw = data[2 * WORD : 2 * WORD + min(length, len(data))]
    else:
        return None
    return clean_text(raw.decode("utf-8", "replace"), SYMBOL_MAX) or None


def read_decimals(reply: object) -> int | None:
    """Return the number of decimals in a reply, or None."""
    data = _read_reply(reply)
    if len(data) != WORD:
        return None
    decimals = word(memoryview(data), 0)
    return decimals if decimals <= DECIMALS_MAX else None


def _read_reply(reply: object) -> bytes:
    if isinstance(reply, str) and _HEX.fullmatch(reply):
        return bytes.fromhex(reply[2:])
    return b""
