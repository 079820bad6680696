"""A buyer's limits, and the file that keeps a signed payment until its response arrives.

After a crash or a broken connection the same payment is sent again, so nothing is paid twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from x402.schemas import PaymentRequirements

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import DAY_MS, HOUR_MS, SECOND_MS, dollars, known_asset, parse_amount
from tollgauge.core.sale.payment import SCHEME, Payment, PaymentHeaderError, decode

VALID_MAX_S: Final = DAY_MS // SECOND_MS  # a payment that stays valid could be charged that long


class PurchaseError(TollgaugeError):
    """Nothing was bought or charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a payment: at most `max_amount` atomic USDC, on one network (CAIP-2)."""

    network: str
    max_amount: int


class KeptPaymentError(TollgaugeError):
    """A payment cannot be saved, or the saved file is not a payment: nothing was paid."""


@dataclass(frozen=True, slots=True)
class KeptPayment:
    """The file of a payment without a response yet: the header that it was sent with. Readable only
    by its owner, because the header gives access to the response.
    """

    path: Path

    def read(self) -> Payment | None:
        """Return the saved payment, None without one. Raises KeptPaymentError if it is invalid."""
        try:
            return decode(self.path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError, PaymentHeaderError) as error:
            raise KeptPaymentError(
                f"{self.path} contains no payment that can be sent again.",
                hint="Nothing more was paid. Delete it unless another command is writing it now.",
            ) from error

    def keep(self, header: str) -> str:
        """Save a payment and return the one to send: another process may have saved one first.
        Raises KeptPaymentError if the file cannot be written.
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
                os.fsync(handle)  # the payment must survive a power failure, to be sent again
        except OSError as error:
            self.path.unlink(missing_ok=True)
            raise self._not_kept() from error
        return header

    def _not_kept(self) -> KeptPaymentError:
        return KeptPaymentError(
            f"The payment cannot be saved in {self.path}, so it was not sent.",
            hint="Nothing was paid. Run the command in a writable folder, or name one with "
            "--output.",
        )

    def remove(self, payment: Payment) -> None:
        """Delete a payment whose response is stored, or that was not and never will be charged.
        The payment of another process stays. Raises KeptPaymentError for an invalid file.
        """
        kept = self.read()
        if kept is not None and kept.header == payment.header:
            self.path.unlink(missing_ok=True)


def payable(accepts: Sequence[PaymentRequirements], limits: Limits) -> PaymentRequirements:
    """Return the cheapest entry of `accepts` within the limits.

    Raises:
        PurchaseError: No entry is within the limits; the message gives the reason.
    """
    entries = [entry for entry in accepts if entry.scheme == SCHEME]
    there = [entry for entry in entries if entry.network == limits.network]
    if not there:
        networks = ", ".join(sorted({entry.network for entry in entries})) or "no network"
        raise PurchaseError(
            f"The service accepts payments on {networks}, not on {limits.network}.",
            hint="Nothing was paid. If your wallet has USDC on an accepted network, name it with "
            "--network.",
        )
    in_usdc = [(amount, entry) for entry in there if (amount := _usdc(entry)) is not None]
    if not in_usdc:
        raise PurchaseError(
            f"The service requires payment in {there[0].asset}, which is not the USDC of "
            f"{limits.network}.",
            hint="Nothing was paid. Do not pay a service that requires an unknown token.",
        )
    amount, entry = min(in_usdc, key=lambda item: item[0])
    if amount > limits.max_amount:
        raise _too_dear(amount, limits)
    if entry.max_timeout_seconds > VALID_MAX_S:
        raise PurchaseError(
            "The service requires a payment that stays valid for more than "
            f"{VALID_MAX_S * SECOND_MS // HOUR_MS} hours.",
            hint="Nothing was paid. The payment could have been charged at any time until then.",
        )
    return entry


def _usdc(entry: PaymentRequirements) -> int | None:
    """Return the atomic USDC that an entry requires by EIP-3009, None for anything else."""
    asset = known_asset(entry.network, entry.asset)
    method = (entry.extra or {}).get("assetTransferMethod", "eip3009")
    if asset is None or asset.symbol != "USDC" or not asset.eip3009 or method != "eip3009":
        return None
    return parse_amount(entry.amount)


def check_limits(payment: Payment, limits: Limits) -> None:
    """Raise PurchaseError unless the signed payment is within the limits."""
    if payment.network != limits.network:
        raise PurchaseError(
            f"The payment is for {payment.network}, not for {limits.network}.",
            hint="Nothing more was paid. Name its network with --network.",
        )
    if payment.value > limits.max_amount:
        raise _too_dear(payment.value, limits)


def _too_dear(amount: int, limits: Limits) -> PurchaseError:
    return PurchaseError(
        f"The service charges {dollars(amount)}, and the limit is {dollars(limits.max_amount)}.",
        hint=f"Nothing was paid. Allow it with --max-price {dollars(amount).lstrip('$')}.",
    )
