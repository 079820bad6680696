"""Column types, the columns of records, and the encoding of values: quotes, findings and lists as
JSON; long texts, and the quotes and findings of probes, as Zstandard frames.

- Foreign text is stored without NUL and lone surrogates, which PostgreSQL rejects. Text to compare
  with stored text must be cleaned first (`clean_quote`).
- Foreign integers that fit no column become None.
- A quote is `[network, asset, amount, payTo]` with a decimal string as amount, empty if a listing
  states none. A finding is `[rule, severity, message, where]` without an empty tail. A probe's
  statement is `[at, holds, up, payable, compliance]`.
"""

from __future__ import annotations

import threading
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import msgspec
import orjson
import sqlalchemy as sa
import zstandard
from pydantic import TypeAdapter

from tollgauge.core.directory.entry_record import EntryStatement
from tollgauge.core.endpoint.terms import Advertised, KnownOffer, Quote, UnpricedTerms
from tollgauge.core.probe.exchange import Finding, OfficialClient, Severity

_INT_MAX: Final = 2**31 - 1


def plain(text: str) -> str:
    """Replace NUL and lone surrogates in a text."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def small(value: int | None) -> int | None:
    """Return the integer if it fits into a 32-bit column, otherwise None."""
    return value if value is not None and -_INT_MAX <= value <= _INT_MAX else None


def clean_quote(quote: Quote) -> Quote:
    """Return the quote as it is read back from the store."""
    text = quote.network + quote.asset + quote.pay_to
    if plain(text) is text:  # the common case
        return quote
    return replace(
        quote,
        network=plain(quote.network),
        asset=plain(quote.asset),
        pay_to=plain(quote.pay_to),
    )


def to_json(value: Any) -> str:
    """Encode a value as JSON text."""
    return orjson.dumps(value).decode()


def texts_to_json(texts: Sequence[str]) -> str:
    """Encode a list of texts as JSON."""
    return to_json([plain(text) for text in texts])


def texts_from_json(text: str) -> tuple[str, ...]:
    """Decode `texts_to_json`."""
    return tuple(orjson.loads(text))


def offers_to_json(offers: Sequence[KnownOffer]) -> str:
    """Encode offers as JSON arrays of their fields."""
    texts = ("network", "scheme", "pay_to", "fee_payer", "app_code")
    cleaned = [
        msgspec.structs.replace(offer, **{name: plain(getattr(offer, name)) for name in texts})
        for offer in offers
    ]
    return msgspec.json.encode(cleaned).decode()


def quote_fields(quote: Quote) -> list[str]:
    """Return a quote as the items of a JSON array."""
    cleaned = clean_quote(quote)
    return [cleaned.network, cleaned.asset, str(cleaned.amount), cleaned.pay_to]


def quote_from_fields(fields: Sequence[str]) -> Quote:
    """Decode `quote_fields`."""
    network, asset, amount, pay_to = fields
    return Quote(network=network, asset=asset, amount=int(amount), pay_to=pay_to)


def clean_terms(terms: Advertised | None) -> Advertised | None:
    """Return a listing's terms as they are read back from the store."""
    if isinstance(terms, UnpricedTerms):
        return UnpricedTerms(
            network=plain(terms.network), asset=plain(terms.asset), pay_to=plain(terms.pay_to)
        )
    return clean_quote(terms) if terms else None


def terms_to_json(terms: Advertised) -> str:
    """Encode a quote, or a listing's terms, as JSON text."""
    if isinstance(terms, UnpricedTerms):
        return to_json([terms.network, terms.asset, "", terms.pay_to])
    return to_json(quote_fields(terms))


def terms_from_json(text: str | bytes) -> Advertised:
    """Decode `terms_to_json`."""
    fields = orjson.loads(text)
    network, asset, amount, pay_to = fields
    if amount:
        return quote_from_fields(fields)
    return UnpricedTerms(network=network, asset=asset, pay_to=pay_to)


def finding_fields(finding: Finding, *, slug_only: bool = False) -> list[str]:
    """Return a finding as the items of a JSON array; `slug_only` omits message and place."""
    fields = [plain(finding.rule), finding.severity.value]
    if not slug_only:
        fields += [plain(finding.message), plain(finding.where)]
    while not fields[-1]:
        fields.pop()
    return fields


def finding_from_fields(fields: Sequence[Any]) -> Finding:
    """Decode `finding_fields`."""
    rule, severity, message, where = (*fields, "", "")[:4]
    return Finding(rule=rule, severity=Severity(severity), message=message, where=where)


_CLIENT_BITS: Final = {client: 1 << bit for bit, client in enumerate(OfficialClient)}


def clients_to_bits(clients: Iterable[OfficialClient]) -> int:
    """Encode official clients as the bits of an integer."""
    return sum(_CLIENT_BITS[client] for client in clients)


@lru_cache(maxsize=1 << len(_CLIENT_BITS))
def clients_from_bits(bits: int) -> frozenset[OfficialClient]:
    """Decode `clients_to_bits`."""
    return frozenset(client for client, bit in _CLIENT_BITS.items() if bits & bit)


_LEVEL: Final = 3
_MAX_BYTES: Final = 64 * 1024 * 1024
# A score and its evidence, with the texts and property names that most of them contain: a fifth
# smaller. Stored texts can only be read with the same bytes.
_DICTIONARY: Final = zstandard.ZstdCompressionDict(
    files("tollgauge.db").joinpath("compression_dictionary.txt").read_bytes(),
    dict_type=zstandard.DICT_TYPE_RAWCONTENT,
)
_DICTIONARY.precompute_compress(level=_LEVEL)


