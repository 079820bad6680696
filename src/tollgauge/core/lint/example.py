"""Example: an answer to an unpaid request that shows a rule of the linter, wrong or right.

An example is an exchange like any other: the linter judges it, `capture` is what a person would
paste, and `lines` is how it is read, with the envelope of the header decoded. The good answers that
rules are shown by are here; what each rule changes in them is in guide.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind

URL: Final = "https://api.example.com/weather"
GOOD_HEADERS: Final = (
    ("cache-control", "no-store"),
    ("access-control-expose-headers", "PAYMENT-REQUIRED, PAYMENT-RESPONSE"),
)
_LINE_MAX: Final = 96
"""Characters of a line that are shown."""
ABSENT: Final = object()
"""The value of a member that is left out."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An answer: its status, the envelope in its PAYMENT-REQUIRED header, its body, and the headers
    beside. `header` is the header's value where it is not the base64 of `envelope`, and
    `header_name` its name where that is wrong; `fault` is there in place of an answer.
    """

    envelope: Any = None
    body: Any = None
    status: int = 402
    headers: tuple[tuple[str, str], ...] = GOOD_HEADERS
    header: str | None = None
    header_name: str = "payment-required"
    method: str = "GET"
    fault: FaultKind | None = None

    def exchange(self) -> Exchange:
        """The example as the linter judges it."""
        result: Answer | Fault
        if self.fault is not None:
            result = Fault(kind=self.fault)
        else:
            result = Answer(
                status=self.status, headers=self._all_headers(), body=self._body().encode()
            )
        return Exchange(url=URL, method=self.method, at=0, result=result)

    def capture(self) -> str | None:
        """The example as a person gives it to the linter; None for a fault, which has no answer."""
        if self.fault is not None:
            return None
        document = {
            "method": self.method,
            "url": URL,
            "status": self.status,
            "headers": _by_name(self._all_headers()),
            "body": self._body(),
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def lines(self) -> list[str]:
        """The example as it is read, line by line; the envelope of the header is decoded, and what
        is long is cut.
        """
        return [_cut(line) for line in (f"{self.method} {URL}", *self._answer_lines())]

    def _answer_lines(self) -> Iterator[str]:
        if self.fault is not None:
            yield f"(no answer: {self.fault.value})"
            return
        yield f"HTTP {self.status}"
        for name, value in self.headers:
            yield f"{name}: {value}"
        if self.header is not None:
            yield f"{self.header_name}: {self.header}"
        elif self.envelope is not None:
            yield f"{self.header_name}: base64 of"
            yield from _pretty(self.envelope)
        if self.body is not None:
            yield ""
            yield from self.body.split("\n") if isinstance(self.body, str) else _pretty(self.body)

    def _all_headers(self) -> tuple[tuple[str, str], ...]:
        value = self.header
        if value is None and self.envelope is not None:
            value = encoded(self.envelope)
        return self.headers if value is None else (*self.headers, (self.header_name, value))

    def _body(self) -> str:
        if self.body is None:
            return ""
        return self.body if isinstance(self.body, str) else json.dumps(self.body)


def encoded(document: object) -> str:
    """The base64 of a document's JSON, as PAYMENT-REQUIRED has it."""
    return base64.b64encode(json.dumps(document).encode()).decode()


def changed(example: Example, path: str, value: object) -> Example:
    """An example with one member of its envelope set, or left out where the value is ABSENT. The
    envelope is that of the header, else of the body; `entry.` begins the path of a member of the
    first entry of `accepts`.
    """
    place = "body" if example.envelope is None else "envelope"
    root = copy.deepcopy(getattr(example, place))
    holder: Any = root
    *parents, last = path.replace("entry.", "accepts.0.", 1).split(".")
    for key in parents:
        holder = holder[int(key) if key.isdigit() else key]
    if value is ABSENT:
        del holder[last]
    else:
        holder[last] = value
    return replace(example, **{place: root})


