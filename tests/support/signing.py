"""Signing keys of tests, and two verifiers: the service's client, and joserfc as an independent
one.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from typing import Final

import rfc8785
from joserfc.errors import SecurityWarning
from joserfc.jwk import OKPKey
from joserfc.jws import JWSRegistry, deserialize_compact

from tollgauge.core.sale.signature import (
    PublicKey,
    Signature,
    SignatureError,
    SigningKey,
    Typ,
    read,
)

PRIVATE_JWK: Final = json.dumps(
    {
        "kty": "OKP",
        "crv": "Ed25519",
        "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    }
)
"""The key of RFC 8037, appendix A.1."""
THUMBPRINT: Final = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
"""Its thumbprint (A.3)."""
KEY: Final = SigningKey.of(PRIVATE_JWK)
OTHER_PEM: Final = OKPKey.generate_key("Ed25519").as_pem(private=True).decode()
OTHER_KEY: Final = SigningKey.of(OTHER_PEM)

_REGISTRY: Final = JWSRegistry(algorithms=["EdDSA"], strict_check_header=False)


def header_of(signature: str, payload: bytes, key: SigningKey = KEY) -> dict[str, object]:
    """Verify a signature of a payload with joserfc; return its protected header. Raises
    JoseError.
    """
    public = OKPKey.import_key({name: str(value) for name, value in key.public.jwk.items()})
    with warnings.catch_warnings():
        # joserfc warns that EdDSA has a newer name
        warnings.simplefilter("ignore", SecurityWarning)
        checked = deserialize_compact(signature, public, registry=_REGISTRY, payload=payload)
    return dict(checked.headers())


def verify(text: str, body: bytes, typ: Typ, keys: Iterable[PublicKey]) -> Signature:
    """Return the signature of a body if one of the keys made it for a body of this `typ`. Raises
    SignatureError with the reason otherwise.
    """
    signature = read(text)
    if signature.typ != typ:
        raise SignatureError(f"The signed document is a {signature.typ}, not a {typ}.")
    own = [key for key in keys if key.fingerprint == signature.kid]
    if not own:
        raise SignatureError("It was signed by a key that is not known.")
    if not any(key.counts_at(signature.iat) for key in own):
        raise SignatureError("It was signed at a time when its key did not count.")
    if not signature.is_valid(body, own[0]):
        raise SignatureError("The signature is not that of this body.")
    return signature


def canonical(body: bytes) -> bytes:
    """Return the signed bytes of a JSON body (RFC 8785)."""
    return rfc8785.dumps(json.loads(body))
