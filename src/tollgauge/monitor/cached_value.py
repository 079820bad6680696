"""Cached values: what is computed from all endpoints and stored once for many readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection

from tollgauge.db import meta


class Dated(Protocol):
    """A value as of an instant (ms UTC)."""

    @property
    def as_of(self) -> int:
        """When it was computed."""
        ...


T = TypeVar("T", bound=Dated)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedValue(Generic[T]):
    """Where a value is stored: it is computed again once it is `refresh_ms` old, and used until it
    is `use_ms` old. One that another version wrote is none.
    """

    key: str
    form: TypeAdapter[T]
    refresh_ms: int
    use_ms: int

    def usable(self, tx: Connection, *, now: int) -> T | None:
        """The stored value, None where it is too old or there is none."""
        value = self._stored(tx)
        return value if value is not None and value.as_of > now - self.use_ms else None

    def is_due(self, tx: Connection, *, now: int) -> bool:
        """Whether a worker should compute it again."""
        value = self._stored(tx)
        return value is None or value.as_of <= now - self.refresh_ms

    def put(self, tx: Connection, value: T) -> None:
        """Store a value."""
        meta.put(tx, self.key, orjson.dumps(value).decode())

    def drop(self, tx: Connection) -> None:
        """Remove the stored value."""
        meta.drop(tx, self.key)

    def _stored(self, tx: Connection) -> T | None:
        text = meta.get(tx, self.key)
        try:
            return None if text is None else self.form.validate_json(text)
        except ValidationError:
            return None
