"""The wire: what a report looks like as JSON, and the schema that the interface description shows.

Models here are shapes only: every figure arrives as the integer that `reports` and core/score
publish, and becomes a decimal, a dollar or an ISO time in one of the small functions of `figures`.
A file for each noun: `scores` what follows from a score alone, `trust` the report that carries
one, `snapshots` what is free of it, `counts` the ecosystem. Products keep the shapes of their own
answers beside them.
"""

from tollgauge.web.wire.calibration import CalibrationShape, calibration
from tollgauge.web.wire.claims import (
    Checked,
    Difference,
    checked,
    evidence_url,
    with_evidence,
)
from tollgauge.web.wire.counts import EcosystemShape, ecosystem
from tollgauge.web.wire.figures import day, iso, micro_usd, permille, tenths
from tollgauge.web.wire.improvements import ImprovementShape, improvement_shapes
from tollgauge.web.wire.lint import (
    LintShape,
    LintTermsShape,
    brief,
    lint,
    rule_page,
    stored_lint,
)
from tollgauge.web.wire.scores import FlagShape, ScoreRange, ScoreShape, score_alone
from tollgauge.web.wire.shape import (
    Chance,
    Grade,
    OneOf,
    Percent,
    Recommendation,
    Severity,
    Shape,
    absent_if_null,
    camel,
    dump,
)
from tollgauge.web.wire.snapshots import LeaderboardShape, SnapshotShape, leaderboard, snapshot
from tollgauge.web.wire.trust import (
    PreviewShape,
    TrustReportShape,
    outline,
    preview,
    short,
    trust_report,
)

__all__ = [
    "CalibrationShape",
    "Chance",
    "Checked",
    "Difference",
    "EcosystemShape",
    "FlagShape",
    "Grade",
    "ImprovementShape",
    "LeaderboardShape",
    "LintShape",
    "LintTermsShape",
    "OneOf",
    "Percent",
    "PreviewShape",
    "Recommendation",
    "ScoreRange",
    "ScoreShape",
    "Severity",
    "Shape",
    "SnapshotShape",
    "TrustReportShape",
    "absent_if_null",
    "brief",
    "calibration",
    "camel",
    "checked",
    "day",
    "dump",
    "ecosystem",
    "evidence_url",
    "improvement_shapes",
    "iso",
    "leaderboard",
    "lint",
    "micro_usd",
    "outline",
    "permille",
    "preview",
    "rule_page",
    "score_alone",
    "short",
    "snapshot",
    "stored_lint",
    "tenths",
    "trust_report",
    "with_evidence",
]
