"""Rules about the status: an unpaid request must be answered with 402 before anything else.

x402 v2 HTTP transport; the classes are those of core/probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tollgauge.core.lint.reading import Reading
from tollgauge.core.lint.rule import Rule, error


def _status(reading: Reading, *, low: int, high: int) -> Iterator[str]:
    if reading.answer is not None and low <= reading.answer.status <= high:
        yield "status"


@error(
    "no-answer",
    "Answer unpaid requests over HTTPS: no HTTP answer came, so no client can learn the price.",
    fatal=True,
)
def no_answer(reading: Reading) -> Iterator[str]:
    """The attempt ended in a fault instead of an HTTP answer."""
    if reading.answer is None:
        yield "status"


@error(
    "status-unpaid",
    "Answer unpaid requests with 402: this one was served without a payment, so nobody pays.",
    fatal=True,
)
def unpaid(reading: Reading) -> Iterator[str]:
    """A success status. Indexers drop such a listing: it is not a paid resource."""
    return _status(reading, low=200, high=299)


@error(
    "status-redirect",
    "Answer 402 at the listed URL itself, or list the URL that the redirect leads to.",
    fatal=True,
)
def redirect(reading: Reading) -> Iterator[str]:
    """A redirect. Directories probe the advertised URL, and a payment is bound to its resource."""
    return _status(reading, low=300, high=399)


@error(
    "status-validates-first",
    "Ask for payment before validating the request: answer 402 to any unpaid request, and 400 or"
    " 422 only to a paid one.",
    fatal=True,
)
def validates_first(reading: Reading) -> Iterator[str]:
    """400 or 422. Indexers send empty bodies; a challenge behind validation is never seen."""
    if reading.answer is not None and reading.answer.status in (400, 422):
        yield "status"


@error(
    "status-forbidden",
    "Let unpaid requests through to the 402: a login, an API key or a bot filter stands before it.",
    fatal=True,
)
def forbidden(reading: Reading) -> Iterator[str]:
    """401 or 403. The endpoint is up, but an agent that only has money cannot use it."""
    if reading.answer is not None and reading.answer.status in (401, 403):
        yield "status"


@error(
    "status-not-found",
    "Serve the listed path, or withdraw the listing: the resource is not there.",
    fatal=True,
)
def not_found(reading: Reading) -> Iterator[str]:
    """404 or 410."""
    if reading.answer is not None and reading.answer.status in (404, 410):
        yield "status"


@error(
    "status-method",
    "Declare the method that the resource takes in extensions.bazaar.info.input.method: this"
    " method is not allowed.",
    fatal=True,
)
def method(reading: Reading) -> Iterator[str]:
    """405: the resource is asked with another method than it takes."""
    return _status(reading, low=405, high=405)


@error(
    "status-throttled",
    "Let an unpaid request pass the rate limit now and then, or send Retry-After.",
    fatal=True,
)
def throttled(reading: Reading) -> Iterator[str]:
    """429: nothing can be said of the challenge."""
    return _status(reading, low=429, high=429)


@error(
    "status-server-error",
    "Mend the server: it fails before it asks for payment.",
    fatal=True,
)
def server_error(reading: Reading) -> Iterator[str]:
    """Any 5xx."""
    return _status(reading, low=500, high=599)


@error("status-other", "Answer unpaid requests with 402 Payment Required.", fatal=True)
def other(reading: Reading) -> Iterator[str]:
    """Any status that is not 402 and that no other rule names."""
    if reading.answer is not None and not _named(reading.answer.status):
        yield "status"


def _named(status: int) -> bool:
    return status in _NAMED or 200 <= status <= 399 or 500 <= status <= 599


_NAMED: Final = frozenset({400, 401, 402, 403, 404, 405, 410, 422, 429})

STATUS_RULES: Final[tuple[Rule[Reading], ...]] = (
    no_answer,
    unpaid,
    redirect,
    validates_first,
    forbidden,
    not_found,
    method,
    throttled,
    server_error,
    other,
)
