"""Rules about the status: an unpaid request must be answered with 402 before anything else.

x402 v2 HTTP transport; the classes are those of core/probe/probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tollgauge.core.lint.reading import Reading
from tollgauge.core.lint.rule import error

_NAMED: Final = {*range(200, 400), 400, 401, 402, 403, 404, 405, 410, 422, 429, *range(500, 600)}
"""402, and every status that a rule of this module names."""


@error(
    "no-answer",
    "Answer unpaid requests over HTTPS: no HTTP answer came, so no client can learn the price.",
    expected="HTTP 402",
    fatal=True,
)
def no_answer(reading: Reading) -> Iterator[str]:
    """The attempt ended in a fault instead of an HTTP answer."""
    if reading.status is None:
        yield "status"


@error(
    "status-unpaid",
    "Answer unpaid requests with 402: this one was served without a payment, so nobody pays.",
    expected="HTTP 402",
    fatal=True,
)
def unpaid(reading: Reading) -> Iterator[str]:
    """A success status. Indexers drop such a listing: it is not a paid resource."""
    if reading.status in range(200, 300):
        yield "status"


@error(
    "status-redirect",
    "Answer 402 at the listed URL itself, or list the URL that the redirect leads to.",
    expected="HTTP 402",
    fatal=True,
)
def redirect(reading: Reading) -> Iterator[str]:
    """A redirect. Directories probe the advertised URL, and a payment is bound to its resource."""
    if reading.status in range(300, 400):
        yield "status"


@error(
    "status-validates-first",
    "Ask for payment before validating the request: answer 402 to any unpaid request, and 400 or"
    " 422 only to a paid one.",
    expected="HTTP 402",
    fatal=True,
)
def validates_first(reading: Reading) -> Iterator[str]:
    """400 or 422. Indexers send empty bodies; a challenge behind validation is never seen."""
    if reading.status in (400, 422):
        yield "status"


@error(
    "status-forbidden",
    "Let unpaid requests through to the 402: a login, an API key or a bot filter stands before it.",
    expected="HTTP 402",
    fatal=True,
)
def forbidden(reading: Reading) -> Iterator[str]:
    """401 or 403. The endpoint is up, but an agent that only has money cannot use it."""
    if reading.status in (401, 403):
        yield "status"


@error(
    "status-not-found",
    "Serve the listed path, or withdraw the listing: the resource is not there.",
    expected="HTTP 402",
    fatal=True,
)
def not_found(reading: Reading) -> Iterator[str]:
    """404 or 410."""
    if reading.status in (404, 410):
        yield "status"


@error(
    "status-method",
    "Declare the method that the resource takes in extensions.bazaar.info.input.method: this"
    " method is not allowed.",
    expected="HTTP 402",
    fatal=True,
)
def method(reading: Reading) -> Iterator[str]:
    """405: the resource is asked with another method than it takes."""
    if reading.status == 405:
        yield "status"


@error(
    "status-throttled",
    "Let an unpaid request pass the rate limit now and then, or send Retry-After.",
    expected="HTTP 402",
    fatal=True,
)
def throttled(reading: Reading) -> Iterator[str]:
    """429: nothing can be said of the challenge."""
    if reading.status == 429:
        yield "status"


@error(
    "status-server-error",
    "Mend the server: it fails before it asks for payment.",
    expected="HTTP 402",
    fatal=True,
)
def server_error(reading: Reading) -> Iterator[str]:
    """Any 5xx."""
    if reading.status in range(500, 600):
        yield "status"


@error(
    "status-other",
    "Answer unpaid requests with 402 Payment Required.",
    expected="HTTP 402",
    fatal=True,
)
def other(reading: Reading) -> Iterator[str]:
    """Any status that is not 402 and that no other rule names."""
    if reading.status is not None and reading.status not in _NAMED:
        yield "status"
