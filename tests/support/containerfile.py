"""Reads a Containerfile (docs.docker.com, Dockerfile reference): stages and their instructions."""

from __future__ import annotations

import re
from pathlib import Path

Stage = list[tuple[str, str]]
"""The instructions of a stage: the word in upper case, and what follows it."""


def stages(path: Path) -> list[Stage]:
    """The stages of a file, without its comments; a line that goes on is one instruction."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    result: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "FROM":
            result.append([])
        if word:
            result[-1].append((word.upper(), rest.strip()))
    return result


def values(stage: Stage, word: str) -> list[str]:
    """What follows each instruction of a kind."""
    return [rest for name, rest in stage if name == word]
