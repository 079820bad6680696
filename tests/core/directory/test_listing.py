"""Entries of directories: listed and skipped ones, and their fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tollgauge.core.directory.declared import BODY_MAX, QUERY_MAX, declared_input
from tollgauge.core.directory.listing import ListedItem, SkippedItem, read_item
from tollgauge.core.directory.page import list_entries, read_page
from tollgauge.core.endpoint.identity import Perimeter
from tollgauge.core.endpoint.terms import Quote, UnpricedTerms

USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
PAY_TO = "0xF9D1D63F362bBF1EE08aB9AcB36fe74aFC48d5f1"
SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
AT = 1_766_283_370_973  # 2025-12-21T02:16:10.973Z


def v1_item(**changes: Any) -> dict[str, Any]:
    terms = {
        "scheme": "exact",
        "network": "base",
        "maxAmountRequired": "10000",
        "asset": USDC,
        "payTo": PAY_TO,
        "resource": "https://api.seller.dev/news",
        "description": "The latest news",
        "maxTimeoutSeconds": 60,
        "outputSchema": {"input": {"type": "http", "method": "GET"}, "output": None},
        "extra": {"name": "USD Coin", "version": "2"},
    }
    item = {
        "resource": "https://api.seller.dev/news",
        "type": "http",
        "x402Version": 1,
        "lastUpdated": "2025-12-21T02:16:10.973Z",
        "accepts": [terms],
    }
    return item | changes


def v2_item(**changes: Any) -> dict[str, Any]:
    item = {
        "resource": "https://api.seller.dev/news",
        "type": "http",
        "x402Version": 2,
        "lastUpdated": AT // 1_000,
        "accepts": [
            {
                "scheme": "exact",
                "network": "eip155:8453",
                "amount": "10000",
                "asset": USDC,
                "payTo": PAY_TO,
                "maxTimeoutSeconds": 300,
            }
        ],
    }
    return item | changes


def v1_input(**fields: Any) -> dict[str, Any]:
    item = v1_item()
    item["accepts"][0]["outputSchema"] = {"input": {"type": "http", **fields}}
    return item


def v2_input(**fields: Any) -> dict[str, Any]:
    info = {"input": {"type": "http", **fields}}
    return v2_item(extensions={"bazaar": {"info": info, "schema": {}}})


def read_listed(item: object, perimeter: Perimeter | None = None) -> ListedItem:
    listed_item = read_item(item, perimeter or Perimeter())
    assert isinstance(listed_item, ListedItem), listed_item
    return listed_item


def read_skip_reason(item: object) -> str:
    listed_item = read_item(item)
    assert isinstance(listed_item, SkippedItem), listed_item
    return listed_item.reason


QUOTE = Quote(network="eip155:8453", asset=USDC.lower(), amount=10_000, pay_to=PAY_TO.lower())


def test_v1_and_v2_entries_of_one_price_have_one_quote() -> None:
    one, two = read_listed(v1_item()), read_listed(v2_item())
    assert one.quote == two.quote == QUOTE
    assert (one.version, two.version) == (1, 2)
    assert one.resource == two.resource
    assert one.method == "GET"
    assert one.description == "The latest news"


def test_quote_is_the_one_on_base_in_any_order() -> None:
    item = v2_item()
    item["accepts"].insert(
        0,
        {
            "scheme": "exact",
            "network": SOLANA,
            "amount": "7",
            "asset": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
            "payTo": "2JssAzBLCxUsYCjrDWh8LBtXhV27JQEg8KZ9JtWccLBU",
        },
    )
    assert read_listed(item).quote == QUOTE


@pytest.mark.parametrize(
    "changes",
    [
        {"resource": None, "url": "https://api.seller.dev/news"},
        {"resource": {"url": "https://api.seller.dev/news", "description": "x"}},
        {"resource": " https://API.seller.dev:443/news \n"},
        {"resource": "", "accepts": [{"resource": "https://api.seller.dev/news"}]},
        {"resource": "http://api.seller.dev/news"},
        {"resource": "http://api.seller.dev:80/news#top"},
    ],
)
def test_every_way_to_name_a_resource_is_the_same_endpoint(changes: dict[str, Any]) -> None:
    assert read_listed(v1_item(**changes)).resource.url == "https://api.seller.dev/news"


def test_bare_url_is_an_entry_and_may_name_its_method() -> None:
    assert read_listed("https://api.seller.dev/news").resource == read_listed(v1_item()).resource
    assert read_listed("POST https://api.seller.dev/news").method == "POST"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (None, "not-an-object"),
        (7, "not-an-object"),
        ([], "not-an-object"),
        ({}, "no-resource"),
        ({"resource": 5}, "no-resource"),
        ({"resource": {"href": "x"}}, "no-resource"),
        (v1_item(type="mcp"), "mcp"),
        (v2_input(type="mcp", inputSchema={"type": "object"}), "mcp"),
        (v2_input(type="mcp", toolName="news", transport="sse"), "mcp"),
        (v2_input(type="mcp", toolName="two words"), "invalid-url"),
        (v1_item(resource="mcp://tool/news"), "mcp"),
        (v1_item(resource="monopoly://game_1/agent0"), "scheme-not-http"),
        (v1_item(resource="solana-transfer://AsEDd1vqP4.../8EMJ8z646R..."), "scheme-not-http"),
        (v1_item(resource="http://api.seller.dev:8403/current"), "not-https"),
        (v1_item(resource="https://localhost/x"), "not-public"),
        (v1_item(resource="https://10.0.0.1/x"), "not-public"),
        (v1_item(resource="https://api.seller.dev:8443/x"), "not-public"),
        (v1_item(resource="not a url"), "invalid-url"),
        (v1_item(resource="/news"), "invalid-url"),
        (v1_item(resource="https://api.seller.dev/" + "x" * 3_000), "invalid-url"),
        (SkippedItem(reason="too-large"), "too-large"),
    ],
)
def test_skips_entries_that_cannot_be_monitored_with_a_reason(item: object, reason: str) -> None:
    assert read_skip_reason(item) == reason


@pytest.mark.parametrize("name", ["toolName", "tool"])
def test_mcp_tool_is_listed_under_server_and_name_with_its_arguments(name: str) -> None:
    declared: dict[str, Any] = {"type": "mcp", name: "news", "example": {"city": "Paris"}}
    listed_item = read_listed(v2_input(**declared))
    assert listed_item.resource.url == "https://api.seller.dev/news#tool=news"
    assert listed_item.resource.probe_url == "https://api.seller.dev/news"
    assert listed_item.body == b'{"city":"Paris"}'


def test_arguments_of_a_tool_come_from_its_schema_without_an_example() -> None:
    fields = {"city": {"type": "string", "default": "Oslo"}, "days": {"type": "integer"}}
    schema = {"type": "object", "properties": fields}
    item = v2_input(type="mcp", toolName="news", inputSchema=schema)
    assert read_listed(item).body == b'{"city":"Oslo"}'


def test_a2a_agent_is_listed_apart_from_an_http_endpoint() -> None:
    agent = read_listed(v2_item(type="a2a")).resource
    assert agent.url == "https://api.seller.dev/news#a2a"
    assert agent.id != read_listed(v2_item()).resource.id


def test_mapped_host_is_listed_with_its_port() -> None:
    perimeter = Perimeter(mapped=frozenset({"seller.test"}))
    item = v1_item(resource="https://seller.test:8443/x")
    assert read_listed(item, perimeter).resource.url == "https://seller.test:8443/x"


def test_path_template_is_kept() -> None:
    for path in ("/perpetuals/:var1", "/items/{id}"):
        assert read_listed(v1_item(resource=f"https://api.seller.dev{path}")).resource.templated


@pytest.mark.parametrize(
    "changes",
    [
        {"accepts": None},
        {"accepts": {}},
        {"accepts": [None, "x", {}]},
        {"accepts": [{"maxAmountRequired": "", "payTo": ""}]},
        {"accepts": []},
    ],
)
def test_entry_without_readable_terms_is_listed_without_a_price(changes: dict[str, Any]) -> None:
    assert read_listed(v1_item(**changes)).quote is None


@pytest.mark.parametrize(
    ("stated", "amount_key", "version"),
    [
        (None, "maxAmountRequired", 1),
        (None, "amount", 2),
        ("2", "amount", 2),
        (True, "maxAmountRequired", 1),
        (1.0, "amount", 2),
        (99, "none", None),
    ],
)
def test_missing_version_is_read_off_the_terms(
    stated: object, amount_key: str, version: int | None
) -> None:
    item = v1_item(x402Version=stated, accepts=[{amount_key: "1"}])
    assert read_listed(item).version == version


def test_provider_text_is_read_from_every_place_and_cleaned() -> None:
    item = v1_item(metadata={"serviceName": "News\u202e\x00 Desk", "tags": ["news", "News"]})
    item["accepts"][0]["metadata"] = {"serviceName": "ignored"}
    listed_item = read_listed(item)
    assert listed_item.service_name == "News Desk"
    assert listed_item.tags == ("news",)
    nested = v2_item(
        resource={"url": "https://api.seller.dev/n", "serviceName": "N", "tags": ["a"]}
    )
    assert (read_listed(nested).service_name, read_listed(nested).tags) == ("N", ("a",))


def test_token_domain_name_is_not_used_as_service_name() -> None:
    assert read_listed(v1_item()).service_name == ""


def test_v2_query_examples_become_the_declared_query() -> None:
    item = v2_input(method="get", queryParams={"city": "São Paulo", "days": 3, "all": True})
    listed_item = read_listed(item)
    assert listed_item.method == "GET"
    assert listed_item.resource.query == "city=S%C3%A3o%20Paulo&days=3&all=true"


def test_v1_field_descriptions_are_not_values_but_their_examples_are() -> None:
    fields = {
        "topic": {"type": "string", "description": "what about", "examples": ["USDC", "ETH"]},
        "lang": {"type": "string", "enum": ["en", "de"]},
        "limit": {"type": "number", "default": 10},
        "from": {"type": "string", "description": "a date", "required": True},
        "prompt": "Text prompt describing the image",
        "nested": {"type": "object", "default": {"a": 1}},
    }
    for key in ("queryParams", "query_params"):
        listed_item = read_listed(v1_input(method="GET", **{key: fields}))
        assert listed_item.resource.query == "topic=USDC&lang=en&limit=10"


def test_query_in_the_url_is_preferred_to_declared_examples() -> None:
    item = v2_input(method="GET", queryParams={"a": "1"})
    item["resource"] += "?b=2"
    assert read_listed(item).resource.query == "b=2"
    assert read_listed(item).resource.id == read_listed(v1_item()).resource.id


@pytest.mark.parametrize("key", ["body", "bodyFields", "body_fields", "bodyParams"])
def test_v1_body_defaults_become_a_json_object(key: str) -> None:
    fields = {"prompt": {"type": "string", "required": True}, "n": {"type": "number", "default": 2}}
    listed_item = read_listed(v1_input(method="POST", bodyType="json", **{key: fields}))
    assert listed_item.method == "POST"
    assert listed_item.body == b'{"n":2}'


def test_v2_body_example_is_the_body() -> None:
    body = {"query": "weather", "options": {"type": "fast", "n": [1, 2]}}
    listed_item = read_listed(v2_input(method="POST", bodyType="json", body=body))
    assert listed_item.body is not None
    assert json.loads(listed_item.body) == body


def test_json_schema_as_body_gives_its_example_or_its_defaults() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": {}}}
    assert read_listed(v2_input(method="POST", body=schema)).body == b'{"a":"x"}'
    assert (
        read_listed(v2_input(method="POST", body=schema | {"example": {"c": 1}})).body == b'{"c":1}'
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "GET", "body": {"a": 1}},
        {"method": "POST", "bodyType": "multipart/form-data", "body": {"a": 1}},
        {"method": "POST", "bodyType": "json", "body": "text"},
        {"method": "POST", "body": {}},
        {"method": "POST", "body": {"a": "x" * BODY_MAX}},
        {"method": "POST", "body": {"a": float("nan")}},
    ],
)
def test_only_small_json_objects_are_accepted_as_body(fields: dict[str, Any]) -> None:
    assert read_listed(v2_input(**fields)).body is None


def test_long_query_is_cut_between_parameters() -> None:
    item = v2_input(method="GET", queryParams={f"p{n}": "v" * 100 for n in range(60)})
    query = declared_input(item).query
    assert 0 < len(query) <= QUERY_MAX
    assert query.endswith("v" * 100)


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "GET\r\nX: y", "", 5, None])
def test_unknown_method_is_ignored(method: object) -> None:
    assert read_listed(v2_input(method=method)).method is None


@pytest.mark.parametrize(
    "mark",
    [
        {"free": True},
        {"type": "free"},
        {"price": "free"},
        {"price": 0},
        {"price": "$0.00"},
        {"price": {"mode": "fixed", "amount": "0.000000"}},
        {"authMode": "unprotected"},
    ],
)
def test_entry_declared_free_is_not_for_sale(mark: dict[str, Any]) -> None:
    assert read_skip_reason({"url": "https://a.dev/x"} | mark) == "free"
    assert read_listed(v2_item(**mark)).quote == QUOTE  # its terms say more


@pytest.mark.parametrize(
    "mark", [{}, {"price": "0.01"}, {"price": ""}, {"price": {"mode": "dynamic", "amount": "0"}}]
)
def test_entry_without_a_mark_of_being_free_is_for_sale(mark: dict[str, Any]) -> None:
    assert read_listed({"url": "https://a.dev/x"} | mark).quote is None


def test_who_is_paid_is_read_without_an_amount() -> None:
    item = v2_item()
    del item["accepts"][0]["amount"]
    listed_item = read_listed(item)
    assert listed_item.quote is None
    assert listed_item.unpriced == UnpricedTerms(
        network="eip155:8453", asset=USDC.lower(), pay_to=PAY_TO.lower()
    )
    assert read_listed(v2_item()).unpriced is None
    bare = read_listed({"url": "https://a.dev/x", "payTo": PAY_TO}).unpriced
    assert bare == UnpricedTerms(network="", asset="", pay_to=PAY_TO.lower())


keys = st.sampled_from(
    [
        "resource",
        "url",
        "accepts",
        "type",
        "x402Version",
        "lastUpdated",
        "outputSchema",
        "input",
        "method",
        "queryParams",
        "query_params",
        "query",
        "body",
        "bodyFields",
        "bodyType",
        "extensions",
        "bazaar",
        "info",
        "metadata",
        "tags",
        "description",
        "properties",
        "example",
        "enum",
        "examples",
        "default",
        "items",
        "resources",
        "pagination",
        "total",
        "partial",
    ]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(), max_size=30)
    | st.sampled_from(("https://a.dev/x?y=1", "http", "object", "string", "POST", "GET", "1", ""))
)
json_like = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(json_like)
def test_parsing_never_raises_and_bounds_its_result(value: object) -> None:
    listed_item = read_item(value)
    assert isinstance(listed_item, ListedItem | SkippedItem)
    for item in list_entries(read_page(value)):
        read_item(item)


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(keys, json_like, max_size=5), st.dictionaries(keys, json_like, max_size=5))
def test_listed_item_can_be_stored_and_sent(item: dict[str, Any], given_input: Any) -> None:
    item |= {"resource": "https://api.seller.dev/x", "type": "http"}
    item["extensions"] = {"bazaar": {"info": {"input": given_input | {"type": "http"}}}}
    listed_item = read_listed(item)
    assert len(listed_item.resource.probe_url) <= 2_048 + QUERY_MAX
    assert listed_item.resource.probe_url.isascii()
    assert listed_item.body is None or (
        len(listed_item.body) <= BODY_MAX and isinstance(json.loads(listed_item.body), dict)
    )
    for text in (listed_item.service_name, listed_item.description, *listed_item.tags):
        assert "\x00" not in text
        assert text.encode() is not None
