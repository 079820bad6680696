"""The linter against the official clients: a client that signs an envelope can pay it."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import THOROUGH, examples
from x402.http.x402_http_client import x402HTTPClientSync

from bench.oracle.clients import Challenge, python_client, python_refusal
from bench.oracle.envelopes import BASES, MISSING, OTHER, PAYEE, USDC, Case, all_cases
from bench.oracle.referee import EXCEPTIONS, PYTHON, TYPESCRIPT, ask_clients, judge_signers
from bench.oracle.signers import read_signers
from bench.oracle.vectors import VECTORS, build_vectors, vector_cases
from tollgauge.core.base.units import SDK
from tollgauge.core.probe.exchange import OfficialClient

SAMPLE: Final = 20
"""`make test` asks the clients about every 20th case, and about the vectors."""


def key(case: Case) -> tuple[str, bool]:
    return json.dumps(case.challenge.envelope), case.challenge.in_header


@pytest.fixture(scope="module")
def recorded() -> dict[tuple[str, bool], set[OfficialClient]]:
    cases = [*all_cases()]
    return dict(zip(map(key, cases), read_signers(cases), strict=True))


def test_clients_named_by_the_linter_are_those_that_sign(
    recorded: dict[tuple[str, bool], set[OfficialClient]],
) -> None:
    cases = {key(case): case for case in all_cases()}
    results = judge_signers(cases.values(), [recorded[asked] for asked in cases])
    assert [str(one) for one in results.disagreements] == []
    assert set(results.signed) == set(OfficialClient)
    documented = {(rule, client) for rule, why in EXCEPTIONS.items() for client in why.clients}
    assert set(results.exceptions) == documented


@pytest.mark.node
def test_clients_sign_what_the_recording_and_the_vectors_state(
    recorded: dict[tuple[str, bool], set[OfficialClient]],
) -> None:
    """One Node.js process and one Python client are asked about all cases of this file."""
    chosen = all_cases() if THOROUGH else itertools.islice(all_cases(), 0, None, SAMPLE)
    cases = {key(case): case for case in (*chosen, *vector_cases())}
    signed = dict(zip(cases, ask_clients([*cases.values()]), strict=True))
    differing = [case.name for asked, case in cases.items() if signed[asked] != recorded[asked]]
    assert differing == []
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    for one, case in zip(vectors, vector_cases(), strict=True):
        assert signed[key(case)] == set(one["signedBy"]), one["name"]


def test_recording_of_other_cases_is_rejected() -> None:
    with pytest.raises(ValueError, match="cases or clients have changed"):
        read_signers([])


def test_disagreement_names_the_client_and_its_direction() -> None:
    good = Case("good", BASES["exact"])
    broken = Case("broken", Challenge({"x402Version": 2, "accepts": []}))
    results = judge_signers([good, broken], [{TYPESCRIPT}, {TYPESCRIPT}])
    assert (results.false_payable, results.false_unpayable) == (1, 1)
    assert [str(one).partition(" [")[0] for one in results.disagreements] == [
        "false payable (python): good",
        "false unpayable (typescript): broken",
    ]


VALUES = st.one_of(
    st.just(MISSING),
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, 3, 5, 6, 60, 2**53, 2**54, -5, 0.5, 60.0, 60.5, 1e300]),
    st.sampled_from(
        [
            *("", "2", "1", "60", "10000", "0", "-1", "010", "1.5", " 7", "1e4", "0x10", "permit2"),
            *("USD Coin", "USDC", "exact", "upto", "base", "base-sepolia", "upfront", "later"),
            *("eip155:8453", "eip155:84532", "eip155:0", "eip155:x", "eip155:", "eip155"),
            *(str(2**256), str(2**256 - 1), "eip155:" + "9" * 40, "https://api.example.com/"),
            *(USDC, USDC.lower(), PAYEE, OTHER, PAYEE[2:], "0x" + "0" * 40, "0x" + "ab" * 20),
        ]
    ),
    st.sampled_from([[], ["x"], {}, {"x": 1}, {"url": "x"}, {"name": "USD Coin"}]),
)
ADDED = [("accepts", 0, "extra", "paymentFlow"), ("accepts", 0, "extra", "assetTransferMethod")]


def paths(document: Any, prefix: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every member."""
    if prefix:
        yield prefix
    if isinstance(document, list):
        document = dict(enumerate(document))
    if isinstance(document, dict):
        for key, value in document.items():
            yield from paths(value, (*prefix, key))


@st.composite
def changed_challenges(draw: st.DrawFn) -> Challenge:
    """Return a challenge of EVM networks with one to three changed members."""
    base = BASES[draw(st.sampled_from(["exact", "exact permit2", "upto", "batch", "version 1"]))]
    root: Any = copy.deepcopy(base.envelope)
    places = st.sampled_from([*paths(root), *ADDED])
    changes = st.lists(st.tuples(places, VALUES), min_size=1, max_size=3)
    for (*parents, last), value in draw(changes):
        holder: Any = root
        try:
            for key in parents:
                holder = holder[key]
            if value is MISSING:
                del holder[last]
            else:
                holder[last] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue
    return Challenge(root, base.in_header)


@pytest.fixture(scope="module")
def client() -> x402HTTPClientSync:
    """The Python client for EVM networks."""
    return python_client(["evm"])


@settings(max_examples=examples(500), deadline=None)
@given(challenge=changed_challenges())
def test_python_client_signs_exactly_what_the_linter_says(
    client: x402HTTPClientSync, challenge: Challenge
) -> None:
    signers = {TYPESCRIPT} if python_refusal(client, challenge) else {TYPESCRIPT, PYTHON}
    case = Case(json.dumps(challenge.envelope), challenge)
    wrong = judge_signers([case], [signers]).disagreements
    assert [str(one) for one in wrong if one.client is PYTHON] == []


def test_vectors_state_what_the_linter_says() -> None:
    recorded = json.loads(VECTORS.read_text(encoding="utf-8"))
    assert recorded["license"] == "CC0-1.0"
    assert recorded["clients"] == SDK.versions
    cases = [
        Case(one["name"], Challenge(one["envelope"], one["place"] == "header"))
        for one in recorded["vectors"]
    ]
    assert cases == list(vector_cases())
    signed = [{OfficialClient(name) for name in one["signedBy"]} for one in recorded["vectors"]]
    assert build_vectors(cases, signed) == recorded["vectors"]