def _by_name(headers: tuple[tuple[str, str], ...]) -> dict[str, str | list[str]]:
    """Headers by name; one that is there twice has a list."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    return {name: several if several[1:] else several[0] for name, several in values.items()}


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 1]}…"


def _pretty(document: object) -> list[str]:
    return json.dumps(document, indent=2, ensure_ascii=False).split("\n")


USDC: Final = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
PAYEE: Final = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
FACILITATOR: Final = "0x93053f1e7A5eFEDa532Fe69CbbE43cBEc3A0F13f"
DOMAIN: Final = {"name": "USD Coin", "version": "2"}
_RESOURCE: Final = {
    "url": URL,
    "description": "Current weather of any city",
    "mimeType": "application/json",
}
ENTRY: Final[Document] = {
    "scheme": "exact",
    "network": "eip155:8453",
    "amount": "10000",
    "asset": USDC,
    "payTo": PAYEE,
    "maxTimeoutSeconds": 60,
    "extra": DOMAIN,
}
_GET: Final = {"type": "http", "method": "GET", "queryParams": {"city": "Paris"}}
_POST: Final = {"type": "http", "method": "POST", "bodyType": "json", "body": {"city": "Paris"}}
_MCP: Final = {"type": "mcp", "toolName": "weather", "inputSchema": {"type": "object"}}
_SOLANA_ENTRY: Final[Document] = {
    "scheme": "exact",
    "network": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
    "amount": "10000",
    "asset": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
    "payTo": "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4",
    "maxTimeoutSeconds": 60,
    "extra": {"feePayer": "EwWqGE4ZFKLofuestmU4LDdK7XM1N4ALgdZccwYugwGd"},
}
_SOLANA_CHANNEL: Final = {
    **_SOLANA_ENTRY["extra"],
    "receiverAuthorizer": "GsbwXfJraMomNxBcjYLcG3mxkBUiyWXAB32fGbSMQRdW",
    "withdrawDelay": 3_600,
}
_TON_ENTRY: Final[Document] = {
    "scheme": "exact",
    "network": "tvm:-239",
    "amount": "10000",
    "asset": "0:b113a994b5024a16719f69139328eb759596c38a25f59028b146fecdc3621dfe",
    "payTo": "0:" + "3c" * 32,
    "maxTimeoutSeconds": 60,
    "extra": {"areFeesSponsored": True},
}
_CHANNEL: Final = {**DOMAIN, "receiverAuthorizer": FACILITATOR, "withdrawDelay": 86_400}
_CAPTURE_TERMS: Final = {
    **DOMAIN,
    "captureAuthorizer": FACILITATOR,
    "feeRecipient": FACILITATOR,
    "captureDeadline": 1_900_000_000,
    "refundDeadline": 1_900_086_400,
    "minFeeBps": 0,
    "maxFeeBps": 100,
}


def _described(declared: Document) -> Document:
    """The bazaar extension of an input."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"input": {"type": "object"}},
        "required": ["input"],
    }
    return {"info": {"input": declared}, "schema": schema}


def _version_2(entry: Document, declared: Document = _GET) -> Document:
    return {
        "x402Version": 2,
        "error": "Payment required",
        "resource": _RESOURCE,
        "accepts": [entry],
        "extensions": {"bazaar": _described(declared)},
    }


def ordered(*examples: Example) -> Example:
    """One answer with the entries of several, in their order."""
    entries = [example.envelope["accepts"][0] for example in examples if example.envelope]
    return Example(envelope={**_version_2(entries[0]), "accepts": entries})


def _offering(scheme: str, extra: Document) -> Example:
    return Example(envelope=_version_2({**ENTRY, "scheme": scheme, "extra": extra}))


V1_BODY: Final[Document] = {
    "x402Version": 1,
    "error": "X-PAYMENT header is required",
    "accepts": [
        {
            "scheme": "exact",
            "network": "base",
            "maxAmountRequired": "10000",
            "resource": URL,
            "description": "Current weather of any city",
            "mimeType": "application/json",
            "payTo": PAYEE,
            "maxTimeoutSeconds": 60,
            "asset": USDC,
            "extra": DOMAIN,
        }
    ],
}
GOOD: Final = Example(envelope=_version_2(ENTRY))
_SIGNER: Final = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"
_OFFER_SCHEMA: Final = {"type": "object", "required": ["offers"]}


def with_offers(*offers: object) -> Example:
    """A good answer with signed offers, those below were signed by npm
    @x402/extensions 2.27.
    """
    extension = {"info": {"offers": list(offers)}, "schema": _OFFER_SCHEMA}
    paid = changed(GOOD, "entry.payTo", _SIGNER)
    return changed(paid, "extensions.offer-receipt", extension)