class _Contexts(threading.local):
    """A compressor and a decompressor per thread.

    Creating one takes longer than using it, and threads must not share one.
    """

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(
            level=_LEVEL, dict_data=_DICTIONARY, write_checksum=False, write_dict_id=False
        )
        self.decompressor = zstandard.ZstdDecompressor(dict_data=_DICTIONARY)


_CONTEXTS: Final = _Contexts()


def compress(text: bytes) -> bytes:
    """Compress a text for storage."""
    return _CONTEXTS.compressor.compress(text)


def decompress(stored: bytes) -> bytes:
    """Decompress the bytes of `compress`."""
    return _CONTEXTS.decompressor.decompress(stored, max_output_size=_MAX_BYTES)


def compress_terms(terms: Advertised) -> bytes:
    """Compress `terms_to_json`."""
    return compress(terms_to_json(terms).encode())


@lru_cache(maxsize=1_024)  # an endpoint's probes repeat the same quote a thousand times
def decompress_terms(stored: bytes) -> Advertised:
    """Decode `compress_terms`."""
    return terms_from_json(decompress(stored))


def compress_findings(findings: Sequence[Finding]) -> bytes:
    """Compress findings as JSON; no findings are no bytes."""
    fields = [finding_fields(finding) for finding in findings]
    return compress(orjson.dumps(fields)) if fields else b""


@lru_cache(maxsize=1_024)  # as of quotes: an endpoint's probes repeat the same findings
def decompress_findings(stored: bytes) -> tuple[Finding, ...]:
    """Decode `compress_findings`."""
    fields = orjson.loads(decompress(stored)) if stored else ()
    return tuple(finding_from_fields(finding) for finding in fields)


class Encoded(sa.TypeDecorator[Any]):
    """Values that `encode` converts for the database and `decode` converts back. NULL is None."""

    impl = sa.Text
    cache_ok = True

    def __init__(
        self,
        encode: Callable[[Any], Any],
        decode: Callable[[Any], Any] | None,
        impl: sa.types.TypeEngine[Any] | None = None,
    ) -> None:
        """`decode` is None if stored values need no conversion."""
        super().__init__()
        self.encode, self.decode = encode, decode
        if impl is not None:
            self.impl = impl  # type: ignore[assignment] # SQLAlchemy replaces the class by an instance

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:  # noqa: ARG002 - the base has it
        """Return the value to store."""
        return None if value is None else self.encode(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Any:  # noqa: ARG002 - the base has it
        """Return the function that converts stored values.

        `process_result_value` would add two calls per value: a score reads 100 values of probes,
        each in 0.1 us instead of 0.6 us.
        """
        decode = self.decode
        return decode and (lambda value: None if value is None else decode(value))


def enum_of(kind: type[StrEnum]) -> Encoded:
    """Return the column type of an enumeration, stored as text."""
    # A call of the class takes eight times as long as the mapping.
    return Encoded(str, {one.value: one for one in kind}.__getitem__)


Amount: Final = Encoded(str, int)
"""An integer of any size as decimal text."""
JsonObject: Final = Encoded(to_json, orjson.loads)
Texts: Final = Encoded(texts_to_json, texts_from_json)
"""A tuple of texts from outside."""
Offers: Final = Encoded(offers_to_json, msgspec.json.Decoder(tuple[KnownOffer, ...]).decode)
Statements: Final = Encoded(
    lambda statement: msgspec.json.encode(statement).decode(),
    msgspec.json.Decoder(EntryStatement).decode,
)
Clients: Final = Encoded(clients_to_bits, clients_from_bits, sa.Integer())
Compressed: Final = Encoded(compress, decompress, sa.LargeBinary())


def json_of(kind: Any) -> Encoded:
    """Return the column type of a pydantic type, stored as JSON text."""
    form = TypeAdapter(kind)
    return Encoded(lambda value: form.dump_json(value).decode(), form.validate_json)


_TYPES: Final[Mapping[Any, sa.types.TypeEngine[Any]]] = {
    int: sa.BigInteger(),
    str: sa.Text(),
    bytes: sa.LargeBinary(),
    bool: sa.Boolean(),
    tuple[str, ...]: Texts,
}


def columns_of(
    record: type,
    *,
    key: Sequence[str] = (),
    without: Sequence[str] = (),
    **types: sa.types.TypeEngine[Any],
) -> list[sa.Column[Any]]:
    """Return a column for each field of a record; it can be NULL if the field can be None.

    Args:
        record: A class with annotations.
        key: The fields of the primary key.
        without: Fields without a column, or with one that is declared separately.
        types: Column types of single fields. Default: the type of the annotation in _TYPES, or
            that of an enumeration.
    """
    columns = []
    for name, hint in typing.get_type_hints(record).items():
        if name in without:
            continue
        optional = type(None) in typing.get_args(hint)
        kind = typing.get_args(hint)[0] if optional else hint
        column_type = types.get(name) or _TYPES.get(kind) or enum_of(kind)
        is_key = name in key
        columns.append(
            sa.Column(name, column_type, primary_key=is_key, nullable=optional, autoincrement=False)
        )
    return columns
