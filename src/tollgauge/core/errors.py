"""The root of every error that tollgauge raises on purpose.

An error that reaches a person says what is wrong (`str(error)`) and what to do (`error.hint`).
Each subclass lives beside its raiser; the web and the command line each map classes to a status
or an exit code in one table.
"""


class TollgaugeError(Exception):
    """Something that tollgauge can explain.

    `hint` is advice for the person who reads it; it never holds a secret or a foreign
    exception's text.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
