"""The linter against the official Python client: whatever we call payable, it can sign.

The other direction is stricter on purpose, because the official TypeScript client and published
verdicts are: those cases are listed with their reason in `STRICTER`.
"""

from __future__ import annotations

import base64
import copy
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from eth_account import Account
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.support.examples import examples
from x402 import x402ClientSync
from x402.http.x402_http_client import x402HTTPClientSync
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.schemas import PaymentCreationContext, PaymentRequirements

from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange

sys.setrecursionlimit(1_000)
# The EVM libraries raise it to 100000 on import, under which CPython's own json can be crashed.

URL = "https://api.example.com/weather"
USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
PAYEE = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
THROWAWAY_KEY = "0x" + "11" * 32
Document = dict[str, Any]

V2: Document = {
    "x402Version": 2,
    "error": "Payment required",
    "resource": {"url": URL, "description": "Weather", "tags": ["weather"]},
    "accepts": [
        {
            "scheme": "exact",
            "network": "eip155:8453",
            "amount": "10000",
            "asset": USDC,
            "payTo": PAYEE,
            "maxTimeoutSeconds": 60,
            "extra": {"name": "USD Coin", "version": "2"},
        }
    ],
    "extensions": {"bazaar": {"info": {}, "schema": {}}},
}
V1: Document = {
    "x402Version": 1,
    "error": "X-PAYMENT header is required",
    "accepts": [
        {
            "scheme": "exact",
            "network": "base",
            "maxAmountRequired": "10000",
            "resource": URL,
            "description": "Weather",
            "mimeType": "application/json",
            "outputSchema": {"input": {"type": "http"}},
            "payTo": PAYEE,
            "maxTimeoutSeconds": 60,
            "asset": USDC,
            "extra": {"name": "USD Coin", "version": "2"},
        }
    ],
}
GONE: Any = object()

ADDRESSES = st.sampled_from(
    [
        *(USDC, USDC.lower(), USDC.upper().replace("0X", "0x"), PAYEE, PAYEE.lower(), PAYEE[2:]),
        *(PAYEE.replace("a", "A", 1), "0x" + "0" * 40, "0x" + "ab" * 20, PAYEE[:-1], "USDC", "0x"),
    ]
)
TEXTS = st.sampled_from(
    [
        *("", "2", "1", "60", "10000", "0", "-1", "010", "1.5", " 7", "1e4", "0x10", "permit2"),
        *("USD Coin", "USDC", "exact", "upto", "base", "base-sepolia", "solana", "upfront", "x"),
        *("eip155:8453", "eip155:84532", "eip155:0", "eip155:x", "eip155:", "eip155", "solana:x"),
        *(str(2**256), str(2**256 - 1), "eip155:" + "9" * 40, URL, "USD₮0", "later"),
    ]
)
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 6, 60, 2**53, 2**54, 2**64, -5, 0.5, 60.0, 60.5, 1e300])
VALUES = st.one_of(
    st.just(GONE),
    st.none(),
    st.booleans(),
    NUMBERS,
    TEXTS,
    ADDRESSES,
    st.sampled_from([[], ["x"], {}, {"x": 1}, [1]]),
    st.fixed_dictionaries(
        {},
        optional={"name": TEXTS, "version": TEXTS, "assetTransferMethod": TEXTS, "url": TEXTS},
    ),
)


