"""Flags about settlements on chain: who pays this payTo?"""

from __future__ import annotations

from typing import Final

from tollgauge.core.base.rounding import half_up, is_below
from tollgauge.core.base.units import WINDOW_MS, dollars
from tollgauge.core.endpoint.finding import Severity
from tollgauge.core.endpoint.terms import form_text
from tollgauge.core.score.signals.facts import Facts
from tollgauge.core.score.signals.flag import Fired, FlagRule


def self_paid(facts: Facts) -> Fired | None:
    """The payTo paid itself, or round trips cancel at least half of what others paid."""
    sums = facts.volume.sums
    others = sums.raw.volume - sums.own
    if not sums.own and (not sums.returned or 2 * sums.returned < others):
        return None
    return Fired(
        f"{dollars(sums.own + sums.returned)} of {dollars(sums.raw.volume)} went from the "
        "receiving wallet to itself or back to the payer. It does not count as activity; "
        "do not read the volume as demand."
    )


def concentrated_payers(facts: Facts) -> Fired | None:
    """More than 10 transfers, yet organic volume of fewer than 2 effective payers."""
    volume, policy = facts.volume, facts.policy
    organic = volume.sums.organic
    if not organic.volume or volume.sums.transfers <= policy.concentrated_transfers:
        return None
    if not is_below(volume.wallet_effective, (policy.concentrated_payers, 1)):
        return None
    share = half_up((organic.top, organic.volume), 100)
    return Fired(
        f"{share} % of the organic volume comes from one wallet. "
        "Do not read the number of payments as independent demand."
    )


def shared_payto(facts: Facts) -> Fired | None:
    """Several monitored hosts name the same payTo, so settlements are known of the wallet only."""
    hosts = facts.volume.shared_hosts
    if hosts < 2:
        return None
    return Fired(
        f"{hosts} hosts are paid at this address. Its settlements are divided by {hosts}; "
        "how much of them this endpoint earned cannot be known."
    )


def settlements_not_measured(facts: Facts) -> Fired | None:
    """It offers forms of payment whose settlements are not read on chain, such as `upto`, Permit2,
    batches or Solana.
    """
    if not (forms := facts.unread_forms):
        return None
    names = ", ".join(map(form_text, forms))
    return Fired(
        f"Settlements are not measured for {names}: how often it is paid that way is not known. "
        "Its activity is only what was paid in other forms.",
        to_pay="Start with a small payment.",
    )


def no_settlements(facts: Facts) -> Fired | None:
    """No organic settlement to the payTo is known, be it that none was made or none indexed, and
    every form of payment that it offers is one that is read.
    """
    if facts.volume.sums.organic.volume or facts.unread_forms:
        return None
    chain = facts.evidence.chain
    if chain is None:
        return Fired(
            "It was never seen to name a payTo, so settlements to it cannot be looked for; "
            "activity counts as 0."
        )
    if not chain.indexed_ms:
        return Fired(
            "Settlements to its payTo are not indexed: whether there are any is not known. "
            "Activity counts as 0 until they are."
        )
    who = "from an independent payer " if facts.volume.sums.raw.volume else ""
    percent = half_up((min(chain.indexed_ms, WINDOW_MS), WINDOW_MS), 100)
    if percent < 100:
        share = f"{percent} %" if percent else "less than 1 %"
        return Fired(
            f"No USDC settlement {who}to its payTo was found yet, but {share} of the last 30 days "
            "is all that is indexed: the rest is not known.",
            to_pay="Start with a small payment.",
        )
    return Fired(
        f"No USDC settlement {who}to its payTo was found in the last 30 days.",
        to_pay="You may be among its first buyers: start with a small payment.",
    )


FLAGS: Final = (
    FlagRule("self-paid", Severity.WARN, self_paid, fix="Do not pay yourself: it never counts."),
    FlagRule("concentrated-payers", Severity.WARN, concentrated_payers),
    FlagRule(
        "shared-payto",
        Severity.INFO,
        shared_payto,
        fix="Give each host a payTo address of its own.",
    ),
    FlagRule("no-settlements", Severity.INFO, no_settlements),
    FlagRule("settlements-not-measured", Severity.INFO, settlements_not_measured),
)