WALLET_OFFER: Final = {
    "format": "eip712",
    "acceptIndex": 0,
    "payload": {
        "version": 1,
        "resourceUrl": URL,
        "scheme": "exact",
        "network": "eip155:8453",
        "asset": USDC,
        "payTo": _SIGNER,
        "amount": "10000",
        "validUntil": 1795485661,
    },
    "signature": (
        "0x298c462f3281c4b05ab10dab3ab33971c9318adc4df83178c36547e9077766da0de646fdfed18aeb64"
        "bff2821713937bf8475c1907da5d79fe2e7dd96a3fa1151c"
    ),
}
"""An offer that payTo signed."""
JWS_OFFER: Final = {
    "format": "jws",
    "acceptIndex": 0,
    "signature": (
        "eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6YXBpLmV4YW1wbGUuY29tI2tleS0xIn0.eyJhbW91bnQi"
        "OiIxMDAwMCIsImFzc2V0IjoiMHg4MzM1ODlmQ0Q2ZURiNkUwOGY0YzdDMzJENGY3MWI1NGJkQTAyOTEzIiwi"
        "bmV0d29yayI6ImVpcDE1NTo4NDUzIiwicGF5VG8iOiIweDE5RTdFMzc2RTdDMjEzQjdFN2U3ZTQ2Y2M3MEE1"
        "ZEQwODZEQWZmMkEiLCJyZXNvdXJjZVVybCI6Imh0dHBzOi8vYXBpLmV4YW1wbGUuY29tL3dlYXRoZXIiLCJz"
        "Y2hlbWUiOiJleGFjdCIsInZhbGlkVW50aWwiOjE3OTU0ODU2NjEsInZlcnNpb24iOjF9.7qOSbM2GhR42PS6"
        "uXteRRNkZpcE0lCdrThaWtty1pszU9Ex9UvgJSgVkua7e1Px0_ZE5QIwk2q2iVyybHImSCQ"
    ),
}
"""An offer that a key of the host signed: did:web:api.example.com#key-1."""
"""Version 2, the exact scheme, USDC on Base: nothing to find."""
WITH_BODY: Final = replace(GOOD, body=V1_BODY)
"""The same, with a body that clients of version 1 pay by."""
BODY_ONLY: Final = Example(body=V1_BODY)
"""Version 1 alone; the linter only advises to move on."""
POST: Final = Example(envelope=_version_2(ENTRY, _POST), method="POST")
MCP: Final = Example(envelope=_version_2(ENTRY, _MCP))
SOLANA: Final = Example(envelope=_version_2(_SOLANA_ENTRY))
SOLANA_UPTO: Final = Example(
    envelope=_version_2({**_SOLANA_ENTRY, "scheme": "upto", "extra": _SOLANA_CHANNEL})
)
TON: Final = Example(envelope=_version_2(_TON_ENTRY))
GATEWAY: Final = _offering(
    "exact",
    {
        "name": "GatewayWalletBatched",
        "version": "1",
        "verifyingContract": "0x77777777Dcc4d5A8B6E418Fd04D8997ef11000eE",
    },
)
PERMIT2: Final = _offering("exact", {**DOMAIN, "assetTransferMethod": "permit2"})
UPTO: Final = _offering("upto", {**DOMAIN, "facilitatorAddress": FACILITATOR})
BATCH: Final = _offering("batch-settlement", _CHANNEL)
CAPTURE: Final = _offering("auth-capture", _CAPTURE_TERMS)
STELLAR: Final = Example(
    envelope=_version_2(
        {
            **ENTRY,
            "network": "stellar:pubnet",
            "asset": "CCW67TSZV3SSS2HXMBQ5JFGCKJNXKZM7UQUWUZPUTHXSTZLEO7SJMI75",
            "payTo": "GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN",
            "extra": {},
        }
    )
)
MEGA_ETH: Final = Example(
    envelope=_version_2(
        {
            **ENTRY,
            "network": "eip155:4326",
            "amount": "10000000000000000",
            "asset": "0xFAfDdbb3FC7688494971a79cc65DCa3EF82079E7",
            "extra": {"name": "MegaUSD", "version": "1", "assetTransferMethod": "permit2"},
        }
    )
)
"""A token without EIP-3009, which moves by Permit2."""
NO_ANSWER: Final = Example(fault=FaultKind.TIMEOUT)
