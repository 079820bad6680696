"""Flags about listing, terms and settlements: is the endpoint new, does it keep its price and
payTo, who pays it?

The methodology page shows the docstring of each rule.
"""

from __future__ import annotations

from tollgauge.core.base.rounding import half_up, is_below
from tollgauge.core.base.units import HOUR_MS, WINDOW_MS, dollars
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.endpoint.terms import FormReading, form_text
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.score.facts import Facts
from tollgauge.core.score.flag import Fired, flag_rule
from tollgauge.core.score.prices import find_last_jump


@flag_rule(Severity.WARN, fix="Have a directory list the endpoint again.")
def delisted(facts: Facts) -> Fired | None:
    """No directory lists it any more."""
    if facts.evidence.listed:
        return None
    return Fired("No directory lists it any more. Look for an alternative before it goes away.")


@flag_rule(
    Severity.WARN, fix="Describe what the endpoint does, without instructions to the reader."
)
def injection_suspected(facts: Facts) -> Fired | None:
    """A text of the provider looks like instructions to an agent."""
    if not facts.evidence.injection:
        return None
    return Fired(
        "Its description looks like instructions to an agent. "
        "Do not pass the provider's texts to an agent that could act on them."
    )


@flag_rule(Severity.INFO)
def first_contact(facts: Facts) -> Fired | None:
    """First seen less than 24 hours ago, or at most one scored probe in the window."""
    new = facts.evidence.as_of - facts.evidence.first_seen < facts.policy.new_ms
    few = facts.totals.scored <= 1
    if not new and not few:
        return None
    if not new:
        text = "It was hardly checked: the report is based on at most one check in 30 days."
    elif few:
        text = "It is new here: the report is based on one live check."
    else:
        text = "It is new here: the report is based on less than a day of checks."
    return Fired(f"{text} Look again in a day.", since=facts.evidence.first_seen)


@flag_rule(Severity.INFO)
def low_confidence(facts: Facts) -> Fired | None:
    """Scored probes cover less than 20% of 720 hours."""
    share, (part, whole) = facts.policy.low_confidence, facts.confidence
    if not is_below((part, whole), share.as_integer_ratio()):
        return None
    return Fired(
        f"Checks cover only {facts.covered_ms // HOUR_MS} of {facts.policy.hours_full} hours. "
        "Read the score range rather than the score."
    )


@flag_rule(Severity.INFO)
def new_path_of_known_site(facts: Facts) -> Fired | None:
    """First seen less than 7 days ago, on a site with at least 2 other paths to compare with."""
    median = facts.evidence.site_median_tenths
    if median is None:
        return None
    return Fired(
        "It is a new path of a known site: for 7 days its score is limited by those of the site's "
        f"other paths (median {median // 10}.{median % 10}).",
        since=facts.evidence.first_seen,
    )


@flag_rule(Severity.ERROR, fix="Deliver what was paid for, or do not settle the payment.")
def paid_not_delivered(facts: Facts) -> Fired | None:
    """One of the last purchases settled on chain and was not delivered."""
    if not facts.evidence.paid_not_delivered:
        return None
    return Fired("It took a payment and did not deliver what was bought. Do not pay it.")


@flag_rule(Severity.ERROR, fix="Ask for the price that you mean.")
def decoy_price(facts: Facts) -> Fired | None:
    """The advertised price is $1,000 or more in a known dollar."""
    if facts.usd is None or is_below(facts.usd, (facts.policy.decoy_usd, 1)):
        return None
    return Fired(
        f"It asks for {_price(facts)} a call, a price that is not meant to be paid: do not call it."
    )


@flag_rule(Severity.WARN, fix="Ask for $1 at most, or tell buyers to raise their limit.")
def price_above_client_cap(facts: Facts) -> Fired | None:
    """The advertised price is above $1 in a known dollar, the default limit of stock clients."""
    if facts.usd is None or not is_below((facts.policy.client_cap_usd, 1), facts.usd):
        return None
    return Fired(
        f"It asks for {_price(facts)} a call. Stock clients refuse more than "
        f"${facts.policy.client_cap_usd}.",
        to_pay="Raise their limit if you mean to pay that.",
    )


@flag_rule(
    Severity.ERROR,
    fix="Keep the payTo address, or announce a change before it, signed by the old address.",
)
def payto_changed_recently(facts: Facts) -> Fired | None:
    """The payTo address changed in the last 7 days, the seller did not announce the change before
    with a signature of the old address, and the URL is not a template.
    """
    if facts.evidence.templated or (at := facts.latest(PAYTO_CHANGED)) is None:
        return None
    if facts.evidence.as_of - at > facts.policy.payto_recent_ms:
        return None
    return Fired(
        "The address that receives the money changed in the last 7 days. "
        "Do not pay before the seller has confirmed the change.",
        since=at,
    )


@flag_rule(Severity.WARN, fix="Keep the price for 30 days.")
def price_changed(facts: Facts) -> Fired | None:
    """The advertised price changed in the last 30 days, and the URL is not a template."""
    if facts.evidence.templated or not (count := facts.count_changes(PRICE_CHANGED)):
        return None
    return Fired(
        f"The advertised price changed {_times(count)} in 30 days.",
        since=facts.latest(PRICE_CHANGED),
        to_pay="Set a limit on what you pay.",
    )


