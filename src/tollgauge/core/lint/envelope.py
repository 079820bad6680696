"""Rules about the envelope as a whole: its place, its version and its `accepts`.

Source: x402 v2 specification, PaymentRequired. In the v2 HTTP transport the envelope belongs in the
header, and the body is up to the server.
"""

from __future__ import annotations

from collections.abc import Iterator

from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint.parsing import ENTRIES_MAX, HeaderFault, members, terms_of_accepts
from tollgauge.core.lint.reading import Envelope, Reading
from tollgauge.core.lint.rule import error, note, warning
from tollgauge.core.lint.selection import alternative_entry, payable_by
from tollgauge.core.lint.sign_in import SIGN_IN
from tollgauge.core.probe.exchange import OfficialClient


@error()
def no_envelope(reading: Reading) -> Iterator[str]:
    """A 402 without an envelope in header or body: HTML, another protocol, an empty response, or a
    body that exceeds the probe's size limit.
    """
    bare = reading.header.fault is HeaderFault.REQUIREMENTS
    if reading.status == 402 and not (reading.envelope.exists or bare or reading.tool):
        yield "body"


@error(stops=())
def envelope_nested(reading: Reading) -> Iterator[str]:
    """An envelope inside another object of the body, where clients do not look."""
    inner = (members(value) for value in members(reading.body).values())
    nested = any("accepts" in value or "x402Version" in value for value in inner)
    if nested and not reading.envelope.exists:
        yield "body"


@error()
def v2_in_body(reading: Reading) -> Iterator[str]:
    """A version 2 envelope that is only in the body. Both official clients answer "Invalid payment
    required response" to it.
    """
    if reading.envelope.place == "body" and reading.envelope.version == 2:
        yield "body"


@warning()
def v1_only(reading: Reading) -> Iterator[str]:
    """A version 1 body without a header."""
    if reading.envelope.place == "body" and reading.envelope.version == 1:
        yield "body"


@error(stops={OfficialClient.TYPESCRIPT})
def version_form(reading: Reading) -> Iterator[str]:
    """The version is missing, quoted or unknown. The official TypeScript client selects its schemes
    by this number and finds no match. The Python client ignores an unknown number.
    """
    version = reading.envelope.document.get("x402Version")
    known = version in (1, 2) and not isinstance(version, bool)
    if reading.envelope.exists and not known:
        yield "x402Version"


@error()
def accepts_missing(reading: Reading) -> Iterator[str]:
    """`accepts` is missing or is not an array."""
    if reading.envelope.exists and not isinstance(reading.envelope.accepts, list):
        yield "accepts"


@error(stops={OfficialClient.TYPESCRIPT, OfficialClient.PYTHON})
def accepts_null(reading: Reading) -> Iterator[str]:
    """A null in `accepts`: both official SDKs stop at it, even if other entries are valid."""
    if any(entry.raw is None for entry in reading.envelope.entries):
        yield "accepts"


@error()
def accepts_empty(reading: Reading) -> Iterator[str]:
    """An empty `accepts`: there is nothing that a client could pay, and no request for a signature
    instead (auth-only).
    """
    if reading.envelope.accepts == [] and SIGN_IN not in reading.envelope.extensions:
        yield "accepts"


@note
def not_evaluated(reading: Reading) -> Iterator[str]:
    """Every entry of `accepts` is on a network, or in a scheme, that the installed official SDKs do
    not sign for. That is not a defect, but the endpoint gets no grade.
    """
    entries = reading.envelope.entries
    if entries and not any(entry.judged for entry in entries):
        yield "accepts"


@note
def auth_only(reading: Reading) -> Iterator[str]:
    """An empty `accepts` with the sign-in-with-x extension: authentication only."""
    if reading.envelope.accepts == [] and SIGN_IN in reading.envelope.extensions:
        yield "extensions"


@warning()
def accepts_many(reading: Reading) -> Iterator[str]:
    """More entries than the linter reads."""
    accepts = reading.envelope.accepts
    if isinstance(accepts, list) and len(accepts) > ENTRIES_MAX:
        yield "accepts"


@warning()
def order_evm(reading: Reading) -> Iterator[str]:
    """The first entry that the official clients for EVM networks support is broken, and another
    entry is valid. They select the first and do not try another.
    """
    yield from _good_entry(reading, "eip155")


@warning()
def order_solana(reading: Reading) -> Iterator[str]:
    """The first entry that the official clients for Solana support is broken, and another entry is
    valid.
    """
    yield from _good_entry(reading, "solana")


@warning()
def order_ton(reading: Reading) -> Iterator[str]:
    """The first entry that the official client for TON supports is broken, and another entry is
    valid.
    """
    yield from _good_entry(reading, "tvm")


def _good_entry(reading: Reading, family: str) -> Iterator[str]:
    entry = alternative_entry(reading.envelope.entries, family)
    if entry is not None:
        yield f"accepts[{entry.index}]"


@error(stops={OfficialClient.PYTHON})
def error_text(reading: Reading) -> Iterator[str]:
    """`error` is not a string, which the official Python client rejects."""
    if not isinstance(reading.envelope.document.get("error"), str | None):
        yield "error"


@warning()
def v2_fields(reading: Reading) -> Iterator[str]:
    """Members of version 2 at the top level of a version 1 envelope."""
    if reading.envelope.version == 1:
        yield from (key for key in ("resource", "extensions") if key in reading.envelope.document)


@warning()
def envelope_mismatch(reading: Reading) -> Iterator[str]:
    """The body contains an envelope too. It states another price or payee for a token of the
    header, or has no token in common with it.
    """
    if "accepts" not in reading.other.document:
        return
    header, body = _offers(reading.envelope), _offers(reading.other)
    shared = header.keys() & body.keys()
    if ((header or body) and not shared) or any(header[key] != body[key] for key in shared):
        yield "body"


def _offers(envelope: Envelope) -> dict[tuple[str, str], set[Quote]]:
    """Return the quotes by network and token."""
    offers: dict[tuple[str, str], set[Quote]] = {}
    for terms in terms_of_accepts(envelope.accepts, version=envelope.version):
        quote = terms.quote()
        offers.setdefault((quote.network, quote.asset), set()).add(quote)
    return offers


@warning()
def body_unpayable(reading: Reading) -> Iterator[str]:
    """A body next to the header that declares version 1 and that no client can pay."""
    declared = reading.other.document.get("x402Version")
    if declared == 1 and not payable_by(reading.other):
        yield "body"
