"""A faster start of services in tests, with the same results.

FastAPI analyses a route at its first request instead of at the start: 81 routes take 25 ms of a
core, and most tests request one or two of them. SQLAlchemy compiles each statement once per
process instead of once per engine, which took a sixth of the time of tests with a database. An
in-memory database begins as a copy of a file with tables, because the 120 statements that create
them take 10 ms. Typer builds the tree of commands once, instead of 50 ms for each command. The
OpenAPI document of equal routes is built once, instead of 0.4 s for each service. The client of MCP
checks each schema once, instead of up to 150 ms in each session. httpx loads the certificate
authorities once, instead of 20 ms for each client.
conftest.py installs this before the test processes are forked.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest
import sqlalchemy as sa
import typer.main
from httpx._transports import default
from jsonschema import Draft202012Validator
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache
from starlette.routing import BaseRoute, Match, compile_path
from tests.support.postgres import migrate_database

from tollgauge import cli
from tollgauge.db.sqlite import Sqlite
from tollgauge.web import routes
from tollgauge.web.route import Route, serve

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send


def install(patch: pytest.MonkeyPatch) -> None:
    """Start quickly from now on, in this process and in processes forked from it."""
    patch.setattr(routes, "serve", lambda app, row: app.routes.append(LazyRoute(app, row)))
    share_compiled_statements(patch)
    copy_tables(patch)
    share_openapi_documents(patch)
    check_schemas_once(patch)
    share_authorities(patch)
    patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
    typer.main.get_command(cli.app)


def share_compiled_statements(patch: pytest.MonkeyPatch) -> None:
    """Give all engines one cache of compiled statements.

    Its keys contain the engine's dialect, so dialects of one class must be equal. They are
    configured alike: `db` has one way to create an engine per database.
    """
    compiled: LRUCache[Any, Any] = LRUCache(5_000)
    create = sa.Engine.__init__

    def create_with_shared_cache(engine: sa.Engine, *arguments: Any, **options: Any) -> None:
        create(engine, *arguments, **options)
        engine._compiled_cache = compiled

    patch.setattr(sa.Engine, "__init__", create_with_shared_cache)
    for dialect in (SQLiteDialect_pysqlite, PGDialect_asyncpg):
        patch.setattr(dialect, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(dialect, "__hash__", lambda one: hash(type(one)))


def copy_tables(patch: pytest.MonkeyPatch) -> None:
    """Let in-memory databases begin with tables."""
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "template.db"
        asyncio.run(migrate_database(f"sqlite:///{template}"))
        tables = template.read_bytes()
    create = Sqlite.__init__

    def create_with_tables(database: Sqlite, *arguments: Any, **options: Any) -> None:
        create(database, *arguments, **options)
        if database._folder is not None:
            database._file.write_bytes(tables)

    patch.setattr(Sqlite, "__init__", create_with_tables)


def share_openapi_documents(patch: pytest.MonkeyPatch) -> None:
    """Build the OpenAPI document once for routes that differ only in the objects that their
    handlers refer to.
    """
    documents: list[tuple[tuple[str, list[Route]], bytes]] = []
    build = routes.build_interface

    def comparable(row: Route) -> Route:
        handler: Any = row.handler
        return replace(row, handler=handler.__code__)

    @functools.wraps(build)
    def build_once(rows: Iterable[Route], base_url: str) -> bytes:
        key = base_url, [comparable(row) for row in rows]
        for built, document in documents:
            if built == key:
                return document
        documents.append((key, build(rows, base_url)))
        return documents[-1][1]

    patch.setattr(routes, "build_interface", build_once)


def check_schemas_once(patch: pytest.MonkeyPatch) -> None:
    """Remember which JSON schemas are valid."""
    valid: set[bytes] = set()
    check = Draft202012Validator.check_schema

    def check_once(schema: Any, *arguments: Any) -> None:
        text = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
        if text not in valid:
            check(schema, *arguments)
            valid.add(text)

    patch.setattr(Draft202012Validator, "check_schema", check_once)


def share_authorities(patch: pytest.MonkeyPatch) -> None:
    """Give the clients of httpx that name no authorities one TLS context."""
    create = httpx.create_ssl_context
    share = functools.cache(lambda trust_env, *_: create(trust_env=trust_env))

    def create_once(*, verify: Any, cert: Any, trust_env: bool) -> ssl.SSLContext:
        if verify is True and cert is None:
            return share(trust_env, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        return create(verify=verify, cert=cert, trust_env=trust_env)

    patch.setattr(default, "create_ssl_context", create_once)


@functools.cache
def pattern_of(path: str) -> re.Pattern[str]:
    """Return the expression that matches the paths of a route."""
    return compile_path(path)[0]


class LazyRoute(BaseRoute):
    """A row of the route table that is added to its application when a path first matches."""

    def __init__(self, app: FastAPI, row: Route) -> None:
        self._app, self._row = app, row
        self._path = pattern_of(row.path)

    @functools.cached_property
    def _route(self) -> BaseRoute:
        serve(self._app, self._row)
        return self._app.router.routes.pop()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if self._path.match(scope["path"]) is None:
            return Match.NONE, {}
        return self._route.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._route.handle(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        return self._route.url_path_for(name, **path_params)
