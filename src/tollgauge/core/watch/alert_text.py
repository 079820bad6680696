"""Alerts: an event of a watch as JSON, as Slack blocks, and as a Discord embed.

Rules (docs/watching.md):
- the JSON is the same in polls and in signed deliveries; times are ISO 8601 UTC;
- texts of endpoints or directories are cleaned and cut before they are sent to a chat;
- `& < >` are escaped for Slack, markup for Discord, and mentions are disabled; neither renders an
  address in a text as a link;
- texts stay within the limits of Slack (3000 characters per text) and Discord (1024 per field, 6000
  per embed, in UTF-16 units).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import iso_seconds
from tollgauge.core.watch import changes, watch_rules
from tollgauge.core.watch.changes import Change

VALUE_MAX: Final = 300
"""Maximum length in characters of a foreign text in a chat message."""
FACTS_MAX: Final = 9
"""Maximum number of facts in a chat message."""
SLACK_TITLE: Final = 150
SLACK_FIELD: Final = 2_000
SLACK_TEXT: Final = 3_000
DISCORD_TITLE: Final = 256
DISCORD_TEXT: Final = 2_000
DISCORD_FIELD: Final = 1_024
DISCORD_EMBED: Final = 6_000
_TIMES: Final = frozenset({"since", "probeAt", "lastGoodAt", "expiresAt", "until"})
TITLES: Final[Mapping[str, str]] = {
    changes.PAYTO: "payTo address changed",
    changes.PRICE: "Price changed",
    changes.ASSET_NETWORK: "Asset or network changed",
    changes.SPEC: "Payment envelope got worse",
    changes.DELISTING: "Delisted",
    changes.LISTED: "Listed in a directory",
    changes.DELISTED: "Dropped by a directory",
    changes.DOWN: "Down",
    changes.RECOVERED: "Up again",
    changes.FLAPPING: "Flapping",
    changes.LATENCY: "Slower than usual",
    watch_rules.EXPIRING: "This watch ends soon",
    watch_rules.EXPIRED: "This watch has ended",
    watch_rules.DIGEST: "Daily digest",
    watch_rules.CONNECTION_TEST: "Connection test",
}
"""The title of each type of event."""
_COLOURS: Final = {"error": 0xB3261E, "warn": 0x9A6700, "info": 0x1A7F37}
_DISCORD: Final = frozenset("\\*_~|>`[]()#-@<:")
_SLACK: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def build_event(
    change: Change, *, event_id: str, watch_id: str, resource: str, page: str
) -> dict[str, Any]:
    """Return a change of an endpoint, or an event of a watch itself, as in polls and deliveries."""
    return {
        "event_id": event_id,
        "type": change.type,
        "severity": change.severity.value,
        "observed_at": change.at // 1000,
        "observed_at_iso": iso_seconds(change.at),
        "watch_id": watch_id,
        "resource": resource,
        "reason": change.reason,
        "before": format_times(change.before),
        "after": format_times(change.after),
        "evidence": format_times(change.evidence),
        "endpoint_page": page,
    }


def build_slack_message(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as a Slack message (Block Kit)."""
    title = f"{TITLES.get(event['type'], event['type'])}: {_find_host(event['resource'])}"
    link = f"<{event['endpoint_page']}|Evidence and history>" if event["endpoint_page"] else ""
    words = f"{event['type']} · {event['severity']} · {event['event_id']}"
    context = _build_mrkdwn(f"{link} {_to_slack(words, SLACK_TITLE)}".strip())
    fields = [
        _build_mrkdwn(f"*{name}*\n{_to_slack(value, SLACK_FIELD - len(name) - 3)}")
        for name, value in _list_facts(event)
    ]
    return {
        "text": _to_slack(f"{title}. {event['reason']}", SLACK_TEXT),
        "blocks": [
            {
                "type": "header",
                "text": {"type": "plain_text", "text": _to_slack(title, SLACK_TITLE)},
            },
            {"type": "section", "text": _build_mrkdwn(_to_slack(event["reason"], SLACK_TEXT))},
            *({"type": "section", "fields": [field]} for field in fields),
            {"type": "context", "elements": [context]},
        ],
        "unfurl_links": False,
        "unfurl_media": False,
    }


