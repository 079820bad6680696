"""Kept payment: a signed payment in a file until its answer is there, so that the same one is sent
again after a crash or a broken connection, and nothing is paid twice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.sale.payment import Payment, PaymentHeaderError, decode


class KeptPaymentError(TollgaugeError):
    """A payment cannot be kept, or what was kept is none: nothing was paid."""


@dataclass(frozen=True, slots=True)
class KeptPayment:
    """The file of a payment whose answer is not there yet: the header that it was sent with, for
    its owner alone, because who has it can read the answer.
    """

    path: Path

    def read(self) -> Payment | None:
        """The payment, None where none is kept. Raises KeptPaymentError for a file without one."""
        try:
            return decode(self.path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError, PaymentHeaderError) as error:
            raise KeptPaymentError(
                f"{self.path} holds no payment that could be sent again.",
                hint="Nothing more was paid. Delete it unless another command is writing it now.",
            ) from error

    def keep(self, header: str) -> str:
        """Write a payment down. Returns the one to send: where another process has just kept one,
        that. Raises KeptPaymentError where nothing can be written.
        """
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            kept = self.read()
            return header if kept is None else kept.header
        except OSError as error:
            raise self._not_kept() from error
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(header)
                file.flush()
                os.fsync(handle)  # after a power cut it is still there to be sent again
        except OSError as error:
            self.path.unlink(missing_ok=True)
            raise self._not_kept() from error
        return header

    def _not_kept(self) -> KeptPaymentError:
        return KeptPaymentError(
            f"The payment cannot be kept in {self.path}, so it was not sent.",
            hint="Nothing was paid. Run the command in a folder that can be written, or name "
            "one with --output.",
        )

    def remove(self, payment: Payment) -> None:
        """Forget a payment: its answer is safe, or it took nothing and never will. Another one,
        which another process has put into its place, stays. Raises KeptPaymentError for a file
        without one.
        """
        kept = self.read()
        if kept is not None and kept.header == payment.header:
            self.path.unlink(missing_ok=True)
