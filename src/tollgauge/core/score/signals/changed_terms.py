"""Flags about the terms: is the price sane, do price and payTo stay, is the URL complete?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tollgauge.core.base.rounding import is_below
from tollgauge.core.base.units import dollars
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.endpoint.finding import Severity
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.signals.facts import Facts, has_changed, is_dear, is_marked
from tollgauge.core.score.signals.flag import Fired, FlagRule


def decoy_price(facts: Facts) -> Fired | None:
    """The advertised price is $1,000 or more in a known dollar."""
    if facts.usd is None or is_below(facts.usd, (facts.policy.decoy_usd, 1)):
        return None
    return Fired(
        f"It asks for {_price(facts)} a call. Nobody is meant to pay that: do not call it."
    )


def price_above_client_cap(facts: Facts) -> Fired | None:
    """The advertised price is above $1 in a known dollar: what stock clients pay at most."""
    if facts.usd is None or not is_below((facts.policy.client_cap_usd, 1), facts.usd):
        return None
    return Fired(
        f"It asks for {_price(facts)} a call. Stock clients refuse more than "
        f"${facts.policy.client_cap_usd}.",
        to_pay="Raise their limit if you mean to pay that.",
    )


def payto_changed_recently(facts: Facts) -> Fired | None:
    """The payTo address changed in the last 7 days, the seller had not announced it ahead with a
    signature of the old address, and the URL is not a template.
    """
    if facts.evidence.templated or (at := facts.latest(PAYTO_CHANGED)) is None:
        return None
    if facts.evidence.as_of - at > facts.policy.payto_recent_ms:
        return None
    return Fired(
        "The address that receives the money changed in the last 7 days. "
        "Do not pay before the seller has confirmed that the change is theirs.",
        since=at,
    )


def price_changed(facts: Facts) -> Fired | None:
    """The advertised price changed in the last 30 days, and the URL is not a template."""
    if facts.evidence.templated or not (count := facts.changed(PRICE_CHANGED)):
        return None
    return Fired(
        f"The advertised price changed {_times(count)} in 30 days.",
        since=facts.latest(PRICE_CHANGED),
        to_pay="Set a limit on what you pay.",
    )


def price_jumped(facts: Facts) -> Fired | None:
    """The advertised price is more than twice what it was within the last 7 days, and the URL is
    not a template.
    """
    if facts.evidence.templated or not facts.changes:
        return None
    since = facts.evidence.as_of - facts.policy.price_jump_ms
    jumps = [jump for changes in _price_changes(facts, since) if (jump := _jump(changes))]
    if not jumps:
        return None
    return Fired(
        "The advertised price more than doubled within the last 7 days.",
        since=max(jumps),
        to_pay="Set a limit on what you pay, and make sure that the price is meant.",
    )


def _price_changes(facts: Facts, since: int) -> Iterator[list[TermChange]]:
    """The price changes after an instant, oldest first, of each source."""
    changes = [item for item in facts.changes if item.kind == PRICE_CHANGED and item.at > since]
    for source in {item.source for item in changes}:
        of_source = (item for item in changes if item.source == source)
        yield sorted(of_source, key=lambda item: (item.at, item.before, item.after))


def _jump(changes: list[TermChange]) -> int | None:
    """The instant of the last of some changes if its price is above twice the least one before a
    change, else None.
    """
    least = min(before for before, _ in (change.amounts for change in changes))
    _, price = changes[-1].amounts
    return changes[-1].at if 2 * least < price else None


def price_varies(facts: Facts) -> Fired | None:
    """The price of a templated URL differed between observations of the last 30 days."""
    if not facts.evidence.templated or not (count := facts.changed(PRICE_CHANGED)):
        return None
    return Fired(
        f"The price depends on the item: it differed {_times(count)} in 30 days.",
        since=facts.latest(PRICE_CHANGED),
        to_pay="Read the price of your item before you pay.",
    )


def payto_varies(facts: Facts) -> Fired | None:
    """The payTo address of a templated URL differed between observations of the last 30 days, or
    each offer of any URL has named another one since the first 24 hours of observation.
    """
    if facts.evidence.pay_to_varies:
        return Fired(
            "Each offer names another receiving address, as it has since it was first watched, so "
            "no address can be checked.",
            to_pay="Before you pay, pin what does not vary: the host, a maximum amount and, if you "
            "know it, the facilitator.",
        )
    if not facts.evidence.templated or not (count := facts.changed(PAYTO_CHANGED)):
        return None
    return Fired(
        f"The receiving address depends on the item: it differed {_times(count)} in 30 days.",
        since=facts.latest(PAYTO_CHANGED),
        to_pay="Check the address of your item before you pay.",
    )


def unresolved_template(facts: Facts) -> Fired | None:
    """The URL holds a placeholder that nobody filled in."""
    if not facts.evidence.templated:
        return None
    return Fired(
        "The listed URL holds a placeholder, so it cannot be called as it stands. "
        "Fill it in and ask for the report of the full URL."
    )


def _price(facts: Facts) -> str:
    quote = facts.evidence.quote
    return dollars(quote.amount, quote.decimals or 0) if quote else "nothing"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


FLAGS: Final = (
    FlagRule(
        "payto-changed-recently",
        Severity.ERROR,
        payto_changed_recently,
        fix="Keep the payTo address, or announce a change ahead, signed by the old address.",
        only_if=has_changed,
    ),
    FlagRule(
        "decoy-price",
        Severity.ERROR,
        decoy_price,
        fix="Ask for the price that you mean.",
        only_if=is_dear,
    ),
    FlagRule(
        "price-above-client-cap",
        Severity.WARN,
        price_above_client_cap,
        fix="Ask for $1 at most, or tell buyers to raise their limit.",
        only_if=is_dear,
    ),
    FlagRule(
        "price-changed",
        Severity.WARN,
        price_changed,
        fix="Keep the price for 30 days.",
        only_if=has_changed,
    ),
    FlagRule(
        "unresolved-template",
        Severity.WARN,
        unresolved_template,
        fix="List a URL that can be called as it stands.",
        only_if=is_marked,
    ),
    FlagRule("payto-varies", Severity.INFO, payto_varies, only_if=has_changed),
    FlagRule("price-varies", Severity.INFO, price_varies, only_if=has_changed),
    FlagRule(
        "price-jumped",
        Severity.WARN,
        price_jumped,
        fix="Raise a price in steps that are less than double.",
        only_if=has_changed,
    ),
)
