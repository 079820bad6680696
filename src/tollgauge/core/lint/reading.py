"""Reading: the envelope as it lies in an answer's bytes, before anyone judges it.

Rules (x402 v2 HTTP transport, and the official clients' order):
- a `PAYMENT-REQUIRED` header that decodes to an object governs, however bad the object is; the
  requirements of one payment without an envelope around them are no envelope;
- without one, or with one that does not decode, the JSON body is read;
- a header or body that is nested deeper than 32 levels is not read.
Every function takes any bytes and never raises.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

import orjson

from tollgauge.core.exchange import Answer, Exchange
from tollgauge.core.lint.accepts import AMOUNT_KEYS, ENTRIES_MAX
from tollgauge.core.lint.account import OTHER_CHAINS, evm_address, solana_key
from tollgauge.core.lint.schema import Verdict, evaluate, has_external_reference
from tollgauge.core.units import legacy_network

HEADER: Final = "payment-required"
DEPTH_MAX: Final = 32
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*", re.ASCII)
_SPACE: Final = re.compile(r"\s+", re.ASCII)
_SCHEMES: Final = {
    ("eip155", 2): frozenset({"exact", "upto", "batch-settlement", "auth-capture"}),
    ("eip155", 1): frozenset({"exact"}),
    ("solana", 2): frozenset({"exact"}),
    ("solana", 1): frozenset({"exact"}),
}
"""The schemes that an official client has, by kind of network and version (TypeScript 2.27)."""


class HeaderFault(StrEnum):
    """Why a header could not be read."""

    BASE64 = "base64"
    JSON = "json"
    OBJECT = "object"
    REQUIREMENTS = "requirements"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The `PAYMENT-REQUIRED` header: its joined text (empty when absent), how often it came,
    which departures from standard base64 it has, and its object or the fault that hides it.
    """

    text: str = ""
    count: int = 0
    spaced: bool = False
    urlsafe: bool = False
    unpadded: bool = False
    document: dict[str, object] | None = None
    fault: HeaderFault | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One element of `accepts`. `network` is CAIP-2 where the text could be translated. What every
    rule asks is worked out once.
    """

    index: int
    version: int
    raw: object

    @cached_property
    def fields(self) -> dict[str, object]:
        """The entry's members; none when it is not an object."""
        return self.raw if isinstance(self.raw, dict) else {}

    @cached_property
    def extra(self) -> dict[str, object]:
        """The members of `extra`; none when it is not an object."""
        extra = self.fields.get("extra")
        return extra if isinstance(extra, dict) else {}

    @property
    def amount_key(self) -> str:
        """The amount's name in this version."""
        return AMOUNT_KEYS[self.version]

    @cached_property
    def scheme(self) -> str:
        """The scheme, empty when it is not a text."""
        scheme = self.fields.get("scheme")
        return scheme if isinstance(scheme, str) else ""

    @cached_property
    def network(self) -> str:
        """The network, empty when it is not a text; a plain name that is known as CAIP-2."""
        text = self.fields.get("network")
        return (legacy_network(text) or text) if isinstance(text, str) else ""

    @cached_property
    def chain(self) -> str:
        """The kind of network: its CAIP-2 namespace, or what a plain name stands for. A name that
        nobody knows is taken for an EVM network, as most are; empty when there is none.
        """
        namespace, colon, _ = self.network.partition(":")
        if colon or not namespace:
            return namespace
        word = re.split(r"[^a-z]", namespace.lower(), maxsplit=1)[0]
        return word if word == "solana" or word in OTHER_CHAINS else "eip155"

    @property
    def evaluated(self) -> bool:
        """Whether it is on a kind of network whose rules we know."""
        return self.chain in ("eip155", "solana")

    @property
    def schemes(self) -> frozenset[str]:
        """The schemes that an official client has on its kind of network in its version."""
        return _SCHEMES.get((self.chain, self.version), frozenset())

    @cached_property
    def evm(self) -> bool:
        """Whether EVM shapes apply: an EVM network, and no scheme that clients do not have."""
        return self.chain == "eip155" and self._known_scheme

    @cached_property
    def solana(self) -> bool:
        """Whether Solana's shapes apply, likewise."""
        return self.chain == "solana" and self._known_scheme

    @property
    def method(self) -> str:
        """How the token is moved on an EVM network; clients of version 1 know EIP-3009 only."""
        method = self.extra.get("assetTransferMethod")
        if self.scheme == "upto":
            return "permit2"
        return method if self.version == 2 and isinstance(method, str) else "eip3009"

    @property
    def eip3009(self) -> bool:
        """Whether a client signs an EIP-3009 authorization for it."""
        return self.evm and self.method not in ("permit2", "erc7710")

    @property
    def _known_scheme(self) -> bool:
        return not self.scheme or self.scheme.strip().lower() in self.schemes

    def account(self, field: str) -> str | None:
        """The account in `asset` or `payTo`, in the form in which accounts are compared; None
        unless it is an account of the network and the network's accounts are judged.
        """
        value = self.fields.get(field)
        if self.solana:
            return solana_key(value)
        return evm_address(value) if self.evm else None

    def at(self, field: str) -> str:
        """The path of one of its members."""
        return f"accepts[{self.index}].{field}"


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """A payment challenge: where it lay, the version that its reader takes it for, its object."""

    place: str
    version: int
    document: dict[str, object]

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that are judged, at most ENTRIES_MAX."""
        accepts = self.document.get("accepts")
        judged = accepts[:ENTRIES_MAX] if isinstance(accepts, list) else ()
        return tuple(
            Entry(index=index, version=self.version, raw=raw) for index, raw in enumerate(judged)
        )

    @property
    def resource(self) -> dict[str, object]:
        """The members of `resource`; none when it is not an object."""
        resource = self.document.get("resource")
        return resource if isinstance(resource, dict) else {}

    @property
    def extensions(self) -> dict[str, object]:
        """The members of `extensions`; none when it is not an object."""
        extensions = self.document.get("extensions")
        return extensions if isinstance(extensions, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An exchange with what could be read of it. `envelope` governs, `other` is the body's when
    the header's governs. `answer` is None after a fault. `example` says whether the bazaar
    example fits its schema, None when there is nothing to evaluate.
    """

    exchange: Exchange
    answer: Answer | None
    header: Header
    body: object = None
    envelope: Envelope | None = None
    other: Envelope | None = None
    example: Verdict | None = None


