"""Webhooks: one attempt to deliver an event through egress, and encryption of watch secrets.

Rules (docs/watching.md; standardwebhooks.com, specification 1.0):
- a signed JSON delivery has `webhook-id` (equal in all attempts), `webhook-timestamp` (of the
  attempt) and `webhook-signature`, made with the watch's secret, and `x-signature: sha256=` with
  the HMAC-SHA256 of the body; its key is the hex SHA-256 of the secret;
- Slack and Discord receive their own format and no signature;
- only 2xx is success. 410 disables a destination, as do 404 from Slack or Discord, and 401 or 403
  from Discord, which bans addresses that continue;
- only the status of a receiver's response and an error code are shown, never its body;
- secrets and URLs are stored encrypted with AES-256-GCM (NIST SP 800-38D) under a key from the
  environment. The context, such as the row's ID, is authenticated, so a copy in another row cannot
  be decrypted. Of several keys, separated by commas, the first encrypts and each decrypts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass
from standardwebhooks import Webhook

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import Request
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.endpoint.identity import ResourceError
from tollgauge.core.probe.exchange import Answer, Fault, retry_after_ms
from tollgauge.core.watch import alert_text
from tollgauge.core.watch.watch_rules import DestinationKind

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the form of a secret, not one
SECRET_BYTES: Final = 32
KEY_MIN: Final = 32  # characters
_FORM: Final = b"\x01"
_MARK: Final = 4  # bytes
_NONCE: Final = 12  # bytes
_JSON: Final = ("Content-Type", "application/json")
_GONE: Final[Mapping[DestinationKind, frozenset[int]]] = {
    DestinationKind.JSON: frozenset({410}),
    DestinationKind.SLACK: frozenset({404, 410}),
    DestinationKind.DISCORD: frozenset({401, 403, 404, 410}),
}


class SealError(TollgaugeError):
    """A secret cannot be encrypted or decrypted with the configured keys."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="Set TOLLGAUGE_WATCH_KEY to the key that encrypted it.")


