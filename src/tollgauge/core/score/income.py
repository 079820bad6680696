"""Flows between wallets, and the income of wallets in periods of whole UTC days, for statistics
and wallet pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class Flow(NamedTuple):
    """Transfers in a window between a wallet and one counterparty: the number of payments that the
    wallet received, their sum (`paid`), and the sum that it `returned` by any transfer (atomic
    USDC).
    """

    transfers: int = 0
    paid: int = 0
    returned: int = 0

    def plus(self, other: Flow) -> Flow:
        """Return the sum of two flows."""
        return Flow(
            self.transfers + other.transfers,
            self.paid + other.paid,
            self.returned + other.returned,
        )


class Period(NamedTuple):
    """Whole UTC days from `first` to `last`."""

    first: int
    last: int


class DaySum(NamedTuple):
    """The payments of a UTC day from others: their number and sum, and the net spending of proven
    payers (atomic USDC).
    """

    day: int
    transfers: int
    volume: int
    proven_volume: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodFigures:
    """Payments of a period to the sellers of a chain from others (amounts in atomic USDC), the
    numbers of these buyers and sellers, and the number and net spending of proven buyers.
    """

    settlements: int = 0
    volume: int = 0
    buyers: int = 0
    sellers: int = 0
    proven_buyers: int = 0
    proven_volume: int = 0


NO_PAYMENTS: Final = PeriodFigures()


class Income(NamedTuple):
    """Payments of others to one wallet in a period (amounts in atomic USDC)."""

    transfers: int = 0
    volume: int = 0
    payers: int = 0
    proven_payers: int = 0
    proven_volume: int = 0


class TopPayer(NamedTuple):
    """A payer of a wallet, with its payments and the amount returned to it (atomic USDC)."""

    payer: str
    transfers: int
    paid: int
    returned: int
    proven: bool


class WalletIncome(NamedTuple):
    """The income of a wallet in the periods that end with the UTC day `last_day`, the shortest
    first, each with its days; and its largest payers in the longest of these.
    """

    last_day: int
    incomes: tuple[tuple[int, Income], ...]
    top: tuple[TopPayer, ...]
