"""Each rule fires where it should, a good envelope is left alone, and payability follows."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lint_envelopes import (
    GOOD_HEADERS,
    MISSING,
    PAYEE,
    SEPOLIA_USDC,
    URL,
    USDC,
    V1,
    V2,
    change_envelope,
    encode_envelope,
    fired_rules,
    lint_answer,
    wheres,
)

from tollgauge.core.lint.accepts import ENTRIES_MAX
from tollgauge.core.lint.judge import ALL_RULES, FINDINGS_MAX, lint
from tollgauge.core.lint.rule import ANSWERS
from tollgauge.core.probe.exchange import Exchange, Fault, FaultKind, OfficialClient, Severity


def test_perfect_v2_answer_has_no_findings() -> None:
    result = lint_answer(V2)
    assert result.findings == ()
    assert (result.payable, result.compliant, result.version, result.accepts) == (True, True, 2, 1)
    (terms,) = result.terms
    assert (terms.network, terms.amount, terms.domain_name) == ("eip155:8453", 10_000, "USD Coin")


def test_v1_body_is_payable_with_a_warning() -> None:
    result = lint_answer(body=V1)
    assert fired_rules(result) == {"v1-only"}
    assert (result.payable, result.compliant, result.version) == (True, True, 1)
    assert result.terms[0].network == "eip155:8453"


def test_header_and_body_of_both_versions_get_along() -> None:
    assert lint_answer(V2, V1).findings == ()


def test_fault_is_neither_payable_nor_compliant() -> None:
    fault = Fault(kind=FaultKind.TIMEOUT)
    result = lint(Exchange(url=URL, method="GET", at=0, result=fault))
    assert (result.payable, result.compliant, result.version, result.accepts) == (
        False,
        False,
        None,
        None,
    )
    assert fired_rules(result) == {"no-answer"}


@pytest.mark.parametrize(
    ("status", "rule"),
    [
        (200, "status-unpaid"),
        (302, "status-redirect"),
        (400, "status-validates-first"),
        (422, "status-validates-first"),
        (401, "status-forbidden"),
        (403, "status-forbidden"),
        (404, "status-not-found"),
        (405, "status-method"),
        (410, "status-not-found"),
        (418, "status-other"),
        (429, "status-throttled"),
        (503, "status-server-error"),
    ],
)
def test_only_a_402_is_a_challenge(status: int, rule: str) -> None:
    result = lint_answer(V2, V1, status=status)
    assert fired_rules(result) == {rule}
    assert (result.payable, result.compliant, result.terms) == (False, False, ())


ENTRY = "accepts.0."
FATAL = [
    ("x402Version", True, "version-form"),
    ("x402Version", 2.5, "version-form"),
    ("accepts", MISSING, "accepts-missing"),
    ("accepts", {}, "accepts-missing"),
    ("accepts", [], "accepts-empty"),
    ("accepts", ["exact"], "entry-object"),
    (ENTRY + "scheme", MISSING, "scheme-form"),
    (ENTRY + "network", "base", "network-form"),
    (ENTRY + "network", MISSING, "network-form"),
    (ENTRY + "network", "eip155:mainnet", "network-chain"),
    (ENTRY + "amount", MISSING, "amount-form"),
    (ENTRY + "amount", 10_000, "amount-form"),
    (ENTRY + "amount", "0.01", "amount-form"),
    (ENTRY + "amount", "$0.01", "amount-form"),
    (ENTRY + "amount", str(2**256), "amount-form"),
    (ENTRY + "asset", "USDC", "asset-form"),
    (ENTRY + "asset", f"eip155:8453/erc20:{USDC}", "asset-form"),
    (ENTRY + "asset", "0x" + "0" * 40, "address-zero"),
    (ENTRY + "payTo", MISSING, "payto-form"),
    (ENTRY + "payTo", [PAYEE], "payto-form"),
    (ENTRY + "payTo", "0x...", "payto-form"),
    (ENTRY + "payTo", "0x" + "0" * 40, "address-zero"),
    (ENTRY + "payTo", USDC.lower(), "payto-asset"),
    (ENTRY + "maxTimeoutSeconds", MISSING, "timeout-form"),
    (ENTRY + "maxTimeoutSeconds", "60", "timeout-form"),
    (ENTRY + "maxTimeoutSeconds", 60.5, "timeout-form"),
    (ENTRY + "maxTimeoutSeconds", 0, "timeout-form"),
    (ENTRY + "maxTimeoutSeconds", True, "timeout-form"),
    (ENTRY + "maxTimeoutSeconds", 10**30, "timeout-form"),
    (ENTRY + "maxTimeoutSeconds", 5, "timeout-too-short"),
    (ENTRY + "extra", [], "extra-object"),
    (ENTRY + "extra.version", MISSING, "domain-missing"),
    (ENTRY + "extra.name", "USDC", "domain-wrong"),
    (ENTRY + "extra.paymentFlow", "later", "flow-unknown"),
]


@pytest.mark.parametrize(("path", "value", "rule"), FATAL)
def test_no_stock_client_pays_by_a_fatally_broken_envelope(
    path: str, value: Any, rule: str
) -> None:
    result = lint_answer(change_envelope(V2, path, value), V1)
    assert rule in fired_rules(result)
    assert (result.payable, result.payable_by, result.compliant) == (False, frozenset(), False)


TYPESCRIPT, PYTHON, _ = OfficialClient
ONE_CLIENT = [
    ("x402Version", "2", "version-form", PYTHON),
    ("x402Version", MISSING, "version-form", PYTHON),
    ("x402Version", 3, "version-form", PYTHON),
    ("error", 5, "error-text", TYPESCRIPT),
    ("resource", URL, "resource-shape", TYPESCRIPT),
    ("resource.url", MISSING, "resource-shape", TYPESCRIPT),
    ("resource.tags", [1], "resource-shape", TYPESCRIPT),
    ("resource.description", {}, "resource-shape", TYPESCRIPT),
    ("extensions", [], "extensions-object", TYPESCRIPT),
    (ENTRY + "extra", MISSING, "domain-missing", PYTHON),
]


@pytest.mark.parametrize(("path", "value", "rule", "client"), ONE_CLIENT)
def test_envelope_that_only_one_client_pays_is_payable_and_not_compliant(
    path: str, value: Any, rule: str, client: OfficialClient
) -> None:
    result = lint_answer(change_envelope(V2, path, value), V1)
    assert rule in fired_rules(result)
    assert (result.payable, result.payable_by, result.compliant) == (
        True,
        frozenset({client}),
        False,
    )


def test_unreadable_later_entry_stops_only_the_python_client() -> None:
    good = V2["accepts"][0]
    for later in ("exact", {}, {**good, "amount": 10_000}, {**good, "payTo": None}):
        result = lint_answer(change_envelope(V2, "accepts", [good, later]))
        assert result.payable_by == {TYPESCRIPT}
    readable = {**good, "payTo": "0xYOUR_WALLET"}
    both = lint_answer(change_envelope(V2, "accepts", [good, readable]))
    assert both.payable_by == {TYPESCRIPT, PYTHON}
    ton = {**good, "network": "tvm:-239"}
    assert not lint_answer(change_envelope(V2, "accepts", [ton, "exact"])).payable


def test_price_above_the_cap_of_the_clients_is_a_finding_and_payable() -> None:
    result = lint_answer(change_envelope(V2, ENTRY + "amount", "5000000"))
    assert "amount-above-cap" in fired_rules(result)
    assert result.payable_by == {TYPESCRIPT, PYTHON}


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (ENTRY + "amount", "0", "amount-zero"),
        (ENTRY + "asset", SEPOLIA_USDC, "asset-network"),
    ],
)
def test_other_errors_leave_an_envelope_payable(path: str, value: Any, rule: str) -> None:
    result = lint_answer(change_envelope(V2, path, value))
    assert rule in fired_rules(result)
    assert (result.payable, result.compliant) == (True, False)


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (ENTRY + "maxAmountRequired", "10000", "v1-fields"),
        (ENTRY + "description", "x", "v1-fields"),
        ("resource", MISSING, "resource-missing"),
        ("resource.url", "/weather", "resource-url"),
        ("resource.url", "https://other.example.com/weather", "resource-mismatch"),
        ("resource.url", "https://api.example.com/rain", "resource-mismatch"),
        ("extensions.bazaar.schema", MISSING, "bazaar-shape"),
        ("extensions.bazaar.info", 5, "bazaar-shape"),
        ("extensions.bazaar.info.input.type", MISSING, "bazaar-input"),
        ("extensions.bazaar.info.input.method", MISSING, "bazaar-method"),
        ("extensions.bazaar.info.input.method", "POST", "bazaar-method-mismatch"),
        ("extensions.bazaar.info.input.method", "POST", "bazaar-body"),
        ("extensions.bazaar.info.input.bodyType", "json", "bazaar-query"),
        ("extensions.bazaar.info.input", {"type": "mcp", "toolName": "x"}, "bazaar-mcp"),
        ("extensions.bazaar.routeTemplate", "/a/%2e%2e/b", "bazaar-route"),
        ("extensions.bazaar.routeTemplate", "https://a.b/c", "bazaar-route"),
        ("extensions.bazaar.schema.required", ["output", "price"], "schema-mismatch"),
        ("extensions.bazaar.schema.type", "thing", "schema-broken"),
        ("extensions.bazaar.schema.$ref", "https://evil.example/s.json", "schema-external-ref"),
        ("extensions.bazaar.schema.$id", "https://evil.example/s.json", "schema-external-ref"),
    ],
)
def test_defect_of_a_descriptive_field_is_a_warning(path: str, value: Any, rule: str) -> None:
    result = lint_answer(change_envelope(V2, path, value))
    assert rule in fired_rules(result, at_least=Severity.WARN)
    assert (result.payable, result.compliant) == (True, True)


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (ENTRY + "amount", "1000001", "amount-above-cap"),
        (ENTRY + "amount", "0010000", "amount-padded"),
        (ENTRY + "asset", "0x" + "ab" * 20, "asset-not-default"),
        (ENTRY + "payTo", "0x209693bC6afc0C5328bA36FaF03C514EF312287C", "address-checksum"),
        (ENTRY + "maxTimeoutSeconds", 6, "timeout-tight"),
        (ENTRY + "maxTimeoutSeconds", 3_601, "timeout-long"),
        ("resource.url", "http://api.example.com/weather", "resource-http"),
        ("resource.description", "", "resource-description"),
        ("resource.description", "x" * 501, "resource-description"),
        ("resource.serviceName", "x" * 33, "resource-service-name"),
        ("resource.serviceName", "Wetter für alle", "resource-service-name"),
        ("resource.tags", ["a", "A"], "resource-tags"),
        ("resource.tags", list("abcdef"), "resource-tags"),
        ("resource.iconUrl", "https://me@example.com/i.png", "resource-icon"),
        ("resource.iconUrl", "https://0x7f000001/i.png", "resource-icon"),
        ("extensions.other", {"info": {}}, "extension-shape"),
    ],
)
def test_warning_costs_neither_payability_nor_compliance(path: str, value: Any, rule: str) -> None:
    result = lint_answer(change_envelope(V2, path, value))
    assert fired_rules(result, at_least=Severity.WARN) == {rule}
    assert (result.payable, result.compliant) == (True, True)


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (ENTRY + "network", "eip155:8453", "network-form"),
        (ENTRY + "maxTimeoutSeconds", "60", "timeout-form"),
        (ENTRY + "maxAmountRequired", MISSING, "amount-form"),
        ("x402Version", MISSING, "version-form"),
    ],
)
def test_version_1_has_specific_fatal_errors(path: str, value: Any, rule: str) -> None:
    result = lint_answer(body=change_envelope(V1, path, value))
    assert rule in fired_rules(result)
    assert not result.payable


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (ENTRY + "resource", MISSING, "v1-resource"),
        (ENTRY + "outputSchema", "x", "v1-texts"),
    ],
)
def test_python_client_rejects_members_of_version_1_that_typescript_ignores(
    path: str, value: Any, rule: str
) -> None:
    result = lint_answer(body=change_envelope(V1, path, value))
    assert rule in fired_rules(result)
    assert result.payable_by == {TYPESCRIPT}


def test_version_2_members_do_not_belong_in_version_1() -> None:
    both = change_envelope(change_envelope(V1, "resource", {"url": URL}), ENTRY + "amount", "10000")
    result = lint_answer(body=both)
    assert {"v2-fields", "v2-amount"} <= fired_rules(result, at_least=Severity.WARN)
    assert (result.payable, result.compliant) == (True, True)


def test_good_v1_body_does_not_rescue_a_bad_header() -> None:
    assert not lint_answer(change_envelope(V2, ENTRY + "network", "base"), V1).payable


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        ("<base64>", "header-base64"),
        ("eyJ4NDAy…", "header-base64"),
        (base64.b64encode(b"\xff\xfe").decode(), "header-json"),
        (base64.b64encode(b"not json").decode(), "header-json"),
        (base64.b64encode(b"[" * 40 + b"]" * 40).decode(), "header-json"),
        (encode_envelope(V2["accepts"]), "header-object"),
        (encode_envelope("text"), "header-object"),
        (f"{encode_envelope(V2)}, {encode_envelope(V2)}", "header-base64"),
    ],
)
def test_behind_an_unreadable_header_only_a_v1_body_can_be_paid(raw: str, rule: str) -> None:
    with_v1, with_v2, alone = (lint_answer(raw=raw, body=body) for body in (V1, V2, None))
    assert (with_v1.payable, with_v1.compliant, with_v1.version) == (True, False, 1)
    assert (with_v2.payable, alone.payable) == (False, False)
    assert all(rule in fired_rules(result) for result in (with_v1, with_v2, alone))


def test_variants_of_base64_are_read_and_mentioned() -> None:
    odd = change_envelope(V2, "resource.description", "??>>~~ÿÿ")
    standard = base64.b64encode(json.dumps(odd, ensure_ascii=False).encode()).decode()
    urlsafe = standard.replace("+", "-").replace("/", "_")
    assert urlsafe != standard
    assert "header-base64url" in fired_rules(lint_answer(raw=urlsafe))
    padded = encode_envelope(change_envelope(V2, "error", "x"))
    while not padded.endswith("="):
        padded = encode_envelope(change_envelope(V2, "error", "x" * len(padded)))
    assert "header-padding" in fired_rules(lint_answer(raw=padded.rstrip("=")))
    assert "header-whitespace" in fired_rules(lint_answer(raw=f" {padded}\t"))
    for raw in (urlsafe, padded.rstrip("="), f" {padded}\t", f"{padded[:9]} {padded[9:]}"):
        assert lint_answer(raw=raw).payable


def test_version_2_envelope_in_the_body_is_not_read_by_official_clients() -> None:
    result = lint_answer(body=V2)
    assert "v2-in-body" in fired_rules(result)
    assert (result.payable, result.version, result.terms) == (False, 2, lint_answer(V2).terms)


def test_repeated_headers_do_not_decode() -> None:
    result = lint_answer(V2, more=(*GOOD_HEADERS, ("payment-required", encode_envelope(V2))))
    assert {"header-repeated", "header-base64"} <= fired_rules(result)
    assert not result.payable


def test_empty_header_counts_as_absent() -> None:
    assert lint_answer(raw="", body=V1).payable


def test_envelope_under_the_wrong_name_or_too_deep_in_the_body_is_pointed_out() -> None:
    misnamed = lint_answer(more=(*GOOD_HEADERS, ("x-payment-required", encode_envelope(V2))))
    assert {"header-name", "no-envelope"} <= fired_rules(misnamed)
    assert {"envelope-nested", "no-envelope"} <= fired_rules(lint_answer(body={"x402": V2}))
    assert fired_rules(lint_answer(body=b"<html>pay here</html>")) == {"no-envelope"}


def test_large_header_may_not_pass_proxies() -> None:
    large = change_envelope(V2, "extensions.bazaar.info.output", "x" * 9_000)
    assert fired_rules(lint_answer(large)) == {"header-large"}


def test_missing_cache_and_cors_headers_are_warnings() -> None:
    assert fired_rules(lint_answer(V2, more=())) == {"cache-control", "cors-expose"}
    open_to_all = (("cache-control", "private, no-store"), ("access-control-expose-headers", "*"))
    assert fired_rules(lint_answer(V2, more=open_to_all)) == set()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (ENTRY + "maxAmountRequired", "20000"),
        (ENTRY + "payTo", "0x" + "ab" * 20),
        (ENTRY + "network", "polygon"),
        ("accepts", []),
    ],
)
def test_header_and_body_that_disagree_are_a_warning(path: str, value: Any) -> None:
    result = lint_answer(V2, change_envelope(V1, path, value))
    assert "envelope-mismatch" in fired_rules(result)
    assert (result.payable, result.compliant) == (True, True)


def test_empty_accepts_in_header_disagrees_with_priced_body() -> None:
    assert "envelope-mismatch" in fired_rules(lint_answer(change_envelope(V2, "accepts", []), V1))
    assert lint_answer(V2, {"x402Version": 2, "error": "Payment required"}).findings == ()


def test_unpayable_version_1_body_is_a_warning() -> None:
    result = lint_answer(V2, change_envelope(V1, ENTRY + "network", "eip155:8453"))
    assert "body-unpayable" in fired_rules(result)
    assert (result.payable, result.compliant) == (True, True)


def test_options_in_another_order_agree() -> None:
    sepolia = change_envelope(
        change_envelope(V2, ENTRY + "network", "eip155:84532"), ENTRY + "asset", SEPOLIA_USDC
    )
    one = change_envelope(V2, "accepts", [V2["accepts"][0], sepolia["accepts"][0]])
    other = change_envelope(V2, "accepts", one["accepts"][::-1])
    assert "envelope-mismatch" not in fired_rules(lint_answer(one, other))


def test_unknown_scheme_is_not_judged_by_evm_formats() -> None:
    entry = {
        "scheme": "batch-settlement",
        "network": "cloudflare:402",
        "amount": "1",
        "asset": "USD",
        "payTo": "merchant",
    }
    result = lint_answer(change_envelope(V2, "accepts", [entry]))
    assert fired_rules(result) == {"network-caip2", "network-not-evaluated", "not-evaluated"}
    assert (result.payable, result.compliant) == (True, True)
    foreign = {**entry, "scheme": "deferred", "network": "eip155:8453"}
    alone = lint_answer(change_envelope(V2, "accepts", [foreign]))
    unknown = {"scheme-unknown", "not-evaluated"}
    assert (fired_rules(alone), alone.payable, alone.compliant) == (unknown, False, True)
    beside = lint_answer(change_envelope(V2, "accepts", [*V2["accepts"], foreign]))
    assert (fired_rules(beside), beside.payable, beside.compliant) == (
        {"scheme-unknown"},
        True,
        True,
    )


@pytest.mark.parametrize("scheme", ["Exact", "EXACT", " exact", "upTo"])
def test_scheme_in_other_letters_than_clients_compare_is_an_error(scheme: str) -> None:
    result = lint_answer(change_envelope(V2, ENTRY + "scheme", scheme))
    assert wheres(result, "scheme-form") == {"accepts[0].scheme"}
    assert not result.payable


def test_clients_of_version_1_have_the_exact_scheme_only() -> None:
    result = lint_answer(body=change_envelope(V1, ENTRY + "scheme", "upto"))
    assert "scheme-unknown" in fired_rules(result)
    assert not result.payable


def test_solana_takes_base58_and_needs_a_fee_payer() -> None:
    entry = {
        "scheme": "exact",
        "network": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
        "amount": "1000",
        "asset": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
        "payTo": "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4",
        "maxTimeoutSeconds": 60,
        "extra": {"feePayer": "EwWqGE4ZFKLofuestmU4LDdK7XM1N4ALgdZccwYugwGd"},
    }
    assert lint_answer(change_envelope(V2, "accepts", [entry])).findings == ()
    bare = lint_answer(change_envelope(V2, "accepts", [{**entry, "extra": {}}]))
    assert (fired_rules(bare), bare.payable) == ({"fee-payer-missing"}, False)


def test_permit2_needs_no_signature_domain_in_extra() -> None:
    assert lint_answer(
        change_envelope(V2, ENTRY + "extra", {"assetTransferMethod": "permit2"})
    ).payable


def test_one_payable_option_is_enough() -> None:
    broken = change_envelope(V2, ENTRY + "amount", MISSING)["accepts"][0]
    result = lint_answer(change_envelope(V2, "accepts", [V2["accepts"][0], broken]))
    assert (result.payable, result.compliant, result.accepts) == (True, False, 2)
    assert wheres(result, "amount-form") == {"accepts[1].amount"}
    assert "order-evm" not in fired_rules(result)


def test_entry_that_is_not_an_object_has_one_finding_and_null_is_fatal() -> None:
    good = V2["accepts"][0]
    text = lint_answer(change_envelope(V2, "accepts", ["exact", good]))
    assert (fired_rules(text), text.payable) == ({"entry-object"}, True)
    null = lint_answer(change_envelope(V2, "accepts", [None, good]))
    assert (fired_rules(null), null.payable) == ({"entry-object", "accepts-null"}, False)


def test_empty_accepts_with_a_sign_in_is_called_so() -> None:
    signed = change_envelope(V2, "accepts", [])
    signed["extensions"] |= ANSWERS["sign-in"].envelope["extensions"]
    result = lint_answer(signed)
    assert fired_rules(result) == {"auth-only"}
    assert (result.payable, result.compliant, result.accepts) == (False, True, 0)


def test_bare_requirements_in_the_header_get_one_finding_that_helps() -> None:
    for bare in (V2["accepts"][0], {"x402Version": 2, **V2["accepts"][0]}):
        for body in (None, {}, V1):
            result = lint_answer(bare, body)
            assert [one.rule for one in result.findings] == ["header-requirements"]
            assert (result.payable, result.compliant) == (False, False)


def test_message_signatures_need_no_schema_and_other_extensions_do() -> None:
    info = {"info": {"tags": ["web-bot-auth"]}}
    signed = change_envelope(V2, "extensions.http-message-signatures", info)
    assert lint_answer(signed).findings == ()
    assert wheres(
        lint_answer(change_envelope(V2, "extensions.other", info)), "extension-shape"
    ) == {"extensions.other"}


def test_extensions_of_any_type_do_not_keep_clients_of_version_1_from_paying() -> None:
    assert lint_answer(body={**V1, "extensions": []}).payable


def test_empty_resource_url_does_not_prevent_payment() -> None:
    for result in (
        lint_answer(change_envelope(V2, "resource.url", "")),
        lint_answer(body=change_envelope(V1, ENTRY + "resource", "")),
    ):
        assert "resource-url" in fired_rules(result)
        assert result.payable


def test_upfront_payment_is_worth_a_note() -> None:
    result = lint_answer(change_envelope(V2, ENTRY + "extra.paymentFlow", "upfront"))
    assert (fired_rules(result), result.payable) == ({"flow-upfront"}, True)


def test_older_name_of_an_mcp_tool_is_read_and_mentioned() -> None:
    declared = {"type": "mcp", "tool": "fog", "inputSchema": {}, "method": "x"}
    result = lint_answer(change_envelope(V2, "extensions.bazaar.info.input", declared))
    assert fired_rules(result) == {"bazaar-tool-name"}


def test_internal_url_is_not_the_public_one() -> None:
    result = lint_answer(change_envelope(V2, "resource.url", "http://localhost:4021/weather"))
    assert {"resource-internal", "resource-mismatch", "resource-http"} <= fired_rules(result)
    mapped = lint_answer(
        change_envelope(V2, "resource.url", "https://seller/weather"), url="https://seller/weather"
    )
    assert mapped.findings == ()


def test_findings_about_many_bad_options_are_limited() -> None:
    result = lint_answer(change_envelope(V2, "accepts", [{}] * 1_000))
    assert result.accepts == 1_000
    assert len([one for one in result.findings if one.rule == "scheme-form"]) == FINDINGS_MAX
    assert "accepts-many" in fired_rules(result)
    assert (
        len(lint_answer(change_envelope(V2, "accepts", V2["accepts"] * 100)).terms) == ENTRIES_MAX
    )


def test_rules_have_distinct_slugs_and_a_fix() -> None:
    assert len({rule.slug for rule in ALL_RULES}) == len(ALL_RULES)
    for rule in ALL_RULES:
        assert rule.doc
        assert rule.entry.fix.endswith(".")
        assert not (rule.fatal and rule.severity is Severity.INFO)


@given(url=st.from_regex(r"https?://[a-z0-9.-]+(/[a-zA-Z0-9/_.~-]*)?", fullmatch=True))
def test_query_and_fragment_of_a_resource_are_ignored(url: str) -> None:
    def rules(resource: str) -> set[str]:
        return fired_rules(lint_answer(change_envelope(V2, "resource.url", resource)))

    assert rules(url) == rules(f"{url}?") == rules(f"{url}#part")
