"""Rules about extensions, compared with the validators of the official SDKs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.extension_validators import ask_typescript
from tests.support.lint_envelopes import MISSING, change_envelope, fired_rules, lint_answer, wheres
from x402 import x402ClientSync
from x402.extensions.bazaar import declare_discovery_extension
from x402.extensions.bazaar.facilitator import (
    validate_discovery_extension,
    validate_discovery_extension_spec,
)
from x402.extensions.payment_identifier import (
    declare_payment_identifier_extension,
    validate_payment_identifier,
    validate_payment_identifier_requirement,
)
from x402.schemas import PaymentPayload, PaymentRequired

from bench.oracle.clients import python_client
from tollgauge.core.lint.extensions import describe_support
from tollgauge.core.lint.rule import ANSWERS

IDENTIFIER, SIGN_IN = "payment-identifier", "sign-in-with-x"
BASE = {"chainId": "eip155:8453", "type": "eip191"}
SOLANA = {"chainId": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "type": "ed25519"}
CHALLENGE: dict[str, Any] = ANSWERS["sign-in"].envelope["extensions"][SIGN_IN] | {
    "supportedChains": [BASE, SOLANA]
}
DECLARED: dict[str, Any] = declare_payment_identifier_extension()
SCHEMA_RULES = {"schema-mismatch", "schema-broken", "schema-too-complex", "schema-external-ref"}
SHAPE_RULES = {
    *("bazaar-shape", "bazaar-input", "bazaar-method", "bazaar-body", "bazaar-query"),
    *("bazaar-mcp", "bazaar-tool-name", "bazaar-transport"),
}

CHALLENGES: list[tuple[str, Any]] = [
    *((f"info.{name}", MISSING) for name in ("domain", "uri", "version", "nonce", "issuedAt")),
    *(("info.domain", value) for value in ("", "example.com", "api.example.com:8443")),
    *(("info.uri", value) for value in ("weather", "http://api.example.com/", "https://a.b/")),
    *(("info.uri", f"https://api.example.com/a{sign}b") for sign in ' "%<>[\\]^`{|}é'),
    *(("info.uri", f"https://api.example.com{rest}") for rest in ("", ":443/", "/%20?a=b#c")),
    *(("info.version", value) for value in ("2", "1.0", "")),
    *(("info.nonce", value) for value in ("1234567", "12345678", "0123-4567", "a" * 500)),
    *(("info.issuedAt", f"2026-01-01T00:00:00{zone}") for zone in ("Z", "+01:00", "+0100", "")),
    *(("info.issuedAt", f"2026-{day}T00:00:00Z") for day in ("02-30", "13-01", "1-1")),
    *(
        ("info.issuedAt", f"2026-01-01{time}")
        for time in ("", "T24:00:00Z", "T00:00Z", "t00:00:60z")
    ),
    *(("info.expirationTime", value) for value in ("soon", "", "2026-01-01T00:00:00.5Z")),
    *(("info.notBefore", value) for value in ("soon", "2026-01-01T00:00:00Z")),
    *(("info.statement", value) for value in ("Sign in", "a\nb", "é", 'say "x"', "a{b}", "")),
    *(("info.requestId", value) for value in ("7", "a b", "a/b", "a%20b", "a%zz")),
    *(("info.resources", value) for value in ([], ["urn:x"], ["x"], ["https://a.b/c d"], [5])),
    ("info.resources", "https://api.example.com/"),
    *(("supportedChains", value) for value in (MISSING, [], [BASE, SOLANA, {"type": "other"}])),
    ("supportedChains", [{"chainId": "eip155:x", "type": "eip191"}, SOLANA]),
    ("supportedChains", [{"chainId": "solana:abc", "type": "eip191"}, SOLANA]),
    ("supportedChains", [{"type": "eip191"}, SOLANA]),
    ("supportedChains", [BASE, {"chainId": "eip155:1", "type": "ed25519"}]),
    ("supportedChains", [None, BASE, SOLANA]),
]
IDENTIFIERS: list[tuple[str, Any]] = [
    *(("info.required", value) for value in (True, False, MISSING, "true", 1, None)),
    *(("info", value) for value in [MISSING, {}, [], "x", None]),
    *(("info.id", value) for value in ("a" * 15, "a" * 16, "a" * 128, "a" * 129, "a b" * 8, 7)),
    *(("schema", value) for value in (MISSING, {}, {"required": ["other"]}, {"type": "array"})),
]
HTTP = declare_discovery_extension(
    input={"city": "Paris"}, input_schema={"properties": {"city": {"type": "string"}}}
)["bazaar"]
HTTP["info"]["input"]["method"] = "GET"
POST = declare_discovery_extension(
    input={"city": "Paris"},
    input_schema={"properties": {"city": {"type": "string"}}},
    body_type="json",
)["bazaar"]
POST["info"]["input"]["method"] = "POST"
TOOL: dict[str, Any] = {
    "info": ANSWERS["mcp-example"].envelope["extensions"]["bazaar"]["info"],
    "schema": {"type": "object", "properties": {"input": {"required": ["toolName"]}}},
}
BAZAARS: list[tuple[dict[str, Any], str, Any]] = [
    *((base, "info.input", value) for base in (HTTP, TOOL) for value in [MISSING, {}, "x"]),
    *((base, "info.input.type", value) for base in (HTTP, TOOL) for value in (MISSING, "a2a")),
    *((HTTP, "info.input.method", value) for value in ("get", "OPTIONS", "POST", "DELETE", 7)),
    *((POST, "info.input.bodyType", value) for value in ("xml", "text", "form-data")),
    (HTTP, "info.input.bodyType", "json"),
    *((HTTP, "info.input.queryParams", value) for value in ({"city": 7}, {"city": "Oslo"}, "x")),
    *((POST, "info.input.body", value) for value in ({"city": 7}, {"city": "Oslo"}, MISSING)),
    *((TOOL, "info.input.toolName", value) for value in (MISSING, "", 7)),
    *((TOOL, "info.input.inputSchema", value) for value in (MISSING, "x")),
    *((TOOL, "info.input.transport", value) for value in ("sse", "streamable-http", "stdio", 7)),
    *((base, "schema.$ref", "https://example.com/s.json") for base in (HTTP, POST, TOOL)),
    *((base, "schema.type", "array") for base in (HTTP, POST, TOOL)),
]


def with_extension(name: str, extension: Any) -> dict[str, Any]:
    return change_envelope(ANSWERS["v2"].envelope, f"extensions.{name}", extension)


def list_changed(base: dict[str, Any], cases: list[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    yield base
    for path, value in cases:
        yield change_envelope(base, path, value)


CASES = {
    SIGN_IN: [*list_changed(CHALLENGE, CHALLENGES)],
    IDENTIFIER: [*list_changed(DECLARED, IDENTIFIERS)],
    "bazaar": [
        *(HTTP, POST, TOOL),
        *(change_envelope(copy.deepcopy(base), path, value) for base, path, value in BAZAARS),
    ],
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[bool]]:
    """Ask each TypeScript validator about its cases, in one Node.js process."""
    cases = CASES | {"bazaar spec": CASES["bazaar"]}
    asked = [(name, extension) for name, extensions in cases.items() for extension in extensions]
    answers = iter(ask_typescript(asked))
    found = {name: [*itertools.islice(answers, len(cases[name]))] for name in cases}
    assert all({True, False} == set(accepted) for accepted in found.values())
    return found


@pytest.mark.node
def test_sign_in_rule_fires_where_the_official_client_does_not_sign(
    verdicts: dict[str, list[bool]],
) -> None:
    for challenge, accepted in zip(CASES[SIGN_IN], verdicts[SIGN_IN], strict=True):
        rules = fired_rules(lint_answer(with_extension(SIGN_IN, challenge)))
        assert ("sign-in-challenge" not in rules) is accepted, challenge


@pytest.mark.parametrize("chain", [BASE, SOLANA])
def test_challenge_for_one_kind_of_account_is_well_formed(chain: dict[str, str]) -> None:
    challenge = change_envelope(CHALLENGE, "supportedChains", [chain])
    assert fired_rules(lint_answer(with_extension(SIGN_IN, challenge))) == set()


def test_declaration_without_the_server_extension_is_not_a_challenge() -> None:
    declared = {"info": {"version": "1"}, "supportedChains": [], "schema": {}}
    found = wheres(lint_answer(with_extension(SIGN_IN, declared)), "sign-in-challenge")
    missing = {f"info.{name}" for name in ("domain", "uri", "nonce", "issuedAt")}
    assert found == {f"extensions.{SIGN_IN}.{path}" for path in missing | {"supportedChains"}}


def test_origin_of_a_challenge_is_not_compared_without_a_url() -> None:
    challenge = change_envelope(CHALLENGE, "info.domain", "example.com")
    result = lint_answer(with_extension(SIGN_IN, challenge), url="")
    assert "sign-in-challenge" not in fired_rules(result)


@pytest.mark.node
def test_payment_identifier_rule_agrees_with_both_sdks(verdicts: dict[str, list[bool]]) -> None:
    for extension, by_typescript in zip(CASES[IDENTIFIER], verdicts[IDENTIFIER], strict=True):
        rules = fired_rules(lint_answer(with_extension(IDENTIFIER, extension)))
        assert ("payment-identifier-shape" not in rules) is by_typescript, extension
        assert validate_payment_identifier(extension).valid is by_typescript, extension


def test_official_client_sends_no_payment_identifier() -> None:
    extension = declare_payment_identifier_extension(required=True)
    envelope = with_extension(IDENTIFIER, extension)
    paying: x402ClientSync = python_client(["evm"])._client
    payload = paying.create_payment_payload(PaymentRequired.model_validate(envelope))
    assert isinstance(payload, PaymentPayload)
    assert IDENTIFIER in (payload.extensions or {})
    assert not validate_payment_identifier_requirement(payload, server_required=True).valid
    result = lint_answer(envelope)
    assert fired_rules(result) == {"payment-identifier-required"}
    assert result.payable


@pytest.mark.node
def test_bazaar_rules_find_every_defect_that_the_sdks_find(
    verdicts: dict[str, list[bool]],
) -> None:
    for extension, fits, is_shaped in zip(
        CASES["bazaar"], verdicts["bazaar"], verdicts["bazaar spec"], strict=True
    ):
        method = extension["info"].get("input")
        method = method.get("method") if isinstance(method, dict) else None
        rules = fired_rules(
            lint_answer(with_extension("bazaar", extension), method=str(method or "GET"))
        )
        assert not rules & SCHEMA_RULES or not fits, extension
        assert rules & SCHEMA_RULES or fits, extension
        assert rules & SHAPE_RULES or is_shaped, extension
        assert validate_discovery_extension(extension).valid is fits, extension
        assert validate_discovery_extension_spec(extension).valid is is_shaped, extension


@pytest.mark.parametrize(
    ("example", "fits"), [({"city": "Oslo"}, True), ({}, False), ({"city": 7}, False), ("x", False)]
)
def test_example_of_a_tool_must_match_its_own_input_schema(example: object, fits: bool) -> None:
    envelope = ANSWERS["mcp-example"].envelope
    envelope = change_envelope(envelope, "extensions.bazaar.info.input.example", example)
    assert ("bazaar-example" not in fired_rules(lint_answer(envelope))) is fits


@pytest.mark.parametrize("schema", [{"$ref": "https://example.com/s.json"}, {"type": "city"}, "x"])
def test_example_is_not_judged_by_a_schema_that_cannot_be_evaluated(schema: object) -> None:
    envelope = ANSWERS["mcp-example"].envelope
    envelope = change_envelope(envelope, "extensions.bazaar.info.input.inputSchema", schema)
    assert "bazaar-example" not in fired_rules(lint_answer(envelope))


@pytest.mark.parametrize("template", ["/a/%2e%2e/b", "/a/%25252e%25252e/b", "/a/%2525252525252e/b"])
def test_route_template_is_decoded_until_it_is_stable(template: str) -> None:
    envelope = change_envelope(
        ANSWERS["route-template"].envelope, "extensions.bazaar.routeTemplate", template
    )
    assert "bazaar-route" in fired_rules(lint_answer(envelope))


def test_extensions_are_evaluated_recognised_or_unknown() -> None:
    names = ["bazaar", SIGN_IN, "builder-code", "http-message-signatures", "own-thing", "a b"]
    assert describe_support(names) == {
        "bazaar": "evaluated",
        "builder-code": "recognised",
        "http-message-signatures": "recognised",
        "own-thing": "unknown",
        SIGN_IN: "evaluated",
    }
