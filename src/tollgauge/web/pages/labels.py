"""Labels: how figures of the read side are written for people.

Rules:
- dates are `YYYY-MM-DD`, shares have one decimal, confidence two, a price is dollars
  (core/base/units) or `not advertised`;
- whatever is unknown is a dash, never a zero;
- texts of others lose control, bidi, zero-width and tag characters here, and their length is
  capped; the template engine escapes them.

The functions are filters of the templates (web/pages/render).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, HOUR_MS, NETWORK_NAMES, dollars, is_test_network
from tollgauge.core.endpoint.finding import is_lint
from tollgauge.core.lists.rated_endpoint import GRADES, RatedEndpoint
from tollgauge.core.probe.outcome import OUTCOMES
from tollgauge.core.score.flag import Flag
from tollgauge.web.wire.lint_answers import rule_page
from tollgauge.web.wire.response_model import day as iso_day

if TYPE_CHECKING:
    from tollgauge.monitor.reports.snapshots import Snapshot

DASH: Final = "\N{EM DASH}"
"""The text of a figure that was not measured."""

_LONGEST: Final = 4_000

RECOMMENDATIONS: Final[dict[str, str]] = {
    "proceed": "Nothing that was observed speaks against paying this endpoint.",
    "caution": "Usable with care: start with small payments and check what comes back.",
    "avoid": "Do not pay this endpoint now.",
    "unverified": "What it is now is not known: there is nothing to rely on.",
    "not-payable": "It offers no payment that a client could make.",
    "parameterize": "Its address holds a placeholder: fill that in before you call it.",
}
"""What each recommendation means, in one sentence."""

_OF_LAST_CHECK: Final = frozenset(
    [
        *("down-now", "envelope-mismatch", "not-payable", "signed-offer-mismatch", "tls-invalid"),
        "validates-before-402",
    ]
)
"""The flags whose instant is that of the last check (core/score/probe_flags)."""

_REASONS: Final = {
    "ours": "our own network or limits",
    "unknown": "nobody can tell whose fault it was",
}


def plain(text: str) -> str:
    """A text without characters that hide or reorder what is shown; line ends are kept."""
    if text.isascii() and text.isprintable():  # nearly every text of a page
        return text
    return "\n".join(
        line if line.isascii() and line.isprintable() else _cleaned(line)
        for line in text.split("\n")
    )


@lru_cache(maxsize=256)
def _cleaned(line: str) -> str:
    """A line that may hold such characters; most that are not ASCII are one of ours, like DASH."""
    return clean_text(line, _LONGEST)


def date(at: int | None) -> str:
    """`YYYY-MM-DD` of an instant in milliseconds UTC."""
    return DASH if at is None else iso_day(at)


def day_date(day: int) -> str:
    """`YYYY-MM-DD` of a UTC day."""
    return iso_day(day * DAY_MS)


def age(at: int, now: int) -> str:
    """How old something is, in whole hours."""
    hours = max(0, now - at) // HOUR_MS
    if hours == 0:
        return "under an hour old"
    return "1 hour old" if hours == 1 else f"{hours} hours old"


def tenths(value: int | None) -> str:
    """A number of tenths with its one decimal: 831 is `83.1`."""
    return DASH if value is None else f"{value // 10}.{value % 10}"


def percent(value: int | None) -> str:
    """Tenths of a percent: 995 is `99.5%`."""
    return DASH if value is None else f"{tenths(value)}%"


def hundredths(value: int) -> str:
    """A number of hundredths with two decimals: 98 is `0.98`."""
    return f"{value // 100}.{value % 100:02d}"


def chance(permille: int | None) -> str:
    """How likely something is: 998 is `99.8%`; nothing is called certain or impossible."""
    if permille is None or 0 < permille < 1_000:
        return percent(permille)
    return "over 99.9%" if permille else "under 0.1%"


def within(days: int) -> str:
    """How soon something shows: `with the next probe`, `within 1 day`, `within 7 days`."""
    if not days:
        return "with the next probe"
    return "within 1 day" if days == 1 else f"within {days} days"


def hours(ms: int) -> str:
    """Milliseconds as hours: `23.5 h`."""
    return f"{tenths(ms * 10 // HOUR_MS)} h"


def below(permille: int) -> str:
    """The condition of a rule on a chance: `below 95%`, or `any`."""
    return "any" if permille == 1_000 else f"below {permille // 10}%"


def state(snapshot: Snapshot) -> str:
    """The state of the endpoint at its last check."""
    if snapshot.is_payable is None:
        return DASH
    return "payable" if snapshot.is_payable else "not payable"


def rest_of_summary(snapshot: Snapshot) -> str:
    """The summary without the outage that it begins with."""
    outage = "" if snapshot.down is None else snapshot.down.text
    return snapshot.summary.removeprefix(outage).lstrip()


def milliseconds(value: int | None) -> str:
    """`420 ms`, or a dash when every probe failed."""
    return DASH if value is None else f"{count(value)} ms"


def count(value: int) -> str:
    """A whole number in groups of three."""
    return f"{value:,}"


def price(row: RatedEndpoint) -> str:
    """The advertised price; a price in an unknown token is not called a dollar price."""
    if row.price_micro_usd is not None:
        return dollars(row.price_micro_usd)
    return "not in dollars" if row.pay_to else "not advertised"


def price_stability(snapshot: Snapshot) -> str:
    """`stable`, `1 change` or `n changes`; a dash where no price is advertised."""
    if snapshot.price_changes:
        return changes(snapshot.price_changes)
    return "stable" if snapshot.pay_to else DASH


def changes(number: int) -> str:
    """`no change seen`, `1 change` or `n changes`."""
    return "no change seen" if number == 0 else "1 change" if number == 1 else f"{number} changes"


def network_name(network: str | None) -> str:
    """The everyday name of a CAIP-2 network where we know one, and whether it is a test network."""
    name = NETWORK_NAMES.get(network or "", "")
    return f"{name} (test network)".lstrip() if is_test_network(network) else name


def network_title(network: str) -> str:
    """A network for a sentence: `Base Sepolia`, or as it is written where we know no name."""
    name = NETWORK_NAMES.get(network, "")
    return name.replace("-", " ").title() if name else network


def token_amount(amount: int, decimals: int) -> str:
    """An atomic amount of a token in whole tokens, without trailing zeros: `0.01`."""
    whole, rest = divmod(amount, 10**decimals)
    fraction = f"{rest:0{decimals}d}".rstrip("0") if decimals else ""
    return f"{count(whole)}.{fraction}" if fraction else count(whole)


def rule_path(code: str) -> str:
    """The path of the page of the rule that a flag's code names; empty for any other flag."""
    return (rule_page(code, "") or "") if is_lint(code) else ""


