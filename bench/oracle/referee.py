"""Compare the linter's `payableBy` with the official clients: who signs which envelope.

A client that signs an envelope can pay it, except where `EXCEPTIONS` states why its payment cannot
settle. There is no exception for the other direction: each client that the linter names must sign.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.measurement import Measurement, Report
from bench.oracle.clients import (
    FAMILIES,
    URL,
    Challenge,
    ask_typescript,
    python_client,
    python_refusal,
    question,
)
from bench.oracle.envelopes import Case, all_cases
from bench.oracle.nodes import chain_nodes
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import ALL_CLIENTS, Answer, Exchange, Lint, OfficialClient

TYPESCRIPT: Final = OfficialClient.TYPESCRIPT
PYTHON: Final = OfficialClient.PYTHON
CIRCLE: Final = OfficialClient.CIRCLE
_SDKS: Final = (TYPESCRIPT, PYTHON)
_SHOWN: Final = 50  # disagreements in the report


@dataclass(frozen=True, slots=True)
class SettlementFailure:
    """Why a payment that a client signs cannot settle."""

    clients: frozenset[OfficialClient]
    reason: str


def _failure(reason: str, *clients: OfficialClient) -> SettlementFailure:
    return SettlementFailure(frozenset(clients), reason)


_NO_PREFIX: Final = (
    "The Python client also accepts hex without 0x or with 0X, and the member in snake_case, which"
    " facilitators reject."
)
EXCEPTIONS: Final[dict[str, SettlementFailure]] = {
    "address-zero": _failure("Tokens refuse transfers to the zero address.", *ALL_CLIENTS),
    "amount-form": _failure(
        "The payment repeats the amount as written, and facilitators accept only a string of"
        " digits within the contract's range.",
        *ALL_CLIENTS,
    ),
    "asset-form": _failure(
        _NO_PREFIX + " Circle's client does not read the asset; its facilitator does.",
        *(PYTHON, CIRCLE),
    ),
    "asset-permit2": _failure("The token has no transfer by signature.", *_SDKS),
    "batch-authorizer": _failure(_NO_PREFIX, PYTHON),
    "batch-delay": _failure(
        "The clients replace a missing or malformed delay by one of their own, so the channel's ID"
        " is not the one that the seller's facilitator computes. The contract rejects others.",
        *_SDKS,
    ),
    "batch-method": _failure(
        "The Python client reads an empty value as eip3009; servers reject the name.", PYTHON
    ),
    "capture-terms": _failure("The escrow's contract rejects the terms.", TYPESCRIPT),
    "domain-missing": _failure(
        "A value of another type, or an empty one, gives a signature that the token rejects. The"
        ' Python client assumes version "1" if only the version is missing.',
        *_SDKS,
    ),
    "domain-wrong": _failure(
        "The token rejects a signature over another domain. Circle's client signs every scheme and"
        " version; its facilitator has only exact in version 2.",
        *ALL_CLIENTS,
    ),
    "gateway-only": _failure(
        "The SDKs sign a Gateway offer over the token's contract, not over the Gateway wallet.",
        *_SDKS,
    ),
    "gateway-terms": _failure("There is no Gateway wallet at the zero address.", CIRCLE),
    "network-chain": _failure(
        "The server offers the network under another name than the chain's CAIP-2 identifier.",
        *_SDKS,
    ),
    "network-divided": _failure(
        "The two SDKs sign for different chains; the name's chain is that of TypeScript.", PYTHON
    ),
    "payto-asset": _failure("The token, or a contract of x402, is not a payee.", *ALL_CLIENTS),
    "payto-form": _failure(_NO_PREFIX, PYTHON),
    "scheme-unknown": _failure(
        "The clients sign an EIP-3009 authorization although ERC-7710 is requested. Circle's client"
        " does not read the scheme.",
        *ALL_CLIENTS,
    ),
    "timeout-form": _failure(
        "Without a whole number of seconds, the payment has expired when it is signed, or (a quoted"
        " number, which JavaScript appends to the clock) never expires.",
        *ALL_CLIENTS,
    ),
    "timeout-too-short": _failure(
        "Facilitators require six seconds until the payment expires.", *ALL_CLIENTS
    ),
    "ton-transfer": _failure("The transfer forwards another amount than the offer states.", PYTHON),
    "upto-authorizer": _failure("No facilitator has the zero key.", TYPESCRIPT),
    "upto-facilitator": _failure(
        "No facilitator has the zero address. Circle's client does not read the scheme. "
        + _NO_PREFIX,
        *ALL_CLIENTS,
    ),
    "version-form": _failure(
        "The payment repeats the wrong version, which facilitators reject.", CIRCLE
    ),
}
"""Rules of the linter under which a client signs a payment that cannot settle."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A client for which the linter and the client's behaviour differ."""

    case: str
    client: OfficialClient
    is_signed: bool
    rules: tuple[str, ...]

    def __str__(self) -> str:
        kind = "false unpayable" if self.is_signed else "false payable"
        return f"{kind} ({self.client}): {self.case} [{', '.join(self.rules)}]"