def paths(document: Any, prefix: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a document can be mutated: all members that it has, and some that it has not."""
    if prefix:
        yield prefix
    if isinstance(document, dict):
        for key, value in document.items():
            yield from paths(value, (*prefix, key))
    if isinstance(document, list):
        for index, value in enumerate(document):
            yield from paths(value, (*prefix, index))


ADDED: list[tuple[str | int, ...]] = [
    ("accepts", 0, "extra", "paymentFlow"),
    ("accepts", 0, "extra", "assetTransferMethod"),
    ("resource", "serviceName"),
    ("resource", "iconUrl"),
]


def mutations(document: Document) -> st.SearchStrategy[Document]:
    places = st.sampled_from([*paths(document), *ADDED])
    changes = st.lists(st.tuples(places, VALUES), min_size=1, max_size=3)
    return changes.map(lambda steps: mutate(document, steps))


def mutate(document: Document, changes: list[tuple[tuple[str | int, ...], Any]]) -> Document:
    root = copy.deepcopy(document)
    for (*parents, last), value in changes:
        holder: Any = root
        try:
            for key in parents:
                holder = holder[key]
            if value is GONE:
                del holder[last]
            else:
                holder[last] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue
    return root


def official_client() -> x402ClientSync:
    inner = x402ClientSync()
    register_exact_evm_client(inner, EthAccountSigner(Account.from_key(THROWAWAY_KEY)))
    inner.set_spend_controls(False)
    return inner


@pytest.fixture(scope="module")
def client() -> x402HTTPClientSync:
    """The official client with a throwaway key and without a spending limit."""
    return x402HTTPClientSync(official_client())


def client_pays(client: x402HTTPClientSync, headers: dict[str, str], body: bytes) -> bool:
    """Whether the official client answers a 402 with a signed payment."""
    try:
        sent, _ = client.handle_402_response(headers, body, URL)
    except Exception:  # noqa: BLE001 - any failure of a foreign client is the answer "no"
        return False
    return bool(sent)


def we_say(headers: dict[str, str], body: bytes) -> bool:
    pairs = tuple((name.lower(), value) for name, value in headers.items())
    answer = Answer(status=402, headers=pairs, body=body)
    return lint(Exchange(url=URL, method="GET", at=0, result=answer)).payable


def in_header(document: Document) -> tuple[dict[str, str], bytes]:
    return {"PAYMENT-REQUIRED": base64.b64encode(json.dumps(document).encode()).decode()}, b"{}"


def in_body(document: Document) -> tuple[dict[str, str], bytes]:
    return {"Content-Type": "application/json"}, json.dumps(document).encode()


def outside_the_client(document: Document) -> bool:
    """Entries of schemes and networks that this client was not given: nothing to compare."""
    accepts = document.get("accepts")
    entry = accepts[0] if isinstance(accepts, list) and accepts else None
    if not isinstance(entry, dict):
        return False
    network, scheme = entry.get("network"), entry.get("scheme")
    known = network in ("base", "base-sepolia") or str(network).startswith("eip155:")
    return not (known and scheme == "exact")


def test_both_pay_the_good_envelopes(client: x402HTTPClientSync) -> None:
    for answer in (in_header(V2), in_header(V1), in_body(V1)):
        assert we_say(*answer)
        assert client_pays(client, *answer)


def test_neither_pays_a_version_2_envelope_in_the_body(client: x402HTTPClientSync) -> None:
    assert not we_say(*in_body(V2))
    assert not client_pays(client, *in_body(V2))


@settings(max_examples=examples(400), deadline=None)
@given(document=mutations(V2))
def test_official_client_signs_payable_headers(
    client: x402HTTPClientSync, document: Document
) -> None:
    if we_say(*in_header(document)) and not outside_the_client(document):
        assert client_pays(client, *in_header(document))


@settings(max_examples=examples(200), deadline=None)
@given(document=mutations(V1))
def test_official_client_signs_payable_v1_bodies(
    client: x402HTTPClientSync, document: Document
) -> None:
    if we_say(*in_body(document)) and not outside_the_client(document):
        assert client_pays(client, *in_body(document))


def entry_read(entry: object) -> PaymentRequirements | None:
    """An entry as the official client reads it; None if it rejects every envelope with it."""
    try:
        return PaymentRequirements.model_validate(entry)
    except ValidationError:
        return None


def select_with_client(offered: list[Any]) -> Any:
    """The entry that the official client selects to sign; None if it selects none."""
    selected: list[object] = []

    def note(context: PaymentCreationContext) -> None:
        selected.append(copy.deepcopy(context.selected_requirements))

    inner = official_client()
    inner.on_before_payment_creation(note)
    client_pays(x402HTTPClientSync(inner), *in_header({**V2, "accepts": offered}))
    return next((entry for entry in offered if entry_read(entry) in selected), None)


@settings(max_examples=examples(100), deadline=None)
@given(entries=st.lists(mutations(V2), min_size=1, max_size=3))
def test_response_is_payable_if_the_entry_that_the_client_selects_is(
    entries: list[Document],
) -> None:
    inside = [one for one in entries if not outside_the_client(one)]
    firsts = [one["accepts"][:1] for one in inside if isinstance(one.get("accepts"), list)]
    # An entry that this client cannot read is left out: it stops at it, whatever else is offered.
    offered = [entry for first in firsts for entry in first if entry_read(entry) is not None]
    selected = select_with_client(offered)
    alone = selected is not None and we_say(*in_header({**V2, "accepts": [selected]}))
    assert we_say(*in_header({**V2, "accepts": offered})) == alone


def test_broken_entry_before_a_good_one_stops_the_client(client: x402HTTPClientSync) -> None:
    good = V2["accepts"][0]
    for broken in ({**good, "amount": "0.01"}, {**good, "payTo": PAYEE[:-1]}):
        assert not we_say(*in_header({**V2, "accepts": [broken, good]}))
        assert not client_pays(client, *in_header({**V2, "accepts": [broken, good]}))
        assert we_say(*in_header({**V2, "accepts": [good, broken]}))
        assert client_pays(client, *in_header({**V2, "accepts": [good, broken]}))


ENTRY = ("accepts", 0)
STRICTER: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("x402Version",), "2", "the TypeScript client finds no scheme under a text"),
    (("x402Version",), GONE, "the TypeScript client finds no scheme under undefined"),
    ((*ENTRY, "maxTimeoutSeconds"), "60", "JavaScript concatenates it to the clock"),
    ((*ENTRY, "maxTimeoutSeconds"), True, "not a number"),
    ((*ENTRY, "maxTimeoutSeconds"), -5, "expired when signed"),
    ((*ENTRY, "maxTimeoutSeconds"), 5, "a facilitator wants six seconds"),
    ((*ENTRY, "maxTimeoutSeconds"), 2**64, "JavaScript loses the seconds"),
    ((*ENTRY, "extra"), {"name": "USD Coin"}, "the TypeScript client wants the version"),
    ((*ENTRY, "extra"), {}, "the TypeScript client wants the domain"),
    ((*ENTRY, "extra", "name"), "USDC", "the signature is invalid for this token"),
    ((*ENTRY, "amount"), " 10", "the specification wants digits only"),
    ((*ENTRY, "payTo"), PAYEE[2:], "the TypeScript client wants 0x"),
    ((*ENTRY, "payTo"), "0x" + "0" * 40, "tokens refuse the zero address"),
    ((*ENTRY, "payTo"), USDC, "the token refuses itself"),
    ((*ENTRY, "network"), "eip155:08453", "another text for the same chain"),
]


@pytest.mark.parametrize(("path", "value", "why"), STRICTER, ids=[case[2] for case in STRICTER])
def test_where_we_are_stricter_than_this_client(
    client: x402HTTPClientSync, path: tuple[str | int, ...], value: Any, why: str
) -> None:
    answer = in_header(mutate(V2, [(path, value)]))
    assert client_pays(client, *answer), f"no longer stricter: {why}"
    assert not we_say(*answer)


REFUSED: list[tuple[tuple[str | int, ...], Any]] = [
    (("error",), 5),
    (("resource",), URL),
    (("resource", "url"), GONE),
    (("resource", "tags"), "weather"),
    (("extensions",), []),
    (("accepts",), []),
    ((*ENTRY, "amount"), 10_000),
    ((*ENTRY, "amount"), "0.01"),
    ((*ENTRY, "amount"), GONE),
    ((*ENTRY, "asset"), "USDC"),
    ((*ENTRY, "payTo"), [PAYEE]),
    ((*ENTRY, "network"), "base"),
    ((*ENTRY, "network"), "eip155:x"),
    ((*ENTRY, "maxTimeoutSeconds"), GONE),
    ((*ENTRY, "maxTimeoutSeconds"), 60.5),
    ((*ENTRY, "extra"), None),
    ((*ENTRY, "extra", "paymentFlow"), "later"),
]


@pytest.mark.parametrize(("path", "value"), REFUSED)
def test_responses_rejected_by_the_client_are_not_payable(
    client: x402HTTPClientSync, path: tuple[str | int, ...], value: Any
) -> None:
    answer = in_header(mutate(V2, [(path, value)]))
    assert not client_pays(client, *answer)
    assert not we_say(*answer)
