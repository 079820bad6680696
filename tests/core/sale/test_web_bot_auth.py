"""Signatures of requests: the example of the internet draft, and what they cover."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tollgauge.core.sale.signature import SigningKey
from tollgauge.core.sale.web_bot_auth import (
    _format_parameters,
    _sign,
    sign_directory,
    sign_request,
)

KEY = SigningKey.of(
    json.dumps(
        {  # RFC 9421, appendix B.1.4
            "kty": "OKP",
            "crv": "Ed25519",
            "x": "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs",
            "d": "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU",
        }
    )
)
AGENT = "https://signature-agent.test"


def test_signature_equals_the_example_of_the_draft() -> None:
    """draft-ietf-webbotauth-httpsig-protocol, appendix A.2.2, which has other names and times."""
    nonce = base64.b64decode(
        "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA=="
    )
    created, expires = 1_735_689_600, 4_889_289_600
    parameters = _format_parameters(KEY, "web-bot-auth", created, expires - created, nonce)
    covered = (
        ('"@authority"', "example.com"),
        ('"signature-agent";key="agent2"', f'"{AGENT}"'),
    )
    _, (_, signature) = _sign(KEY, covered, parameters)
    assert signature.removeprefix("sig1=:").removesuffix(":") == (
        "RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg=="
    )


def verify(headers: dict[str, str], **components: str) -> None:
    """Verify a signature from its headers and the values of its components."""
    described = headers["Signature-Input"].removeprefix("sig1=")
    names = described[1 : described.index(")")].split(" ")
    lines = [f"{name}: {value}" for name, value in zip(names, components.values(), strict=True)]
    text = "\n".join([*lines, f'"@signature-params": {described}'])
    value = base64.b64decode(headers["Signature"].removeprefix("sig1=:").removesuffix(":"))
    Ed25519PublicKey.from_public_bytes(KEY.public.x).verify(value, text.encode())


def test_request_signature_is_valid_for_one_host_and_a_minute() -> None:
    headers = dict(
        sign_request(KEY, agent=AGENT, authority="api.shop.com", created=100, nonce=bytes(32))
    )
    assert headers["Signature-Agent"] == f'sig1="{AGENT}"'
    assert ";created=100;" in headers["Signature-Input"]
    assert ";expires=160;" in headers["Signature-Input"]
    verify(headers, authority="api.shop.com", agent=f'"{AGENT}"')
    with pytest.raises(InvalidSignature):
        verify(headers, authority="other.com", agent=f'"{AGENT}"')
    with pytest.raises(InvalidSignature):
        verify(headers, authority="api.shop.com", agent='"https://other.test"')


def test_directory_signature_covers_the_requested_host() -> None:
    headers = dict(sign_directory(KEY, authority="trust.test", created=100, nonce=bytes(32)))
    assert headers["Signature-Input"].startswith('sig1=("@authority";req);created=100;')
    assert headers["Signature-Input"].endswith(';tag="http-message-signatures-directory"')
    verify(headers, authority="trust.test")
