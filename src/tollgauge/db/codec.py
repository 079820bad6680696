"""Codec: quotes, findings and lists as JSON text, for which there is no column type.

Rules:
- text from outside is stored without NUL and lone surrogates, because PostgreSQL refuses both;
  what is compared with stored text must be cleaned the same way first (`clean_quote`);
- integers from outside that no column holds are unknown (None), never an error;
- a quote is `[network, asset, amount, payTo]`, its amount a decimal string, which is empty in a
  listing that names none; a finding is
  `[rule, severity, message, where]`, cut short where the tail is empty; a statement of a probe is
  `[at, holds, up, payable, compliance]`.

Long texts are compressed as Zstandard frames.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import orjson
import zstandard

from tollgauge.core.endpoint.finding import Finding, Severity
from tollgauge.core.endpoint.terms import Advertised, Quote, UnpricedTerms

_INT_MAX: Final = 2**31 - 1


def plain(text: str) -> str:
    """The text with NUL and lone surrogates replaced."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def small(value: int | None) -> int | None:
    """The integer if a 32-bit column holds it, else None."""
    return value if value is not None and -_INT_MAX <= value <= _INT_MAX else None


def clean_quote(quote: Quote) -> Quote:
    """The quote as it comes back from the store."""
    text = quote.network + quote.asset + quote.pay_to
    if plain(text) is text:  # nearly every one
        return quote
    return replace(
        quote,
        network=plain(quote.network),
        asset=plain(quote.asset),
        pay_to=plain(quote.pay_to),
    )


def texts_to_json(texts: Sequence[str]) -> str:
    """A list of texts as JSON."""
    return orjson.dumps([plain(text) for text in texts]).decode()


def texts_from_json(text: str) -> tuple[str, ...]:
    """The inverse of `texts_to_json`."""
    return tuple(orjson.loads(text))


def quote_fields(quote: Quote | None) -> list[str] | None:
    """A quote as a JSON array's content."""
    if quote is None:
        return None
    cleaned = clean_quote(quote)
    return [cleaned.network, cleaned.asset, str(cleaned.amount), cleaned.pay_to]


def quote_from_fields(fields: Sequence[str] | None) -> Quote | None:
    """The inverse of `quote_fields`."""
    if fields is None:
        return None
    network, asset, amount, pay_to = fields
    return Quote(network=network, asset=asset, amount=int(amount), pay_to=pay_to)


def quote_to_json(quote: Quote | None) -> str | None:
    """A quote as JSON text, None without one."""
    return None if quote is None else orjson.dumps(quote_fields(quote)).decode()


@lru_cache(maxsize=1_024)  # one endpoint's probes have the same quote a thousand times
def quote_from_json(text: str | None) -> Quote | None:
    """The inverse of `quote_to_json`."""
    return None if text is None else quote_from_fields(orjson.loads(text))


def clean_terms(terms: Advertised | None) -> Advertised | None:
    """A listing's terms as they come back from the store."""
    if isinstance(terms, UnpricedTerms):
        return UnpricedTerms(
            network=plain(terms.network), asset=plain(terms.asset), pay_to=plain(terms.pay_to)
        )
    return clean_quote(terms) if terms else None


def terms_to_json(terms: Advertised | None) -> str | None:
    """A listing's terms as JSON text, None without any."""
    if isinstance(terms, UnpricedTerms):
        return orjson.dumps([terms.network, terms.asset, "", terms.pay_to]).decode()
    return quote_to_json(terms)


def terms_from_json(text: str | None) -> Advertised | None:
    """The inverse of `terms_to_json`."""
    if text is None:
        return None
    network, asset, amount, pay_to = orjson.loads(text)
    if amount:
        return Quote(network=network, asset=asset, amount=int(amount), pay_to=pay_to)
    return UnpricedTerms(network=network, asset=asset, pay_to=pay_to)


def finding_fields(finding: Finding, *, slug_only: bool = False) -> list[str]:
    """A finding as a JSON array's content; `slug_only` leaves out message and place."""
    fields = [plain(finding.rule), finding.severity.value]
    if not slug_only:
        fields += [plain(finding.message), plain(finding.where)]
    while not fields[-1]:
        fields.pop()
    return fields


def finding_from_fields(fields: Sequence[Any]) -> Finding:
    """The inverse of `finding_fields`."""
    rule, severity, message, where = (*fields, "", "")[:4]
    return Finding(rule=rule, severity=Severity(severity), message=message, where=where)


def findings_to_json(findings: Sequence[Finding]) -> str:
    """Findings as JSON text."""
    return orjson.dumps([finding_fields(finding) for finding in findings]).decode()


def findings_from_json(text: str) -> tuple[Finding, ...]:
    """The inverse of `findings_to_json`."""
    if text == "[]":
        return ()
    return tuple(finding_from_fields(fields) for fields in orjson.loads(text))


def finding_texts(text: str) -> tuple[tuple[str, str, str], ...]:
    """(rule, severity, message) of each finding of a JSON text."""
    if text == "[]":
        return ()
    return tuple((*fields, "")[:3] for fields in orjson.loads(text))


_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LEVEL: Final = 1
_MAX_BYTES: Final = 64 * 1024 * 1024


class _Contexts(threading.local):
    """A compressor and a decompressor of each thread: to make one takes longer than to use it, and
    no two threads may use one at once.
    """

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()


_CONTEXTS: Final = _Contexts()


def compress(text: bytes) -> bytes:
    """The bytes to store of a text."""
    return _CONTEXTS.compressor.compress(text)


def decompress(stored: bytes) -> bytes:
    """The inverse of `compress`."""
    if not stored.startswith(_MAGIC):
        return stored
    return _CONTEXTS.decompressor.decompress(stored, max_output_size=_MAX_BYTES)
