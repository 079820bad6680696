"""Reading terms out of an `accepts` array, as listings and challenges write it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.lint.accepts import ENTRIES_MAX, terms_of_accepts

USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
PAYEE = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
V1 = {
    "scheme": "exact",
    "network": "base",
    "maxAmountRequired": "10000",
    "asset": USDC,
    "payTo": PAYEE,
    "maxTimeoutSeconds": 60,
    "extra": {"name": "USD Coin", "version": "2"},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["scheme", "network", "amount", "asset", "payTo", "extra", "x"]), inner
        )
    ),
    max_leaves=20,
)


def test_v1_entry_is_read_with_its_network_in_caip2() -> None:
    (terms,) = terms_of_accepts([V1], version=1)
    assert (terms.network, terms.amount, terms.pay_to) == ("eip155:8453", 10_000, PAYEE)
    assert (terms.timeout_seconds, terms.domain_name, terms.domain_version) == (60, "USD Coin", "2")


def test_name_of_the_other_version_and_a_plain_number_are_read_too() -> None:
    renamed = {**V1, "amount": 7}
    del renamed["maxAmountRequired"]
    (terms,) = terms_of_accepts([renamed], version=1)
    assert terms.amount == 7


def test_entry_without_an_amount_or_a_payee_is_left_out() -> None:
    no_amount = {key: value for key, value in V1.items() if key != "maxAmountRequired"}
    assert terms_of_accepts([no_amount, {**V1, "payTo": ["x"]}, "x", None], version=1) == ()


def test_control_characters_and_endless_texts_are_left_out() -> None:
    assert (
        terms_of_accepts([{**V1, "payTo": "a\x00b"}, {**V1, "asset": "a" * 300}], version=1) == ()
    )


def test_no_more_entries_are_read_than_a_real_challenge_could_hold() -> None:
    assert len(terms_of_accepts([V1] * 1_000, version=1)) == ENTRIES_MAX


@given(JSON, st.integers(0, 3))
def test_reading_never_raises_and_amounts_are_never_negative(value: object, version: int) -> None:
    assert all(terms.amount >= 0 for terms in terms_of_accepts(value, version=version))
    assert all(terms.amount >= 0 for terms in terms_of_accepts([value], version=version))
