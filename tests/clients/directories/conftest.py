"""A directory on loopback, and an egress client that can reach it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.directory import HOST
from tests.support.tls_server import TlsServer, tls_server

from tollgauge.clients.egress.client import Egress


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with tls_server(HOST, tmp_path_factory.mktemp("directory")) as running:
        yield running


@pytest.fixture
def directory(server: TlsServer) -> TlsServer:
    """An empty directory."""
    server.reset()
    return server


@pytest.fixture
async def egress(server: TlsServer) -> AsyncIterator[Egress]:
    async with server.open_egress(user_agent="tollgauge-test") as egress:
        yield egress