def build_discord_message(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as a Discord message with one embed and no mentions."""
    title = f"{TITLES.get(event['type'], event['type'])}: {_find_host(event['resource'])}"
    embed: dict[str, Any] = {
        "title": _to_discord(title, DISCORD_TITLE),
        "description": _to_discord(event["reason"], DISCORD_TEXT),
        "color": _COLOURS.get(event["severity"], 0),
        "timestamp": event["observed_at_iso"],
        "fields": [],
        "footer": {"text": f"{event['type']} · {event['severity']} · {event['event_id']}"},
    }
    texts = (embed["title"], embed["description"], embed["footer"]["text"])
    left = DISCORD_EMBED - sum(map(_count_units, texts))
    for name, value in _list_facts(event):
        shown = _to_discord(value, DISCORD_FIELD)
        left -= _count_units(name) + _count_units(shown)
        if left < 0:
            break
        embed["fields"].append({"name": name, "value": shown, "inline": False})
    if event["endpoint_page"]:
        embed["url"] = event["endpoint_page"]
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def format_times(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its times as ISO texts."""
    return {
        name: iso_seconds(member) if name in _TIMES and isinstance(member, int) else member
        for name, member in value.items()
    }


def _list_facts(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of an event for a chat, as (name, value): endpoint and time, start, last
    good response, before → after, and the number of checks.
    """
    before, after, evidence = event["before"], event["after"], event["evidence"]
    facts = [("Endpoint", _format_value(event["resource"])), ("Seen", event["observed_at_iso"])]
    since = after.get("since") or before.get("since")
    if since:
        facts.append(("Since", _format_value(since)))
    if before.get("lastGoodAt"):
        facts.append(("Last good", _format_value(before["lastGoodAt"])))
    facts += [(name, f"{was} → {now}") for name, was, now in list_differences(before, after)]
    facts += [
        (_format_key(key), _format_value(evidence[key]))
        for key in ("checkedTimes", "upTimes", "events")
        if key in evidence
    ]
    return facts[:FACTS_MAX]


def list_differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Return the differences of two objects as text: (name, before, after)."""
    keys = dict.fromkeys((*before, *after))
    skipped = {"since", "lastGoodAt", "recent"}
    return [
        (_format_key(key), _format_value(before.get(key)), _format_value(after.get(key)))
        for key in keys
        if key not in skipped and before.get(key) != after.get(key)
    ]


def _format_key(key: str) -> str:
    """Return the label of a key: `brokenRules` is "Broken rules"."""
    if key == "payTo":
        return key
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key)
    return text[:1].upper() + text[1:].lower()


def _format_value(value: object) -> str:
    """Return a JSON value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unknown"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _format_value(", ".join(map(str, value)) or "none")
    return clean_text(str(value), VALUE_MAX)


def _find_host(resource: str) -> str:
    return resource.removeprefix("https://").partition("/")[0]


def _build_mrkdwn(text: str) -> dict[str, Any]:
    """Return a text in Slack's markup; `verbatim` disables links for bare addresses."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _to_slack(text: str, limit: int) -> str:
    return _join_fitting((_SLACK.get(char, char) for char in text), limit)


def _to_discord(text: str, limit: int) -> str:
    return _join_fitting((f"\\{char}" if char in _DISCORD else char for char in text), limit)


def _join_fitting(pieces: Iterable[str], limit: int) -> str:
    """Join as many whole pieces as fit into a limit of UTF-16 units."""
    fitting: list[str] = []
    for piece in pieces:
        limit -= _count_units(piece)
        if limit < 0:
            break
        fitting.append(piece)
    return "".join(fitting)


def _count_units(text: str) -> int:
    """Return the length in UTF-16 units, as chats count."""
    return len(text) + sum(char > "\uffff" for char in text)
