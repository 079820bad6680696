"""Snippets: programs to copy, in each language that the docs page shows.

The files beside this one are whole programs with a few names to fill in (`__URL__`, `__ORDER__`,
`__NETWORK__`, `__TOOL__`). The docs page, the README and docs/clients.md show these and no others;
tests run what the page shows (tests/system/test_docs_snippets.py).
"""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from importlib import resources
from typing import Any, Final

import orjson


class Language(StrEnum):
    """How a route can be called, in the order in which the page offers it."""

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
"""Longer JSON is written over several lines."""


def buy(language: Language, url: str, order: Any, *, network: str, tool: str = "") -> str:
    """A program that buys one answer: `order` is the JSON body of a POST to `url`, or with MCP the
    arguments of a `tool` of the server at `url`.
    """
    if language is Language.CURL:
        return post(url, order)
    program = BUY[language].replace("__TOOL__", tool)
    return filled(program, _literal(url), _literal(order), network)


def lost(language: Language, url: str, order: Any, *, network: str) -> str:
    """A program that sends its signed payment until it is answered."""
    if language is Language.CURL:
        sent = post(url, order, '"PAYMENT-SIGNATURE: $PAYMENT"')
        return f"# PAYMENT is the header that was sent\n{sent}"
    return filled(LOST[language], _literal(url), _literal(order), network)


def filled(program: str, url: str, order: str, network: str) -> str:
    """A program with these expressions of its language for its URL and its order."""
    # The order goes in last: it may hold anything.
    named = program.replace("__NETWORK__", network).replace("__URL__", url)
    return named.replace("__ORDER__", order)


def post(url: str, order: object, *headers: str) -> str:
    """A request with a JSON body, quoted for a shell: a resource may hold quotes. `headers` are
    quoted already.
    """
    rows = [f"curl -i {shlex.quote(url)}", "-H 'content-type: application/json'"]
    rows += [f"-H {header}" for header in headers]
    return " \\\n  ".join([*rows, f"-d {shlex.quote(orjson.dumps(order).decode())}"])


def _literal(value: object) -> str:
    """A JSON text, which is the same in Python and TypeScript: no order holds a boolean or null."""
    line = json.dumps(value)
    return line if len(line) <= _LINE_MAX else json.dumps(value, indent=4)
