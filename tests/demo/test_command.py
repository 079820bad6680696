"""The key that the demo signs with."""

from __future__ import annotations

from pathlib import Path

from tollgauge.config import Config
from tollgauge.config.write import toml_text
from tollgauge.core.answer_signature import SigningKey
from tollgauge.demo.command import CONFIG_FILE, _signing_key
from tollgauge.web.signing import SigningSettings


def test_a_demo_makes_a_key_of_its_own() -> None:
    one, other = SigningKey.of(_signing_key(None)), SigningKey.of(_signing_key(None))

    assert one.fingerprint != other.fingerprint


def test_a_demo_that_comes_back_to_its_folder_signs_with_the_same_key(tmp_path: Path) -> None:
    first = _signing_key(tmp_path)
    config = Config(signing=SigningSettings(key=first))
    (tmp_path / CONFIG_FILE).write_text(toml_text(config), encoding="utf-8")

    assert _signing_key(tmp_path) == first


def test_a_demo_of_an_earlier_version_had_no_key_and_gets_one(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(toml_text(Config()), encoding="utf-8")

    assert SigningKey.of(_signing_key(tmp_path))
