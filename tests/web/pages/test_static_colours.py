"""Contrast of texts and charts in light and dark colours (WCAG 2.2, 1.4.3 and 1.4.11)."""

from __future__ import annotations

import re

import pytest

from tollgauge.web.pages import badge
from tollgauge.web.pages.render import ASSETS

CSS = ASSETS["tollgauge.css"].body.decode()
TEXT = 4.5
GRAPHIC = 3.0


def palettes() -> dict[str, dict[str, str]]:
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    )
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_meets_the_contrast_minimum(mode: str) -> None:
    colours = palettes()[mode]
    pairs = [
        (text, ground)
        for text in ("ink", "soft", "link", "error", "alarm", "warn", "info")
        for ground in ("ground", "card", "sunk")
    ]
    pairs += [(f"on-{grade}", grade) for grade in ("a", "b", "c", "d", "f", "none")]
    pairs += [("on-sign", "sign"), ("on-notice", "notice")]
    low = {
        pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2)
        for pair in pairs
        if contrast(colours[pair[0]], colours[pair[1]]) < TEXT
    }
    assert not low


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_charts_meet_the_contrast_minimum(mode: str) -> None:
    colours = palettes()[mode]
    marks = ("up", "down", "p50", "p95", "a", "b", "f", "none", "stripe")
    low = {
        mark: round(contrast(colours[mark], colours["card"]), 2)
        for mark in marks
        if contrast(colours[mark], colours["card"]) < GRAPHIC
    }
    assert not low


def test_badges_meet_the_contrast_minimum() -> None:
    for ground, ink in (*badge._COLOURS.values(), badge._NOT_KNOWN, badge._DOWN):
        assert contrast(ground, ink) >= TEXT
