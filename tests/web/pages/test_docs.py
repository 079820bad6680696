"""`/docs`: commands and programs to copy; the page works without scripts and style sheets."""

from __future__ import annotations

import json
import re
import shlex
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.responses import Response
from tests.support.page_reader import BASE, FORBIDDEN, HOSTILE, Reader
from tests.support.prices import BULK

from tollgauge.core.sale.payment import Offer
from tollgauge.web.free import lint, outcomes
from tollgauge.web.free.lint import LINT_PATH
from tollgauge.web.pages.docs import docs_html
from tollgauge.web.pages.render import ASSETS
from tollgauge.web.pages.snippets import Language
from tollgauge.web.route import Route
from tollgauge.web.wire.examples import RESOURCE


async def _handler() -> Response:
    return Response()


route = partial(Route, handler=_handler, answers={}, tag="free")
FREE = route("GET", "/trust/snapshot", "The snapshot.", example=f"?resource={RESOURCE}")
REPORT = route(
    "POST",
    "/v1/x402-trust",
    "A live report.",
    micro_usd=5_000,
    example=json.dumps({"resource": RESOURCE, "days": 7, "delivery": {"webhook_url": "x"}}),
    tool="x402_trust_score",
    tool_example=json.dumps({"resource": RESOURCE}),
)
TRACE = route(
    "POST",
    "/v1/x402-payment-trace",
    "A trace.",
    micro_usd=11_673,
    example='{"txHash": "0x5a"}',
    tool="x402_payment_trace",
    tool_example='{"txHash": "0x5a"}',
)
TIERS = [
    route(
        "POST",
        BULK[tier],
        "Many scores.",
        micro_usd=1_000 * tier,
        example=json.dumps({"resources": [RESOURCE]}),
        tool="x402_trust_bulk",
        tool_example=json.dumps({"resources": [RESOURCE], "tier": tier}),
    )
    for tier in (10, 50)
]
OFFER = Offer(
    route="/v1/x402-trust",
    resource=f"{BASE}/v1/x402-trust",
    network="eip155:84532",
    asset="0x" + "12" * 20,
    amount=5_000,
    pay_to="0x" + "ab" * 20,
    domain_name="USDC",
    domain_version="2",
)
KNOWN = "https://shop.dev/a&b=it's"


def docs(
    *more: Route,
    resource: str | None = KNOWN,
    report: Offer | None = OFFER,
    fingerprint: str | None = None,
) -> Reader:
    page = docs_html(
        (FREE, REPORT, TRACE, *TIERS, *more),
        base_url=BASE,
        resource=resource,
        report=report,
        fingerprint=fingerprint,
    )
    reader = Reader(page)
    (script,) = reader.all("script")
    for tag, attrs in reader.elements:
        assert tag not in FORBIDDEN - {"script"}
        assert "style" not in attrs
        assert not [name for name in attrs if name.startswith("on")]
    assert script["src"] == f"/static/copy.js?v={ASSETS['copy.js'].digest}"
    assert not "".join(reader.pieces["script"]).strip()
    return reader


def programs(reader: Reader) -> list[tuple[str, str]]:
    """Return each snippet with its caption."""
    return list(zip(reader.pieces["figcaption"], reader.pieces["pre"], strict=True))


def test_one_program_per_language_pays_and_each_paid_route_has_its_command() -> None:
    page = docs()
    names = [name for name, _ in programs(page)]
    http = ["Python", "TypeScript", "curl"]
    assert names == ["curl", *http, "MCP", *["curl", "MCP"] * 3, "shell", *http, "curl"]
    assert sum("import" in text for _, text in programs(page)) == 5
    commands_of_tiers = [text for _, text in programs(page) if BULK[10] in text or "bulk" in text]
    assert len(commands_of_tiers) == 2
    assert f"{BULK[50]} $0.05" in page.words


def test_free_commands_are_valid_in_a_shell() -> None:
    free = programs(docs())[0][1]
    asked = parse_qs(urlsplit(shlex.split(free)[-1]).query)
    assert asked == {"resource": [KNOWN]}


@pytest.mark.parametrize(
    ("path", "body"), [(LINT_PATH, lint.EXAMPLE), ("/v1/outcomes", outcomes.EXAMPLE)]
)
def test_commands_have_short_lines(path: str, body: dict[str, Any]) -> None:
    listed = route("POST", path, "A free route.", example=json.dumps(body))

    (command,) = (text for _, text in programs(docs(listed)) if f"{BASE}{path}" in text)

    assert max(map(len, command.splitlines())) <= 160
    words = shlex.split(command.replace("\\\n", " "))
    assert words[0] == "curl"
    if path != LINT_PATH:
        assert json.loads(words[-1]) == body | {"resource": KNOWN}


