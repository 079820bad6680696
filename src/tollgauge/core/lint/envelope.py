"""Rules about the envelope as a whole: its place, its version and its `accepts`.

Source: x402 v2 specification, PaymentRequired. In the v2 HTTP transport the envelope belongs in the
header, and the body is up to the server.
"""

from __future__ import annotations

from collections.abc import Iterator

from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint.accepts import ENTRIES_MAX, terms_of_accepts
from tollgauge.core.lint.parsing import HeaderFault, members
from tollgauge.core.lint.reading import Envelope, Reading
from tollgauge.core.lint.rule import error, note, warning
from tollgauge.core.lint.selection import alternative_entry, payable_by
from tollgauge.core.lint.sign_in import SIGN_IN
from tollgauge.core.probe.exchange import OfficialClient


@error("body")
def no_envelope(reading: Reading) -> bool:
    """A 402 without an envelope in header or body: HTML, another protocol, an empty response, or a
    body that exceeds the probe's size limit.
    """
    bare = reading.header.fault is HeaderFault.REQUIREMENTS
    return reading.status == 402 and not (reading.envelope.exists or bare or reading.tool)


@error("body", stops=())
def envelope_nested(reading: Reading) -> bool:
    """An envelope inside another object of the body, where clients do not look."""
    inner = (members(value) for value in members(reading.body).values())
    nested = any("accepts" in value or "x402Version" in value for value in inner)
    return nested and not reading.envelope.exists


@error("body")
def v2_in_body(reading: Reading) -> bool:
    """A version 2 envelope that is only in the body. Both official clients answer "Invalid payment
    required response" to it.
    """
    return reading.envelope.place == "body" and reading.envelope.version == 2


@warning("body")
def v1_only(reading: Reading) -> bool:
    """A version 1 body without a header."""
    return reading.envelope.place == "body" and reading.envelope.version == 1


@error("x402Version", stops={OfficialClient.TYPESCRIPT})
def version_form(reading: Reading) -> bool:
    """The version is missing, quoted or unknown. The official TypeScript client selects its schemes
    by this number and finds no match. The Python client ignores an unknown number.
    """
    version = reading.envelope.document.get("x402Version")
    known = version in (1, 2) and not isinstance(version, bool)
    return reading.envelope.exists and not known


@error("accepts")
def accepts_missing(reading: Reading) -> bool:
    """`accepts` is missing or is not an array."""
    return reading.envelope.exists and not isinstance(reading.envelope.accepts, list)


@error("accepts", stops={OfficialClient.TYPESCRIPT, OfficialClient.PYTHON})
def accepts_null(reading: Reading) -> bool:
    """A null in `accepts`: both official SDKs stop at it, even if other entries are valid."""
    return any(entry.raw is None for entry in reading.envelope.entries)


@error("accepts")
def accepts_empty(reading: Reading) -> bool:
    """An empty `accepts`: there is nothing that a client could pay, and no request for a signature
    instead (auth-only).
    """
    return reading.envelope.accepts == [] and SIGN_IN not in reading.envelope.extensions


@note("accepts")
def not_evaluated(reading: Reading) -> bool:
    """Every entry of `accepts` is on a network, or in a scheme, that the installed official SDKs do
    not sign for. That is not a defect, but the endpoint gets no grade.
    """
    entries = reading.envelope.entries
    return len(entries) > 0 and not any(entry.decidable for entry in entries)


@note("extensions")
def auth_only(reading: Reading) -> bool:
    """An empty `accepts` with the sign-in-with-x extension: authentication only."""
    return reading.envelope.accepts == [] and SIGN_IN in reading.envelope.extensions


@warning("accepts")
def accepts_many(reading: Reading) -> bool:
    """More entries than the linter reads."""
    accepts = reading.envelope.accepts
    return isinstance(accepts, list) and len(accepts) > ENTRIES_MAX


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


@error("error", stops={OfficialClient.PYTHON})
def error_text(reading: Reading) -> bool:
    """`error` is not a string, which the official Python client rejects."""
    return not isinstance(reading.envelope.document.get("error"), str | None)


@warning()
def v2_fields(reading: Reading) -> Iterator[str]:
    """Members of version 2 at the top level of a version 1 envelope."""
    if reading.envelope.version == 1:
        yield from (key for key in ("resource", "extensions") if key in reading.envelope.document)


@warning("body")
def envelope_mismatch(reading: Reading) -> bool:
    """The body contains an envelope too. It states another price or payee for a token of the
    header, or has no token in common with it.
    """
    if "accepts" not in reading.other.document:
        return False
    header, body = _offers(reading.envelope), _offers(reading.other)
    shared = header.keys() & body.keys()
    return ((header or body) and not shared) or any(header[key] != body[key] for key in shared)


def _offers(envelope: Envelope) -> dict[tuple[str, str], set[Quote]]:
    """Return the quotes by network and token."""
    offers: dict[tuple[str, str], set[Quote]] = {}
    for terms in terms_of_accepts(envelope.accepts, version=envelope.version):
        quote = terms.quote()
        offers.setdefault((quote.network, quote.asset), set()).add(quote)
    return offers


@warning("body")
def body_unpayable(reading: Reading) -> bool:
    """A body next to the header that declares version 1 and that no client can pay."""
    declared = reading.other.document.get("x402Version")
    return declared == 1 and not payable_by(reading.other)
