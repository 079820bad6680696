"""The errors that the guard raises on purpose. Each says what is wrong and what to do."""

from __future__ import annotations


class GuardError(Exception):
    """Something that the guard can explain. `hint` is advice for the person who reads it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())
        self.hint = hint
