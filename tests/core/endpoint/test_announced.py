"""What an announced change of payTo means for a score."""

from __future__ import annotations

from dataclasses import replace

from tests.support.evidences import AS_OF, payable

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.scoring import score


def test_announced_payto_change_raises_no_flag_and_no_caution() -> None:
    change = TermChange(
        at=AS_OF - DAY_MS, kind="payto-changed", source="probe", before="0x1", after="0x2"
    )
    alarm = score(payable(changes=(change,)))
    announced = score(payable(changes=(replace(change, announced=True),)))
    assert "payto-changed-recently" in {flag.code for flag in alarm.flags}
    assert "payto-changed-recently" not in {flag.code for flag in announced.flags}
    assert announced.caps == ()
    assert announced.recommendation == "proceed"
    steady = next(row for row in announced.components if row.name == "stability")
    assert steady.tenths == 1_000
