"""Webhooks: one attempt to deliver an event through egress, and the secrets that it needs.

Rules (docs/watching.md; standardwebhooks.com, specification 1.0):
- a signed JSON delivery carries `webhook-id` (the same on every try), `webhook-timestamp` (of the
  try) and `webhook-signature`, made with the watch's secret, and `x-signature: sha256=` with the
  HMAC-SHA256 of the body keyed by the hex SHA-256 of the secret;
- Slack and Discord get their own format and no signature;
- only 2xx is success; 410 ends a destination, and so does 404 of Slack and Discord, and 401 or 403
  of Discord, which bans addresses that go on;
- the body of a receiver's answer is never shown, only its status and an error code;
- secrets and URLs are sealed at rest with AES-256-GCM (NIST SP 800-38D) under a key from the
  environment. The context, such as the row's ID, is authenticated too, so that a sealed text opens
  only in its own place. Of several keys, separated by commas, the first seals and each opens.
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

from tollgauge.clients.egress.client import Egress, Request
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.endpoint.identity import ResourceError
from tollgauge.core.probe.exchange import Answer, Fault, retry_after_ms
from tollgauge.core.watch import notice
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
class Signing:
    """The signing key inside a watch's secret, and the secret's hash."""

    key: bytes
    secret_hash: str


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
    signing: Signing | None,
    now: int,
) -> Sent:
    """Make one attempt. `event` is what core/watch/notice made; JSON is signed with `signing`."""
    request = prepared(url, kind, event, signing=signing, now=now)
    try:
        exchange = await egress.fetch(request, at=now)
    except ResourceError as error:
        return Sent(error=error.code)
    return judged(exchange.result, kind, now=now)


def prepared(
    url: str, kind: DestinationKind, event: Mapping[str, Any], *, signing: Signing | None, now: int
) -> Request:
    """The request of an attempt. Raises ValueError for JSON without a signing key."""
    if kind is DestinationKind.JSON:
        if signing is None:
            raise ValueError("a JSON delivery is signed")
        body = orjson.dumps(event)
        headers = (_JSON, *signature(body, str(event["event_id"]), signing, now=now))
        return Request(url=url, method="POST", headers=headers, body=body)
    shape = notice.slack(event) if kind is DestinationKind.SLACK else notice.discord(event)
    return Request(url=url, method="POST", headers=(_JSON,), body=orjson.dumps(shape))


def signature(
    body: bytes, message_id: str, signing: Signing, *, now: int
) -> tuple[tuple[str, str], ...]:
    """The headers that prove that a delivery is ours. `now` is in milliseconds UTC."""
    at = datetime.fromtimestamp(now // 1000, UTC)
    signed = Webhook(signing.key).sign(message_id, at, body.decode())
    digest = hmac.new(signing.secret_hash.encode(), body, hashlib.sha256).hexdigest()
    return (
        ("webhook-id", message_id),
        ("webhook-timestamp", str(now // 1000)),
        ("webhook-signature", signed),
        ("x-signature", f"sha256={digest}"),
    )


def judged(result: Answer | Fault, kind: DestinationKind, *, now: int) -> Sent:
    """What a receiver's answer, or its absence, means for the delivery."""
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
    """A watch's secret from 32 random bytes: the bearer, and what signatures are checked with."""
    if len(random) != SECRET_BYTES:
        raise ValueError(f"a secret is {SECRET_BYTES} bytes")
    return SECRET_PREFIX + base64.b64encode(random).decode()


def secret_key(secret: str) -> bytes | None:
    """The key inside a secret, None for a text that is none of ours."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if secret.startswith(SECRET_PREFIX) and len(key) == SECRET_BYTES else None


def secret_hash(secret: str) -> str:
    """What is stored of a secret: the hex SHA-256. It has 256 random bits, so no salt is due."""
    return hashlib.sha256(secret.encode()).hexdigest()


def destination_context(destination_id: str) -> str:
    """What a destination's URL is sealed for."""
    return f"destination:{destination_id}"


def watch_context(watch_id: str) -> str:
    """What a watch's signing key is sealed for."""
    return f"watch:{watch_id}"


def _mark(key: bytes) -> bytes:
    """Which key sealed a secret, without saying anything of it."""
    return hashlib.sha256(b"mark:" + key).digest()[:_MARK]
