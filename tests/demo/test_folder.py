"""The demo's folder: one demo at a time, and a whole past or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tollgauge.config import Config, load
from tollgauge.core.answer_signature import SigningKey
from tollgauge.demo.folder import (
    CONFIG_FILE,
    DemoFolder,
    DemoFolderError,
    named_folder,
    temporary_folder,
)
from tollgauge.web.signing import SigningSettings


def test_a_second_demo_in_a_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    with named_folder(tmp_path):
        with pytest.raises(DemoFolderError, match="already") as refused:
            named_folder(tmp_path).__enter__()
        assert "--folder" in refused.value.hint
    with named_folder(tmp_path) as folder:
        assert folder.path == tmp_path


def test_a_past_that_was_loaded_to_its_end_is_kept(tmp_path: Path) -> None:
    with named_folder(tmp_path) as folder, folder.loading():
        (tmp_path / "demo.sqlite").write_text("whole")
    with named_folder(tmp_path):
        assert (tmp_path / "demo.sqlite").read_text() == "whole"


def test_a_past_whose_loading_was_interrupted_is_loaded_anew(tmp_path: Path) -> None:
    others = tmp_path / "report.json"
    others.touch()
    with pytest.raises(KeyboardInterrupt), named_folder(tmp_path) as folder:
        _load_half(folder)
    with named_folder(tmp_path) as folder:
        assert list(tmp_path.glob("demo.sqlite*")) == []
        assert others.exists()
        with folder.loading():
            (tmp_path / "demo.sqlite").write_text("whole")
    with named_folder(tmp_path):
        assert (tmp_path / "demo.sqlite").exists()


def _load_half(folder: DemoFolder) -> None:
    with folder.loading():
        for name in ("demo.sqlite", "demo.sqlite-wal", "demo.sqlite-shm"):
            (folder.path / name).write_text("half")
        raise KeyboardInterrupt


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DemoFolderError, match="cannot be used") as refused:
        named_folder(file / "folder").__enter__()
    assert "--folder" in refused.value.hint


@pytest.mark.parametrize("text", ["[server]\nport = 9000\n", "half [", ""])
def test_the_configuration_of_a_service_is_not_written_over(tmp_path: Path, text: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(text)
    with pytest.raises(DemoFolderError, match="is not a demo's") as refused:
        named_folder(tmp_path).__enter__()
    assert "--folder" in refused.value.hint
    assert (tmp_path / CONFIG_FILE).read_text() == text
    assert [file.name for file in tmp_path.iterdir()] == [CONFIG_FILE]


def test_a_folder_that_was_not_named_ends_with_the_demo() -> None:
    with temporary_folder() as folder:
        folder.write(Config())
        assert load(folder.path / "tollgauge.toml", {}) == Config()
        assert folder.store_url == f"sqlite:///{folder.path}/demo.sqlite"
    assert not folder.path.exists()


def test_a_demo_makes_a_signing_key_of_its_own() -> None:
    with temporary_folder() as one, temporary_folder() as other:
        assert one.signing_key() != other.signing_key()


def test_a_demo_that_comes_back_to_its_folder_signs_with_the_same_key(tmp_path: Path) -> None:
    with named_folder(tmp_path) as folder:
        key = folder.signing_key()
        folder.write(Config(signing=SigningSettings(key=key)))
        assert (tmp_path / CONFIG_FILE).stat().st_mode & 0o077 == 0
    with named_folder(tmp_path) as folder:
        assert folder.signing_key() == key


def test_a_demo_of_an_earlier_version_had_no_key_and_gets_one(tmp_path: Path) -> None:
    with named_folder(tmp_path) as folder:
        folder.write(Config())
        assert SigningKey.of(folder.signing_key())
