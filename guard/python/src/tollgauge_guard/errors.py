"""Errors of the guard. Each states what is wrong and what to do."""

from __future__ import annotations


class GuardError(Exception):
    """An error that the guard explains. `hint` is advice for the reader."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())
        self.hint = hint
