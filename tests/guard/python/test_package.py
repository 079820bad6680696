"""The README and the imports of the guard, which must match its code and its metadata."""

from __future__ import annotations

import ast
import json
import re
import sys
import time
import tomllib
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest
from guard.cases import sample_bundle as sample
from tests.support.guard_seller import OTHER_PAYEE, Seller

from tollgauge_guard import Code, Policy, open_guard

ROOT = Path("guard/python")
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROVIDED = {
    "coincurve": {"coincurve"},
    "crewai": {"crewai"},
    "cryptography": {"cryptography"},
    "eth-account": {"eth_account"},
    "eth-hash": {"eth_hash"},
    "h11": {"h11"},
    "httpx": {"httpx"},
    "idna": {"idna"},
    "jsonschema": set(),
    "langchain-core": {"langchain_core"},
    "mcp": {"mcp"},
    "openai-agents": {"agents"},
    "opentelemetry-api": {"opentelemetry"},
    "psycopg": {"psycopg"},
    "requests": {"requests"},
    "x402": {"x402", "pydantic", "eth_keys", "eth_utils", "solders"},
    "zstandard": {"zstandard"},
}
"""What may be imported for a dependency: the SDK installs pydantic, eth-keys with `evm`, and
solders with `svm`.
"""


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading of the README."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_table_of_decisions_lists_every_rule_in_order() -> None:
    assert [row[0].strip("`") for row in rows("Decisions")] == [*Code]


def test_table_of_policy_lists_every_setting_with_default() -> None:
    usual = Policy()
    assert [row[:2] for row in rows("The policy")] == [
        [f"`{field.name}`", str(getattr(usual, field.name))] for field in fields(Policy)
    ]


def test_table_of_options_lists_every_option_of_a_guard_in_order() -> None:
    assert [row[0].strip("`") for row in rows("Options")] == [*signature(open_guard).parameters]


@pytest.mark.parametrize("pay_to", [sample.PAYEE, OTHER_PAYEE])
def test_program_of_readme_pays_good_sellers_and_prints_rule_for_bad_ones(
    seller: Seller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pay_to: str,
) -> None:
    seller.pay_to = pay_to
    url = f"{seller.url}/data"
    offers = [[sample.BASE, "exact", 0, "5000"]]
    record: sample.Row = ["proceed", "B", 84.0, offers, [], None, None]
    body = sample.body({url: record}, int(time.time()))
    (tmp_path / "bundle").write_bytes(body)
    (tmp_path / "bundle.jws").write_text(sample.signature(body))
    for name, value in {
        "TOLLGAUGE_GUARD_BUNDLE": str(tmp_path / "bundle"),
        "TOLLGAUGE_GUARD_KEY": json.dumps(sample.public_key()),
        "XDG_STATE_HOME": str(tmp_path),
        "PRIVATE_KEY": "0x" + "11" * 32,
        "URL": url,
    }.items():
        monkeypatch.setenv(name, value)
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    if pay_to == sample.PAYEE:
        assert printed.startswith("200 ")
        assert len(seller.payments) == 1
    else:
        assert printed.startswith("not paid: payto-unknown ")
        assert not seller.payments
    assert (tmp_path / "tollgauge-guard" / "journal.sqlite").exists()


def test_package_imports_only_its_dependencies() -> None:
    extras = PROJECT["optional-dependencies"].values()
    wanted = [*PROJECT["dependencies"], *(name for extra in extras for name in extra)]
    named = {re.split(r"[\[><=]", requirement)[0] for requirement in wanted}
    brought = set().union(*(PROVIDED[name] for name in named))
    for path in (ROOT / "src/tollgauge_guard").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            tops = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names)
            assert tops <= brought | {"tollgauge_guard"}, path
