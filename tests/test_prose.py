"""The English of the project. scripts/check_prose.py lists the findings."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "scripts/check_prose.py"
MAX_PER_1000_WORDS = 2


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_prose", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclass() looks its module up
    spec.loader.exec_module(module)
    return module


prose = _load()


@cache
def _texts() -> list[Any]:
    return list(prose.read_texts([ROOT]))


@cache
def _findings() -> list[tuple[str, Any]]:
    return [(text.kind, finding) for text in _texts() for finding in prose.find_phrases(text)]


@pytest.mark.parametrize("kind", prose.KINDS)
def test_awkward_phrases_are_rare(kind: str) -> None:
    words = sum(text.count_words() for text in _texts() if text.kind == kind)
    findings = [str(finding) for found, finding in _findings() if found == kind]

    assert words > 10_000
    assert len(findings) <= MAX_PER_1000_WORDS * words / 1_000, "\n".join(findings)


def test_rejected_phrases_do_not_occur() -> None:
    assert [str(finding) for _, finding in _findings() if finding.rule.never] == []


@pytest.mark.parametrize("rule", prose.RULES, ids=lambda rule: rule.example.replace(" ", "-"))
def test_each_rule_finds_its_example(rule: Any) -> None:
    text = prose.Text(prose.DOCUMENT, Path("page.md"), 1, rule.example)

    assert rule in [finding.rule for finding in prose.find_phrases(text)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Missing or invalid bearer token.",
        "Pay only if `recommendation` is `proceed` or `caution`.",
        "Service URL. Default: `base_url` in tollgauge.toml, then the local demo.",
        "There is no watch with this ID for this token.",
        "Endpoints already down for 2 hours are excluded from this test.",
        "Do not retry a payment until its authorization has expired.",
    ],
)
def test_accepts_plain_sentences(sentence: str) -> None:
    text = prose.Text(prose.DOCUMENT, Path("page.md"), 1, sentence)

    assert not list(prose.find_phrases(text))


def test_reads_texts_of_each_kind(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(
        '"""A module."""\n\nLIMIT = 1  # requests per second\nERROR = "no such page on this host"\n'
        "def test_returns_404(): ...\n"
    )

    assert [(text.kind, text.line, text.text) for text in prose.read_texts([file])] == [
        ("test names", 5, "returns 404"),
        ("docstrings and comments", 1, "A module."),
        ("program texts", 4, "no such page on this host"),
        ("docstrings and comments", 3, "requests per second"),
    ]


def test_checkout_may_be_in_a_folder_named_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "tests"
    monkeypatch.setattr(prose, "ROOT", checkout)
    for name in ("src/page.py", "src/page.ts", "tests/test_page.py", "guard/test/page.mjs"):
        file = checkout / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('error("no such page on this host")\n')

    messages = [text.file for text in prose.read_texts([checkout]) if text.kind == prose.MESSAGE]

    assert messages == [checkout / "src/page.py", checkout / "src/page.ts"]


def test_code_and_fenced_blocks_are_not_prose() -> None:
    text = prose.Text(prose.DOCUMENT, Path("page.md"), 1, "`beside`\n\n```\nnobody\n```\nbeside")

    assert [finding.line for finding in prose.find_phrases(text)] == [6]
