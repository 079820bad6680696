"""Web Bot Auth: signed requests, which identify the prober to bot protection (docs/how-to/sell.md).

Rules (RFC 9421, draft-ietf-webbotauth-httpsig-protocol-01,
draft-meunier-webbotauth-httpsig-directory-00):
- a request names the service in Signature-Agent; its signature covers that and the host, so that no
  other host can use it, and is valid for a minute;
- the service publishes its keys as a JWK Set at DIRECTORY. That response is signed, too, for the
  host under which it was requested.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from tollgauge.core.sale.signature import SigningKey

DIRECTORY: Final = "/.well-known/http-message-signatures-directory"
DIRECTORY_TYPE: Final = "application/http-message-signatures-directory+json"
LIFETIME_S: Final = 60
DIRECTORY_LIFETIME_S: Final = 300
_LABEL: Final = "sig1"


def sign_request(
    key: SigningKey, *, agent: str, authority: str, created: int, nonce: bytes
) -> tuple[tuple[str, str], ...]:
    """Return the headers that identify a request.

    Args:
        key: The service's signing key.
        agent: The public URL of the service.
        authority: The requested host in lower case, with the port if it is not 443.
        created: The time in Unix seconds.
        nonce: At least 32 random bytes.
    """
    member = f'"signature-agent";key="{_LABEL}"'
    covered = (('"@authority"', authority), (member, f'"{agent}"'))
    parameters = _format_parameters(key, "web-bot-auth", created, LIFETIME_S, nonce)
    return (("Signature-Agent", f'{_LABEL}="{agent}"'), *_sign(key, covered, parameters))


def sign_directory(
    key: SigningKey, *, authority: str, created: int, nonce: bytes
) -> tuple[tuple[str, str], ...]:
    """Return the headers that sign the directory of keys for the requested host."""
    tag = "http-message-signatures-directory"
    parameters = _format_parameters(key, tag, created, DIRECTORY_LIFETIME_S, nonce)
    return _sign(key, (('"@authority";req', authority),), parameters)


def _format_parameters(key: SigningKey, tag: str, created: int, lifetime: int, nonce: bytes) -> str:
    return (
        f';created={created};keyid="{key.fingerprint}";alg="ed25519";expires={created + lifetime}'
        f';nonce="{base64.b64encode(nonce).decode()}";tag="{tag}"'
    )


def _sign(
    key: SigningKey, covered: Sequence[tuple[str, str]], parameters: str
) -> tuple[tuple[str, str], ...]:
    """Return the two headers of a signature over components (RFC 9421 section 2.5)."""
    described = f"({' '.join(name for name, _ in covered)}){parameters}"
    lines = [*(f"{name}: {value}" for name, value in covered), f'"@signature-params": {described}']
    value = base64.b64encode(key.sign_text("\n".join(lines))).decode()
    return (("Signature-Input", f"{_LABEL}={described}"), ("Signature", f"{_LABEL}=:{value}:"))
