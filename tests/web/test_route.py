"""How a row of the table of routes is served."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from tollgauge.web.route import Route, serve


async def plain(request: Request) -> Response:
    return PlainTextResponse(request.path_params["name"])


async def typed(request: Request, number: int = 1) -> Response:
    return PlainTextResponse(f"{request.method} {number + 1}")


def test_a_handler_of_the_request_alone_is_called_at_once_others_get_what_they_ask_for() -> None:
    app = FastAPI(openapi_url=None)
    for path, handler, strict in (
        ("/plain/{name}", plain, False),
        ("/typed", typed, False),
        ("/strict/{name}", plain, True),
    ):
        serve(app, Route("GET", path, "", handler, "", {}, tag="free", strict_query=strict))
    by_path = {route.path: route for route in app.routes if isinstance(route, APIRoute)}
    assert by_path["/plain/{name}"].get_route_handler() is plain
    client = TestClient(app, raise_server_exceptions=False)
    assert client.get("/plain/one?other=1").text == "one"
    assert client.get("/typed?number=4").text == "GET 5"
    assert client.get("/typed?number=x").status_code == 422
    assert client.get("/strict/one").text == "one"
    assert client.get("/strict/one?other=1").status_code != 200