def test_shows_the_guard_settings_of_a_service_that_signs() -> None:
    (_, commands), *_ = (row for row in programs(docs(fingerprint="-Ab9")) if row[0] == "shell")
    assert [shlex.split(line) for line in commands.splitlines()] == [
        ["pip", "install", "./guard/python[evm]"],
        ["export", f"TOLLGAUGE_GUARD_BUNDLE={BASE}/trust/bundle"],
        ["export", "TOLLGAUGE_GUARD_KEY=-Ab9"],
        ["tollgauge-guard", "check", KNOWN],
    ]
    assert "TOLLGAUGE_GUARD_KEY" not in docs().words


def test_programs_request_a_monitored_endpoint_and_deliver_nowhere() -> None:
    _, python, typescript, curl, mcp, route, *_ = (text for _, text in programs(docs()))
    for command, meant in ((curl, {"resource": KNOWN}), (route, {"resource": KNOWN, "days": 7})):
        assert json.loads(shlex.split(command.replace("\\\n", " "))[-1]) == meant
    order = re.search(r"^ORDER = (.*)$", python, re.MULTILINE)
    assert order is not None
    assert json.loads(order[1]) == {"resource": KNOWN}
    assert f"const order = {order[1]};" in typescript
    assert json.dumps({"resource": KNOWN}) in mcp
    assert 'TOOL = "x402_trust_score"' in mcp
    for program in (python, typescript, mcp):
        assert '"eip155:84532"' in program
        assert "__" not in program.replace("__name__", "")


def test_examples_are_fictitious_without_a_monitored_endpoint() -> None:
    assert RESOURCE in programs(docs(resource=None))[0][1]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_resource_is_escaped_in_every_program(text: str) -> None:
    reader = docs(resource=f"https://shop.dev/{text}")
    assert "canary" not in " ".join(name for _, attrs in reader.elements for name in attrs)
    orders = []
    for name, program in programs(reader):
        if name in ("curl", "shell"):
            assert shlex.split(program.replace("\\\n", " "), comments=True)
        elif program.startswith("x402_"):
            orders.append(json.loads(program.partition(" ")[2]))
        else:
            order = re.search(
                r"^(?:ORDER|ARGUMENTS|const order) = (\{.*?\});?$",
                program,
                re.MULTILINE | re.DOTALL,
            )
            assert order is not None
            orders.append(json.loads(order[1]))
    assert sum("shop.dev" in order.get("resource", "") for order in orders) == 6


def test_shows_only_free_routes_if_sales_are_not_configured() -> None:
    reader = docs(report=None)
    assert "Sales are not configured on this server" in reader.words
    assert [name for name, _ in programs(reader)] == ["curl"]
    assert "/v1/x402-trust " not in reader.words
    assert not [attrs for attrs in reader.all("input") if attrs["type"] == "radio"]


def test_languages_are_radio_buttons_with_one_checked() -> None:
    radios = [attrs for attrs in docs().all("input") if attrs["type"] == "radio"]
    names = [f"in-{language.value.lower()}" for language in Language]
    assert [attrs["id"] for attrs in radios] == names
    assert set(names) <= {attrs["for"] for attrs in docs().all("label")}
    assert ["checked" in attrs for attrs in radios] == [True, False, False, False]
    assert {(attrs["type"], attrs["name"]) for attrs in radios} == {("radio", "language")}


def test_retry_sends_the_signed_payment() -> None:
    shell, python, typescript, curl = (text for _, text in programs(docs())[-5:-1])
    assert shlex.split(shell) == [
        *("tollgauge", "buy", KNOWN, "--service", BASE),
        *("--network", "eip155:84532"),
    ]
    assert 'headers={"PAYMENT-SIGNATURE": signed}' in python
    assert "await send(signed)" in typescript
    assert "PAYMENT-SIGNATURE: $PAYMENT" in shlex.split(curl, comments=True)


def test_links_within_the_page_have_targets() -> None:
    reader = docs()
    ids = {attrs["id"] for _, attrs in reader.elements if "id" in attrs}
    links = {(attrs["href"] or "").removeprefix("#") for attrs in reader.all("a")}
    assert {"free", "paid", "lost"} <= links & ids
