"""The headers that the edge itself adds to answers."""

from __future__ import annotations

from typing import Final

from tollgauge.core.sale import answer_signature

EVERY_ANSWER: Final = (
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        (
            f"PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, {answer_signature.HEADER}, ETag, "
            "Accept-Ranges, Content-Range"
        ).encode(),
    ),
    (
        b"content-security-policy",
        (
            b"default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
            b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PATCH, DELETE, OPTIONS"),
    # The wildcard of the Fetch standard leaves Authorization out.
    (b"access-control-allow-headers", b"*, Authorization"),
    (b"access-control-max-age", b"600"),
)


def accepts_csv(header: bytes) -> bool:
    """Whether an `Accept` asks for CSV, which some lists have beside JSON."""
    return b"text/csv" in header


def accepts_page(header: str) -> bool:
    """Whether an `Accept` is a browser's, which shows pages to a person."""
    return "text/html" in header
