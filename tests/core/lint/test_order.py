"""The order of `accepts`: which entry each official client takes, told as the clients tell it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.lint.test_network import SOLANA
from tests.core.lint.test_scheme import CAPTURE, EXACT, PERMIT2, UPTO
from tests.support.lint_envelopes import (
    MISSING,
    V2,
    change_envelope,
    fired_rules,
    lint_answer,
    wheres,
)

from tollgauge.core.lint.rule import ANSWERS

Document = dict[str, Any]
ENTRY = "accepts.0."


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
