"""The configuration file that `tollgauge init` writes matches the descriptions of the settings."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tollgauge.config import Config, load
from tollgauge.config.settings import Setting, list_sections, list_settings, template
from tollgauge.jobs.loop_settings import Source
from tollgauge.web.paid.products import trust

EXAMPLE = Path(__file__).resolve().parents[2] / "tollgauge.example.toml"
VALUE = re.compile(r'^#(?=(?:\w+|".+") = |\[\[)', re.MULTILINE)
"""The `#` before a commented value. Unlike in a comment, no space follows it."""

TEXT = template(Config)

SECTIONS = list(list_sections(Config))
FOR_OPERATORS = [
    setting
    for section in SECTIONS
    if section.description and not section.is_array
    for setting in section.settings
]


def uncomment_values() -> dict[str, Any]:
    """Return the file with every value uncommented."""
    return tomllib.loads(VALUE.sub("", TEXT))


def test_example_file_is_current() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == TEXT, "run: .venv/bin/python docs/generate.py"


def test_unedited_file_changes_nothing() -> None:
    assert load(EXAMPLE, {}) == Config()


@pytest.mark.parametrize("setting", FOR_OPERATORS, ids=lambda setting: setting.path)
def test_file_contains_every_setting_with_its_default(setting: Setting) -> None:
    default: Any = Config()
    value: Any = uncomment_values()
    *path, key = setting.path.split(".")
    for name in path:
        default, value = getattr(default, name), value[name]
    default = getattr(default, key)
    if setting.secret:
        assert key not in value
        assert f"# {setting.variable} (a secret): " in TEXT
    elif default is None or default == {}:
        assert value[key], "no example"
    else:
        expected = sorted(default) if isinstance(default, frozenset | tuple) else default
        assert value[key] == expected


def test_file_contains_an_example_source() -> None:
    (source,) = uncomment_values()["sources"]
    assert Source(**source)
    assert source.keys() == {field.name for field in dataclasses.fields(Source)}


def test_every_example_is_valid(tmp_path: Path) -> None:
    """Except the files and the address, which do not exist on this machine."""
    text = VALUE.sub("", TEXT)
    for absent in (
        'ca_file = "ca.pem"',
        'source_address = "192.0.2.7"',
        'model = "models/embedding"',
    ):
        text = text.replace(absent, "")
    (tmp_path / "tollgauge.toml").write_text(text, encoding="utf-8")
    config = load(tmp_path / "tollgauge.toml", {})
    assert config.egress.mapped == {"api.example.com": ("127.0.0.1", 8443)}
    assert trust.PRODUCT.dollars(config.sale) == "0.005000"
    assert [source.kind for source in config.sources] == ["bazaar"]


def test_setting_is_described_by_its_docstring() -> None:
    descriptions = {setting.path: setting.description for setting in list_settings(Config)}
    assert descriptions["index.steps"] == "Maximum steps forward per round."
    assert descriptions["index.span"] == "Final blocks per query.", "of the base class"


def test_no_line_is_longer_than_100_characters() -> None:
    assert max(map(len, TEXT.splitlines())) <= 100
