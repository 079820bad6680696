"""Corrections of an envelope that follow from the response itself and the known tokens.

Accounts and prices are never invented: a wrong `payTo` is kept, and an amount is only reformatted.
Problems that only the seller can solve remain as findings of the corrected envelope.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson

from tollgauge.core.base.units import (
    ASSETS,
    LEGACY_NETWORKS,
    NETWORK_NAMES,
    known_asset,
)
from tollgauge.core.endpoint.identity import tool_name
from tollgauge.core.lint import mcp
from tollgauge.core.lint.accepts import AMOUNT_KEYS, AcceptsEntry, atomic_amount
from tollgauge.core.lint.entry import LONG_S
from tollgauge.core.lint.judge import lint
from tollgauge.core.lint.parsing import HEADER, load_json, members
from tollgauge.core.lint.reading import Reading, read
from tollgauge.core.lint.rule import encode_envelope
from tollgauge.core.probe.exchange import Answer, Exchange

ABSENT: Final = object()
"""The correction of a member that must be removed, and the value of a missing member."""
SIZE_MAX: Final = 32_768
"""Maximum size in bytes of an envelope that is corrected. Each round parses it again; real
envelopes are less than half as large.
"""
_ROUNDS: Final = 4
"""Maximum number of passes: a token's domain is known only after its address is corrected."""
_TIMEOUT_S: Final = 60
_PATH: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}\b", re.ASCII)
_HEX_CHAIN: Final = re.compile(r"eip155:0x([0-9a-fA-F]{1,13})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """An envelope to send instead.

    Attributes:
        header: Its base64 for PAYMENT-REQUIRED; None for version 1, which belongs in the body, and
            for MCP tools.
        remaining: The rules with findings that only the seller can correct.
    """

    envelope: dict[str, Any]
    header: str | None
    remaining: tuple[str, ...]


def correct_envelope(exchange: Exchange) -> Correction | None:
    """Return the corrected envelope of a response.

    None without an envelope, without a possible correction, or if it exceeds SIZE_MAX.
    """
    reading = read(exchange)
    document = _find_envelope(reading)
    if document is None or len(orjson.dumps(document)) > SIZE_MAX:
        return None
    header = reading.header
    in_body = reading.envelope.place == "body"
    version = 1 if in_body and reading.envelope.version == 1 else 2
    resent = (not reading.envelope.exists) or (in_body and version == 2)
    resent = resent or header.urlsafe or header.spaced or header.unpadded
    if reading.tool:
        version, resent = reading.envelope.version, reading.envelope.place != mcp.PLACES[0]
    answer = _answer_with(exchange, document, version)
    for _ in range(_ROUNDS):
        values = [
            (where, find_correction(read(answer), rule, where)) for rule, where in _lint(answer)
        ]
        for where, value in values:
            if value is not None:
                _write(document, where, value)
        answer, before = _answer_with(exchange, document, version), answer
        if answer == before:
            break
    if not resent and document == reading.envelope.document:
        return None
    return Correction(
        envelope=document,
        header=encode_envelope(document) if version == 2 and not reading.tool else None,
        remaining=tuple(dict.fromkeys(rule for rule, _ in _lint(answer))),
    )


def find_correction(reading: Reading, rule: str, where: str) -> object:
    """Return the right value for a finding: ABSENT if the member must be removed, None if only the
    seller knows it.
    """
    if rule in _IN_ANSWER:
        return _IN_ANSWER[rule](reading, where)
    index = re.match(r"accepts\[(\d+)\]", where)
    if index is None or rule not in _IN_ENTRY:
        return None
    return _IN_ENTRY[rule](reading.envelope.entries[int(index[1])], where.rpartition(".")[2])


def value_at(document: object, where: str) -> object:
    """Return the value at the path of a finding; ABSENT if there is no value."""
    for index, key in _PATH.findall(where):
        if index and isinstance(document, list) and int(index) < len(document):
            document = document[int(index)]
        elif key and isinstance(document, dict) and key in document:
            document = document[key]
        else:
            return ABSENT
    return document


def _find_envelope(reading: Reading) -> dict[str, Any] | None:
    """Return the envelope of a response, or the JSON that was meant as one."""
    if reading.envelope.exists:
        return copy.deepcopy(reading.envelope.document)
    # Some sellers write the JSON itself into the header, or only a part of the envelope.
    value = reading.header.value or load_json(reading.header.text.encode())
    if isinstance(value, dict) and {"scheme", "payTo"} <= value.keys():
        value = [value]
    if isinstance(value, list):
        value = {"x402Version": 2, "accepts": value}
    nested = (members(inner) for inner in members(reading.body).values())
    meant = (one for one in (members(value), *nested) if isinstance(one.get("accepts"), list))
    return copy.deepcopy(next(meant, None))


def _answer_with(exchange: Exchange, document: dict[str, Any], version: int) -> Exchange:
    """Return the exchange with this envelope in its proper place and no other."""
    if tool_name(exchange.url):
        return replace(exchange, result=mcp.payment_error(document))
    sent = exchange.result.headers if isinstance(exchange.result, Answer) else ()
    headers = tuple(pair for pair in sent if pair[0].lower() != HEADER)
    if version == 2:
        headers += ((HEADER, encode_envelope(document)),)
    body = orjson.dumps(document) if version == 1 else b""
    return replace(exchange, result=Answer(status=402, headers=headers, body=body))


def _lint(exchange: Exchange) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in lint(exchange).findings]


def _write(document: dict[str, Any], where: str, value: object) -> None:
    """Set or remove the member at a path; missing parents are created."""
    steps = [int(index) if index else key for index, key in _PATH.findall(where)]
    around, last = where[: max(where.rfind("."), where.rfind("["), 0)], steps[-1]
    if value is not ABSENT and value_at(document, around) is ABSENT:
        _write(document, around, {})
    parent = value_at(document, around)
    if isinstance(parent, dict) and isinstance(last, str):
        if value is ABSENT:
            parent.pop(last, None)
        else:
            parent[last] = value


def _correct_amount(entry: AcceptsEntry, _: str) -> str | None:
    """Return the amount in atomic units. An amount with a decimal point is taken as dollars."""
    texts = (entry.fields.get(key) for key in (entry.amount_key, *AMOUNT_KEYS.values()))
    text = str(next((one for one in texts if isinstance(one, (str, int, float))), ""))
    text = text.strip().removeprefix("$")
    if "." not in text:
        amount = atomic_amount(text)
        return None if amount is None else str(amount)
    token = known_asset(entry.network, entry.text("asset"))
    try:
        units = Decimal(text).scaleb(token.decimals) if token else None
    except InvalidOperation:
        return None
    whole = units is not None and 0 < units < 2**64 and units == units.to_integral_value()
    return str(int(units)) if units is not None and whole else None


def _correct_timeout(entry: AcceptsEntry, _: str) -> int:
    text = entry.text("maxTimeoutSeconds")
    seconds = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    return seconds if _TIMEOUT_S <= seconds <= LONG_S else _TIMEOUT_S


def _correct_scheme(entry: AcceptsEntry, _: str) -> str | None:
    plain = entry.scheme.strip().lower()
    return plain if plain in entry.schemes else None


def _correct_network(entry: AcceptsEntry, _: str) -> str | None:
    """Return the network in the form of its version if the name identifies it."""
    text = entry.text("network").strip()
    if entry.version == 1:
        return NETWORK_NAMES.get(text)
    if hexadecimal := _HEX_CHAIN.fullmatch(text):
        return f"eip155:{int(hexadecimal[1], 16)}"
    namespace, colon, reference = text.lower().partition(":")
    if not colon:
        return LEGACY_NETWORKS.get(text) or LEGACY_NETWORKS.get(text.lower())
    plain = namespace in ("eip155", "evm", "eth", *LEGACY_NETWORKS) and namespace != "solana"
    return f"eip155:{reference}" if plain and reference.isdecimal() else None


def _correct_asset(entry: AcceptsEntry, _: str) -> str | None:
    """Return the token's address on this network, found by its symbol, by an address within the
    text, or by its address on another network.
    """
    text = entry.text("asset")
    if (address := _ADDRESS.search(text)) and address[0] != text:
        return address[0]
    elsewhere = {one.symbol for (_, address), one in ASSETS.items() if address == text.lower()}
    elsewhere |= {one.symbol for (_, address), one in ASSETS.items() if address == text}
    symbols = elsewhere or {text.upper()}
    named = [one for one in ASSETS.values() if one.network == entry.network]
    return next((one.address for one in named if one.symbol in symbols), None)


def _correct_domain(entry: AcceptsEntry, key: str) -> str | None:
    """Return a part of a known token's EIP-712 domain."""
    token = known_asset(entry.network, entry.text("asset"))
    part = {"name": token.domain_name, "version": token.domain_version} if token else {}
    return part.get(key) or None


def _remove_misplaced(entry: AcceptsEntry, key: str) -> object:
    """Remove a member of the other version; an amount only if the right member is set."""
    return None if key in AMOUNT_KEYS.values() and entry.amount is None else ABSENT


def _find_asked_url(reading: Reading, _: str) -> str | None:
    """Return the requested URL."""
    return reading.exchange.url.partition("?")[0] or None


def _correct_scheme_of_url(reading: Reading, where: str) -> str | None:
    """Return the requested URL; without one, the given URL with https://."""
    named = value_at(reading.envelope.document, where)
    return _find_asked_url(reading, where) or f"https{str(named).removeprefix('http')}"


def _correct_resource(reading: Reading, where: str) -> object:
    """Return an object with the given URL or, if none is given, the requested one."""
    named = value_at(reading.envelope.document, where)
    url = named if isinstance(named, str) else reading.exchange.url.partition("?")[0]
    return {"url": url} if where == "resource" and url else None


def _remove_nulls(reading: Reading, _: str) -> list[object]:
    accepts = reading.envelope.accepts
    return [one for one in accepts if one is not None] if isinstance(accepts, list) else []


_CLUSTERS: Final = {
    "mainnet": "solana",
    "mainnet-beta": "solana",
    "devnet": "solana-devnet",
    "testnet": "solana-testnet",
}
"""Names that sellers write after `solana:`, with the version 1 name."""

_IN_ANSWER: Final[dict[str, Callable[[Reading, str], object]]] = {
    "version-form": lambda reading, _: 1 if reading.envelope.place == "body" else 2,
    "accepts-null": _remove_nulls,
    "error-text": lambda _, __: ABSENT,
    "v2-fields": lambda _, __: ABSENT,
    "resource-missing": _correct_resource,
    "resource-shape": _correct_resource,
    "resource-url": _find_asked_url,
    "resource-mismatch": _find_asked_url,
    "resource-http": _correct_scheme_of_url,
    "resource-internal": _find_asked_url,
    "v1-resource": _find_asked_url,
    "extensions-object": lambda _, __: ABSENT,
    "bazaar-method": lambda reading, _: reading.exchange.method or None,
    "bazaar-method-mismatch": lambda reading, _: reading.exchange.method or None,
}
_IN_ENTRY: Final[dict[str, Callable[[AcceptsEntry, str], object]]] = {
    "amount-form": _correct_amount,
    "amount-padded": _correct_amount,
    "timeout-form": _correct_timeout,
    "timeout-too-short": _correct_timeout,
    "timeout-tight": _correct_timeout,
    "timeout-long": lambda _, __: LONG_S,
    "extra-object": lambda _, __: {},
    "flow-unknown": lambda _, __: ABSENT,
    "v1-texts": lambda _, __: ABSENT,
    "v1-fields": _remove_misplaced,
    "v2-amount": _remove_misplaced,
    "scheme-form": _correct_scheme,
    "network-form": _correct_network,
    "network-chain": _correct_network,
    "solana-cluster": lambda entry, _: LEGACY_NETWORKS.get(
        _CLUSTERS.get(entry.network.partition(":")[2].lower(), "")
    ),
    "solana-mint": _correct_asset,
    "asset-form": _correct_asset,
    "asset-network": _correct_asset,
    "domain-missing": _correct_domain,
    "domain-wrong": _correct_domain,
    "upto-domain": _correct_domain,
    "asset-permit2": lambda _, __: "permit2",
    "transfer-method": lambda _, __: ABSENT,
    "batch-method": lambda _, __: ABSENT,
}
