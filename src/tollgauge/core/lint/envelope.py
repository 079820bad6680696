"""Rules about the envelope as a whole: where it lies, its version, its `accepts`.

x402 v2 specification, PaymentRequired; v2 HTTP transport: the header is where the envelope lies,
the body is the server's own affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tollgauge.core.lint.accepts import ENTRIES_MAX, terms_of_accepts
from tollgauge.core.lint.entries import payable_entry
from tollgauge.core.lint.reading import Envelope, HeaderFault, Reading
from tollgauge.core.lint.rule import Rule, error, note, warning
from tollgauge.core.terms import Quote


def _challenged(reading: Reading) -> bool:
    return reading.answer is not None and reading.answer.status == 402


@error(
    "no-envelope",
    "Send the payment terms as an x402 envelope {x402Version, resource, accepts}, base64-encoded"
    " in the PAYMENT-REQUIRED header.",
    fatal=True,
)
def no_envelope(reading: Reading) -> Iterator[str]:
    """A 402 whose header and body hold no envelope: HTML, another protocol, nothing, or a body
    cut off at the probe's size limit.
    """
    bare = reading.header.fault is HeaderFault.REQUIREMENTS
    if _challenged(reading) and reading.envelope is None and not bare:
        yield "body"


@error(
    "envelope-nested",
    "Put x402Version and accepts at the top level of the body, not inside another member.",
)
def envelope_nested(reading: Reading) -> Iterator[str]:
    """An envelope inside another object of the body, where no client looks."""
    if reading.envelope is not None or not isinstance(reading.body, dict):
        return
    inner = (value for value in reading.body.values() if isinstance(value, dict))
    if any("accepts" in value or "x402Version" in value for value in inner):
        yield "body"


@error(
    "v2-in-body",
    "Send the version 2 envelope base64-encoded in the PAYMENT-REQUIRED header: clients of"
    " version 2 do not read the body, and clients of version 1 do not know version 2.",
    fatal=True,
)
def v2_in_body(reading: Reading) -> Iterator[str]:
    """A version 2 envelope that lies only in the body. Both official clients answer "Invalid
    payment required response" to it.
    """
    if reading.envelope is not None and _at(reading.envelope, "body", 2):
        yield "body"


@warning(
    "v1-only",
    "Send a version 2 envelope in the PAYMENT-REQUIRED header too: directories and newer clients"
    " look for it.",
)
def v1_only(reading: Reading) -> Iterator[str]:
    """A version 1 body and no header."""
    if reading.envelope is not None and _at(reading.envelope, "body", 1):
        yield "body"


def _at(envelope: Envelope, place: str, version: int) -> bool:
    return envelope.place == place and envelope.version == version


@error(
    "version-form",
    "Write x402Version as the number 2 (or 1 in a version 1 body), not as a text.",
    fatal=True,
)
def version_form(reading: Reading) -> Iterator[str]:
    """The version is missing, quoted or unknown. The official TypeScript client looks its schemes
    up by this number and finds none.
    """
    if reading.envelope is None:
        return
    version = reading.envelope.document.get("x402Version")
    if isinstance(version, bool) or version not in (1, 2):
        yield "x402Version"


@error("accepts-missing", "List the payment options in an accepts array.", fatal=True)
def accepts_missing(reading: Reading) -> Iterator[str]:
    """`accepts` is missing or no array."""
    if reading.envelope and not isinstance(reading.envelope.document.get("accepts"), list):
        yield "accepts"


@error("accepts-null", "Remove null from accepts.", fatal=True)
def accepts_null(reading: Reading) -> Iterator[str]:
    """A null in `accepts`: both official clients stop at it, whatever else is offered."""
    entries = reading.envelope.entries if reading.envelope else ()
    if any(entry.raw is None for entry in entries):
        yield "accepts"


@error("accepts-empty", "List at least one payment option in accepts.", fatal=True)
def accepts_empty(reading: Reading) -> Iterator[str]:
    """An empty `accepts`: there is nothing that a client could pay, nor a signature asked in its
    place (auth-only).
    """
    if _asks_nothing(reading) and not _signs_in(reading):
        yield "accepts"


@note("auth-only", "This resource asks for a signature (sign-in-with-x), not for a payment.")
def auth_only(reading: Reading) -> Iterator[str]:
    """An empty `accepts` beside the sign-in-with-x extension: authentication only."""
    if _asks_nothing(reading) and _signs_in(reading):
        yield "extensions"


def _asks_nothing(reading: Reading) -> bool:
    return reading.envelope is not None and reading.envelope.document.get("accepts") == []


def _signs_in(reading: Reading) -> bool:
    return reading.envelope is not None and "sign-in-with-x" in reading.envelope.extensions


@warning("accepts-many", "Offer fewer payment options: only the first ones are read.")
def accepts_many(reading: Reading) -> Iterator[str]:
    """More entries than the linter looks at."""
    accepts = reading.envelope.document.get("accepts") if reading.envelope else None
    if isinstance(accepts, list) and len(accepts) > ENTRIES_MAX:
        yield "accepts"


@error("error-text", "Write error as a text, or leave it out.", fatal=True)
def error_text(reading: Reading) -> Iterator[str]:
    """`error` is no text, which the official Python client refuses."""
    if reading.envelope and not isinstance(reading.envelope.document.get("error"), str | None):
        yield "error"


@warning(
    "v2-fields",
    "Leave resource and extensions out of the top level in version 1, or move to version 2.",
)
def v2_fields(reading: Reading) -> Iterator[str]:
    """Members of version 2 at the top of an envelope of version 1."""
    envelope = reading.envelope
    if envelope is not None and envelope.version == 1:
        yield from (key for key in ("resource", "extensions") if key in envelope.document)


@warning(
    "envelope-mismatch",
    "Make header and body say the same: one client pays by one of them, another by the other.",
)
def envelope_mismatch(reading: Reading) -> Iterator[str]:
    """The body is an envelope too, and for a token of the header's it names another price or
    payee, or they have no token in common.
    """
    if reading.envelope is None or reading.other is None or "accepts" not in reading.other.document:
        return
    header, body = _offers(reading.envelope), _offers(reading.other)
    shared = header.keys() & body.keys()
    if ((header or body) and not shared) or any(header[key] != body[key] for key in shared):
        yield "body"


def _offers(envelope: Envelope) -> dict[tuple[str, str], set[Quote]]:
    offers: dict[tuple[str, str], set[Quote]] = {}
    accepts = envelope.document.get("accepts")
    for terms in terms_of_accepts(accepts, version=envelope.version):
        quote = terms.quote()
        offers.setdefault((quote.network, quote.asset), set()).add(quote)
    return offers


@warning(
    "body-unpayable",
    "Mend or remove the version 1 body: clients of version 1 read it and cannot pay by it.",
)
def body_unpayable(reading: Reading) -> Iterator[str]:
    """Beside a header, a body that declares version 1 and that no client could pay by."""
    other = reading.other
    if other is None or other.document.get("x402Version") != 1:
        return
    if not any(payable_entry(entry) for entry in other.entries):
        yield "body"


ENVELOPE_RULES: Final[tuple[Rule[Reading], ...]] = (
    no_envelope,
    envelope_nested,
    v2_in_body,
    v1_only,
    version_form,
    accepts_missing,
    accepts_null,
    accepts_empty,
    auth_only,
    accepts_many,
    error_text,
    v2_fields,
    envelope_mismatch,
    body_unpayable,
)