@dataclass(frozen=True, slots=True)
class Sealer:
    """Encrypts with the newest key and decrypts with any; without keys it does neither."""

    keys: tuple[bytes, ...]

    @classmethod
    def of(cls, text: str) -> Sealer:
        """Create the sealer of a setting: keys of at least 32 characters, separated by commas.

        Raises ValueError for a shorter key.
        """
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if any(len(part) < KEY_MIN for part in parts):
            raise ValueError(f"a key must have at least {KEY_MIN} characters")
        return cls(tuple(hashlib.sha256(b"tollgauge seal 1:" + p.encode()).digest() for p in parts))

    @property
    def ready(self) -> bool:
        """Whether there is a key."""
        return bool(self.keys)

    def seal(self, secret: bytes, *, context: str) -> bytes:
        """Encrypt a secret; `context` is authenticated. Raises SealError without a key."""
        if not self.keys:
            raise SealError("No key is configured.")
        nonce = secrets.token_bytes(_NONCE)
        sealed = AESGCM(self.keys[0]).encrypt(nonce, secret, context.encode())
        return _FORM + _mark(self.keys[0]) + nonce + sealed

    def open(self, sealed: bytes, *, context: str) -> bytes:
        """Decrypt what `seal` returned. Raises SealError if no key matches."""
        mark, nonce = sealed[1 : 1 + _MARK], sealed[1 + _MARK : 1 + _MARK + _NONCE]
        for key in self.keys:
            if sealed[:1] == _FORM and _mark(key) == mark:
                try:
                    body = sealed[1 + _MARK + _NONCE :]
                    return AESGCM(key).decrypt(nonce, body, context.encode())
                except InvalidTag:
                    break
        raise SealError("A stored secret cannot be decrypted with the configured key.")


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """Watches and their deliveries."""

    key: str = field(default="", repr=False)
    """Secret of at least 32 characters (openssl rand -base64 32) that encrypts secrets and webhook
    URLs in the database. Without it, watches are not sold. To rotate it: new,old.
    """
    in_flight: Annotated[int, Field(ge=4)] = 128
    """Maximum concurrent deliveries. A quarter of them is reserved for destinations whose last
    delivery failed.
    """
    lease_ms: PositiveInt = 60_000
    """Duration of a worker's lease on a delivery."""

    def __post_init__(self) -> None:
        Sealer.of(self.key)

    @property
    def sealer(self) -> Sealer:
        """Return the sealer of the key."""
        return Sealer.of(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The result of an attempt. `error` is a code, empty on success; `gone` disables the
    destination; `retry_after_ms` is the receiver's Retry-After.
    """

    status: int | None = None
    error: str = ""
    gone: bool = False
    retry_after_ms: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the receiver accepted the delivery."""
        return not self.error


async def send(
    egress: Egress,
    *,
    url: str,
    kind: DestinationKind,
    event: Mapping[str, Any],
    key: bytes | None,
    now: int,
) -> Sent:
    """Make one attempt.

    Args:
        egress: Sends the request.
        url: The destination.
        kind: The destination's format.
        event: The event, as from core/watch/alert_text.
        key: The watch's key; required for JSON.
        now: Time of the attempt (milliseconds UTC).
    """
    request = build_request(url, kind, event, key=key, now=now)
    try:
        exchange = await egress.fetch(request, at=now)
    except ResourceError as error:
        return Sent(error=error.code)
    return read_response(exchange.result, kind, now=now)


def build_request(
    url: str, kind: DestinationKind, event: Mapping[str, Any], *, key: bytes | None, now: int
) -> Request:
    """Return the request of an attempt. Raises ValueError for JSON without a signing key."""
    if kind is DestinationKind.JSON:
        if key is None:
            raise ValueError("a JSON delivery must be signed")
        body = orjson.dumps(event)
        headers = (_JSON, *sign(body, str(event["event_id"]), key, now=now))
        return Request(url=url, method="POST", headers=headers, body=body)
    message = (
        alert_text.build_slack_message(event)
        if kind is DestinationKind.SLACK
        else alert_text.build_discord_message(event)
    )
    return Request(url=url, method="POST", headers=(_JSON,), body=orjson.dumps(message))


def sign(body: bytes, message_id: str, key: bytes, *, now: int) -> tuple[tuple[str, str], ...]:
    """Return the signature headers of a delivery at a time (milliseconds UTC)."""
    at = datetime.fromtimestamp(now // 1000, UTC)
    signed = Webhook(key).sign(message_id, at, body.decode())
    hashed = secret_hash(new_secret(key))
    digest = hmac.new(hashed.encode(), body, hashlib.sha256).hexdigest()
    return (
        ("webhook-id", message_id),
        ("webhook-timestamp", str(now // 1000)),
        ("webhook-signature", signed),
        ("x-signature", f"sha256={digest}"),
    )


def read_response(result: Answer | Fault, kind: DestinationKind, *, now: int) -> Sent:
    """Return the result of an attempt from the receiver's response or the fault."""
    if isinstance(result, Fault):
        return Sent(error=result.kind.value)
    if 200 <= result.status <= 299:
        return Sent(status=result.status)
    return Sent(
        status=result.status,
        error=f"http-{result.status}",
        gone=result.status in _GONE[kind],
        retry_after_ms=retry_after_ms(result.header("retry-after"), now=now),
    )


def new_secret(random: bytes) -> str:
    """Return a watch's secret from 32 random bytes. It is the bearer token, and the key of the
    watch's signatures.
    """
    if len(random) != SECRET_BYTES:
        raise ValueError(f"a secret must have {SECRET_BYTES} bytes")
    return SECRET_PREFIX + base64.b64encode(random).decode()


def secret_key(secret: str) -> bytes | None:
    """Return the key in a secret; None for any other text."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if secret.startswith(SECRET_PREFIX) and len(key) == SECRET_BYTES else None


def secret_hash(secret: str) -> str:
    """Return the stored form of a secret, its hex SHA-256. A secret has 256 random bits, so no salt
    is needed.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def destination_context(destination_id: str) -> str:
    """Return the context that a destination's URL is encrypted with."""
    return f"destination:{destination_id}"


def watch_context(watch_id: str) -> str:
    """Return the context that a watch's signing key is encrypted with."""
    return f"watch:{watch_id}"


def _mark(key: bytes) -> bytes:
    """Return a mark by which the key of a secret is found; it does not reveal the key."""
    return hashlib.sha256(b"mark:" + key).digest()[:_MARK]
