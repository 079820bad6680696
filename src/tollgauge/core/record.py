"""Record: a dataclass that nobody changes, and that is quick to make.

To mypy `record` is `dataclass`, so that it refuses whatever would change a frozen one. At run time
a record is not frozen: each field of a frozen dataclass is set by a call of object.__setattr__,
which was a tenth of a score. For what each score or each probe makes anew; all else is a frozen
dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

__all__ = ["record"]

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool, slots: bool = False, kw_only: bool) -> Callable[[type[T]], type[T]]:
        """A dataclass with the equality and the hash of a frozen one."""
        return dataclass(unsafe_hash=frozen, slots=slots, kw_only=kw_only)
