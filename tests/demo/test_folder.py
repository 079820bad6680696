"""The demo's folder: one demo at a time, each with its own database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tollgauge.config import Config, load
from tollgauge.core.sale.signature import SigningKey
from tollgauge.demo.folder import (
    CONFIG_FILE,
    DemoFolderError,
    named_folder,
    temporary_folder,
)
from tollgauge.web.signing import SigningSettings


def test_second_demo_in_a_folder_is_rejected_until_the_first_has_ended(tmp_path: Path) -> None:
    with named_folder(tmp_path):
        with pytest.raises(DemoFolderError, match="already") as refused:
            named_folder(tmp_path).__enter__()
        assert "--folder" in refused.value.hint
    with named_folder(tmp_path) as folder:
        assert folder.path == tmp_path


def test_new_demo_starts_over_and_keeps_other_files(tmp_path: Path) -> None:
    others = tmp_path / "report.json"
    others.touch()
    with named_folder(tmp_path) as folder:
        assert not folder.starts_over
        for name in ("demo.sqlite", "demo.sqlite-wal", "demo.sqlite-shm"):
            (tmp_path / name).touch()
    assert (tmp_path / "demo.sqlite").exists(), "it can be inspected until the next start"
    with named_folder(tmp_path) as folder:
        assert folder.starts_over
        assert list(tmp_path.glob("demo.sqlite*")) == []
        assert others.exists()


def test_unusable_folder_is_reported_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DemoFolderError, match="cannot be used") as refused:
        named_folder(file / "folder").__enter__()
    assert "--folder" in refused.value.hint


@pytest.mark.parametrize("text", ["[server]\nport = 9000\n", "half [", ""])
def test_configuration_of_a_service_is_not_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(text)
    with pytest.raises(DemoFolderError, match="A demo did not write") as refused:
        named_folder(tmp_path).__enter__()
    assert "--folder" in refused.value.hint
    assert (tmp_path / CONFIG_FILE).read_text() == text
    assert [file.name for file in tmp_path.iterdir()] == [CONFIG_FILE]


def test_temporary_folder_is_deleted_when_the_demo_ends() -> None:
    with temporary_folder() as folder:
        folder.write(Config())
        assert load(folder.path / "tollgauge.toml", {}) == Config()
        assert folder.store_url == f"sqlite:///{folder.path}/demo.sqlite"
    assert not folder.path.exists()


def test_every_demo_has_its_own_signing_key() -> None:
    with temporary_folder() as one, temporary_folder() as other:
        assert one.signing_key() != other.signing_key()


def test_demo_that_returns_to_its_folder_signs_with_the_same_key(tmp_path: Path) -> None:
    with named_folder(tmp_path) as folder:
        key = folder.signing_key()
        folder.write(Config(signing=SigningSettings(key=key)))
        assert (tmp_path / CONFIG_FILE).stat().st_mode & 0o077 == 0
    with named_folder(tmp_path) as folder:
        assert folder.signing_key() == key


def test_demo_folder_without_a_key_gets_one(tmp_path: Path) -> None:
    with named_folder(tmp_path) as folder:
        folder.write(Config())
        assert SigningKey.of(folder.signing_key())
