"""Records of the bundle about endpoints, hosts and payTo addresses.

Unknown trailing places of a record are ignored, so that the service can add some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tollgauge_guard.errors import GuardError

MIN_PLACES: Final = 9
_OFFERS: Final = 9
_MIN_CONDUCT_PLACES: Final = 4


class RecordError(GuardError):
    """A line of the bundle that is not a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payee:
    """An address that the endpoint asked to be paid at in the last 30 days (EVM: lower case), and
    since when (unix seconds).
    """

    address: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOffer:
    """An offer of the last 30 days; `amount` is in micro-dollars, None in another token."""

    network: str
    scheme: str
    pay_to: str
    amount: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How many endpoints a host or a payTo has, and how many are abusive or unavailable."""

    endpoints: int
    abusive: int
    unavailable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One endpoint as the service saw it at `as_of` (unix seconds).

    `grade` (A to F) and `score` (0 to 100) are None while nothing was measured. `payees` are newest
    first. `amount` is the advertised price on `network` (CAIP-2) in micro-dollars. Both are None if
    none is advertised, `amount` also if it is in another token. `offers` are those of 30 days.
    """

    recommendation: str
    grade: str | None
    score: float | None
    payees: tuple[Payee, ...]
    network: str | None
    amount: int | None
    flags: tuple[str, ...]
    as_of: int
    offers: tuple[KnownOffer, ...] = ()

    @property
    def pay_to(self) -> frozenset[str]:
        """Every address that the endpoint asked to be paid at."""
        listed = (*(payee.address for payee in self.payees), *(o.pay_to for o in self.offers))
        return frozenset(text.lower() if text.startswith("0x") else text for text in listed)

    @property
    def networks(self) -> frozenset[str]:
        """Every network on which the endpoint asked to be paid."""
        own = () if self.network is None else (self.network,)
        return frozenset((*own, *(offer.network for offer in self.offers)))

    def usual_price(self, network: str, scheme: str) -> int | None:
        """Return the highest known price on a network by a scheme, in micro-dollars."""
        amounts = [
            offer.amount
            for offer in self.offers
            if (offer.network, offer.scheme) == (network, scheme) and offer.amount is not None
        ]
        if network == self.network and self.amount is not None:
            amounts.append(self.amount)
        return max(amounts, default=self.amount)


def read_record(row: object) -> Record:
    """Read a line of the bundle about an endpoint. Raises RecordError."""
    if not isinstance(row, list) or len(row) < MIN_PLACES:
        raise RecordError(f"A record of the bundle is an array of at least {MIN_PLACES} values.")
    _, recommendation, grade, score, payees, network, amount, flags, as_of = row[:MIN_PLACES]
    offers = row[_OFFERS] if len(row) > _OFFERS else []
    try:
        return Record(
            recommendation=_text(recommendation),
            grade=None if grade is None else _text(grade),
            score=None if score is None else float(score),
            payees=tuple(Payee(address=_text(to), since=_number(since)) for to, since in payees),
            network=None if network is None else _text(network),
            amount=None if amount is None else int(_text(amount)),
            flags=tuple(_text(flag) for flag in flags),
            as_of=_number(as_of),
            offers=_offers(offers),
        )
    except (TypeError, ValueError) as error:
        raise RecordError("A record of the bundle has a value of another form.") from error


def read_conduct(row: object) -> Conduct:
    """Read a line of the bundle about a host or a payTo. Raises RecordError."""
    if not isinstance(row, list) or len(row) < _MIN_CONDUCT_PLACES:
        raise RecordError("A record of a host is an array of at least 4 values.")
    try:
        endpoints, abusive, unavailable = (_number(value) for value in row[1:4])
    except TypeError as error:
        raise RecordError("A record of a host has a value of another form.") from error
    return Conduct(endpoints=endpoints, abusive=abusive, unavailable=unavailable)


def _offers(rows: object) -> tuple[KnownOffer, ...]:
    # A later version may use this place for something else.
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return ()
    return tuple(
        KnownOffer(
            network=_text(network),
            scheme=_text(scheme),
            pay_to=_text(pay_to),
            amount=None if amount is None else int(_text(amount)),
        )
        for network, scheme, pay_to, amount, *_ in rows
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value
