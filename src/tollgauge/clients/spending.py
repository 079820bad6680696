"""What a buyer may spend: the limits of a payment, and a signed payment until its answer arrives.

A signed payment is kept in a file, so that the same one is sent again after a crash or a broken
connection, and nothing is paid twice.
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
    """Nothing was bought, and nothing was charged for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may be signed: `max_amount` atomic USDC at most, on one network (CAIP-2)."""

    network: str
    max_amount: int


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


def payable(accepts: Sequence[PaymentRequirements], limits: Limits) -> PaymentRequirements:
    """The cheapest entry of `accepts` that is within the limits. Raises PurchaseError that says
    why there is none.
    """
    entries = [entry for entry in accepts if entry.scheme == SCHEME]
    there = [entry for entry in entries if entry.network == limits.network]
    if not there:
        networks = ", ".join(sorted({entry.network for entry in entries})) or "no network"
        raise PurchaseError(
            f"The service takes payments on {networks}, not on {limits.network}.",
            hint="Nothing was paid. Where the wallet has USDC on a network that is asked for, "
            "name it with --network.",
        )
    in_usdc = [(amount, entry) for entry in there if (amount := _usdc(entry)) is not None]
    if not in_usdc:
        raise PurchaseError(
            f"The service asks to be paid with {there[0].asset}, which is not the USDC of "
            f"{limits.network}.",
            hint="Nothing was paid. Do not pay a service that asks for an unknown token.",
        )
    amount, entry = min(in_usdc, key=lambda item: item[0])
    if amount > limits.max_amount:
        raise _too_dear(amount, limits)
    if entry.max_timeout_seconds > VALID_MAX_S:
        raise PurchaseError(
            "The service asks for a payment that stays valid for more than "
            f"{VALID_MAX_S * SECOND_MS // HOUR_MS} hours.",
            hint="Nothing was paid. Until then it could be charged at any time.",
        )
    return entry


def _usdc(entry: PaymentRequirements) -> int | None:
    """The atomic USDC that an entry asks for by EIP-3009, None for anything else."""
    asset = known_asset(entry.network, entry.asset)
    method = (entry.extra or {}).get("assetTransferMethod", "eip3009")
    if asset is None or asset.symbol != "USDC" or not asset.eip3009 or method != "eip3009":
        return None
    return parse_amount(entry.amount)


def check_limits(payment: Payment, limits: Limits) -> None:
    """Raises PurchaseError unless what was signed is within the limits."""
    if payment.network != limits.network:
        raise PurchaseError(
            f"The payment is for {payment.network}, not for {limits.network}.",
            hint="Nothing more was paid. Name its network with --network.",
        )
    if payment.value > limits.max_amount:
        raise _too_dear(payment.value, limits)


def _too_dear(amount: int, limits: Limits) -> PurchaseError:
    return PurchaseError(
        f"The service asks {dollars(amount)}, and at most {dollars(limits.max_amount)} may be "
        "paid.",
        hint=f"Nothing was paid. Allow it with --max-price {dollars(amount).lstrip('$')}.",
    )
