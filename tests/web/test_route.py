"""Routes are declared at their handlers."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from tests.support.http_service import BASE, configuration, open_service

from docs.api import example_service
from tollgauge.web import routes as web
from tollgauge.web.route import Routes


def test_summary_is_the_first_sentence_of_the_docstring() -> None:
    routes = Routes(tag="free", cached=True)

    @routes.post("/second", {}, name="post_second")
    @routes.get("/first", {})
    async def answer() -> Response:
        """Get a thing that needs
        two lines. The rest is for readers of the code.
        """
        return Response()

    first, second = routes.rows
    assert first.summary == second.summary == "Get a thing that needs two lines"
    assert (first.operation_id, second.operation_id) == ("get_answer", "post_second")
    assert (first.cached, second.cached) == (True, False)


async def test_published_routes_have_a_summary_and_their_own_operation_id() -> None:
    async with example_service() as dependencies:
        published = [route for route in web.table(dependencies) if not route.internal]
    assert [route.path for route in published if not route.summary] == []
    ids = [route.operation_id for route in published]
    assert len(ids) == len(set(ids)) > 50


async def test_openapi_document_is_the_same_in_every_process() -> None:
    """Otherwise its ETag would change with the worker that answers."""
    build: Any = web.build_interface
    async with open_service(configuration()) as running:
        table = web.table(running.service.server())
    assert build(table, BASE) == build.__wrapped__(table, BASE)
