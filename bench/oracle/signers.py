"""Who signs each envelope of `all_cases`, recorded for the tests: bench/oracle/signers.json.

`python -m bench.oracle.signers` asks the official clients about all envelopes, which takes half a
minute, and writes the file. `make test` compares the linter with the whole recording, and asks the
clients about a part of it; `make test-all` asks them about all.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bench.oracle.envelopes import Case, all_cases
from bench.oracle.referee import ask_clients
from tollgauge.core.base.units import SDK
from tollgauge.core.probe.exchange import OfficialClient

SIGNERS: Final = Path(__file__).with_name("signers.json")
_CLIENTS: Final = (OfficialClient.TYPESCRIPT, OfficialClient.PYTHON, OfficialClient.CIRCLE)
"""One bit each, from the lowest."""


def encode_signers(cases: Sequence[Case], signers: Iterable[set[OfficialClient]]) -> str:
    """Return the text of the file: one digit per case."""
    digits = (sum(1 << bit for bit, one in enumerate(_CLIENTS) if one in by) for by in signers)
    document = {
        "clients": SDK.versions,
        "cases": _digest(cases),
        "signers": "".join(map(str, digits)),
    }
    return json.dumps(document, indent=2) + "\n"


def read_signers(cases: Sequence[Case]) -> list[set[OfficialClient]]:
    """Return who signs each case.

    Raises:
        ValueError: The file is about other cases, or other versions of the clients.
    """
    recorded = json.loads(SIGNERS.read_text(encoding="utf-8"))
    if (recorded["clients"], recorded["cases"]) != (SDK.versions, _digest(cases)):
        raise ValueError("cases or clients have changed: run python -m bench.oracle.signers")
    return [
        {one for bit, one in enumerate(_CLIENTS) if int(digit) >> bit & 1}
        for digit in recorded["signers"]
    ]


def _digest(cases: Iterable[Case]) -> str:
    asked = [[case.challenge.envelope, case.challenge.in_header] for case in cases]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def main() -> None:
    """Write the file."""
    cases = list(all_cases())
    SIGNERS.write_text(encode_signers(cases, ask_clients(cases)), encoding="utf-8")
    sys.stdout.write(f"{len(cases)} envelopes\n")


if __name__ == "__main__":
    main()
