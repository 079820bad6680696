"""The kinds of search texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.directory.search_text import Host, PayTo, Words, read_search_text
from tollgauge.core.endpoint.identity import PUBLIC, Perimeter, Resource, ResourceError

EVM = "833589fcd6edb6e08f4c7c32d4f71b54bda02913"
SOLANA = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://api.example.com/v1/weather?city=Oslo", "https://api.example.com/v1/weather"),
        ("  https://API.example.com/a ", "https://api.example.com/a"),
        ("http://api.example.com/a", "https://api.example.com/a"),
        ("api.example.com/v1/weather", "https://api.example.com/v1/weather"),
        ("https://api.example.com", "https://api.example.com/"),
    ],
)
def test_url_names_its_resource_with_a_scheme_or_without(text: str, url: str) -> None:
    named = read_search_text(text, PUBLIC)
    assert isinstance(named, Resource)
    assert named.url == url


@pytest.mark.parametrize("text", ["api.example.com", "API.Example.com.", "api.example.com/"])
def test_single_word_with_a_dot_names_a_host(text: str) -> None:
    assert read_search_text(text, PUBLIC) == Host("api.example.com")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (" 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 ", f"0x{EVM}"),
        (f"0x{EVM.upper()}", f"0x{EVM}"),
        (SOLANA, SOLANA),
    ],
)
def test_account_names_a_pay_to_in_any_case_of_its_hex_digits(text: str, address: str) -> None:
    assert read_search_text(text, PUBLIC) == PayTo(address)


@pytest.mark.parametrize("text", [f"0x{EVM}0", f"0x{EVM[1:]}", EVM, SOLANA + "11", "1" * 44])
def test_text_that_is_not_an_account_is_read_as_words(text: str) -> None:
    assert read_search_text(text, PUBLIC) == Words(text)


def test_host_may_come_with_its_port() -> None:
    assert read_search_text("seller.local:8080", Perimeter(mapped=frozenset({"seller.local"}))) == (
        Host("seller.local")
    )


@pytest.mark.parametrize(
    "text",
    ["weather", "weather in St. Gallen", "and/or", "...", "e.g. maps", "a..b", "50% off/day"],
)
def test_all_else_is_words(text: str) -> None:
    assert read_search_text(text, PUBLIC) == Words(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ftp://api.example.com/a", "resource-not-https"),
        ("http://127.0.0.1/admin", "resource-not-public"),
        ("10.0.0.1", "resource-not-public"),
        ("printer.local", "resource-not-public"),
        ("https://user:pass@api.example.com/", "resource-invalid"),
    ],
)
def test_rejects_non_public_search_targets_with_a_reason(text: str, code: str) -> None:
    with pytest.raises(ResourceError) as caught:
        read_search_text(text, PUBLIC)
    assert caught.value.code == code


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        named = read_search_text(text, PUBLIC)
    except ResourceError:
        return
    assert isinstance(named, Resource | Host | Words)
