"""Formatting of values for the pages. Each function is a filter of the templates.

Unknown values are shown as a dash, never as zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import (
    DAY_MS,
    HOUR_MS,
    NETWORK_NAMES,
    dollars,
    is_test_network,
    iso_day,
)
from tollgauge.core.directory.entry_record import EntryStatement
from tollgauge.core.endpoint.terms import FormReading, form_text
from tollgauge.core.lists.rated_endpoint import GRADES, RatedEndpoint
from tollgauge.core.probe.exchange import is_lint
from tollgauge.core.probe.outcome import OUTCOMES
from tollgauge.core.score.flag import Flag
from tollgauge.monitor.statistics import FACILITATOR, OFFERS
from tollgauge.web.wire.lint_answers import rule_page

if TYPE_CHECKING:
    from tollgauge.monitor.reports.snapshots import Snapshot
    from tollgauge.store.endpoints.ranking import WeekShares

DASH: Final = "\N{EM DASH}"
"""The text of a value that was not measured."""

_TEXT_MAX: Final = 4_000

RECOMMENDATIONS: Final[dict[str, str]] = {
    "proceed": "The observations give no reason not to pay this endpoint.",
    "caution": "Start with small payments and check the responses.",
    "avoid": "Do not pay this endpoint now.",
    "unverified": "There is not enough current data to recommend this endpoint.",
    "not-payable": "The endpoint offers no payment that a client can make.",
    "parameterize": "The address contains a placeholder. Replace it before you call the endpoint.",
}
"""The meaning of each recommendation."""

_READINGS: Final = {
    FormReading.READ: "Settlements measured",
    FormReading.EXPERIMENTAL: "Settlements measured (experimental)",
    FormReading.NOT_READ: "Settlements not measured",
}

_LAST_CHECK_FLAGS: Final = frozenset(
    [
        *("down-now", "envelope-mismatch", "not-payable", "signed-offer-mismatch", "tls-invalid"),
        "validates-before-402",
    ]
)
"""Flags whose timestamp is the time of the last check (core/score/probe_flags)."""

_REASONS: Final = {
    "ours": "failure of our network, or our own limits",
    "unknown": "cause of the failure unknown",
}
_SHARE_TITLES: Final = {
    "scheme": "Scheme",
    "network": "Network",
    "extension": "Extension",
    "version": "Version of x402",
    FACILITATOR: "Facilitator",
}


def by_reading(coverage: Mapping[str, Mapping[str, FormReading]]) -> list[tuple[str, str]]:
    """Return the forms of payment whose settlements are measured, and those that are not, each with
    a label.
    """
    forms: dict[FormReading, list[str]] = {}
    for network, of_network in coverage.items():
        for name, reading in of_network.items():
            forms.setdefault(reading, []).append(form_text(f"{network} {name}"))
    return [(text, ", ".join(forms[one])) for one, text in _READINGS.items() if one in forms]


def plain(text: str) -> str:
    """Remove control, bidi, zero-width and tag characters from a text; keep line ends."""
    if text.isascii() and text.isprintable():  # fast path: nearly every text of a page
        return text
    return "\n".join(
        line if line.isascii() and line.isprintable() else clean_text(line, _TEXT_MAX)
        for line in text.split("\n")
    )


def date(at: int | None) -> str:
    """Format a timestamp in milliseconds (UTC) as `YYYY-MM-DD`."""
    return DASH if at is None else iso_day(at)


def day_date(day: int) -> str:
    """Format a UTC day number as `YYYY-MM-DD`."""
    return iso_day(day * DAY_MS)


def age(at: int, now: int) -> str:
    """Format an age in whole hours."""
    hours = max(0, now - at) // HOUR_MS
    if hours == 0:
        return "under an hour old"
    return "1 hour old" if hours == 1 else f"{hours} hours old"


def tenths(value: int | None) -> str:
    """Format tenths with one decimal: 831 is `83.1`."""
    return DASH if value is None else f"{value // 10}.{value % 10}"


def percent(value: int | None) -> str:
    """Format tenths of a percent: 995 is `99.5%`."""
    return DASH if value is None else f"{tenths(value)}%"


def hundredths(value: int) -> str:
    """Format hundredths with two decimals: 98 is `0.98`."""
    return f"{value // 100}.{value % 100:02d}"


def chance(permille: int | None) -> str:
    """Format a probability: 998 is `99.8%`. No forecast is shown as 0% or 100%."""
    if permille is None or 0 < permille < 1_000:
        return percent(permille)
    return "over 99.9%" if permille else "under 0.1%"


def within(days: int) -> str:
    """Format a number of days: `with the next probe`, `within 1 day`, `within 7 days`."""
    if not days:
        return "with the next probe"
    return "within 1 day" if days == 1 else f"within {days} days"


def hours(ms: int) -> str:
    """Format milliseconds as hours: `23.5 h`, `3 h`."""
    return f"{tenths(ms * 10 // HOUR_MS).removesuffix('.0')} h"


def below(permille: int) -> str:
    """Format the upper bound of a probability: `below 95%`, or `any`."""
    return "any" if permille == 1_000 else f"below {permille // 10}%"


def state(snapshot: Snapshot) -> str:
    """Return the state of the endpoint at its last check."""
    if snapshot.is_payable is None:
        return DASH
    return "payable" if snapshot.is_payable else "not payable"


def rest_of_summary(snapshot: Snapshot) -> str:
    """Return the summary without outage, grade and score, which the page shows above it."""
    outage = "" if snapshot.down is None else snapshot.down.text
    grade = f"{snapshot.recommendation.capitalize()}: grade {snapshot.grade} "
    grade += f"({tenths(snapshot.score_tenths)} of 100)."
    return snapshot.summary.removeprefix(outage).replace(f" {grade}", "", 1).lstrip()


def milliseconds(value: int | None) -> str:
    """Format milliseconds: `420 ms`."""
    return DASH if value is None else f"{count(value)} ms"


def growth(current: int, previous: int | None) -> str:
    """Format the change of a figure against the previous period: `+12.5%`; empty if unknown."""
    if not previous:
        return ""
    permille = (abs(current - previous) * 2_000 + previous) // (2 * previous)
    sign = "+" if current >= previous else "\N{MINUS SIGN}"
    return f"{sign}{count(permille // 10)}.{permille % 10}%"


def count(value: int) -> str:
    """Format an integer with thousands separators."""
    return f"{value:,}"


def price(row: RatedEndpoint) -> str:
    """Format the advertised price; a price in an unknown token is not shown in dollars."""
    if row.price_micro_usd is not None:
        return dollars(row.price_micro_usd)
    return "not in dollars" if row.pay_to else "not advertised"


def statement(one: EntryStatement | None) -> str:
    """Format a directory's statement about an entry."""
    if one is None:
        return DASH
    figures = (
        ("calls in 30 days", one.calls),
        ("payers in 30 days", one.payers),
        ("last call", None if one.last_called_at is None else date(one.last_called_at)),
    )
    texts = [f"{name}: {value}" for name, value in figures if value is not None]
    return "; ".join(filter(None, (one.status, one.reason, *texts))) or DASH


