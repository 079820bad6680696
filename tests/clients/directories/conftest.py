"""A directory on loopback, and an egress that reaches it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import trustme
from tests.support.directory_server import HOST, Directory

from tollgauge.clients.egress.client import Egress, EgressSettings


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, str]:
    made = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    made.cert_pem.write_to_path(path)
    return made, str(path)


@pytest.fixture
def directory(ca: tuple[trustme.CA, str]) -> Iterator[tuple[Directory, int]]:
    world = Directory()
    server = world.serve(ca[0])
    yield world, server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
async def egress(
    directory: tuple[Directory, int], ca: tuple[trustme.CA, str]
) -> AsyncIterator[Egress]:
    settings = EgressSettings(
        user_agent="tollgauge-test", mapped={HOST: ("127.0.0.1", directory[1])}, ca_file=ca[1]
    )
    open_egress = Egress(settings)
    open_egress.start()
    yield open_egress
    await open_egress.close()
