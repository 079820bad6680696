"""Rules about one entry of `accepts`, and the official clients that can pay an envelope.

The SDKs for TypeScript and Python have every scheme of a family of networks (EVM, Solana or TON)
and take the first entry that they support; entries whose `paymentFlow` is not `authorization` come
last. They do not try another entry if the first is broken. Circle's client is for one network and
takes its first entry for Circle Gateway. `tollgauge bench oracle` compares these functions with the
installed clients.

The rules themselves are in entry, network, token and scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from tollgauge.core.base.units import SDK
from tollgauge.core.lint import entry, network, scheme, token
from tollgauge.core.lint.accepts import FAMILIES, AcceptsEntry
from tollgauge.core.lint.reading import Envelope
from tollgauge.core.lint.rule import Rule, rules_of
from tollgauge.core.probe.exchange import OfficialClient

SHAPE_RULES: Final[tuple[Rule[AcceptsEntry], ...]] = (entry.entry_object,)
"""The rule about an entry that is not an object. Such an entry breaks no other rule."""

TERM_RULES: Final[tuple[Rule[AcceptsEntry], ...]] = tuple(
    rule for rule in rules_of(entry, network, token, scheme) if rule not in SHAPE_RULES
)
"""Every rule about an entry that is an object, in the order of the findings."""

ENTRY_RULES: Final = (*SHAPE_RULES, *TERM_RULES)
"""Every rule about one entry, in the order of the findings."""

_SDKS: Final = (OfficialClient.TYPESCRIPT, OfficialClient.PYTHON)
_PREFERRED_FLOWS: Final = (None, "authorization")
_STOPPING: Final = tuple(rule for rule in ENTRY_RULES if rule.stops)


class _PythonEntry(BaseModel, alias_generator=to_camel):
    """An entry of version 2 as the Python client reads it."""

    scheme: str
    network: str
    asset: str
    amount: str
    pay_to: str
    max_timeout_seconds: int
    extra: dict[str, Any] = {}


class _PythonEntryV1(BaseModel, alias_generator=to_camel):
    """An entry of version 1 as the Python client reads it."""

    scheme: str
    network: str
    max_amount_required: str
    resource: str
    description: str | None = None
    mime_type: str | None = None
    pay_to: str
    max_timeout_seconds: int
    asset: str
    output_schema: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None


_PYTHON_ENTRIES: Final[Mapping[int, TypeAdapter[Any]]] = {
    1: TypeAdapter(list[_PythonEntryV1]),
    2: TypeAdapter(list[_PythonEntry]),
}
_PYTHON_VERSION: Final = TypeAdapter(int)


def broken_rules(subject: AcceptsEntry) -> Iterator[Rule[AcceptsEntry]]:
    """Yield the rules that stop a client at an entry."""
    rules = _STOPPING if isinstance(subject.raw, dict) else SHAPE_RULES
    return (rule for rule in rules if any(rule.find(subject)))


def payable_by(envelope: Envelope) -> frozenset[OfficialClient]:
    """Return the official clients that can pay one of the entries.

    Rules about the answer as a whole are not considered, except that the Python client rejects an
    envelope with an unreadable entry or version.
    """
    payers = {
        client
        for client in _SDKS
        if any(_signs(client, choice) for choice in _choose(envelope.entries, client))
    }
    if OfficialClient.PYTHON in payers and not _is_read_by_python(envelope):
        payers.discard(OfficialClient.PYTHON)
    if _is_paid_by_circle(envelope):
        payers.add(OfficialClient.CIRCLE)
    return frozenset(payers)


def is_offered(envelope: Envelope) -> bool:
    """Return whether an entry is one that an official client selects, broken or not."""
    entries = envelope.entries
    return any(True for client in _SDKS for _ in _choose(entries, client))


def has_valid_entry(entries: Iterable[AcceptsEntry]) -> bool:
    """Return whether an entry breaks no rule that stops a client."""
    return any(_is_valid(one) for one in entries)


def select_entry(
    accepts: Sequence[AcceptsEntry], family: str, client: OfficialClient
) -> AcceptsEntry | None:
    """Return the entry that the client of a family selects; None if it supports no entry."""
    supported = [one for one in accepts if one.chain == family and one.is_supported_by(client)]
    if client is OfficialClient.PYTHON and supported and supported[0].version == 1:
        return supported[0]
    preferred = (one for one in supported if one.extra.get("paymentFlow") in _PREFERRED_FLOWS)
    return next(preferred, supported[0] if supported else None)


def alternative_entry(accepts: Sequence[AcceptsEntry], family: str) -> AcceptsEntry | None:
    """Return a valid entry if a client of a family selects a broken one.

    An entry of the same family is preferred. None if no client fails, or if there is no valid
    entry.
    """
    if len(accepts) < 2:
        return None
    for client in _SDKS:
        choice = select_entry(accepts, family, client)
        if choice is None or _signs(client, choice):
            continue
        good = [one for one in accepts if one is not choice and one.evaluated and _is_valid(one)]
        return min(good, key=lambda one: (one.chain != family, one.gateway), default=None)
    return None


def _choose(entries: Sequence[AcceptsEntry], client: OfficialClient) -> Iterator[AcceptsEntry]:
    """Yield the entry that the client of each family selects."""
    selected = (select_entry(entries, family, client) for family in FAMILIES)
    return (choice for choice in selected if choice is not None)


def _signs(client: OfficialClient, subject: AcceptsEntry) -> bool:
    """Return whether an SDK's signature for an entry can settle."""
    if subject.gateway:
        return False  # signed over the token's contract instead of the Gateway wallet
    rules = list(broken_rules(subject))
    if any(client in rule.stops for rule in rules):
        return False
    if client is not OfficialClient.PYTHON:
        return True
    if subject.version == 1 and _differs_in_chain(subject):
        return False
    return subject.completed_domain or token.domain_missing not in rules


def _differs_in_chain(subject: AcceptsEntry) -> bool:
    """Return whether the Python client signs for another chain than the name's."""
    name = subject.text("network")
    return SDK.v1_networks["python"].get(name) != subject.network


def _is_read_by_python(envelope: Envelope) -> bool:
    """Return whether the Python client can parse the version and every entry."""
    version = envelope.document.get("x402Version", 2)
    if version != 1 if envelope.version == 1 else version is True:
        return False  # Python reads `true` as 1
    try:
        _PYTHON_VERSION.validate_python(version)
        _PYTHON_ENTRIES[envelope.version].validate_python(envelope.accepts)
    except ValidationError:
        return False
    return True


def _is_paid_by_circle(envelope: Envelope) -> bool:
    """Return whether Circle's client for a network can pay its first entry for Circle Gateway. It
    reads only the header, and stops at a null entry.
    """
    if envelope.place != "header" or envelope.document.get("x402Version", 2) != 2:
        return False
    seen: set[str] = set()
    for one in envelope.entries:
        if one.raw is None:
            return False
        if not one.gateway or one.network in seen or not _is_gateway_complete(one):
            continue
        seen.add(one.network)
        stopped = any(OfficialClient.CIRCLE in rule.stops for rule in broken_rules(one))
        if one.network in SDK.gateway_networks and not stopped:
            return True
    return False


def _is_gateway_complete(subject: AcceptsEntry) -> bool:
    """Return whether Circle's client recognises an entry as one for Circle Gateway."""
    contract = subject.extra.get("verifyingContract")
    return subject.extra.get("version") == "1" and isinstance(contract, str)


def _is_valid(subject: AcceptsEntry) -> bool:
    """Return whether an entry breaks no rule that stops a client."""
    return next(broken_rules(subject), None) is None