def read(exchange: Exchange) -> Reading:
    """What an exchange says of payment; nothing beyond the status unless it is a 402."""
    answer = exchange.result if isinstance(exchange.result, Answer) else None
    if answer is None or answer.status != 402:
        return Reading(exchange=exchange, answer=answer, header=Header())
    header = read_header(answer)
    body = load_json(answer.body)
    # A client of version 2 stops at bare requirements, as it does at any other object.
    bare = header.fault is HeaderFault.REQUIREMENTS
    in_body = None if bare else _body_envelope(body)
    in_header = _header_envelope(header)
    governing = in_header or in_body
    return Reading(
        exchange=exchange,
        answer=answer,
        header=header,
        body=body,
        envelope=governing,
        other=in_body if in_header else None,
        example=_example(governing),
    )


def read_header(answer: Answer) -> Header:
    """The header, decoded as leniently as its meaning stays certain.

    Several headers of the name are joined with a comma as HTTP clients join them (RFC 9110
    section 5.3), which no longer decodes. The specification names no base64 alphabet, so the
    URL-safe one, missing padding and white space are read and left for the rules to mention.
    """
    values = answer.header_values(HEADER)
    text = ", ".join(values)
    compact = _SPACE.sub("", text)
    if not compact:
        return Header(count=len(values))
    bare = compact.rstrip("=")
    standard = bare.replace("-", "+").replace("_", "/")
    flaws = Header(
        text=text,
        count=len(values),
        spaced=compact != text,
        urlsafe=standard != bare,
        unpadded=len(compact) % 4 != 0,
    )
    if not _BASE64.fullmatch(standard) or len(compact) - len(bare) > 2:
        return _with(flaws, fault=HeaderFault.BASE64)
    try:
        raw = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        return _with(flaws, fault=HeaderFault.BASE64)
    document = load_json(raw)
    if document is None:
        return _with(flaws, fault=HeaderFault.JSON)
    if not isinstance(document, dict):
        return _with(flaws, fault=HeaderFault.OBJECT)
    if "accepts" not in document and {"scheme", "payTo"} <= document.keys():
        return _with(flaws, fault=HeaderFault.REQUIREMENTS)
    return _with(flaws, document=document)


def load_json(raw: bytes) -> object:
    """A JSON text's value, or None when there is none, `null`, or nesting below DEPTH_MAX.

    orjson, because it limits the nesting itself: CPython's `json` overruns the C stack once an
    EVM library has raised the recursion limit.
    """
    if not raw:
        return None
    try:
        value: object = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return None if _too_deep(value) else value


def _with(
    header: Header,
    *,
    document: dict[str, object] | None = None,
    fault: HeaderFault | None = None,
) -> Header:
    return Header(
        text=header.text,
        count=header.count,
        spaced=header.spaced,
        urlsafe=header.urlsafe,
        unpadded=header.unpadded,
        document=document,
        fault=fault,
    )


def _too_deep(value: object) -> bool:
    """Whether containers are nested deeper than DEPTH_MAX, level by level without recursion."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [child for child in inner if isinstance(child, (dict, list))]


def _header_envelope(header: Header) -> Envelope | None:
    if header.document is None:
        return None
    version = _version(header.document, default=2)
    return Envelope(place="header", version=version, document=header.document)


def _body_envelope(body: object) -> Envelope | None:
    if not isinstance(body, dict) or not ("accepts" in body or "x402Version" in body):
        return None
    return Envelope(place="body", version=_version(body, default=1), document=body)


def _example(envelope: Envelope | None) -> Verdict | None:
    """Whether `bazaar.info` fits `bazaar.schema`; evaluated once, here, because it is dear."""
    bazaar = envelope.extensions.get("bazaar") if envelope else None
    schema = bazaar.get("schema") if isinstance(bazaar, dict) else None
    if not isinstance(bazaar, dict) or not isinstance(schema, dict):
        return None
    return None if has_external_reference(schema) else evaluate(bazaar.get("info"), schema)


def _version(document: dict[str, object], *, default: int) -> int:
    """The declared version, a guess from a quoted one, else the default of the place."""
    declared = document.get("x402Version")
    if isinstance(declared, str):
        return {"1": 1, "2": 2}.get(declared.strip(), default)
    if isinstance(declared, (int, float)) and not isinstance(declared, bool):
        return int(declared) if declared in (1, 2) else default
    return default
