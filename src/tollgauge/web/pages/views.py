"""Pages: views of the read side as HTML for people.

Rules:
- a page is a pure function of its view: same view, same bytes; routes, caching and headers are
  web/routes's;
- no script, no inline style, nothing loaded from elsewhere: `default-src 'none'; style-src
  'self'; img-src 'self'` is enough for every page;
- everything is escaped by the engine, and cleaned of unseen characters on its way out; provider
  text is shown as text, marked as the provider's own, and never becomes a link.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

import orjson
from markupsafe import Markup

from tollgauge.core.policy import POLICIES, Policy
from tollgauge.core.score import Component
from tollgauge.core.units import WINDOW_MS, day_of
from tollgauge.monitor.reports import Ecosystem, EndpointView, Leaderboard, Provider
from tollgauge.web.pages import labels
from tollgauge.web.pages.charts import days
from tollgauge.web.pages.charts.gauge import gauge
from tollgauge.web.pages.charts.timeline import event_lanes
from tollgauge.web.pages.render import render
from tollgauge.web.wire.examples import RESOURCE

HOME_ROWS: Final = 10
"""How many endpoints the home page shows; the leaderboard shows all it is given."""

_SEVERITIES: Final = ("error", "warn", "info")
_NEXT_STEPS: Final = {
    404: "Check the address, or look for the host on the leaderboard.",
    422: "Give the full https:// address of a public endpoint, as it is listed in a directory.",
    429: "Wait for the number of seconds that the Retry-After header names, then ask again.",
    503: "Wait for the number of seconds that Retry-After names, then send the same again.",
}
_ANY_STEP: Final = "Try again in a minute."


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route as the docs page shows it: `micro_usd` None is free; `example` is the query of a
    GET (with its `?`) or the JSON body of a POST; `path` may hold a placeholder for reading only.
    """

    method: str
    path: str
    purpose: str
    micro_usd: int | None = None
    example: str = ""


def home_html(board: Leaderboard, stats: Ecosystem, *, base_url: str) -> bytes:
    """The first page: what this is, the ecosystem in numbers, the head of the leaderboard."""
    shown = board.rows[:HOME_ROWS]
    simulated = stats.simulated or any(row.simulated for row in shown)
    return render(
        "home.html",
        base_url,
        board=board,
        stats=stats,
        rows=shown,
        simulated=simulated,
        strip=days.grade_strip(stats.grades),
    )


def leaderboard_html(board: Leaderboard, stats: Ecosystem, *, base_url: str) -> bytes:
    """The best listed endpoints."""
    simulated = stats.simulated or any(row.simulated for row in board.rows)
    return render(
        "leaderboard.html",
        base_url,
        board=board,
        stats=stats,
        rows=board.rows,
        simulated=simulated,
    )


def endpoint_html(
    view: EndpointView, *, now: int, base_url: str, report_micro_usd: int | None
) -> bytes:
    """The snapshot of one endpoint with its pictures. `now` ages it; `report_micro_usd` is what
    a live report costs, None while nothing is sold.
    """
    snapshot = view.snapshot
    policy = POLICIES.get(snapshot.policy_version)
    return render(
        "endpoint.html",
        base_url,
        view=view,
        s=snapshot,
        now=now,
        simulated=snapshot.simulated,
        gauge=_dial(view, policy),
        bars=_breakdown(view.components),
        total=sum(part.weight * part.tenths for part in view.components),
        flags=sorted(view.flags, key=lambda flag: _severity(flag.severity, flag.code)),
        events=sorted(view.events, key=lambda event: event.at, reverse=True),
        report_price=None if report_micro_usd is None else labels.dollars(report_micro_usd),
        order=_post(base_url, "/v1/x402-trust", {"resource": snapshot.resource}),
        **_pictures(view),
    )


def provider_html(provider: Provider, *, base_url: str) -> bytes:
    """One host and its endpoints, best first."""
    return render(
        "provider.html",
        base_url,
        provider=provider,
        rows=provider.rows,
        simulated=any(row.simulated for row in provider.rows),
    )


