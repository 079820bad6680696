"""The linter of 402 responses: reads the payment terms and reports the defects of the envelope.

`lint` judges one exchange, `read_capture` reads a saved one, and `terms_of_accepts` reads the terms
of listings with the same code as challenges. Only `read_capture` raises on malformed input. The
effect of a finding on the score is decided in core/probe/probe and core/score/scoring.
"""

from tollgauge.core.lint.capture import CaptureError, read_capture
from tollgauge.core.lint.judge import ALL_RULES, ERROR_RULES, lint
from tollgauge.core.lint.parsing import terms_of_accepts
from tollgauge.core.lint.rule import RuleSet

__all__ = [
    "ALL_RULES",
    "ERROR_RULES",
    "CaptureError",
    "RuleSet",
    "lint",
    "read_capture",
    "terms_of_accepts",
]
