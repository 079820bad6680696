"""The base class of every error that tollgauge raises on purpose.

An error for people has a message (`str(error)`) and advice (`error.hint`). Each subclass is defined
in the module that raises it; the web and the command line map classes to a status and to an exit
code, in one table each.
"""


class TollgaugeError(Exception):
    """An error that tollgauge can explain.

    `hint` is advice for its reader. It never contains a secret or the text of a foreign exception.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
