"""The example's trust report with its evidence, as a buyer gets it who asks for all of it."""

from __future__ import annotations

from typing import Any

import orjson

from tollgauge.web.wire import examples
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.trust import trust_report


def whole_report() -> Any:
    """The report as JSON value."""
    return orjson.loads(dump(trust_report(examples._report(), base_url=examples.BASE_URL)))
