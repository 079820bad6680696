"""Ready answers of the edge, older than they are."""

from __future__ import annotations

from dataclasses import replace

from tollgauge.web.edge.cache import AnswerCache
from tollgauge.web.edge.middleware import Edge


def forget(edge: Edge) -> None:
    """Let every answer be made anew."""
    edge.cache = AnswerCache()


def grow_old(edge: Edge, seconds: float) -> None:
    """Let so many seconds pass for every ready answer."""
    answers = edge.cache.answers
    for key, answer in answers.items():
        answers[key] = replace(
            answer,
            fresh_until=answer.fresh_until - seconds,
            stale_until=answer.stale_until - seconds,
        )
