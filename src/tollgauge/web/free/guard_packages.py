"""`GET /guard`: the packages of the payment guards, with signed digests.

`make packages` builds them. They are read once, when the process starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from starlette.responses import Response

from tollgauge.core.sale.signature import SIGNATURE_HEADER, SigningKey
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.signing import signature_header
from tollgauge.web.wire.parameters import path
from tollgauge.web.wire.response_model import ResponseModel

PATH: Final = "/guard"
SUMMARY: Final = "List the packages of the payment guards"
FILE_SUMMARY: Final = "Download a package of a payment guard"
PackageName = Annotated[
    str, path("File name of a package", "tollgauge_guard-0.1.0-py3-none-any.whl")
]
_MEDIA_TYPES: Final = {".whl": "application/zip", ".tgz": "application/gzip"}


class GuardPackageResponse(ResponseModel):
    """A package. `install` is the command that installs this file and the x402 client for EVM
    networks; `signature` is a detached JWS over its SHA-256, null if the service does not sign.
    """

    name: str
    url: str
    size: int
    sha256: str
    signature: str | None
    install: str


class GuardPackagesResponse(ResponseModel):
    """The packages, for Python and Node.js; empty if the operator offers none."""

    packages: list[GuardPackageResponse]


@dataclass(frozen=True, slots=True)
class GuardPackages:
    """Handlers of the list and of the files."""

    dependencies: Dependencies

    async def list_packages(self) -> Response:
        """Return the packages with their digests."""
        base_url, key = self.dependencies.base_url, self.dependencies.signing_key
        now = self.dependencies.clock()
        return json_response(
            describe(self.dependencies.guard_packages, base_url=base_url, key=key, now=now)
        )

    async def file(self, name: PackageName) -> Response:
        """Return a package. Raises Problem 404."""
        body = self.dependencies.guard_packages.get(name)
        if body is None:
            raise Problem(404, "unknown-package", "No such package. GET /guard lists the packages.")
        now, key = self.dependencies.clock(), self.dependencies.signing_key
        headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}
        headers |= signature_header(key, body, "tollgauge-guard", now)
        return Response(body, media_type=_MEDIA_TYPES[Path(name).suffix], headers=headers)


def read_packages(folder: str) -> dict[str, bytes]:
    """Return the wheels and npm packages in a folder, by name; none without a folder.

    Raises OSError if the folder cannot be read.
    """
    if not folder:
        return {}
    files = sorted(file for file in Path(folder).iterdir() if file.suffix in _MEDIA_TYPES)
    return {file.name: file.read_bytes() for file in files}


def describe(
    packages: Mapping[str, bytes], *, base_url: str, key: SigningKey | None, now: int
) -> GuardPackagesResponse:
    """Build the list of packages; `now` is the time of the signatures (ms UTC)."""
    listed = []
    for name, body in packages.items():
        url, digest = f"{base_url}{PATH}/{name}", hashlib.sha256(body).hexdigest()
        signed = signature_header(key, body, "tollgauge-guard", now)
        listed.append(
            GuardPackageResponse(
                name=name,
                url=url,
                size=len(body),
                sha256=digest,
                signature=signed.get(SIGNATURE_HEADER),
                # pip compares the file with the digest in the fragment.
                install=f"pip install 'tollgauge-guard[evm] @ {url}#sha256={digest}'"
                if name.endswith(".whl")
                else f"npm install {url} @x402/core @x402/fetch @x402/evm viem",
            )
        )
    return GuardPackagesResponse(packages=listed)
