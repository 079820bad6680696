"""Rules about the envelope as a whole: its place, its version, its `accepts`.

x402 v2 specification, PaymentRequired; v2 HTTP transport: the envelope belongs into the header, and
the server may write anything into the body.
"""

from __future__ import annotations

from collections.abc import Iterator

from tollgauge.core.endpoint.finding import NOT_EVALUATED
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint.parsing import ENTRIES_MAX, HeaderFault, members, terms_of_accepts
from tollgauge.core.lint.reading import Envelope, Reading
from tollgauge.core.lint.rule import error, note, warning
from tollgauge.core.lint.selection import alternative_entry, is_payable

_SIGN_IN = "sign-in-with-x"


@error(
    "no-envelope",
    "Send the payment terms as an x402 envelope {x402Version, resource, accepts}, base64-encoded"
    " in the PAYMENT-REQUIRED header.",
    expected="an envelope in the PAYMENT-REQUIRED header",
    fatal=True,
)
def no_envelope(reading: Reading) -> Iterator[str]:
    """A 402 whose header and body hold no envelope: HTML, another protocol, nothing, or a body
    cut off at the probe's size limit.
    """
    bare = reading.header.fault is HeaderFault.REQUIREMENTS
    if reading.status == 402 and not reading.envelope.exists and not bare:
        yield "body"


@error(
    "envelope-nested",
    "Put x402Version and accepts at the top level of the body, not inside another member.",
    expected="x402Version and accepts at the top level",
)
def envelope_nested(reading: Reading) -> Iterator[str]:
    """An envelope inside another object of the body, where no client looks."""
    inner = (members(value) for value in members(reading.body).values())
    nested = any("accepts" in value or "x402Version" in value for value in inner)
    if nested and not reading.envelope.exists:
        yield "body"


@error(
    "v2-in-body",
    "Send the version 2 envelope base64-encoded in the PAYMENT-REQUIRED header: clients of"
    " version 2 do not read the body, and clients of version 1 do not know version 2.",
    expected="the version 2 envelope in the PAYMENT-REQUIRED header",
    fatal=True,
)
def v2_in_body(reading: Reading) -> Iterator[str]:
    """A version 2 envelope that is only in the body. Both official clients answer "Invalid
    payment required response" to it.
    """
    if reading.envelope.place == "body" and reading.envelope.version == 2:
        yield "body"


@warning(
    "v1-only",
    "Send a version 2 envelope in the PAYMENT-REQUIRED header too: directories and newer clients"
    " look for it.",
    expected="a version 2 envelope in the PAYMENT-REQUIRED header too",
)
def v1_only(reading: Reading) -> Iterator[str]:
    """A version 1 body and no header."""
    if reading.envelope.place == "body" and reading.envelope.version == 1:
        yield "body"


@error(
    "version-form",
    "Write x402Version as the number 2 (or 1 in a version 1 body), not as a text.",
    expected="the number 2, or 1 in a version 1 body",
    fatal=True,
)
def version_form(reading: Reading) -> Iterator[str]:
    """The version is missing, quoted or unknown. The official TypeScript client looks its schemes
    up by this number and finds none.
    """
    version = reading.envelope.document.get("x402Version")
    known = version in (1, 2) and not isinstance(version, bool)
    if reading.envelope.exists and not known:
        yield "x402Version"


@error(
    "accepts-missing",
    "List the payment options in an accepts array.",
    expected="an array of payment options",
    fatal=True,
)
def accepts_missing(reading: Reading) -> Iterator[str]:
    """`accepts` is missing or no array."""
    if reading.envelope.exists and not isinstance(reading.envelope.accepts, list):
        yield "accepts"


@error("accepts-null", "Remove null from accepts.", expected="an array of objects", fatal=True)
def accepts_null(reading: Reading) -> Iterator[str]:
    """A null in `accepts`: both official clients stop at it, whatever else is offered."""
    if any(entry.raw is None for entry in reading.envelope.entries):
        yield "accepts"


@error(
    "accepts-empty",
    "List at least one payment option in accepts.",
    expected="at least one payment option",
    fatal=True,
)
def accepts_empty(reading: Reading) -> Iterator[str]:
    """An empty `accepts`: there is nothing that a client could pay, nor a signature asked in its
    place (auth-only).
    """
    if reading.envelope.accepts == [] and _SIGN_IN not in reading.envelope.extensions:
        yield "accepts"


