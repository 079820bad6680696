"""Strict parsing of pages, and a snapshot to show on them."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from typing import Any

from msgspec import structs
from tests.support.rated_endpoints import quote

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.probe.rollup import SLOT_MS
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.flag import Flag
from tollgauge.core.score.policy import POLICY, Cap
from tollgauge.core.score.score import Component, ShownDemand
from tollgauge.monitor.reports.endpoint import DayBar, EndpointView
from tollgauge.monitor.reports.overview import Ecosystem, Leaderboard
from tollgauge.monitor.reports.snapshots import Snapshot
from tollgauge.web.pages.render import render

NOW = 1_764_000_000_000
TODAY = NOW // DAY_MS
PAY_TO = "0x" + "ab" * 20
BASE = "https://gauge.example.org"
VOID = {"meta", "link", "br", "img", "wbr", "hr", "input"}
FORBIDDEN = {"script", "style", "iframe", "object", "embed", "base", "image", "use"}
BIDI = "\u202e\u2066\u200b\ufeff\U000e0041"
HOSTILE = (
    '"><script>canary()</script>',
    "' onmouseover='canary()' x='",
    "</title></svg><img src=x onerror=canary()>",
    "{{ 7 * 191 }}{% raw %}",
    "javascript:canary()//https://evil.example/canary",
    f"pay {BIDI}me\x00\x1b[31m",
    "](https://evil.example/canary) `code` $(canary) '; canary; '",
)


def snapshot(**changes: Any) -> Snapshot:
    """Return a snapshot; `price_micro_usd`, `network` and `pay_to` are those of its price."""
    base = Snapshot(
        id="0123456789abcdef",
        resource="https://api.example.com/v1/weather",
        host="api.example.com",
        recommendation="proceed",
        grade="A",
        score_tenths=831,
        confidence_hundredths=98,
        uptime_tenths=995,
        latency_ms=1_240,
        p50_latency_ms=900,
        p95_latency_ms=3_100,
        probes=1_440,
        scored=1_433,
        excluded=(("ours", 4), ("common-mode", 3)),
        price_changes=0,
        payto_changes=0,
        first_seen=NOW - 60 * DAY_MS,
        last_probed=NOW - HOUR_MS,
        computed_at=NOW - 5 * HOUR_MS,
        verdict="near-perfect",
        reason="It could be paid when it was last checked.",
        payable_now_permille=999,
        payable_24h_permille=995,
        is_payable=True,
        summary="It could be paid when it was last checked. Proceed: grade A (83.1 of 100).",
        sources=("bazaar",),
        service_name="Weather",
        description="Forecasts for any place.",
        better_alternatives=3,
        policy_version=1,
    )
    price = changes.pop("price_micro_usd", 5_000)
    pay_to = changes.pop("pay_to", PAY_TO)
    network = changes.pop("network", "eip155:8453")
    known = None if network is None else quote(price, pay_to, network)
    return structs.replace(base, quote=known, **changes)


def view(shown: Snapshot | None = None, **changes: Any) -> EndpointView:
    base = EndpointView(
        snapshot=shown or snapshot(),
        components=tuple(
            Component(name=row.name, weight=row.weight, tenths=900) for row in POLICY.rows
        ),
        flags=(
            Flag(
                code="low-confidence",
                severity=Severity.INFO,
                message="Few half hours were observed.",
            ),
            Flag(
                code="price-changed",
                severity=Severity.WARN,
                message="It changed.",
                since=NOW - DAY_MS,
            ),
            Flag(code="down-now", severity=Severity.ERROR, message="Use an alternative."),
        ),
        caps=(
            Cap(
                code="down-now",
                limit_tenths=490,
                reason="No probe of the last 3 hours was answered.",
            ),
        ),
        low_tenths=800,
        high_tenths=852,
        demand=ShownDemand(payers=43, volume=140_000, proven_payers=12, proven_volume=90_000),
        days=tuple(
            DayBar(
                day=TODAY - 29 + n,
                up_ms=47 * SLOT_MS,
                down_ms=SLOT_MS,
                scored=48,
                up=47,
                excluded=1,
                p50_ms=90,
                p95_ms=200,
            )
            for n in range(30)
        ),
        events=(
            TermChange(
                at=NOW - 9 * DAY_MS,
                kind="price-changed",
                source="probe",
                before="$0.005",
                after="$0.01",
            ),
        ),
    )
    return dataclasses.replace(base, **changes)


def unmeasured_view() -> EndpointView:
    shown = snapshot(
        recommendation="unverified",
        reason="Nothing was measured yet.",
        payable_now_permille=None,
        payable_24h_permille=None,
        is_payable=None,
        grade=None,
        score_tenths=None,
        confidence_hundredths=0,
        uptime_tenths=None,
        latency_ms=None,
        p50_latency_ms=None,
        p95_latency_ms=None,
        probes=0,
        scored=0,
        excluded=(),
        price_micro_usd=None,
        network=None,
        pay_to=None,
        last_probed=None,
        status="unlisted",
        verdict="",
        summary="",
        sources=(),
        service_name="",
        description="",
        better_alternatives=None,
    )
    return view(
        shown,
        components=(),
        flags=(),
        caps=(),
        low_tenths=None,
        high_tenths=None,
        demand=None,
        days=(),
        events=(),
    )


def board(*rows: Snapshot, **changes: Any) -> Leaderboard:
    return Leaderboard(as_of=NOW, policy_version=1, rows=rows, **changes)


def stats(**changes: Any) -> Ecosystem:
    base = Ecosystem(
        as_of=NOW,
        listed=1_313,
        delisted=87,
        monitored=1_240,
        reachable_permille=714,
        compliant_permille=582,
        grades=(("A", 412), ("F", 371), ("unscored", 73)),
    )
    return dataclasses.replace(base, **changes)


CELLS = frozenset({"td", "th"})
ROWS = CELLS | {"tr"}
ENDED_BY = {"td": CELLS, "th": CELLS, "tr": ROWS, "/tr": CELLS, "/tbody": ROWS}
"""Elements whose end tag HTML allows to be omitted before a tag (HTML, 13.1.2.4)."""


class Reader(HTMLParser):
    """Parses a page strictly.

    Each element must be closed where it has to be (table rows and cells end with the next one), IDs
    must be unique, and each name of a `meta` may occur once.
    """

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.pieces: dict[str, list[str]] = {}
        self.feed(page.decode())
        self.close()
        assert not self.open, f"left open: {self.open}"
        metas = [attrs["name"] for attrs in self.all("meta") if "name" in attrs]
        assert len(metas) == len(set(metas)), f"a meta twice: {metas}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._end(ENDED_BY.get(tag, frozenset()))
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in <{tag}>"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.pieces.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag}/> outside of a picture"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self._end(ENDED_BY.get(f"/{tag}", frozenset()))
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def _end(self, tags: frozenset[str]) -> None:
        """Close the open elements that a tag ends."""
        while self.open and self.open[-1] in tags:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        # A <wbr> is a position to break a line, not a space between words.
        glued = bool(self.elements and self.text) and self.elements[-1][0] == "wbr"
        if glued:
            self.text[-1] += data
        else:
            self.text.append(data)
        for tag in set(self.open):
            self.pieces[tag][-1] += data

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


def read_page(page: bytes) -> Reader:
    """Parse a page that has no script, inline style or handler and loads nothing foreign."""
    reader = Reader(page)
    ids = [attrs["id"] for _, attrs in reader.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in reader.elements:
        assert tag not in FORBIDDEN
        assert "style" not in attrs
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("href", "src", "action", "xlink:href"):
            link = attrs.get(name)
            if link and attrs.get("rel") == "canonical":  # an absolute URL, for search engines
                link = link.removeprefix(BASE)
            assert link is None or re.match(r"(/(?!/)|#)", link), link
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((attrs.get(name) or "").split()) <= set(ids)
    return reader


def board_html(
    template: str, shown: Leaderboard, figures: Ecosystem, *, base_url: str = BASE
) -> bytes:
    """Return the home page or the leaderboard with these endpoints."""
    return render(
        template,
        base_url,
        board=shown,
        stats=figures,
        rows=shown.rows,
        uptimes={},
        simulated=figures.simulated,
        loading="",
    )
