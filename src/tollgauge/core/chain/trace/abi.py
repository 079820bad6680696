"""ABI: arguments of a call read in place, each offset and length checked before it is followed.

By the Solidity contract ABI specification, numbers are words of 32 bytes, and a dynamic argument is
an offset from where its arguments begin. Nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WORD: Final = 32


class OutsideError(Exception):
    """An offset or length that leaves the data."""


def word(view: memoryview, at: int) -> int:
    """The 32-byte number at an offset that is known to lie inside."""
    return int.from_bytes(view[at : at + WORD])


@dataclass(frozen=True, slots=True)
class Arguments:
    """ABI-encoded arguments, whose offsets count from `base`. Methods raise OutsideError."""

    view: memoryview
    base: int

    def number(self, place: int) -> int:
        """The 32-byte number at a place."""
        at = self.base + place * WORD
        if at + WORD > len(self.view):
            raise OutsideError
        return word(self.view, at)

    def word(self, place: int) -> str:
        """The 32 bytes at a place as hex."""
        return f"0x{self.number(place):064x}"

    def address(self, place: int) -> str:
        """The address at a place, its upper bytes masked."""
        return f"0x{self.number(place) & (2**160 - 1):040x}"

    def at(self, place: int) -> Arguments:
        """The dynamic argument whose offset is at `place`."""
        offset = self.number(place)
        if offset > len(self.view):
            raise OutsideError
        return Arguments(self.view, self.base + offset)

    def items(self, place: int) -> tuple[int, Arguments]:
        """The length of the array at `place`, and its elements."""
        array = self.at(place)
        length = array.number(0)
        elements = Arguments(self.view, array.base + WORD)
        if length * WORD > len(self.view) - elements.base:
            raise OutsideError
        return length, elements

    def bytes(self, place: int) -> memoryview:
        """The `bytes` argument whose offset is at `place`."""
        argument = self.at(place)
        length, start = argument.number(0), argument.base + WORD
        if length > len(self.view) - start:
            raise OutsideError
        return self.view[start : start + length]
