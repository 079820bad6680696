"""Test vectors for other linters and probers: docs/vectors/payable.json.

`python -m bench.oracle.vectors` asks the official clients and writes the file. Each vector is an
envelope with the clients that sign it and those that can pay it; if a client signs a payment that
cannot settle, `reasons` states why.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from bench.oracle.clients import Document
from bench.oracle.envelopes import BASES, MISSING, Case, broken_cases, good_cases, ordered_cases
from bench.oracle.referee import EXCEPTIONS, ask_clients, judge_signers, lint_challenge
from tollgauge.core.base.units import SDK
from tollgauge.core.probe.exchange import OfficialClient

VECTORS: Final = Path(__file__).parents[2] / "docs/vectors/payable.json"
_VALUES: Final[tuple[Any, ...]] = (MISSING, 5)
_NEXT_TO: Final = ("exact, then ", "ton, then ")


def vector_cases() -> Iterator[Case]:
    """Yield the cases of the file: good envelopes of each form and each name of version 1, broken
    members, and entries after a good one.
    """
    for name, base in BASES.items():
        yield Case(f"{name}: good", base)
        yield from broken_cases(name, base, values=_VALUES)
    yield from (case for case in good_cases() if "version 1" in case.name)
    yield from (case for case in ordered_cases() if case.name.startswith(_NEXT_TO))


def build_vectors(cases: list[Case], signed: Iterable[set[OfficialClient]]) -> list[Document]:
    """Return the vectors of cases that the clients in `signed` signed.

    Raises:
        ValueError: The linter and a client disagree.
    """
    vectors = []
    for case, signers in zip(cases, signed, strict=True):
        results = judge_signers([case], [signers])
        if results.disagreements:
            raise ValueError(str(results.disagreements[0]))
        verdict = lint_challenge(case.challenge)
        vector = {
            "name": case.name,
            "place": "header" if case.challenge.in_header else "body",
            "envelope": case.challenge.envelope,
            "signedBy": _names(signers),
            "payableBy": _names(verdict.payable_by),
            "reasons": sorted({EXCEPTIONS[rule].reason for rule, _ in results.exceptions}),
        }
        vectors.append(vector)
    return vectors


def _names(clients: Iterable[OfficialClient]) -> list[str]:
    return sorted(client.value for client in clients)


def encode_vectors(vectors: list[Document]) -> str:
    """Return the text of the file: one line per vector."""
    head = json.dumps({"license": "CC0-1.0", "clients": SDK.versions})[:-1]
    rows = ",\n".join(json.dumps(vector) for vector in vectors)
    return f'{head}, "vectors": [\n{rows}\n]}}\n'


def main() -> None:
    """Write the file."""
    cases = list(vector_cases())
    vectors = build_vectors(cases, ask_clients(cases))
    VECTORS.write_text(encode_vectors(vectors), encoding="utf-8")
    sys.stdout.write(f"{len(vectors)} vectors\n")


if __name__ == "__main__":
    main()
