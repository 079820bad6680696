"""docs/search.md describes the searches and lists of the service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.lists.rated_endpoint import Sort
from tollgauge.core.similarity.similarity_index import QUERY_FLOOR, QUERY_FRACTION
from tollgauge.monitor.alternatives import FIRST_S
from tollgauge.monitor.lists import LIST_ROWS, Match
from tollgauge.web.free.endpoint_lists import (
    LIMIT_MAX,
    LIST_PARAMETERS,
    SEARCH_PARAMETERS,
    ListRequest,
    SearchRequest,
)

PAGE = (Path(__file__).parents[2] / "docs/search.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
LISTS = PAGE.split("## Lists")[1].split("\n## ")[0]


def names(described: dict[str, Any]) -> set[str]:
    return {parameter["name"] for parameter in described["parameters"]}


def row(parameter: str) -> str:
    (found,) = re.findall(rf"^\| `{parameter}`.*$", LISTS, re.MULTILINE)
    return str(found)


def test_table_of_lists_names_every_parameter() -> None:
    heads = re.findall(r"^\| (`.*?) \|", LISTS, re.MULTILINE)
    named = {name for head in heads for name in re.findall(r"`(\w+)`", head)}
    assert named == names(LIST_PARAMETERS)


def test_every_order_and_status_is_named_with_the_default_first() -> None:
    assert re.findall(r"`(\w+)`", row("sort"))[1:] == [*Sort]
    assert re.findall(r"`(\w+)`", row("status"))[1:] == [*Listing]
    assert ListRequest.read_query({}).sort == Sort.SCORE
    assert ListRequest.read_query({}).status == Listing.LISTED


def test_every_parameter_and_match_of_a_search_is_named() -> None:
    section = PAGE.split("## Search\n")[1].split("\n## ")[0]
    assert {name for name in names(SEARCH_PARAMETERS) if f"`{name}`" not in section} == set()
    assert re.findall(r"^- \*\*`(\w+)`\*\*", section, re.MULTILINE) == list(get_args(Match))


def test_numbers_of_the_page_match_the_code() -> None:
    default = SearchRequest.model_fields["limit"].default
    assert f"`limit` is {default} by default, at most {LIMIT_MAX}" in WORDS
    assert f"`GET /trust/endpoints`, {LIST_ROWS} per page" in WORDS
    assert QUERY_FRACTION == 10
    assert f"below {QUERY_FLOOR}%, there is no result; others have at least a tenth" in WORDS
    assert f"at most {FIRST_S:g} seconds, then return 503" in WORDS
