"""Notices of changes as chats show them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from tests.support.probe_rows import QUOTE, START, STEP, probe

from tollgauge.core.watch import alert_text, changes
from tollgauge.core.watch.changes import Change


def render_alert(change: Change, resource: str = "https://api.example.com/a") -> dict[str, object]:
    return alert_text.build_event(
        change,
        event_id="evt_1",
        watch_id="wat_1",
        resource=resource,
        page="https://trust.example.com/endpoint/1",
    )


def test_no_text_makes_slack_mention_or_link() -> None:
    evil = "<!channel> <https://evil.example|click> & <@U1>"
    change = replace(changes.delisting(at=START, source="x"), reason=evil, after={"payTo": evil})
    text = json.dumps(alert_text.build_slack_message(render_alert(change)))
    assert "<!channel>" not in text
    assert "<@U1>" not in text
    assert "<https://evil" not in text
    assert "&lt;!channel&gt;" in text


def test_discord_message_has_no_mentions_and_no_markup() -> None:
    evil = "@everyone **bold** [click](https://evil.example) `x` \u202e"
    change = replace(changes.delisting(at=START, source="x"), reason=evil, after={"payTo": evil})
    message = alert_text.build_discord_message(render_alert(change))
    assert message["allowed_mentions"] == {"parse": []}
    embed = message["embeds"][0]
    assert "\\@everyone \\*\\*bold\\*\\* \\[click\\]\\(" in embed["description"]
    values = " ".join(field["value"] for field in embed["fields"])
    assert "\u202e" not in values
    assert "[click]" not in values


def test_chats_show_reason_since_when_last_good_before_and_after_and_a_link() -> None:
    down = changes.liveness_down(probe(3, up=False), n=2, since=START + 2 * STEP, last_good=START)
    price = changes.price_change(QUOTE, replace(QUOTE, amount=20_000), at=START, source="probe")
    assert price is not None
    for write in (alert_text.build_slack_message, alert_text.build_discord_message):
        text = json.dumps(write(render_alert(down)), ensure_ascii=False)
        for part in ("checks in a row failed", "Since", "Last good", "yes → no"):
            assert part in text
        assert "https://trust.example.com/endpoint/1" in text
        assert "10000 → 20000" in json.dumps(write(render_alert(price)), ensure_ascii=False)


def test_longest_texts_fit_what_chats_take() -> None:
    long = {f"key{i}": "x" * 5_000 for i in range(40)}
    change = replace(changes.delisting(at=START, source="x"), reason="y" * 9_000, after=long)
    slack = alert_text.build_slack_message(render_alert(change))
    assert len(slack["blocks"]) <= 50
    for block in slack["blocks"]:
        assert len(block.get("text", {}).get("text", "")) <= 3_000
        assert len(block.get("fields", [])) <= 10
        assert all(len(field["text"]) <= 2_000 for field in block.get("fields", []))
    embed = alert_text.build_discord_message(render_alert(change))["embeds"][0]
    assert len(embed["fields"]) <= 25
    assert len(json.dumps(embed)) <= 6_000 + 1_000
    assert sum(len(f["name"]) + len(f["value"]) for f in embed["fields"]) <= 3_500


def units(text: str) -> int:
    """The length as chats count: in UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2


HOSTILE = (
    "*" * 9_000,
    "&" * 9_000,
    "<" * 9_000,
    "\U0001f600" * 9_000,
    "\\" * 9_000,
    "",
    "\x00\u202e",
)


@pytest.mark.parametrize("evil", HOSTILE)
def test_chats_accept_any_provider_text(evil: str) -> None:
    terms = dict.fromkeys(("payTo", "network", "asset", "a", "b", "c", "d", "e"), evil)
    change = replace(changes.delisting(at=START, source=evil), reason=evil, before={}, after=terms)
    message = render_alert(change, resource=f"https://{'x' * 250}.example.com/{evil[:500]}")
    slack = alert_text.build_slack_message(message)
    texts = [slack["text"], *(block.get("text", {}).get("text", "") for block in slack["blocks"])]
    fields = [field["text"] for block in slack["blocks"] for field in block.get("fields", [])]
    fields += [field["text"] for block in slack["blocks"] for field in block.get("elements", [])]
    assert len(slack["blocks"]) <= 50
    assert max(map(units, texts)) <= 3_000
    assert units(slack["blocks"][0]["text"]["text"]) <= 150
    assert max(map(units, fields)) <= 2_000
    assert all(fields)
    for text in (*texts, *fields):
        page = re.sub(r"<https://trust\.example\.com/[^|<>]+\|Evidence and history>", "", text)
        assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", page), text[-40:]
    embed = alert_text.build_discord_message(message)["embeds"][0]
    values = [field["value"] for field in embed["fields"]]
    names = [field["name"] for field in embed["fields"]]
    whole = (embed["title"], embed["description"], embed["footer"]["text"], *values, *names)
    assert sum(map(units, whole)) <= 6_000
    assert units(embed["title"]) <= 256
    assert units(embed["description"]) <= 4_096
    assert max(map(units, values)) <= 1_024
    assert all((*values, *names))
    for text in (embed["title"], embed["description"], *values):
        assert not re.sub(r"\\.", "", text).endswith("\\"), text[-10:]


def test_chats_make_no_link_of_an_address_that_a_provider_wrote() -> None:
    evil = "0x1 https://evil.example/login www.evil.example"
    change = replace(changes.delisting(at=START, source="x"), reason=evil, after={"payTo": evil})
    slack = alert_text.build_slack_message(render_alert(change))
    marked = [field for block in slack["blocks"] for field in block.get("fields", [])]
    marked.append(slack["blocks"][1]["text"])
    assert all(field["verbatim"] is True for field in marked)
    assert (slack["unfurl_links"], slack["unfurl_media"]) == (False, False)
    embed = alert_text.build_discord_message(render_alert(change))["embeds"][0]
    for text in (embed["description"], *(field["value"] for field in embed["fields"])):
        assert "https://evil" not in text
