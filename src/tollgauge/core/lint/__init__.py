"""The envelope linter: what an answer asks to be paid, and what is wrong with how it asks.

`lint` judges one exchange, `read_capture` reads a saved one; `ALL_RULES` is every rule;
`terms_of_accepts` reads listings the way challenges are read. Only reading a saved exchange raises
on foreign bytes. What a finding costs is core/probe/probe's and core/score/scoring's concern.
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