def price_stability(snapshot: Snapshot) -> str:
    """Return `stable`, `1 change` or `n changes`; a dash if no price is advertised."""
    if snapshot.price_changes:
        return changes(snapshot.price_changes)
    return "stable" if snapshot.pay_to else DASH


def changes(number: int) -> str:
    """Return `no changes`, `1 change` or `n changes`."""
    return "no changes" if number == 0 else "1 change" if number == 1 else f"{number} changes"


def network_name(network: str | None) -> str:
    """Return the common name of a CAIP-2 network, if known, and mark test networks."""
    name = NETWORK_NAMES.get(network or "", "")
    return f"{name} (test network)".lstrip() if is_test_network(network) else name


def network_title(network: str) -> str:
    """Return the name of a network for use in a sentence, or its CAIP-2 identifier."""
    name = NETWORK_NAMES.get(network, "")
    return name.replace("-", " ").title() if name else network


def share_name(kind: str, name: str) -> str:
    """Return the label of a weekly share (monitor/statistics)."""
    if kind == "facilitator":
        network, _, address = name.partition(" ")
        return f"{address or 'others'} on {network_title(network)}"
    return (network_title(name) if kind == "network" else name) or "others"


def weekly_shares(weeks: Sequence[WeekShares]) -> list[tuple[str, list[tuple[str, list[int]]]]]:
    """Return a table per kind with a row per name of the newest week; its cells are the shares
    in each week (tenths of a percent).
    """
    tables = []
    counted = [{(one.kind, one.name): one.count for one in week.shares} for week in weeks]
    for kind, title in _SHARE_TITLES.items():
        totals = [
            sum(count for (of, _), count in week.items() if of == kind)
            if kind == FACILITATOR
            else week.get((OFFERS, ""), 0)
            for week in counted
        ]
        rows = [
            (
                share_name(kind, name),
                [
                    week.get((kind, name), 0) * 1_000 // max(1, total)
                    for week, total in zip(counted, totals, strict=True)
                ],
            )
            for of, name in (counted[0] if counted else ())
            if of == kind
        ]
        if rows:
            tables.append((title, rows))
    return tables


def token_amount(amount: int, decimals: int) -> str:
    """Format an atomic amount in whole tokens without trailing zeros: `0.01`."""
    whole, rest = divmod(amount, 10**decimals)
    fraction = f"{rest:0{decimals}d}".rstrip("0") if decimals else ""
    return f"{count(whole)}.{fraction}" if fraction else count(whole)


def rule_path(code: str) -> str:
    """Return the path of the linter rule's page for a `lint:` flag; empty for other flags."""
    return (rule_page(code, "") or "") if is_lint(code) else ""


def readable(resource: str) -> str:
    """Restore the braces of placeholders, which a canonical resource writes as %7B and %7D."""
    return resource.replace("%7B", "{").replace("%7D", "}")


def path(resource: str) -> str:
    """Return the readable path and query of a canonical resource."""
    _, separator, rest = resource.partition("://")
    _, slash, following = rest.partition("/")
    return readable(slash + following if separator else resource)


def authority(row: RatedEndpoint) -> str:
    """Return the host, with the port unless it is the default."""
    return row.resource.partition("://")[2].partition("/")[0] or row.host


def outcome(value: str) -> str:
    """Return the label of a probe's outcome, or the value itself if it is unknown."""
    row = OUTCOMES.get(value)
    return value if row is None else row.page


def reason(slug: str) -> str:
    """Return the label of a reason why probes were excluded."""
    return _REASONS.get(slug, slug.replace("-", " "))


def flag_time(flag: Flag) -> str:
    """Format the time of a flag: when it began, or the last check for flags without a start."""
    last_check = flag.code in _LAST_CHECK_FLAGS or is_lint(flag.code)
    return f"{'at the last check,' if last_check else 'since'} {date(flag.since)}"


def explain_missing_score(snapshot: Snapshot) -> str:
    """Return the reason for a missing score."""
    # A forecast without a score means that the endpoint has no offer that could be evaluated.
    return "not scored yet" if snapshot.payable_24h_permille is None else "not evaluated, no grade"


def grade_class(grade: str | None) -> str:
    """Return the CSS class of a grade."""
    return f"grade-{grade.lower()}" if grade in set(GRADES) else "grade-none"