@dataclass(frozen=True, slots=True)
class Results:
    """The comparison of some cases.

    Attributes:
        signed: Number of envelopes that each client signed.
        exceptions: How often an exception applied, by rule and client.
    """

    cases: int
    disagreements: tuple[Disagreement, ...]
    signed: Counter[OfficialClient]
    exceptions: Counter[tuple[str, OfficialClient]]

    @property
    def false_payable(self) -> int:
        """Envelopes that the linter calls payable for a client that does not sign."""
        return sum(not one.is_signed for one in self.disagreements)

    @property
    def false_unpayable(self) -> int:
        """Envelopes that a client signs, against the linter and without an exception."""
        return sum(one.is_signed for one in self.disagreements)


def lint_challenge(challenge: Challenge) -> Lint:
    """Return the linter's result for a challenge."""
    headers = tuple((name.lower(), value) for name, value in challenge.headers.items())
    answer = Answer(status=402, headers=headers, body=challenge.body)
    return lint(Exchange(url=URL, method="GET", at=0, result=answer))


def compare(cases: Sequence[Case]) -> Results:
    """Ask every client about every case, and compare the answers with the linter's."""
    return judge_signers(cases, ask_clients(cases))


def ask_clients(cases: Sequence[Case]) -> list[set[OfficialClient]]:
    """Return the clients that sign each case."""
    with chain_nodes() as node:
        signed = _ask_typescript(cases, node)
        clients = {name: python_client([name], node) for name in FAMILIES}
        for case, signers in zip(cases, signed, strict=True):
            families = (name for name in FAMILIES if _is_asked(case, name))
            if any(not python_refusal(clients[name], case.challenge) for name in families):
                signers.add(PYTHON)
    return signed


def _ask_typescript(cases: Sequence[Case], node: str) -> list[set[OfficialClient]]:
    """Return which TypeScript clients sign each case."""
    asked = [
        (index, client)
        for index, case in enumerate(cases)
        for client in ("evm", "svm", "circle")
        if _is_asked(case, client)
    ]
    refusals = ask_typescript(
        [question(cases[index].challenge, client) for index, client in asked], node
    )
    signed: list[set[OfficialClient]] = [set() for _ in cases]
    for (index, client), refusal in zip(asked, refusals, strict=True):
        if not refusal:
            signed[index].add(CIRCLE if client == "circle" else TYPESCRIPT)
    return signed


_MARKS: Final = {"evm": "", "svm": "solana", "tvm": "tvm", "circle": "GatewayWalletBatched"}
"""A text without which a client has nothing to sign."""


def _is_asked(case: Case, client: str) -> bool:
    return _MARKS[client] in json.dumps(case.challenge.envelope)


def judge_signers(cases: Iterable[Case], signed: Iterable[set[OfficialClient]]) -> Results:
    """Compare who signs each case with the linter's result."""
    disagreements: list[Disagreement] = []
    exceptions: Counter[tuple[str, OfficialClient]] = Counter()
    totals: Counter[OfficialClient] = Counter()
    count = 0
    for case, signers in zip(cases, signed, strict=True):
        count += 1
        totals.update(signers)
        result = lint_challenge(case.challenge)
        rules = tuple(sorted({finding.rule for finding in result.findings}))
        for client in ALL_CLIENTS:
            is_signed = client in signers
            if is_signed == (client in result.payable_by):
                continue
            reasons = [
                (rule, client)
                for rule in rules
                if rule in EXCEPTIONS and client in EXCEPTIONS[rule].clients
            ]
            if is_signed and reasons:
                exceptions.update(reasons)
            else:
                disagreements.append(Disagreement(case.name, client, is_signed, rules))
    return Results(count, tuple(disagreements), totals, exceptions)


def run() -> Report:
    """Compare with members broken on every network."""
    results = compare(list(all_cases(every_network=True)))
    figures = {
        "payable for the linter, not signed": results.false_payable,
        "signed, not payable for the linter": results.false_unpayable,
    }
    exceptions = {
        f"{rule}, {client}: {EXCEPTIONS[rule].reason}": count
        for (rule, client), count in sorted(results.exceptions.items())
    }
    return Report(
        measurements=tuple(
            Measurement(name=name, figure=figure, unit="envelopes", goal=0)
            for name, figure in figures.items()
        ),
        details={
            "envelopes": results.cases,
            "signed": {client.value: results.signed[client] for client in OfficialClient},
            "disagreements": [str(one) for one in results.disagreements[:_SHOWN]],
            "exceptions": exceptions,
        },
    )