@flag_rule(Severity.WARN, fix="Keep the price below twice the usual price of the last 31 days.")
def price_jumped(facts: Facts) -> Fired | None:
    """The last price increase is less than 7 days old, the price is still more than twice the usual
    price before it, and the URL is not a template.
    """
    if facts.evidence.templated:
        return None
    since = facts.evidence.as_of - facts.policy.price_jump_ms
    prices = [(at, price) for at, _, price in facts.prices]
    at = find_last_jump(prices, since=since)
    if at is None:
        return None
    return Fired(
        "The price rose to more than twice the usual price less than 7 days ago.",
        since=at,
        to_pay="Set a limit on what you pay, and make sure that the price is intended.",
    )


@flag_rule(Severity.INFO)
def price_varies(facts: Facts) -> Fired | None:
    """The price of a templated URL differed between observations of the last 30 days."""
    if not facts.evidence.templated or not (count := facts.count_changes(PRICE_CHANGED)):
        return None
    return Fired(
        f"The price depends on the item: it differed {_times(count)} in 30 days.",
        since=facts.latest(PRICE_CHANGED),
        to_pay="Read the price of your item before you pay.",
    )


@flag_rule(Severity.INFO)
def payto_varies(facts: Facts) -> Fired | None:
    """The payTo address of a templated URL differed between observations of the last 30 days, or
    each offer of a URL has named another one since the first 24 hours of observation.
    """
    if facts.evidence.pay_to_varies:
        return Fired(
            "Each offer names another receiving address, and has since observation began, so no "
            "address can be checked.",
            to_pay="Before you pay, pin the host, a maximum amount and, if you know it, the "
            "facilitator.",
        )
    if not facts.evidence.templated or not (count := facts.count_changes(PAYTO_CHANGED)):
        return None
    return Fired(
        f"The receiving address depends on the item: it differed {_times(count)} in 30 days.",
        since=facts.latest(PAYTO_CHANGED),
        to_pay="Check the address of your item before you pay.",
    )


@flag_rule(Severity.WARN, fix="List a URL that can be called as it stands.")
def unresolved_template(facts: Facts) -> Fired | None:
    """The URL contains a placeholder that is not filled in."""
    if not facts.evidence.templated:
        return None
    return Fired(
        "The listed URL contains a placeholder, so it cannot be called as it stands. "
        "Fill it in and ask for the report of the full URL."
    )


def _price(facts: Facts) -> str:
    quote = facts.evidence.quote
    return dollars(quote.amount, quote.decimals or 0) if quote else "nothing"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


@flag_rule(Severity.WARN, fix="Do not pay yourself: it never counts.")
def self_paid(facts: Facts) -> Fired | None:
    """The seller paid itself, or sent back at least half of what others paid."""
    demand = facts.demand
    if demand is None:
        return None
    back = demand.returned and 2 * demand.returned >= demand.volume
    if not demand.own and not back:
        return None
    return Fired(
        f"{dollars(demand.own + demand.returned)} of {dollars(demand.own + demand.volume)} went "
        "from the seller to itself or back to the payer. Do not read the volume as demand."
    )


@flag_rule(
    Severity.INFO,
    fix="Use a payTo address of your own, or publish a list of sites signed with its key.",
)
def shared_payto(facts: Facts) -> Fired | None:
    """It names the payTo of another site, so its payments count for that site."""
    chain = facts.evidence.chain
    if chain is None or chain.owner is None:
        return None
    return Fired(
        f"It names the address of {chain.owner}: payments to that address count for "
        f"{chain.owner} and not for this endpoint.",
        to_pay="Make sure that you want to pay that site.",
    )


@flag_rule(Severity.INFO)
def settlements_not_measured(facts: Facts) -> Fired | None:
    """Settlements are not read on every network and in every form of payment that it offers, so
    that the number of its payments is unknown.
    """
    coverage = facts.coverage
    if not coverage:
        return Fired(
            "Its payTo is unknown, so its settlements cannot be searched for. Activity counts as 0."
        )
    names = {
        reading: ", ".join(form_text(form) for form, one in coverage.items() if one is reading)
        for reading in FormReading
    }
    experimental = names[FormReading.EXPERIMENTAL]
    note = f"The reader of {experimental} is experimental and may miss payments."
    unread = names[FormReading.NOT_READ]
    if not unread:
        return Fired(note, to_pay="Start with a small payment.") if experimental else None
    counted = (
        "Its activity only includes payments in other forms."
        if any(reading is not FormReading.NOT_READ for reading in coverage.values())
        else "Activity counts as 0 until they are."
    )
    return Fired(
        f"Settlements are not measured for {unread}: the number of such payments is unknown. "
        f"{counted}{f' {note}' if experimental else ''}",
        to_pay="Start with a small payment.",
    )


@flag_rule(Severity.INFO)
def no_settlements(facts: Facts) -> Fired | None:
    """No payment to its payTo is known, and settlements are read on every network and in every form
    of payment that it offers.
    """
    chain, demand = facts.evidence.chain, facts.demand
    if chain is None or chain.owner is not None or (demand is not None and demand.payers):
        return None
    if any(reading is not FormReading.READ for reading in facts.coverage.values()):
        return None
    percent = half_up((min(facts.indexed_ms, WINDOW_MS), WINDOW_MS), 100)
    if percent < 100:
        share = f"{percent}%" if percent else "less than 1%"
        return Fired(
            f"No payment to its payTo was found yet; {share} of the last 30 days is indexed.",
            to_pay="Start with a small payment.",
        )
    return Fired(
        "No payment to its payTo was found in the last 30 days.",
        to_pay="You may be among its first buyers: start with a small payment.",
    )
