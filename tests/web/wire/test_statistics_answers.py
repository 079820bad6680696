"""The short form of the statistics for agents."""

from __future__ import annotations

import json

from docs.statistics_examples import ecosystem_response
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.statistics_answers import brief_ecosystem

AGENT_BYTES = 8_000


def test_statistics_for_agents_are_short_with_long_names() -> None:
    names = tuple((f"{number:x}" * 64, 10**6) for number in range(13))
    whole = ecosystem_response(
        networks=names, offered_networks=names, extensions=names, sources=names
    )
    text = dump(brief_ecosystem(whole)).decode()
    brief = json.loads(text)
    assert brief["distributions"]["extensions"][-1] == {"name": None, "count": 10 * 10**6}
    assert brief["settlements"][0]["byDay"] == []
    # A tool result contains its answer twice: as structured content and as text.
    assert len(text) + len(json.dumps(text)) < AGENT_BYTES
