"""How a row of the table becomes a route."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from tollgauge.web.route import PlainRoute


async def plain(request: Request) -> Response:
    return PlainTextResponse(request.path_params["name"])


async def typed(request: Request, number: int = 1) -> Response:
    return PlainTextResponse(f"{request.method} {number + 1}")


def refuse() -> None:
    raise ValueError("a dependency is run")


def test_a_handler_of_the_request_alone_is_called_at_once_and_any_other_gets_its_arguments() -> (
    None
):
    app = FastAPI()
    app.router.route_class = PlainRoute
    app.add_api_route("/plain/{name}", plain)
    app.add_api_route("/typed", typed)
    app.add_api_route("/refused", plain, dependencies=[Depends(refuse)])
    by_path = {route.path: route for route in app.routes if isinstance(route, PlainRoute)}
    assert by_path["/plain/{name}"].get_route_handler() is plain
    client = TestClient(app, raise_server_exceptions=False)
    assert client.get("/plain/one").text == "one"
    assert client.get("/typed?number=4").text == "GET 5"
    assert client.get("/typed?number=x").status_code == 422
    assert client.get("/refused").status_code == 500
