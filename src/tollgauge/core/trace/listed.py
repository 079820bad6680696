"""Listed: authorizations that a batch contract takes as lists, and not as call data.

Two are known: `batchTransferWithAuthorization`, whose parallel arrays are the arguments of the
token's function, and Circle's FiatTokenUtil, which packs them tightly (168 bytes of terms and 65
of v, r, s each). Both call `transferWithAuthorization` for every row; the token is their own, so
a row names none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eth_utils.abi import function_signature_to_4byte_selector

from tollgauge.core.trace.abi import Arguments
from tollgauge.core.trace.calldata import WORD, Authorized, Method, word

ARRAYS: Final = (
    "batchTransferWithAuthorization(address[],address[],uint256[],uint256[],uint256[],bytes32[],"
    "uint8[],bytes32[],bytes32[],uint256)"
)
PACKED: Final = "transferWithMultipleAuthorizations(bytes,bytes,bool)"
_ARRAYS: Final = function_signature_to_4byte_selector(ARRAYS)
_PACKED: Final = function_signature_to_4byte_selector(PACKED)
_COLUMNS: Final = 9
_TERMS_SIZE: Final = 168
_SIGNATURE_SIZE: Final = 65


def listed(data: memoryview) -> Iterator[Authorized]:
    """The transfers that a call lists, in order; nothing for any other call.

    Raises OutsideError where a list does not fit the data.
    """
    readers = {_ARRAYS: _arrays, _PACKED: _packed}
    reader = readers.get(bytes(data[:4]))
    if reader is not None:
        yield from reader(Arguments(data, 4))


def _arrays(arguments: Arguments) -> Iterator[Authorized]:
    columns = [arguments.items(place) for place in range(_COLUMNS)]
    payer, payee, value, after, before, nonce, v, r, s = (cells for _, cells in columns)
    for row in range(min(length for length, _ in columns)):
        signature = r.number(row).to_bytes(WORD) + s.number(row).to_bytes(WORD)
        yield Authorized(
            method=Method.TRANSFER,
            payer=payer.address(row),
            payee=payee.address(row),
            value=value.number(row),
            valid_after=after.number(row),
            valid_before=before.number(row),
            nonce=f"0x{nonce.number(row):064x}",
            signature=signature + bytes([v.number(row) & 0xFF]),
        )


def _packed(arguments: Arguments) -> Iterator[Authorized]:
    terms, signatures = arguments.bytes(0), arguments.bytes(1)
    rows = min(len(terms) // _TERMS_SIZE, len(signatures) // _SIGNATURE_SIZE)
    for row in range(rows):
        at, signed = row * _TERMS_SIZE, row * _SIGNATURE_SIZE
        yield Authorized(
            method=Method.TRANSFER,
            payer="0x" + terms[at : at + 20].hex(),
            payee="0x" + terms[at + 20 : at + 40].hex(),
            value=word(terms, at + 40),
            valid_after=word(terms, at + 72),
            valid_before=word(terms, at + 104),
            nonce="0x" + terms[at + 136 : at + _TERMS_SIZE].hex(),
            signature=bytes(signatures[signed + 1 : signed + _SIGNATURE_SIZE])
            + bytes(signatures[signed : signed + 1]),
        )
