"""The envelope as read from a response, before the rules judge it.

Rules (x402 v2 HTTP transport, and the order of the official clients):
- a `PAYMENT-REQUIRED` header that decodes to an object takes precedence, even if the object is
  invalid; the requirements of one payment without an envelope are not an envelope;
- without a header, or with one that does not decode, the JSON body is read;
- a header or body nested deeper than 32 levels is not read.
Every function accepts any bytes and never raises. core/lint/parsing decodes the header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tollgauge.core.base.units import SDK, known_asset, legacy_network
from tollgauge.core.endpoint.identity import tool_name
from tollgauge.core.endpoint.terms import GATEWAY_DOMAIN, Terms
from tollgauge.core.lint.mcp import payment_forms
from tollgauge.core.lint.parsing import (
    AMOUNT_KEYS,
    ENTRIES_MAX,
    NO_HEADER,
    OTHER_CHAINS,
    Header,
    HeaderFault,
    atomic_amount,
    evm_address,
    load_json,
    members,
    read_header,
    solana_key,
    terms_of_accepts,
    timeout_seconds,
    ton_address,
)
from tollgauge.core.lint.schema import SchemaVerdict, evaluate, has_external_reference
from tollgauge.core.lint.signed_offer import HostKeys, OfferStanding, judge_offers
from tollgauge.core.probe.exchange import Answer, Exchange, OfficialClient

FLOWS: Final = (None, "authorization", "upfront", "escrow")
"""The payment flows that clients know; they skip entries with another flow."""
FAMILIES: Final = ("eip155", "solana", "tvm")
"""The CAIP-2 namespaces of the networks whose schemes an official client implements. `tvm` is TON.
"""
SCHEMES: Final = {
    key: frozenset[str]().union(*(table.get(key, frozenset()) for table in SDK.schemes.values()))
    for table in SDK.schemes.values()
    for key in table
}
"""The schemes that an official client signs, by kind of network and version (`eip155 2`)."""
_NO_SCHEMES: Final = frozenset[str]()


@dataclass(frozen=True, kw_only=True)
class AcceptsEntry:
    """One element of `accepts`. Values that several rules need are computed once."""

    index: int
    version: int
    raw: object

    @cached_property
    def fields(self) -> dict[str, object]:
        """The entry's members; empty if it is not an object."""
        return members(self.raw)

    @cached_property
    def extra(self) -> dict[str, object]:
        """The members of `extra`; empty if it is not an object."""
        return members(self.fields.get("extra"))

    def text(self, field: str) -> str:
        """Return a member that is a string; empty for any other value."""
        value = self.fields.get(field)
        return value if isinstance(value, str) else ""

    @property
    def amount_key(self) -> str:
        """The amount's name in this version."""
        return AMOUNT_KEYS[self.version]

    @cached_property
    def amount(self) -> int | None:
        """The amount in atomic units; None unless it is a whole number that fits a uint256."""
        return atomic_amount(self.fields.get(self.amount_key))

    @cached_property
    def timeout(self) -> int | None:
        """`maxTimeoutSeconds`; None unless it is a positive whole number."""
        return timeout_seconds(self.fields.get("maxTimeoutSeconds"))

    @cached_property
    def domain(self) -> dict[str, str]:
        """The parts of the token's EIP-712 domain in `extra`: `name` and `version`."""
        parts = ((key, self.extra.get(key)) for key in ("name", "version"))
        return {key: value for key, value in parts if isinstance(value, str) and value}

    def domain_gaps(self) -> Iterator[str]:
        """Return the paths of the missing parts of the domain."""
        return (self.at(f"extra.{key}") for key in ("name", "version") if key not in self.domain)

    @cached_property
    def terms(self) -> tuple[Terms, ...]:
        """The terms of the entry; empty if they cannot be read."""
        return terms_of_accepts([self.raw], version=self.version)

    @cached_property
    def scheme(self) -> str:
        """The scheme; empty if it is not a string."""
        return self.text("scheme")

    @cached_property
    def network(self) -> str:
        """The network; empty if it is not a string. Known plain names are converted to CAIP-2."""
        text = self.text("network")
        return legacy_network(text) or text

    @cached_property
    def chain(self) -> str:
        """The CAIP-2 namespace of the network, or the one that a plain name implies.

        An unknown name is treated as an EVM network, as most are. Empty without a network.
        """
        namespace, colon, _ = self.network.partition(":")
        if colon or not namespace:
            return namespace
        word = re.split(r"[^a-z]", namespace.lower(), maxsplit=1)[0]
        return word if word == "solana" or word in OTHER_CHAINS else "eip155"

    @cached_property
    def evaluated(self) -> bool:
        """Whether an official client signs on this kind of network in this version."""
        return self._kind in SCHEMES

    @cached_property
    def schemes(self) -> frozenset[str]:
        """The schemes of the official clients on this kind of network in this version."""
        return SCHEMES.get(self._kind, _NO_SCHEMES)

    @cached_property
    def _kind(self) -> str:
        return f"{self.chain} {self.version}"

    @property
    def judged(self) -> bool:
        """Whether the linter can decide if a client can pay: the network or scheme is missing, or
        an installed official client signs for both.
        """
        if not isinstance(self.raw, dict) or not self.chain or not self.scheme:
            return True
        return self.shaped and not (self.scheme == "exact" and self.method == "erc7710")

    def is_supported_by(self, client: OfficialClient) -> bool:
        """Return whether the SDK for TypeScript or Python considers it: it has the scheme and knows
        the payment flow. In version 1, the Python client does not read the flow.
        """
        if self.scheme not in SDK.schemes[client].get(self._kind, _NO_SCHEMES):
            return False
        if self.version == 1 and self.text("network") not in SDK.v1_networks[client]:
            return False
        if self.version == 2 and not self.text("network").startswith(f"{self.chain}:"):
            return False
        if self.chain == "tvm" and self.network not in SDK.ton_networks:
            return False
        ignored = client is OfficialClient.PYTHON and self.version == 1
        return ignored or self.extra.get("paymentFlow") in FLOWS

    @property
    def completed_domain(self) -> bool:
        """Whether the Python client takes the domain from its table: `exact` without a name, of a
        default token. In version 1, the version may be missing instead.
        """
        if self.scheme != "exact" or ("name" in self.extra and self.version == 2):
            return False
        token = known_asset(self.network, self.text("asset"))
        gaps = {"name", "version"} - self.domain.keys()
        return token is not None and token.default and not gaps & self.extra.keys()

    @cached_property
    def gateway(self) -> bool:
        """Whether it is an offer of Circle Gateway, which only Circle's client signs."""
        offered = self.evm and self.version == 2 and self.scheme == "exact"
        return offered and self.extra.get("name") == GATEWAY_DOMAIN

    @cached_property
    def evm(self) -> bool:
        """Whether EVM formats apply: an EVM network, and a scheme that clients have or none."""
        return self.chain == "eip155" and self._known_scheme

    @cached_property
    def solana(self) -> bool:
        """Whether Solana formats apply, by the same rule."""
        return self.chain == "solana" and self._known_scheme

    @cached_property
    def ton(self) -> bool:
        """Whether TON formats apply, by the same rule."""
        return self.chain == "tvm" and self.evaluated and self._known_scheme

    @property
    def shaped(self) -> bool:
        """Whether the formats of any network apply."""
        return self.evm or self.solana or self.ton

    @cached_property
    def method(self) -> str:
        """The transfer method on an EVM network; version 1 has only EIP-3009."""
        method = self.extra.get("assetTransferMethod")
        if self.scheme == "upto":
            return "permit2"
        return method if self.version == 2 and isinstance(method, str) else "eip3009"

    @cached_property
    def eip3009(self) -> bool:
        """Whether clients sign an EIP-3009 authorization for it."""
        return self.evm and not self.gateway and self.method not in ("permit2", "erc7710")

    @cached_property
    def _known_scheme(self) -> bool:
        return not self.scheme or self.scheme.strip().lower() in self.schemes

    def account(self, field: str) -> str | None:
        """Return the account in `asset` or `payTo` in comparable form.

        None unless it is an account of the network and the network's accounts are validated.
        """
        return self._accounts[field]

    @cached_property
    def _accounts(self) -> dict[str, str | None]:
        if not self.shaped:  # the accounts of this network are not validated
            return {"asset": None, "payTo": None}
        read = evm_address if self.evm else solana_key if self.solana else ton_address
        return {field: read(self.fields.get(field)) for field in ("asset", "payTo")}

    def at(self, where: str) -> str:
        """Return the path of a member, or of the entry if `where` is empty."""
        return f"accepts[{self.index}].{where}" if where else f"accepts[{self.index}]"


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
        judged = self.accepts[:ENTRIES_MAX] if isinstance(self.accepts, list) else ()
        return tuple(
            AcceptsEntry(index=index, version=self.version, raw=raw)
            for index, raw in enumerate(judged)
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
    def example(self) -> SchemaVerdict | None:
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
            envelope = _envelope(first, places[first], default=2)
    else:
        header = read_header(answer)
        # A client of version 2 stops at bare requirements, as it does at any other object.
        bare = header.fault is HeaderFault.REQUIREMENTS
        if not bare and members(body).keys() & {"accepts", "x402Version"}:
            envelope = _envelope("body", members(body), default=1)
        if header.document is not None:
            envelope, other = _envelope("header", header.document, default=2), envelope
    return Reading(
        exchange=exchange,
        answer=answer,
        header=header,
        body=body,
        envelope=envelope,
        other=other,
        host_keys=host_keys,
    )


def _envelope(place: str, document: dict[str, object], *, default: int) -> Envelope:
    """Return an envelope with its version: declared, quoted, or the default of its place."""
    declared = document.get("x402Version")
    if isinstance(declared, str):
        declared = {"1": 1, "2": 2}.get(declared.strip())
    version = 2 if declared == 2 else 1 if declared == 1 and declared is not True else default
    return Envelope(place=place, version=version, document=document)
