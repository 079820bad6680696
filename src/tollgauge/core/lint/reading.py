"""The envelope as read from a response, before the rules judge it.

Rules (x402 v2 HTTP transport, and the order of the official clients):
- a `PAYMENT-REQUIRED` header that decodes to an object takes precedence, even if the object is
  invalid; the requirements of one payment without an envelope are not an envelope;
- without a header, or with one that does not decode, the JSON body is read;
- a header or body nested deeper than 32 levels is not read.
Every function accepts any bytes and never raises. core/lint/parsing decodes the header.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tollgauge.core.endpoint.identity import tool_name
from tollgauge.core.lint.accepts import ENTRIES_MAX, AcceptsEntry
from tollgauge.core.lint.mcp import payment_forms
from tollgauge.core.lint.parsing import (
    NO_HEADER,
    Header,
    HeaderFault,
    load_json,
    members,
    read_header,
)
from tollgauge.core.lint.schema import SchemaVerdict, evaluate, has_external_reference
from tollgauge.core.lint.signed_offer import HostKeys, OfferStanding, judge_offers
from tollgauge.core.probe.exchange import Answer, Exchange


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """A payment challenge: its place (`header`, `body`, or one of core/lint/mcp), the version that
    clients read it as, and its object.
    """

    place: str
    version: int
    document: dict[str, object]

    @property
    def exists(self) -> bool:
        """Whether the response contains an envelope."""
        return bool(self.place)

    @cached_property
    def accepts(self) -> object:
        """The value of `accepts`, of any type."""
        return self.document.get("accepts")

    @cached_property
    def entries(self) -> tuple[AcceptsEntry, ...]:
        """The first ENTRIES_MAX entries."""
        entries = self.accepts[:ENTRIES_MAX] if isinstance(self.accepts, list) else ()
        return tuple(
            AcceptsEntry(index=index, version=self.version, raw=raw)
            for index, raw in enumerate(entries)
        )

    @cached_property
    def resource(self) -> dict[str, object]:
        """The members of `resource`; empty if it is not an object."""
        return members(self.document.get("resource"))

    @cached_property
    def extensions(self) -> dict[str, object]:
        """The members of `extensions`; empty if it is not an object."""
        return members(self.document.get("extensions"))


NO_ENVELOPE: Final = Envelope(place="", version=0, document={})


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An exchange with the envelopes that it contains.

    Attributes:
        answer: None after a fault.
        envelope: The envelope that clients use.
        other: The envelope of the body if the header takes precedence.
        host_keys: The keys that the seller's host publishes; None if they were not fetched.
    """

    exchange: Exchange
    answer: Answer | None
    header: Header = NO_HEADER
    body: object = None
    envelope: Envelope = NO_ENVELOPE
    other: Envelope = NO_ENVELOPE
    host_keys: HostKeys | None = None

    def at(self, where: str) -> str:
        """Return the path of a member: `where` itself, since paths start at the response."""
        return where

    @cached_property
    def tool(self) -> str:
        """The name of the MCP tool that was called; empty for an HTTP endpoint."""
        return tool_name(self.exchange.url)

    @cached_property
    def status(self) -> int | None:
        """The HTTP status; None after a fault."""
        return self.answer.status if self.answer else None

    @cached_property
    def bazaar(self) -> dict[str, object]:
        """The members of the extension `bazaar`; empty if it is not an object."""
        return members(self.envelope.extensions.get("bazaar"))

    @cached_property
    def bazaar_input(self) -> dict[str, object]:
        """The members of `bazaar.info.input`; empty if it is not an object."""
        return members(members(self.bazaar.get("info")).get("input"))

    @cached_property
    def signed_offers(self) -> tuple[tuple[str, OfferStanding], ...]:
        """The path and verdict of each signed offer in a version 2 envelope."""
        extension = members(self.envelope.extensions.get("offer-receipt"))
        if self.envelope.version != 2 or not extension:
            return ()
        judged = judge_offers(extension.get("info"), self.envelope.accepts, self.host_keys)
        return tuple((f"extensions.offer-receipt.info.{path}", kind) for path, kind in judged)

    @cached_property
    def external_reference(self) -> bool:
        """Whether the schema of any extension refers to another document."""
        schemas = (members(item).get("schema") for item in self.envelope.extensions.values())
        return any(has_external_reference(schema) for schema in schemas)

    @cached_property
    def schema_verdict(self) -> SchemaVerdict | None:
        """Whether `bazaar.info` matches `bazaar.schema`; None if it cannot be evaluated. Cached,
        because the evaluation is slow.
        """
        schema = self.bazaar.get("schema")
        if not isinstance(schema, dict):
            return None
        if self.external_reference and has_external_reference(schema):
            return None
        return evaluate(self.bazaar.get("info"), schema)


def read(exchange: Exchange, host_keys: HostKeys | None = None) -> Reading:
    """Read the payment terms of an exchange; only the status unless it is a 402."""
    answer = exchange.result if isinstance(exchange.result, Answer) else None
    if answer is None or answer.status != 402:
        return Reading(exchange=exchange, answer=answer)
    header, body, envelope, other = NO_HEADER, load_json(answer.body), NO_ENVELOPE, NO_ENVELOPE
    if tool_name(exchange.url):
        places = payment_forms(members(body))
        if first := next(iter(places), None):
            envelope = _build_envelope(first, places[first], default=2)
    else:
        header = read_header(answer)
        # A client of version 2 stops at bare requirements, as it does at any other object.
        bare = header.fault is HeaderFault.REQUIREMENTS
        if not bare and members(body).keys() & {"accepts", "x402Version"}:
            envelope = _build_envelope("body", members(body), default=1)
        if header.document is not None:
            envelope, other = _build_envelope("header", header.document, default=2), envelope
    return Reading(
        exchange=exchange,
        answer=answer,
        header=header,
        body=body,
        envelope=envelope,
        other=other,
        host_keys=host_keys,
    )


def _build_envelope(place: str, document: dict[str, object], *, default: int) -> Envelope:
    """Return an envelope with its version: declared, quoted, or the default of its place."""
    declared = document.get("x402Version")
    if isinstance(declared, str):
        declared = {"1": 1, "2": 2}.get(declared.strip())
    version = 2 if declared == 2 else 1 if declared == 1 and declared is not True else default
    return Envelope(place=place, version=version, document=document)
