"""Writes tests/golden/vectors and vectors_2: `python -m tests.golden.build_vectors` from the
project's root.

The evidence is built by hand (cases, cases_2); the expectations come from the reference
implementations, never from the package. Only the digest is the package's, a value that a second
implementation of the canonical form can check.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.golden.cases import CASES
from tests.golden.cases_2 import CASES_2
from tests.golden.reference import VECTORS, reference
from tests.golden.reference_2 import VECTORS_2, reference_2

from tollgauge.core.evidence import digest, from_json


def write(
    folder: Path,
    cases: dict[str, dict[str, Any]],
    expect: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    policy: int,
) -> None:
    """Write one file a case, and remove those that have none."""
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.json"):
        if file.stem not in cases:
            file.unlink()
    for name, document in cases.items():
        vector = {
            "name": name,
            "policy": policy,
            "expected": expect(document),
            "digest": digest(from_json(document)),
            "evidence": document,
        }
        text = json.dumps(vector, separators=(",", ":"), ensure_ascii=False)
        text = text.replace(',"evidence":', ',\n"evidence":').replace(',"days":', ',\n"days":')
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(VECTORS, CASES, reference, policy=1)
    write(VECTORS_2, CASES_2, reference_2, policy=2)
