"""Errors of the guard. Each states the problem and a remedy."""

from __future__ import annotations


class GuardError(Exception):
    """An error that the guard explains. `hint` is advice for the reader."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())
        self.hint = hint