def methodology_html(
    policy: Policy, *, flags: tuple[tuple[str, str, str], ...], base_url: str
) -> bytes:
    """How scores come about, written from the policy itself; `flags` are (code, severity, when
    it is raised).
    """
    tables = (
        ("Latency: median in milliseconds", policy.latency),
        ("Activity P: effective payers", policy.payers),
        ("Activity V: organic dollars settled", policy.volume),
    )
    return render(
        "methodology.html",
        base_url,
        policy=policy,
        grades=_grades(policy),
        flags=sorted(flags, key=lambda rule: _severity(rule[1], rule[0])),
        tables=tables,
        bars=[
            days.component_bar(
                Component(name=row.name, weight=row.weight, tenths=1_000),
                heaviest=max(row.weight for row in policy.rows),
            )
            for row in policy.rows
        ],
    )


def docs_html(
    routes: tuple[Route, ...], *, base_url: str, resource: str | None = None, sells: bool = True
) -> bytes:
    """How to ask, with a command for each free route and the price of each paid one, or a word
    that nothing is sold. Examples ask about `resource`, which is monitored here; without one,
    about an invented one.
    """
    offered = [route for route in routes if sells or route.micro_usd is None]
    shown = [(route, _command(base_url, _about(route, resource))) for route in offered]
    return render("docs.html", base_url, routes=shown, resource=resource, sells=sells)


def error_html(
    *, status: int, title: str, detail: str, hint: str = "", code: str = "", base_url: str
) -> bytes:
    """A page that says what is wrong and what to do; `hint` replaces the usual advice."""
    step = hint or _NEXT_STEPS.get(status, _ANY_STEP)
    return render(
        "error.html",
        base_url,
        status=status,
        title=title,
        detail=detail,
        step=step,
        code=code,
    )


def _grades(policy: Policy) -> tuple[tuple[str, int], ...]:
    """(letter, least tenths), best first, with the F below all others."""
    return (*((letter, least * 10) for letter, least in policy.grades), ("F", 0))


def _dial(view: EndpointView, policy: Policy | None) -> Markup:
    return gauge(
        _grades(policy) if policy else (),
        score=view.snapshot.score_tenths,
        grade=view.snapshot.grade,
        low=view.low_tenths,
        high=view.high_tenths,
    )


def _breakdown(components: tuple[Component, ...]) -> list[tuple[Component, Markup]]:
    heaviest = max((part.weight for part in components), default=1)
    return [(part, days.component_bar(part, heaviest=heaviest)) for part in components]


def _pictures(view: EndpointView) -> dict[str, object]:
    """The three charts over the view's days."""
    last = view.days[-1].day if view.days else day_of(view.snapshot.computed_at)
    first = view.days[0].day if view.days else last - day_of(WINDOW_MS) + 1
    return {
        "uptime": days.uptime_bars(view.days),
        "latency": days.latency_lines(view.days),
        "lanes": event_lanes(view.events, first_day=first, last_day=last),
    }


def _severity(severity: str, code: str) -> tuple[int, str]:
    """The order of flags: the worst first."""
    known = severity in _SEVERITIES
    return (_SEVERITIES.index(severity) if known else len(_SEVERITIES), code)


def _about(route: Route, resource: str | None) -> Route:
    """The route with an example that this server can answer."""
    if resource is None or RESOURCE not in route.example:
        return route
    if route.method == "GET":
        return replace(route, example=route.example.replace(RESOURCE, quote(resource, safe="/:")))
    body = orjson.loads(route.example)
    example = {key: resource if value == RESOURCE else value for key, value in body.items()}
    return replace(route, example=orjson.dumps(example).decode())


def _command(base_url: str, route: Route) -> str:
    """What to type for a route: quoted for a shell, whatever the example holds."""
    if route.method == "GET":
        return f"curl -s {shlex.quote(base_url.rstrip('/') + route.path + route.example)}"
    body = orjson.loads(route.example) if route.example else {}
    return _post(base_url, route.path, body)


def _post(base_url: str, path: str, body: object) -> str:
    """A request with a JSON body, quoted for a shell: a resource may hold quotes."""
    address = shlex.quote(base_url.rstrip("/") + path)
    data = shlex.quote(orjson.dumps(body).decode())
    return f"curl -i {address} \\\n  -H 'content-type: application/json' \\\n  -d {data}"
