"""The examples of the rules: for each its source, the kind of its fix, an answer in which it finds
something, and one in which it finds nothing.

What a rule looks for and its fix in a sentence stand beside its check (status, transport, envelope,
…); what each web framework writes for a kind of fix is in remedy. Every rule has an entry here, and
a test runs the examples through the linter.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tollgauge.core.lint.example import (
    ABSENT,
    BATCH,
    BODY_ONLY,
    CAPTURE,
    ENTRY,
    FACILITATOR,
    GATEWAY,
    GOOD,
    GOOD_HEADERS,
    JWS_OFFER,
    MCP,
    MEGA_ETH,
    NO_ANSWER,
    PAYEE,
    PERMIT2,
    POST,
    SOLANA,
    SOLANA_UPTO,
    STELLAR,
    TON,
    UPTO,
    URL,
    USDC,
    WALLET_OFFER,
    WITH_BODY,
    Example,
    changed,
    encoded,
    ordered,
    with_offers,
)
from tollgauge.core.lint.remedy import RemedyKind
from tollgauge.core.lint.rule import (
    BASE64,
    BODY,
    CAIP2,
    CHANNEL,
    CHECKSUM,
    CLIENTS,
    CORS,
    DOMAINS,
    ESCROW,
    EXACT,
    GAS,
    GATEWAY_SOURCE,
    HTTP,
    INFO,
    JOINED,
    METADATA,
    NO_STORE,
    OFFERS,
    REQUIRED,
    SCHEMA,
    SIGN_IN,
    SVM,
    SVM_UP_TO,
    TVM,
    UP_TO,
    V1,
    RuleSource,
)


@dataclass(frozen=True, slots=True)
class RuleExamples:
    """What the guide says of a rule beside the rule itself: the kind of its fix, its source, an
    answer in which it finds something, and one in which it finds nothing.
    """

    kind: RemedyKind
    source: RuleSource
    wrong: Example
    right: Example = GOOD


def _change(
    kind: RemedyKind, source: RuleSource, path: str, value: object, base: Example = GOOD
) -> RuleExamples:
    """The entry of a rule that one member of a good answer breaks."""
    return RuleExamples(kind, source, changed(base, path, value), base)


def _status(status: int, body: object, *headers: tuple[str, str]) -> RuleExamples:
    """The entry of a rule about a status other than 402."""
    answer = Example(status=status, body=body, headers=headers)
    return RuleExamples(RemedyKind.ORDER, HTTP, answer)


def _header(source: RuleSource, value: str, right: Example = GOOD) -> RuleExamples:
    """The entry of a rule about the text of the header."""
    return RuleExamples(RemedyKind.ENVELOPE, source, replace(right, header=value), right)


def _padded() -> Example:
    """A good answer whose header ends with padding."""
    lengths = (changed(GOOD, "error", "Payment required" + "." * more) for more in range(3))
    return next(example for example in lengths if encoded(example.envelope).endswith("="))


_BAD_CHECKSUM: Final = PAYEE.replace("Bc6", "bC6")
_ZERO: Final = "0x" + "0" * 40
_ACCOUNT: Final = "0x" + "ab" * 20
_ASKED: Final = changed(GOOD, "error", "Paid?????")
_HEADER: Final = encoded(GOOD.envelope)
_LISTED: Final = "extensions.bazaar"
_INPUT: Final = f"{_LISTED}.info.input"
_UPGRADED: Final = changed(
    PERMIT2,
    "extensions.eip2612GasSponsoring",
    {"info": {"description": "The facilitator sends the permit"}, "schema": {"type": "object"}},
)
_SELF: Final = {"$ref": "#/$defs/city"}
_ROUTED: Final = changed(GOOD, f"{_LISTED}.routeTemplate", "/weather/:city")

EXAMPLES: Final[Mapping[str, RuleExamples]] = {
    "no-answer": RuleExamples(RemedyKind.ORDER, HTTP, NO_ANSWER),
    "status-unpaid": _status(200, {"weather": "fog"}),
    "status-redirect": _status(308, None, ("location", "https://www.example.com/weather")),
    "status-validates-first": _status(422, {"error": "city is missing"}),
    "status-forbidden": _status(401, {"error": "API key is missing"}),
    "status-not-found": _status(404, {"error": "Not found"}),
    "status-method": _status(405, {"error": "Method not allowed"}, ("allow", "POST")),
    "status-throttled": _status(429, {"error": "Slow down"}),
    "status-server-error": _status(500, {"error": "Internal server error"}),
    "status-other": _status(406, {"error": "Not acceptable"}),
    "header-base64": _header(HTTP, '{"x402Version": 2, "accepts": [...]}'),
    "header-json": _header(HTTP, base64.b64encode(b"Payment required").decode()),
    "header-object": RuleExamples(RemedyKind.ENVELOPE, REQUIRED, Example(envelope=[ENTRY])),
    "header-requirements": RuleExamples(RemedyKind.ENVELOPE, REQUIRED, Example(envelope=ENTRY)),
    "header-repeated": RuleExamples(
        RemedyKind.ENVELOPE,
        JOINED,
        replace(GOOD, headers=(*GOOD_HEADERS, ("payment-required", _HEADER))),
    ),
    "header-name": RuleExamples(
        RemedyKind.ENVELOPE, HTTP, replace(GOOD, header_name="x-payment-required")
    ),
    "header-base64url": _header(
        BASE64,
        encoded(_ASKED.envelope).replace("+", "-").replace("/", "_"),
        replace(_ASKED, header=encoded(_ASKED.envelope)),
    ),
    "header-whitespace": _header(
        BASE64, f"{_HEADER[:20]} {_HEADER[20:]}", replace(GOOD, header=_HEADER)
    ),
    "header-padding": _header(BASE64, encoded(_padded().envelope).rstrip("="), _padded()),
    "header-large": _change(
        RemedyKind.DISCOVERY,
        CLIENTS,
        f"{_LISTED}.info.output",
        {"type": "text", "example": "Fog, then sun. " * 600},
    ),
    "cache-control": RuleExamples(
        RemedyKind.HEADERS, NO_STORE, replace(GOOD, headers=GOOD_HEADERS[1:])
    ),
    "cors-expose": RuleExamples(RemedyKind.HEADERS, CORS, replace(GOOD, headers=GOOD_HEADERS[:1])),
    "no-envelope": RuleExamples(
        RemedyKind.ENVELOPE, HTTP, Example(body={"error": "Payment required", "price": "0.01"})
    ),
    "envelope-nested": RuleExamples(
        RemedyKind.BODY, V1, Example(body={"x402": BODY_ONLY.body}), BODY_ONLY
    ),
    "v2-in-body": RuleExamples(RemedyKind.ENVELOPE, BODY, Example(body=GOOD.envelope)),
    "v1-only": RuleExamples(RemedyKind.ENVELOPE, HTTP, BODY_ONLY, WITH_BODY),
    "version-form": _change(RemedyKind.ENVELOPE, REQUIRED, "x402Version", "2"),
    "accepts-missing": _change(RemedyKind.ENVELOPE, REQUIRED, "accepts", ABSENT),
    "accepts-null": _change(RemedyKind.ENVELOPE, REQUIRED, "accepts", [None, ENTRY]),
    "accepts-empty": _change(RemedyKind.OPTION, REQUIRED, "accepts", []),
    "not-evaluated": RuleExamples(RemedyKind.OPTION, CLIENTS, STELLAR),
    "auth-only": RuleExamples(
        RemedyKind.OPTION,
        SIGN_IN,
        changed(
            changed(GOOD, "accepts", []), "extensions.sign-in-with-x", {"info": {}, "schema": {}}
        ),
    ),
    "accepts-many": _change(RemedyKind.OPTION, REQUIRED, "accepts", [ENTRY] * 65),
    "order-evm": RuleExamples(
        RemedyKind.OPTION,
        CLIENTS,
        ordered(changed(UPTO, "entry.extra.facilitatorAddress", ABSENT), GOOD),
        ordered(UPTO, GOOD),
    ),
    "order-solana": RuleExamples(
        RemedyKind.OPTION,
        CLIENTS,
        ordered(changed(SOLANA_UPTO, "entry.extra.withdrawDelay", ABSENT), SOLANA),
        ordered(SOLANA_UPTO, SOLANA),
    ),
    "order-ton": RuleExamples(
        RemedyKind.OPTION,
        CLIENTS,
        ordered(changed(TON, "entry.extra.areFeesSponsored", ABSENT), GOOD),
        ordered(TON, GOOD),
    ),
    "error-text": _change(RemedyKind.ENVELOPE, REQUIRED, "error", {"message": "Payment required"}),
    "v2-fields": _change(RemedyKind.BODY, V1, "resource", {"url": URL}, BODY_ONLY),
    "envelope-mismatch": RuleExamples(
        RemedyKind.BODY,
        BODY,
        replace(WITH_BODY, body=changed(BODY_ONLY, "entry.maxAmountRequired", "20000").body),
        WITH_BODY,
    ),
    "body-unpayable": RuleExamples(
        RemedyKind.BODY,
        BODY,
        replace(WITH_BODY, body=changed(BODY_ONLY, "entry.network", "eip155:8453").body),
        WITH_BODY,
    ),
    "resource-missing": _change(RemedyKind.RESOURCE, REQUIRED, "resource", ABSENT),
    "resource-shape": _change(RemedyKind.RESOURCE, REQUIRED, "resource", URL),
    "resource-url": _change(RemedyKind.RESOURCE, REQUIRED, "resource.url", "/weather"),
    "resource-mismatch": _change(
        RemedyKind.RESOURCE, REQUIRED, "resource.url", "https://lb-7.example.net/weather"
    ),
    "resource-http": _change(
        RemedyKind.RESOURCE, REQUIRED, "resource.url", URL.replace("https", "http")
    ),
    "resource-internal": _change(
        RemedyKind.RESOURCE, REQUIRED, "resource.url", "https://localhost:4021/weather"
    ),
    "resource-description": _change(RemedyKind.RESOURCE, REQUIRED, "resource.description", ""),
    "resource-service-name": _change(
        RemedyKind.RESOURCE,
        METADATA,
        "resource.serviceName",
        "The best weather service of the world",
    ),
    "resource-tags": _change(
        RemedyKind.RESOURCE, METADATA, "resource.tags", ["weather", "Weather"]
    ),
    "resource-icon": _change(RemedyKind.RESOURCE, METADATA, "resource.iconUrl", "/icon.png"),
    "extensions-object": _change(RemedyKind.DISCOVERY, REQUIRED, "extensions", []),
    "bazaar-shape": _change(RemedyKind.DISCOVERY, SCHEMA, f"{_LISTED}.schema", ABSENT),
    "extension-shape": _change(
        RemedyKind.DISCOVERY,
        REQUIRED,
        "extensions.payment-identifier",
        {"info": {"required": False}},
    ),
    "signed-offer-mismatch": RuleExamples(
        RemedyKind.DISCOVERY,
        OFFERS,
        with_offers({**WALLET_OFFER, "signature": "0x" + "ab" * 65}),
        with_offers(WALLET_OFFER),
    ),
    "signed-offer-unchecked": RuleExamples(
        RemedyKind.DISCOVERY, OFFERS, with_offers(JWS_OFFER), with_offers(WALLET_OFFER)
    ),
    "permit2-allowance": RuleExamples(RemedyKind.ASSET, GAS, PERMIT2, _UPGRADED),
    "schema-external-ref": _change(
        RemedyKind.DISCOVERY,
        SCHEMA,
        f"{_LISTED}.schema.$ref",
        "https://schemas.example.com/weather.json",
    ),
    "schema-mismatch": _change(
        RemedyKind.DISCOVERY, SCHEMA, f"{_LISTED}.schema.required", ["input", "output"]
    ),
    "schema-broken": _change(RemedyKind.DISCOVERY, SCHEMA, f"{_LISTED}.schema.type", "weather"),
    "schema-too-complex": _change(
        RemedyKind.DISCOVERY, SCHEMA, f"{_LISTED}.schema", {**_SELF, "$defs": {"city": _SELF}}
    ),
    "bazaar-absent": _change(RemedyKind.DISCOVERY, INFO, "extensions", ABSENT),
    "bazaar-input": _change(RemedyKind.DISCOVERY, INFO, f"{_INPUT}.type", ABSENT),
    "bazaar-method": _change(RemedyKind.DISCOVERY, INFO, f"{_INPUT}.method", ABSENT),
    "bazaar-method-mismatch": _change(RemedyKind.DISCOVERY, INFO, f"{_INPUT}.method", "PUT", POST),
    "bazaar-body": _change(RemedyKind.DISCOVERY, INFO, f"{_INPUT}.body", ABSENT, POST),
    "bazaar-query": _change(RemedyKind.DISCOVERY, INFO, f"{_INPUT}.body", {"city": "Paris"}),
    "bazaar-mcp": _change(RemedyKind.DISCOVERY, INFO, f"{_INPUT}.inputSchema", ABSENT, MCP),
    "bazaar-tool-name": _change(
        RemedyKind.DISCOVERY,
        INFO,
        _INPUT,
        {"type": "mcp", "tool": "weather", "inputSchema": {"type": "object"}},
        MCP,
    ),
    "bazaar-route": _change(
        RemedyKind.DISCOVERY, INFO, f"{_LISTED}.routeTemplate", f"{URL}/:city", _ROUTED
    ),
    "entry-object": _change(RemedyKind.ENVELOPE, REQUIRED, "accepts", ["exact"]),
    "amount-form": _change(RemedyKind.OPTION, REQUIRED, "entry.amount", "$0.01"),
    "amount-not-atomic": _change(RemedyKind.OPTION, REQUIRED, "entry.amount", "0.01", STELLAR),
    "amount-padded": _change(RemedyKind.OPTION, REQUIRED, "entry.amount", "0010000"),
    "amount-zero": _change(RemedyKind.OPTION, REQUIRED, "entry.amount", "0"),
    "amount-above-cap": _change(RemedyKind.OPTION, CLIENTS, "entry.amount", "2500000"),
    "timeout-form": _change(RemedyKind.OPTION, REQUIRED, "entry.maxTimeoutSeconds", "60"),
    "timeout-too-short": _change(RemedyKind.OPTION, EXACT, "entry.maxTimeoutSeconds", 5),
    "timeout-tight": _change(RemedyKind.OPTION, CLIENTS, "entry.maxTimeoutSeconds", 8),
    "timeout-long": _change(RemedyKind.OPTION, CLIENTS, "entry.maxTimeoutSeconds", 86_400),
    "extra-object": _change(RemedyKind.ASSET, REQUIRED, "entry.extra", "USD Coin"),
    "flow-unknown": _change(RemedyKind.OPTION, CLIENTS, "entry.extra.paymentFlow", "later"),
    "flow-upfront": _change(RemedyKind.OPTION, CLIENTS, "entry.extra.paymentFlow", "upfront"),
    "v1-resource": _change(RemedyKind.BODY, V1, "entry.resource", ABSENT, BODY_ONLY),
    "v1-texts": _change(RemedyKind.BODY, V1, "entry.outputSchema", "json", BODY_ONLY),
    "v1-fields": _change(RemedyKind.ENVELOPE, REQUIRED, "entry.maxAmountRequired", "10000"),
    "v2-amount": _change(RemedyKind.BODY, V1, "entry.amount", "10000", BODY_ONLY),
    "scheme-form": _change(RemedyKind.OPTION, REQUIRED, "entry.scheme", "Exact"),
    "scheme-unknown": _change(RemedyKind.OPTION, CLIENTS, "entry.scheme", "subscription"),
    "network-form": _change(RemedyKind.OPTION, CAIP2, "entry.network", "base"),
    "network-chain": _change(RemedyKind.OPTION, CAIP2, "entry.network", "eip155:base"),
    "network-caip2": _change(
        RemedyKind.OPTION, CAIP2, "entry.network", "stellar:public net", STELLAR
    ),
    "network-unknown": _change(RemedyKind.BODY, V1, "entry.network", "arbitrum", BODY_ONLY),
    "network-divided": _change(RemedyKind.BODY, V1, "entry.network", "ethereum", BODY_ONLY),
    "network-not-evaluated": RuleExamples(RemedyKind.OPTION, CAIP2, STELLAR),
    "payto-network": _change(RemedyKind.OPTION, CLIENTS, "entry.payTo", PAYEE, STELLAR),
    "solana-cluster": _change(RemedyKind.OPTION, SVM, "entry.network", "solana:mainnet", SOLANA),
    "solana-mint": _change(
        RemedyKind.ASSET, SVM, "entry.asset", "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU", SOLANA
    ),
    "solana-memo": _change(RemedyKind.SCHEME, SVM, "entry.extra.memo", "Order 7. " * 30, SOLANA),
    "fee-payer-missing": _change(RemedyKind.SCHEME, SVM, "entry.extra", {}, SOLANA),
    "fee-payer-form": _change(RemedyKind.SCHEME, SVM, "entry.extra.feePayer", PAYEE, SOLANA),
    "ton-network": _change(RemedyKind.OPTION, TVM, "entry.network", "tvm:-1", TON),
    "ton-fees": _change(RemedyKind.SCHEME, TVM, "entry.extra.areFeesSponsored", ABSENT, TON),
    "ton-transfer": _change(RemedyKind.SCHEME, TVM, "entry.extra.forwardTonAmount", "0.1", TON),
    "asset-form": _change(RemedyKind.ASSET, EXACT, "entry.asset", "USDC"),
    "payto-form": _change(RemedyKind.OPTION, EXACT, "entry.payTo", "0xYourAddress"),
    "address-checksum": _change(RemedyKind.OPTION, CHECKSUM, "entry.payTo", _BAD_CHECKSUM),
    "address-zero": _change(RemedyKind.OPTION, EXACT, "entry.payTo", _ZERO),
    "payto-asset": _change(RemedyKind.OPTION, EXACT, "entry.payTo", USDC),
    "asset-network": _change(
        RemedyKind.ASSET, EXACT, "entry.asset", "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
    ),
    "asset-not-default": _change(RemedyKind.ASSET, CLIENTS, "entry.asset", _ACCOUNT),
    "domain-missing": _change(RemedyKind.ASSET, EXACT, "entry.extra", {}),
    "domain-wrong": _change(RemedyKind.ASSET, DOMAINS, "entry.extra.name", "USDC"),
    "asset-permit2": _change(
        RemedyKind.ASSET, EXACT, "entry.extra.assetTransferMethod", ABSENT, MEGA_ETH
    ),
    "upto-facilitator": _change(
        RemedyKind.SCHEME, UP_TO, "entry.extra.facilitatorAddress", ABSENT, UPTO
    ),
    "upto-domain": _change(RemedyKind.ASSET, UP_TO, "entry.extra.name", ABSENT, UPTO),
    "upto-authorizer": _change(
        RemedyKind.SCHEME, SVM_UP_TO, "entry.extra.receiverAuthorizer", ABSENT, SOLANA_UPTO
    ),
    "upto-delay": _change(
        RemedyKind.SCHEME, SVM_UP_TO, "entry.extra.withdrawDelay", "3600", SOLANA_UPTO
    ),
    "upto-token-program": _change(
        RemedyKind.SCHEME, SVM_UP_TO, "entry.extra.tokenProgram", "SPL Token", SOLANA_UPTO
    ),
    "transfer-method": _change(
        RemedyKind.ASSET, EXACT, "entry.extra.assetTransferMethod", "transfer", PERMIT2
    ),
    "gateway-only": RuleExamples(RemedyKind.ASSET, GATEWAY_SOURCE, GATEWAY),
    "gateway-terms": _change(
        RemedyKind.ASSET, GATEWAY_SOURCE, "entry.extra.verifyingContract", ABSENT, GATEWAY
    ),
    "batch-authorizer": _change(
        RemedyKind.SCHEME, CHANNEL, "entry.extra.receiverAuthorizer", ABSENT, BATCH
    ),
    "batch-delay": _change(RemedyKind.SCHEME, CHANNEL, "entry.extra.withdrawDelay", 60, BATCH),
    "batch-method": _change(
        RemedyKind.SCHEME, CHANNEL, "entry.extra.assetTransferMethod", "erc7710", BATCH
    ),
    "address-strict": _change(RemedyKind.OPTION, CHECKSUM, "entry.payTo", _BAD_CHECKSUM, BATCH),
    "capture-account": _change(
        RemedyKind.SCHEME, ESCROW, "entry.extra.feeRecipient", ABSENT, CAPTURE
    ),
    "capture-terms": _change(RemedyKind.SCHEME, ESCROW, "entry.extra.maxFeeBps", 20_000, CAPTURE),
    "capture-escrow": _change(
        RemedyKind.SCHEME, ESCROW, "entry.extra.authCaptureEscrow", FACILITATOR, CAPTURE
    ),
}
"""The entry of every rule, by slug, in the order of the rules."""
