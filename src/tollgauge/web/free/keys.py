"""Public keys of signatures: a JWK Set (RFC 7517), a did:web document (W3C CCG), and the directory
of Web Bot Auth.

The first two contain the current key and the retired keys. In the DID document only the current key
is an assertion method. The directory contains only the current key, because requests are new.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Final
from urllib.parse import quote, urlsplit

from pydantic import Field
from starlette.responses import Response

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.sale.signature import JWKS_PATH, PublicKey
from tollgauge.core.sale.web_bot_auth import DIRECTORY, DIRECTORY_TYPE, sign_directory
from tollgauge.web.dependencies import Service
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.route import Routes
from tollgauge.web.wire import examples, openapi
from tollgauge.web.wire.response_model import OneOf, ResponseModel, absent_if_null, dump

ROUTES: Final = Routes(tag="free", cached=True)
_CONTEXT: Final = ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/suites/jws-2020/v1"]


class JwkResponse(ResponseModel):
    """A public Ed25519 key (RFC 8037). `kid` is its thumbprint (RFC 7638). A retired key is valid
    for signatures from `nbf` to `exp` (unix seconds).
    """

    kty: Annotated[str, OneOf(("OKP",))]
    crv: Annotated[str, OneOf(("Ed25519",))]
    x: str
    kid: str
    alg: Annotated[str, OneOf(("EdDSA",))]
    use: Annotated[str, OneOf(("sig",))]
    nbf: int | None = absent_if_null()
    exp: int | None = absent_if_null()


class JwksResponse(ResponseModel):
    """The signing keys; empty if responses are not signed. `successions` are compact JWS with which
    retired keys name their successors; absent without one.
    """

    keys: list[JwkResponse]
    successions: list[str] | None = absent_if_null()


class MethodResponse(ResponseModel):
    """A key in a DID document."""

    id: str
    type: str
    controller: str
    public_key_jwk: JwkResponse


class DidResponse(ResponseModel):
    """The DID document of the service's host."""

    context: list[str] = Field(serialization_alias="@context")
    id: str
    verification_method: list[MethodResponse]
    assertion_method: list[str]


def _nothing_signed() -> Problem:
    return Problem(
        404, "nothing-signed", "Nothing is signed: the operator has not set a signing key."
    )


def build_jwks(keys: tuple[PublicKey, ...], successions: tuple[str, ...] = ()) -> JwksResponse:
    """Build a JWK Set."""
    return JwksResponse(keys=[_jwk(key) for key in keys], successions=list(successions) or None)


def build_did(
    base_url: str, keys: tuple[PublicKey, ...], signs: tuple[PublicKey, ...]
) -> DidResponse:
    """Build the did:web document for the host of a URL.

    Args:
        base_url: The public address of the service.
        keys: All keys, current and retired.
        signs: The current key, if any.
    """
    # did:web encodes the colon before a port as %3A.
    id_ = f"did:web:{quote(urlsplit(base_url).netloc.rpartition('@')[2].lower(), safe='')}"
    return DidResponse(
        context=_CONTEXT,
        id=id_,
        verification_method=[
            MethodResponse(
                id=f"{id_}#{key.fingerprint}",
                type="JsonWebKey2020",
                controller=id_,
                public_key_jwk=_jwk(key),
            )
            for key in keys
        ],
        assertion_method=[f"{id_}#{key.fingerprint}" for key in signs],
    )


def _jwk(key: PublicKey) -> JwkResponse:
    return JwkResponse.model_validate(key.jwk)


_EXAMPLE_KEYS: Final = (PublicKey.of({"kty": "OKP", "crv": "Ed25519", "x": examples.PUBLIC_KEY}),)
_EXAMPLE: Final = build_jwks(_EXAMPLE_KEYS).model_dump(by_alias=True)


@ROUTES.get(JWKS_PATH, openapi.free(JwksResponse, _EXAMPLE))
async def jwks(service: Service) -> Response:
    """Get the signing keys as a JWK Set."""
    return json_response(build_jwks(service.public_keys, service.successions))


@ROUTES.get(
    DIRECTORY,
    openapi.document(
        _EXAMPLE, {404: "This service does not sign requests"}, media_type=DIRECTORY_TYPE
    ),
    cached=False,  # each response has its own signature
)
async def directory(service: Service) -> Response:
    """Get the keys with which the prober signs requests. Raises Problem 404 without a key."""
    key = service.signing_key
    if key is None:
        raise _nothing_signed()
    # The public host, not the requested one: no other host may present these keys as its own.
    authority = urlsplit(service.base_url).netloc.lower()
    created = service.clock() // SECOND_MS
    nonce = secrets.token_bytes(32)
    signed = sign_directory(key, authority=authority, created=created, nonce=nonce)
    return Response(
        dump(build_jwks((key.public,))), media_type=DIRECTORY_TYPE, headers=dict(signed)
    )


@ROUTES.get(
    "/.well-known/did.json",
    openapi.free(
        DidResponse,
        build_did(examples.BASE_URL, _EXAMPLE_KEYS, _EXAMPLE_KEYS).model_dump(by_alias=True),
        {404: "This service does not sign responses"},
    ),
)
async def did(service: Service) -> Response:
    """Get the signing keys as a did:web document. Raises Problem 404 if there never was a key."""
    keys, current = service.public_keys, service.signing_key
    if not keys:
        raise _nothing_signed()
    signs = (current.public,) if current else ()
    return json_response(build_did(service.base_url, keys, signs))
