"""Example programs of the API guide, one per language.

The files in this folder are complete programs with placeholders (`__URL__`, `__ORDER__`,
`__NETWORK__`, `__TOOL__`). The API guide, the README and docs/clients.md all use them, and
tests/system/test_docs_snippets.py runs them.
"""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from importlib import resources
from typing import Any, Final

import orjson


class Language(StrEnum):
    """Languages of the examples, in the order of the page."""

    PYTHON = "Python"
    TYPESCRIPT = "TypeScript"
    CURL = "curl"
    MCP = "MCP"


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8").rstrip("\n")


BUY: Final = {
    Language.PYTHON: _read("buy.py.txt"),
    Language.TYPESCRIPT: _read("buy.ts.txt"),
    Language.MCP: _read("buy.mcp.txt"),
}
LOST: Final = {
    Language.PYTHON: _read("lost.py.txt"),
    Language.TYPESCRIPT: _read("lost.ts.txt"),
}
_LINE_MAX: Final = 88
"""Longer JSON is split over several lines."""


def buy(language: Language, url: str, order: Any, *, network: str, tool: str = "") -> str:
    """Return a program that buys one response.

    Args:
        language: The language of the program.
        url: The route; with MCP the server.
        order: The JSON body of the request; with MCP the arguments of `tool`.
        network: The network that the program pays on.
        tool: The MCP tool.
    """
    if language is Language.CURL:
        return post(url, order)
    program = BUY[language].replace("__TOOL__", tool)
    return fill_in(program, _literal(url), _literal(order), network)


def render_retry(language: Language, url: str, order: Any, *, network: str) -> str:
    """Return a program that sends the same signed payment until it receives the response."""
    if language is Language.CURL:
        sent = post(url, order, '"PAYMENT-SIGNATURE: $PAYMENT"')
        return f"# PAYMENT is the header that was sent\n{sent}"
    return fill_in(LOST[language], _literal(url), _literal(order), network)


def fill_in(program: str, url: str, order: str, network: str) -> str:
    """Fill in a program; `url` and `order` are expressions in its language."""
    # The order is inserted last: it may contain the text of another placeholder.
    named = program.replace("__NETWORK__", network).replace("__URL__", url)
    return named.replace("__ORDER__", order)


def post(url: str, order: object, *headers: str) -> str:
    """Return a curl command with a JSON body, quoted for a shell; `headers` are already quoted."""
    line = orjson.dumps(order).decode()
    body = line if len(line) <= _LINE_MAX else json.dumps(order, indent=2)
    rows = [f"curl -i {shlex.quote(url)}", "-H 'content-type: application/json'"]
    rows += [f"-H {header}" for header in headers]
    return " \\\n  ".join([*rows, f"-d {shlex.quote(body)}"])


def lint(url: str) -> str:
    """Return a command that sends the response of an endpoint to the linter at `url`."""
    return (
        "curl -si https://api.example.com/weather |\n"
        "  jq -Rs '{capture: .}' |\n"
        f"  curl -s {shlex.quote(url)} -H 'content-type: application/json' -d @-"
    )


def _literal(value: object) -> str:
    # Valid in Python and in TypeScript, because orders contain no booleans or null.
    line = json.dumps(value)
    return line if len(line) <= _LINE_MAX else json.dumps(value, indent=4)
