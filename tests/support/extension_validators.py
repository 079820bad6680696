"""The validators of the official TypeScript SDK for extensions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.programs import require

_SCRIPT = Path(__file__).with_suffix(".mjs")


def ask_typescript(cases: list[tuple[str, Any]]) -> list[bool]:
    """Return whether @x402/extensions accepts each (validator, extension)."""
    text = json.dumps([{"name": name, "extension": extension} for name, extension in cases])
    command = [require("node"), str(_SCRIPT)]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return list(json.loads(run.stdout))
