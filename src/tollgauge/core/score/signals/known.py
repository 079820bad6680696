"""Flags about the endpoint itself: is it listed, is it new, can its texts be trusted?"""

from __future__ import annotations

from typing import Final

from tollgauge.core.endpoint.finding import Severity
from tollgauge.core.score.signals.facts import Facts, is_marked
from tollgauge.core.score.signals.flag import Fired, FlagRule


def delisted(facts: Facts) -> Fired | None:
    """No directory lists it any more."""
    if facts.evidence.listed:
        return None
    return Fired("No directory lists it any more. Look for an alternative before it goes away.")


def injection_suspected(facts: Facts) -> Fired | None:
    """A text of the provider looks like instructions to an agent."""
    if not facts.evidence.injection:
        return None
    return Fired(
        "Its description looks like instructions to an agent. "
        "Show the provider's texts to nobody who would act on them."
    )


def first_contact(facts: Facts) -> Fired | None:
    """First seen less than 24 hours ago, or at most one scored probe in the window."""
    new = facts.evidence.as_of - facts.evidence.first_seen < facts.policy.new_ms
    few = facts.totals.scored <= 1
    if not new and not few:
        return None
    if not new:
        words = "It was hardly checked: the report rests on one check of the last 30 days at most."
    elif few:
        words = "It is new here: the report rests on what was seen just now."
    else:
        words = "It is new here: the report rests on less than a day of checks."
    return Fired(f"{words} Look again in a day.", since=facts.evidence.first_seen)


def low_confidence(facts: Facts) -> Fired | None:
    """Fewer than 20 % of the window's half hours have a scored probe."""
    if not facts.is_barely_observed:
        return None
    return Fired(
        f"Only {facts.totals.slots} of {facts.policy.slots_full} half hours were observed. "
        "Read the score range rather than the score."
    )


def new_path_of_known_site(facts: Facts) -> Fired | None:
    """First seen less than 7 days ago, on a site of which other paths are known for longer."""
    median = facts.evidence.site_median_tenths
    if median is None:
        return None
    return Fired(
        "It is a new path of a site that is known: for 7 days it is not taken for better than "
        f"what the site's other endpoints score ({median // 10}.{median % 10} in the middle).",
        since=facts.evidence.first_seen,
    )


def paid_not_delivered(facts: Facts) -> Fired | None:
    """One of the last purchases settled on chain and was not delivered."""
    if not facts.evidence.paid_not_delivered:
        return None
    return Fired("It took a payment and did not deliver what was bought. Do not pay it.")


FLAGS: Final = (
    FlagRule(
        "delisted",
        Severity.WARN,
        delisted,
        fix="Have a directory list the endpoint again.",
        only_if=is_marked,
    ),
    FlagRule(
        "injection-suspected",
        Severity.WARN,
        injection_suspected,
        fix="Describe what the endpoint does, without instructions to the reader.",
        only_if=is_marked,
    ),
    FlagRule("first-contact", Severity.INFO, first_contact),
    FlagRule("low-confidence", Severity.INFO, low_confidence),
    FlagRule(
        "paid-not-delivered",
        Severity.ERROR,
        paid_not_delivered,
        fix="Deliver what was paid for, or do not settle the payment.",
        only_if=is_marked,
    ),
    FlagRule("new-path-of-known-site", Severity.INFO, new_path_of_known_site, only_if=is_marked),
)
