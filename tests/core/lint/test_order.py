"""The order of `accepts`: which entry each official client takes, told as the clients tell it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.lint.test_network import SOLANA
from tests.core.lint.test_scheme import CAPTURE, EXACT, PERMIT2, UPTO
from tests.support.chain_nodes import chain_nodes
from tests.support.lint_envelopes import (
    MISSING,
    V1,
    V2,
    change_envelope,
    fired_rules,
    lint_answer,
    wheres,
)
from tests.support.official_clients import (
    ask_typescript,
    python_client,
    python_refusal,
    question,
    ton_signer,
)

from tollgauge.core.lint.example import ANSWERS

Document = dict[str, Any]
ENTRY = "accepts.0."
PYTHON_LACKS = {"evm": {"auth-capture"}, "svm": {"upto"}, "tvm": set[str]()}
"""Schemes that only the TypeScript client of a family has."""


def entry_of(envelope: Any, path: str = "", value: Any = None) -> Document:
    """The entry of an envelope, with one member changed."""
    document = change_envelope(envelope, ENTRY + path, value) if path else envelope
    entry: Document = document["accepts"][0]
    return entry


ENTRIES: dict[str, Document] = {
    "exact": entry_of(EXACT),
    "permit2 upfront": entry_of(PERMIT2, "extra.paymentFlow", "upfront"),
    "unknown flow": entry_of(EXACT, "extra.paymentFlow", "later"),
    "capture": entry_of(CAPTURE),
    "subscription": entry_of(EXACT, "scheme", "subscription"),
    "upto broken": entry_of(UPTO, "extra.facilitatorAddress", MISSING),
    "payee broken": entry_of(EXACT, "payTo", "0xYOUR_WALLET"),
    "broken upfront": {
        **entry_of(EXACT, "payTo", "0xYOUR_WALLET"),
        "extra": {"name": "USD Coin", "version": "2", "paymentFlow": "upfront"},
    },
    "solana": entry_of(SOLANA),
    "solana upto": entry_of(ANSWERS["solana-upto"].envelope),
    "solana broken": entry_of(SOLANA, "extra", {}),
    "ton": entry_of(ANSWERS["ton"].envelope),
    "ton broken": entry_of(ANSWERS["ton"].envelope, "extra", {}),
}
NAMESPACES = {"evm": "eip155:", "svm": "solana:", "tvm": "tvm:"}


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with chain_nodes(ton_signer("tvm:-239", "").address) as url:
        yield url


@pytest.mark.node
def test_offer_is_payable_where_the_official_client_of_a_family_signs(node: str) -> None:
    names = [*itertools.permutations(ENTRIES, 2)]
    offers = [change_envelope(V2, "accepts", [ENTRIES[name] for name in pair]) for pair in names]
    asked = [question(offer, [family]) for family in ("evm", "svm") for offer in offers]
    answers = iter(ask_typescript(asked, node))
    signed = {family: [not next(answers) for _ in offers] for family in ("evm", "svm")}
    signed["tvm"] = [True] * len(offers)  # the TypeScript packages have no TON
    wrong: list[object] = []
    for family, column in signed.items():
        client = python_client([family], node)
        for index, offer in enumerate(offers):
            schemes = {
                one["scheme"]
                for one in offer["accepts"]
                if one["network"].startswith(NAMESPACES[family])
            }
            if not schemes & PYTHON_LACKS[family] and column[index] and any_of(family, offer):
                column[index] = not python_refusal(client, offer)
            column[index] = column[index] and any_of(family, offer)
    for pair, offer, *signs in zip(names, offers, *signed.values(), strict=True):
        result = lint_answer(offer)
        if result.payable is not any(signs):
            wrong.append((pair, signs, fired_rules(result)))
    assert wrong == []


def any_of(family: str, offer: Document) -> bool:
    """Whether an offer names a network of a family."""
    return any(one["network"].startswith(NAMESPACES[family]) for one in offer["accepts"])


@pytest.mark.parametrize(
    ("names", "rule", "where", "payable"),
    [
        (("upto broken", "exact"), "order-evm", "accepts[1]", False),
        (("payee broken", "capture"), "order-evm", "accepts[1]", False),
        (("subscription", "payee broken", "solana", "exact"), "order-evm", "accepts[3]", True),
        (("upto broken", "solana"), "order-evm", "accepts[1]", True),
        (("solana", "upto broken"), "order-evm", "accepts[0]", True),
        (("solana broken", "solana upto"), "order-solana", "accepts[1]", False),
        (("exact", "solana broken"), "order-solana", "accepts[0]", True),
        (("ton broken", "ton"), "order-ton", "accepts[1]", False),
        (("upto broken", "ton"), "order-evm", "accepts[1]", True),
    ],
)
def test_broken_first_entry_is_named_with_the_family_and_the_good_entry(
    names: tuple[str, ...], rule: str, where: str, payable: bool
) -> None:
    result = lint_answer(change_envelope(V2, "accepts", [ENTRIES[name] for name in names]))
    assert wheres(result, rule) == {where}
    assert result.payable is payable


@pytest.mark.parametrize(
    "names",
    [
        ("exact", "upto broken"),
        ("subscription", "exact"),
        ("unknown flow", "exact"),
        ("broken upfront", "exact"),
        ("upto broken",),
        ("upto broken", "payee broken"),
        ("solana", "exact", "ton"),
    ],
)
def test_order_that_every_client_can_pay_or_none_has_no_finding(names: tuple[str, ...]) -> None:
    result = lint_answer(change_envelope(V2, "accepts", [ENTRIES[name] for name in names]))
    assert not {"order-evm", "order-solana", "order-ton"} & fired_rules(result)


@pytest.mark.node
def test_version_1_is_taken_in_order_too() -> None:
    good = V1["accepts"][0]
    broken = {**good, "payTo": "0xYOUR_WALLET"}
    unknown = {**good, "network": "some-new-chain"}
    for accepts, payable in (([broken, good], False), ([unknown, good], True)):
        offer = change_envelope(V1, "accepts", accepts)
        (refusal,) = ask_typescript([question(offer, header=False)])
        signs = not refusal and not python_refusal(python_client(["evm"]), offer, header=False)
        assert (lint_answer(body=offer).payable, signs) == (payable, payable)
