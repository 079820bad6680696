"""The shared cases of the guard's decision (guard/cases/decide.json)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tollgauge_guard.decision import Asked, Decision, Known, Spent, decide
from tollgauge_guard.offer import read_offer
from tollgauge_guard.policy import Policy, Trust
from tollgauge_guard.record import Conduct, read_conduct, read_record
from tollgauge_guard.units import Asset

TABLE: dict[str, Any] = json.loads(Path("guard/cases/decide.json").read_text(encoding="utf-8"))
DEFAULTS: dict[str, Any] = TABLE["defaults"]
MERGED = ("offer", "policy", "spent", "call")


def complete(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case, with defaults for fields that it omits."""
    full = DEFAULTS | case
    for name in MERGED:
        full[name] = DEFAULTS[name] | case.get(name, {})
    for name in case.get("without", ()):
        del full["offer"][name]
    return full


def decide_case(case: dict[str, Any]) -> Decision:
    """Return the decision in a case."""
    full = complete(case)
    call = full["call"]
    extensions = tuple(full["extensions"])
    return decide(
        Known(
            record=None if full["record"] is None else read_record(full["record"], full["payTo"]),
            inherited=tuple(read_record(row, full["payTo"]) for row in full["inherited"]),
            host=_conduct(full["hostRecord"]),
            payee=_conduct(full["payToRecord"]),
            as_of=full["bundleAsOf"],
        ),
        read_offer(
            full["offer"],
            full["resourceUrl"],
            full["x402Version"],
            extensions,
            is_contradicted=full["contradicted"],
        ),
        Asked(
            url=full["requestUrl"],
            hops=tuple(full["hops"]),
            max_amount=call["maxAmount"],
            expect_pay_to=call["expectPayTo"],
            is_stopped=full["stopped"],
        ),
        _policy(full["policy"]),
        full["now"],
        Spent(**full["spent"]),
    )


def _conduct(row: list[Any] | None) -> Conduct | None:
    return None if row is None else read_conduct(row)


def _policy(fields: dict[str, Any]) -> Policy:
    words = _snake(fields)
    words["assets"] = tuple(Asset(**asset) for asset in fields.get("assets", ()))
    for name in ("deny", "allow_extensions"):
        words[name] = tuple(words.get(name, ()))
    words["trust"] = {}
    for host, trust in fields.get("trust", {}).items():
        named = _snake(trust)
        words["trust"][host] = Trust(**named | {"pay_to": tuple(named.get("pay_to", ()))})
    return Policy(**words)


def _snake(fields: dict[str, Any]) -> dict[str, Any]:
    return {re.sub("[A-Z]", lambda part: f"_{part[0].lower()}", key): fields[key] for key in fields}
