"""Records of the bundle about endpoints, hosts and payTo addresses.

Unknown trailing places of a record are ignored, so that the service can add some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tollgauge_guard.errors import GuardError

MIN_PLACES: Final = 9
_MIN_CONDUCT_PLACES: Final = 4
_PATTERNS: Final = 4


class RecordError(GuardError):
    """A line of the bundle that is not a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOffer:
    """An offer of the last 30 days; `amount` is in micro-dollars, None in another token. EVM
    addresses are in lower case.
    """

    network: str
    scheme: str
    pay_to: str
    amount: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How many endpoints a host or a payTo has, and how many are abusive or unavailable.

    `patterns` are the resources of the host whose paths contain placeholders.
    """

    endpoints: int
    abusive: int
    unavailable: int
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One endpoint as the service saw it at `as_of` (unix seconds).

    `grade` (A to F) and `score` (0 to 100) are None while nothing was measured. `offers` are those
    of the last 30 days, the latest first.
    """

    recommendation: str
    grade: str | None
    score: float | None
    offers: tuple[KnownOffer, ...]
    flags: tuple[str, ...]
    as_of: int

    @property
    def pay_to(self) -> tuple[str, ...]:
        """The distinct addresses that the endpoint asked to be paid at, the latest first."""
        return tuple(dict.fromkeys(offer.pay_to for offer in self.offers))

    @property
    def networks(self) -> tuple[str, ...]:
        """The distinct networks on which the endpoint asked to be paid."""
        return tuple(dict.fromkeys(offer.network for offer in self.offers))

    def usual_price(self, network: str, scheme: str) -> int | None:
        """Return the highest price on a network by a scheme, or by any scheme if there is none, in
        micro-dollars.
        """
        prices = [
            (offer.scheme == scheme, offer.amount)
            for offer in self.offers
            if offer.network == network and offer.amount is not None
        ]
        return max(prices)[1] if prices else None


def read_record(row: object, addresses: Sequence[object]) -> Record:
    """Read a line of the bundle about an endpoint. Raises RecordError.

    Args:
        row: The line.
        addresses: The payTo addresses of the bundle, which offers name by their index.
    """
    if not isinstance(row, list) or len(row) < MIN_PLACES:
        raise RecordError(f"A record of the bundle is an array of at least {MIN_PLACES} values.")
    # The places of demand and delivery do not decide.
    _, recommendation, grade, score, offers, flags, _, _, as_of = row[:MIN_PLACES]
    try:
        return Record(
            recommendation=_text(recommendation),
            grade=None if grade is None else _text(grade),
            score=None if score is None else float(score),
            offers=tuple(
                KnownOffer(
                    network=_text(network),
                    scheme=_text(scheme),
                    pay_to=_text(addresses[_number(index)]),
                    amount=None if amount is None else int(_text(amount)),
                )
                for network, scheme, index, amount, *_ in offers
            ),
            flags=tuple(_text(flag) for flag in flags),
            as_of=_number(as_of),
        )
    except (IndexError, TypeError, ValueError) as error:
        raise RecordError("A record of the bundle has a value of another form.") from error


def read_conduct(row: object) -> Conduct:
    """Read a line of the bundle about a host or a payTo. Raises RecordError."""
    if not isinstance(row, list) or len(row) < _MIN_CONDUCT_PLACES:
        raise RecordError("A record of a host is an array of at least 4 values.")
    patterns = row[_PATTERNS] if len(row) > _PATTERNS else []
    try:
        endpoints, abusive, unavailable = (_number(value) for value in row[1:4])
    except TypeError as error:
        raise RecordError("A record of a host has a value of another form.") from error
    # A later version may use this place for something else.
    is_known = isinstance(patterns, list) and all(isinstance(text, str) for text in patterns)
    return Conduct(
        endpoints=endpoints,
        abusive=abusive,
        unavailable=unavailable,
        patterns=tuple(patterns) if is_known else (),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError
    return value
