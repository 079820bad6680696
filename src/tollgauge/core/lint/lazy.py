"""A property that is computed when it is first asked for, and kept.

It is `functools.cached_property` without the lock that it takes at each first look until Python
3.12. An answer is judged by one thread, and asks for some thirty of these: the lock took as long as
all that they compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy_property(Generic[Owner, Value]):  # noqa: N801 - it is used as `property` is
    """The value of a method, computed once for each instance. The instance needs a `__dict__`."""

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Owner, _: type) -> Value:
        value = self._compute(instance)
        instance.__dict__[self._name] = value  # which is looked at before this property from now on
        return value
