"""Writes tests/golden/vectors: `python -m tests.golden.build_vectors` from the project's root.

The evidence is built by hand (cases); the expectations come from the reference implementation,
never from the package. Only the digest is the package's, a value that a second implementation of
the canonical form can check.
"""

from __future__ import annotations

import json

from tests.golden.cases import CASES
from tests.golden.reference import VECTORS, reference

from tollgauge.core.score.evidence_document import digest, from_json


def write() -> None:
    """Write one file per case, and remove those without one."""
    VECTORS.mkdir(exist_ok=True)
    for file in VECTORS.glob("*.json"):
        if file.stem not in CASES:
            file.unlink()
    for name, document in CASES.items():
        vector = {
            "name": name,
            "policy": 3,
            "expected": reference(document),
            "digest": digest(from_json(document)),
            "evidence": document,
        }
        text = json.dumps(vector, separators=(",", ":"), ensure_ascii=False)
        text = text.replace(',"evidence":', ',\n"evidence":').replace(',"days":', ',\n"days":')
        (VECTORS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