def readable(resource: str) -> str:
    """A canonical resource whose placeholders have their braces, which it writes as %7B and %7D."""
    return resource.replace("%7B", "{").replace("%7D", "}")


def path(resource: str) -> str:
    """What follows scheme and authority in a canonical resource, readable."""
    _, separator, rest = resource.partition("://")
    _, slash, following = rest.partition("/")
    return readable(slash + following if separator else resource)


def authority(row: RatedEndpoint) -> str:
    """Host and, where it is not the default one, port."""
    return row.resource.partition("://")[2].partition("/")[0] or row.host


def outcome(value: str) -> str:
    """Return the label of a probe's outcome; an unknown value is its own label."""
    row = OUTCOMES.get(value)
    return value if row is None else row.page


def reason(slug: str) -> str:
    """Why probes were excluded, in words."""
    return _REASONS.get(slug, slug.replace("-", " "))


def flag_time(flag: Flag) -> str:
    """When a flag was seen. Of a flag that looks at the last check alone nobody knows since when it
    holds.
    """
    last_check = flag.code in _OF_LAST_CHECK or is_lint(flag.code)
    return f"{'at the last check,' if last_check else 'since'} {date(flag.since)}"


def unscored(snapshot: Snapshot) -> str:
    """Why there is no score: a forecast without one means that no offer could be evaluated."""
    return "not scored yet" if snapshot.payable_24h_permille is None else "not evaluated, no grade"


def grade_class(grade: str | None) -> str:
    """The style class of a grade."""
    return f"grade-{grade.lower()}" if grade in set(GRADES) else "grade-none"