@note(
    NOT_EVALUATED,
    "Offer exact with USDC on Base, or on another network that the official clients support, to get"
    " a grade: no installed official client signs any of these entries, so none could be checked.",
    expected="an entry that an official client signs",
)
def not_evaluated(reading: Reading) -> Iterator[str]:
    """Every entry of `accepts` is on a network, or in a scheme, for which no installed official SDK
    signs. That is no defect, but the endpoint gets no grade.
    """
    entries = reading.envelope.entries
    if entries and not any(entry.judged for entry in entries):
        yield "accepts"


@note(
    "auth-only",
    "This resource asks for a signature (sign-in-with-x), not for a payment.",
    expected="nothing else, if no payment is asked",
)
def auth_only(reading: Reading) -> Iterator[str]:
    """An empty `accepts` beside the sign-in-with-x extension: authentication only."""
    if reading.envelope.accepts == [] and _SIGN_IN in reading.envelope.extensions:
        yield "extensions"


@warning(
    "accepts-many",
    "Offer fewer payment options: only the first ones are read.",
    expected="at most 64 entries",
)
def accepts_many(reading: Reading) -> Iterator[str]:
    """More entries than the linter looks at."""
    accepts = reading.envelope.accepts
    if isinstance(accepts, list) and len(accepts) > ENTRIES_MAX:
        yield "accepts"


@warning(
    "order-evm",
    "Correct or remove the first entry of accepts for EVM networks: the official clients for EVM"
    " take it, cannot pay by it and stop with an error. The entry named here is good.",
    expected="the good entry before the broken one",
)
def order_evm(reading: Reading) -> Iterator[str]:
    """The first entry that the official clients for EVM networks support is broken, and another
    entry is good. They take the first and do not try another.
    """
    yield from _good_entry(reading, "eip155")


@warning(
    "order-solana",
    "Correct or remove the first entry of accepts for Solana: the official clients for Solana take"
    " it, cannot pay by it and stop with an error. The entry named here is good.",
    expected="the good entry before the broken one",
)
def order_solana(reading: Reading) -> Iterator[str]:
    """The same for the official clients for Solana."""
    yield from _good_entry(reading, "solana")


@warning(
    "order-ton",
    "Correct or remove the first entry of accepts for TON: the official client for TON takes it,"
    " cannot pay by it and stops with an error. The entry named here is good.",
    expected="the good entry before the broken one",
)
def order_ton(reading: Reading) -> Iterator[str]:
    """The same for the official client for TON."""
    yield from _good_entry(reading, "tvm")


def _good_entry(reading: Reading, family: str) -> Iterator[str]:
    entry = alternative_entry(reading.envelope.entries, family)
    if entry is not None:
        yield f"accepts[{entry.index}]"


@error("error-text", "Write error as a text, or leave it out.", expected="a string", fatal=True)
def error_text(reading: Reading) -> Iterator[str]:
    """`error` is no text, which the official Python client refuses."""
    if not isinstance(reading.envelope.document.get("error"), str | None):
        yield "error"


@warning(
    "v2-fields",
    "Leave resource and extensions out of the top level in version 1, or move to version 2.",
    expected="no such member in version 1",
)
def v2_fields(reading: Reading) -> Iterator[str]:
    """Members of version 2 at the top of an envelope of version 1."""
    if reading.envelope.version == 1:
        yield from (key for key in ("resource", "extensions") if key in reading.envelope.document)


@warning(
    "envelope-mismatch",
    "Make header and body say the same: one client pays by one of them, another by the other.",
    expected="the price and the payee of the header",
)
def envelope_mismatch(reading: Reading) -> Iterator[str]:
    """The body is an envelope too, and for a token of the header's it names another price or
    payee, or they have no token in common.
    """
    if "accepts" not in reading.other.document:
        return
    header, body = _offers(reading.envelope), _offers(reading.other)
    shared = header.keys() & body.keys()
    if ((header or body) and not shared) or any(header[key] != body[key] for key in shared):
        yield "body"


def _offers(envelope: Envelope) -> dict[tuple[str, str], set[Quote]]:
    """The quotes by network and token."""
    offers: dict[tuple[str, str], set[Quote]] = {}
    for terms in terms_of_accepts(envelope.accepts, version=envelope.version):
        quote = terms.quote()
        offers.setdefault((quote.network, quote.asset), set()).add(quote)
    return offers


@warning(
    "body-unpayable",
    "Mend or remove the version 1 body: clients of version 1 read it and cannot pay by it.",
    expected="a version 1 envelope that can be paid, or none",
)
def body_unpayable(reading: Reading) -> Iterator[str]:
    """Beside a header, a body that declares version 1 and that no client could pay by."""
    declared = reading.other.document.get("x402Version")
    if declared == 1 and not is_payable(reading.other.entries):
        yield "body"
