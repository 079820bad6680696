"""The root of every error that tollgauge raises on purpose.

An error that reaches a person says what is wrong (`str(error)`) and what to do (`error.hint`).
A subclass is defined where it is raised; the web and the command line map classes to a status and
to an exit code, in one table each.
"""


class TollgaugeError(Exception):
    """Something that tollgauge can explain.

    `hint` is advice for the person who reads it; it never holds a secret or a foreign
    exception's text.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
