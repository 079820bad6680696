"""Files of directories in tests, and the names of their entries."""

from __future__ import annotations

from pathlib import Path

from tollgauge.clients.directories import file
from tollgauge.core.directory.listing import ListedItem, read_item

HOST = "directory.test"
NOW = 1_766_283_370_973


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names(path: Path) -> list[str]:
    items = [read_item(item) for item in file.read(path).items]
    return [i.resource.url if isinstance(i, ListedItem) else i.reason for i in items]
