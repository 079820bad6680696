"""The configuration file that `tollgauge init` writes says what the settings say of themselves."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tollgauge.config import Config, load
from tollgauge.config.settings import Setting, list_sections, list_settings
from tollgauge.config.template import template
from tollgauge.jobs.discover import Source
from tollgauge.web.paid.products import trust

EXAMPLE = Path(__file__).resolve().parents[2] / "tollgauge.example.toml"
VALUE = re.compile(r'^#(?=(?:\w+|".+") = |\[\[)', re.MULTILINE)
"""The sign before a value, which is not followed by a space as that of a comment is."""

TEXT = template()

SECTIONS = list(list_sections(Config))
FOR_OPERATORS = [
    setting
    for section in SECTIONS
    if section.description and not section.is_array
    for setting in section.settings
]


def filled_in() -> dict[str, Any]:
    """The file as if somebody had removed the # of every value."""
    return tomllib.loads(VALUE.sub("", TEXT))


def test_the_example_is_what_the_command_writes() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == TEXT, "run: .venv/bin/python docs/generate.py"


def test_a_file_that_was_just_written_changes_nothing() -> None:
    assert load(EXAMPLE, {}) == Config()


@pytest.mark.parametrize("setting", FOR_OPERATORS, ids=lambda setting: setting.path)
def test_it_holds_every_setting_with_its_default(setting: Setting) -> None:
    default: Any = Config()
    value: Any = filled_in()
    *path, key = setting.path.split(".")
    for name in path:
        default, value = getattr(default, name), value[name]
    default = getattr(default, key)
    if setting.secret:
        assert key not in value
        assert f"# {setting.variable} (a secret): " in TEXT
    elif default is None or default == {}:
        assert value[key], "an example"
    else:
        expected = sorted(default) if isinstance(default, frozenset | tuple) else default
        assert value[key] == expected


def test_it_holds_an_example_of_a_source() -> None:
    (source,) = filled_in()["sources"]
    assert Source(**source)
    assert source.keys() == {field.name for field in dataclasses.fields(Source)}


def test_every_example_can_be_used(tmp_path: Path) -> None:
    """But for the file and the address, which are of a machine that is not this one."""
    text = VALUE.sub("", TEXT)
    text = text.replace('ca_file = "ca.pem"', "").replace('source_address = "192.0.2.7"', "")
    (tmp_path / "tollgauge.toml").write_text(text, encoding="utf-8")
    config = load(tmp_path / "tollgauge.toml", {})
    assert config.egress.mapped == {"api.example.com": ("127.0.0.1", 8443)}
    assert trust.PRODUCT.dollars(config.sale) == "0.005000"
    assert [source.kind for source in config.sources] == ["bazaar"]


def test_a_setting_is_described_by_the_text_under_it() -> None:
    descriptions = {setting.path: setting.description for setting in list_settings(Config)}
    assert descriptions["index.steps"] == "Steps forward that a round makes at most."
    assert descriptions["index.span"] == "Final blocks asked for at once.", "of the base class"


def test_no_line_is_too_long_to_read() -> None:
    assert max(map(len, TEXT.splitlines())) <= 100
