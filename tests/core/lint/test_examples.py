"""Every rule has an example that fires it and one that does not, a source, and a fix that works."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from tests.support.lint_envelopes import PAYEE, fired_rules
from tests.support.programs import require
from x402 import x402ResourceServer
from x402.extensions.bazaar import OutputConfig, declare_discovery_extension
from x402.http import HTTPFacilitatorClient
from x402.http.middleware.fastapi import PaymentMiddlewareASGI
from x402.http.types import HTTPResponseBody, PaymentOption, RouteConfig
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.mechanisms.evm.upto.server import UptoEvmScheme
from x402.schemas import AssetAmount, SupportedKind, SupportedResponse

from tollgauge.core.lint.capture import read_capture
from tollgauge.core.lint.guide import DIFF_MAX, FRAMEWORKS, REMEDIES, explain, find_similar_rule
from tollgauge.core.lint.judge import ALL_RULES, lint
from tollgauge.core.lint.rule import RULE_ENTRIES
from tollgauge.core.probe.exchange import Answer, Exchange, Lint

FIXES = Path(__file__).resolve().parents[3] / "src" / "tollgauge" / "core" / "lint" / "fixes"
SLUGS = [rule.slug for rule in ALL_RULES]
FACILITATOR = "0x93053f1e7A5eFEDa532Fe69CbbE43cBEc3A0F13f"


def test_every_rule_has_examples_and_every_kind_is_used() -> None:
    assert sorted(RULE_ENTRIES) == sorted(SLUGS)
    assert {entry.kind for entry in RULE_ENTRIES.values()} == set(REMEDIES)
    assert [explain(slug) is not None for slug in SLUGS] == [True] * len(SLUGS)
    assert explain("no-such-rule") is None
    assert (find_similar_rule("domain-wrng"), find_similar_rule("xyz")) == ("domain-wrong", None)


@pytest.mark.parametrize("slug", SLUGS)
def test_wrong_example_fires_its_rule_and_right_one_does_not(slug: str) -> None:
    entry = RULE_ENTRIES[slug]
    assert slug in fired_rules(lint(entry.wrong.exchange()))
    right = lint(entry.right.exchange())
    assert slug not in fired_rules(right)
    assert (right.compliant, right.payable) == (True, True)


@pytest.mark.parametrize("slug", SLUGS)
def test_capture_of_an_example_gives_the_same_result(slug: str) -> None:
    for example in (RULE_ENTRIES[slug].wrong, RULE_ENTRIES[slug].right):
        text = example.capture()
        if text is None:
            assert example.fault is not None
        else:
            assert lint(read_capture(text.encode())) == lint(example.exchange())


@pytest.mark.parametrize("slug", SLUGS)
def test_diff_shows_the_differences_with_little_context(slug: str) -> None:
    explanation = explain(slug)
    assert explanation is not None
    assert explanation.what.endswith(".")
    assert explanation.entry.source.url.startswith("https://")
    names, changes = explanation.diff[:2], explanation.diff[2:]
    assert names in (["--- Wrong", "+++ Right"], ["--- With this note", "+++ Without it"])
    assert any(line[0] in "-+" for line in changes)
    assert len(changes) < DIFF_MAX
    assert all(len(line) < 100 for line in changes)


def test_every_kind_has_code_for_every_framework() -> None:
    for remedy in REMEDIES.values():
        codes = list(remedy.by_framework())
        assert [framework for framework, _ in codes] == list(FRAMEWORKS)
        for framework, code in codes:
            used = "x402http" if framework.language == "Go" else "route"
            assert used in code or "payments" in code or "headers" in code, framework.name
            assert not code.startswith((" ", "\n"))


def test_every_file_of_the_fixes_is_shown() -> None:
    folders = {path.name for path in FIXES.iterdir() if path.is_dir()}
    assert folders == {*REMEDIES, "install"}
    shown = [code for remedy in REMEDIES.values() for _, code in remedy.by_framework()]
    for path in FIXES.rglob("*.txt"):
        text = path.read_text(encoding="utf-8").rstrip("\n")
        assert any(text in code for code in shown), path


class Facilitator(HTTPFacilitatorClient):
    """A facilitator that only supports exact and upto on Base."""

    def get_supported(self) -> SupportedResponse:
        return SupportedResponse(
            kinds=[
                SupportedKind(
                    x402_version=2,
                    scheme=scheme,
                    network="eip155:8453",
                    extra={"facilitatorAddress": FACILITATOR},
                )
                for scheme in ("exact", "upto")
            ],
            extensions=[],
            signers={},
        )


async def paste_answer(code: str, url: str = "https://api.example.com/weather") -> Lint:
    """The lint of what FastAPI with the code of a fix answers to an unpaid request."""
    app, server = FastAPI(), x402ResourceServer(Facilitator())
    exact: Any = ExactEvmServerScheme()  # type: ignore[no-untyped-call]
    server.register("eip155:8453", exact)
    names: dict[str, Any] = {
        "app": app,
        "server": server,
        "pay_to": PAYEE,
        "AssetAmount": AssetAmount,
        "PaymentMiddlewareASGI": PaymentMiddlewareASGI,
        "RouteConfig": RouteConfig,
        "PaymentOption": PaymentOption,
        "HTTPResponseBody": HTTPResponseBody,
        "UptoEvmScheme": UptoEvmScheme,
        "OutputConfig": OutputConfig,
        "declare_discovery_extension": declare_discovery_extension,
    }
    exec(code.replace("0xYourAddress", PAYEE), names)  # code of the pages
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        response = await client.get(url)
    answer = Answer(
        status=response.status_code,
        headers=tuple(response.headers.items()),
        body=response.content,
    )
    return lint(Exchange(url=url, method="GET", at=0, result=answer))


@pytest.mark.parametrize(
    "kind",
    ["body", "option", "asset", "scheme", "resource", "discovery"],
)
async def test_python_code_of_a_fix_leaves_no_finding_of_its_kind(kind: str) -> None:
    code = next(c for framework, c in REMEDIES[kind].by_framework() if framework.name == "FastAPI")
    result = await paste_answer(code)
    assert (result.payable, result.compliant) == (True, True)
    rules = {rule for rule in fired_rules(result) if RULE_ENTRIES[rule].kind == kind}
    assert rules == set()


PARSE = """
const { SourceTextModule } = require("node:vm");
for (const [name, code] of JSON.parse(require("node:fs").readFileSync(0)))
  try { new SourceTextModule(code); } catch (error) { console.log(name, error.name); }
"""


@pytest.mark.node
def test_typescript_code_of_every_fix_parses() -> None:
    codes = [
        (f"{kind}, {framework.name}", code)
        for kind, remedy in REMEDIES.items()
        for framework, code in remedy.by_framework()
        if framework.language == "TypeScript"
    ]
    assert codes
    command = [require("node"), "--no-warnings", "--experimental-vm-modules", "-e", PARSE]
    text = json.dumps([*codes, ("broken", "let = 1")])
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert done.stdout == "broken SyntaxError\n"
