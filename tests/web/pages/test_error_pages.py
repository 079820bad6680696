"""The page of an error and its next step."""

from __future__ import annotations

import re

import pytest
from tests.support.page_reader import BASE, Reader, read_page

from tollgauge.web.edge.problem import Problem
from tollgauge.web.pages.render import render


def error_page(problem: Problem) -> Reader:
    return read_page(render("error.html", BASE, problem=problem))


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 500, 503])
def test_every_error_page_has_a_next_step(status: int) -> None:
    words = error_page(Problem(status, "no", "It failed.")).words
    assert re.search(r"What to do [A-Z][a-z]+", words)
    assert f"Status {status}" in words


@pytest.mark.parametrize("status", [400, 401, 405, 409, 413, 414, 431])
def test_error_page_suggests_a_retry_only_if_it_can_succeed(status: int) -> None:
    words = error_page(Problem(status, "no", "It failed.")).words
    assert "Try again" not in words
    assert "an unchanged request fails again" in words


def test_page_for_404_has_a_search_form() -> None:
    """The leaderboard shows only the best endpoints."""
    words = error_page(Problem(404, "unknown-host", "No endpoint of this host.")).words
    assert "search for the endpoint, its host or keywords" in words
    assert "look for the host on the leaderboard" not in words


@pytest.mark.parametrize("code", ["invalid-input", "unknown-parameter"])
def test_invalid_parameter_has_its_own_next_step(code: str) -> None:
    words = error_page(Problem(422, code, "grade must be one of A, B, C, D, F.")).words
    assert "Correct the query parameter" in words
    assert "address of a public endpoint" not in words
