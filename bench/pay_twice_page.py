"""docs/pay-twice.md: the results of `bench pay-twice` as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import Template
from typing import Final

from bench.document import FILE
from bench.pay_twice import CLIENT_TIMEOUT_S, PROGRAMS, Client, Outcome, Results, Totals
from bench.pay_twice_world import Fault

PAGE: Final = FILE.with_name("pay-twice.md")
_TEMPLATE: Final = PROGRAMS / "page.md"
NOT_MEASURED: Final = {
    "aegis-buy 0.2.1": "cannot pay with x402 2.25, whose `handle_response` needs a URL",
    "bonanza-x402 0.1.0": "judges amounts and sends no request",
    "letagentpay 0.2.4": "asks its hosted service for each payment",
    "presidio-hardened-x402 0.13.0": "reads offers only from a header that official sellers lack",
    "tollwarden 0.8.0": "asks its hosted service for each payment",
    "tryx402 0.4.2": "pays through the program AgentCash",
    "x402-firewall 0.1.0": "`pay_x402` is a stub that sends no request",
    "x402-policy 0.2.0": "pays through its own relay",
}
"""Guards by others that were installed and do not pay these sellers."""


def write_page(results: Results, clients: Sequence[Client], machine: str) -> str:
    """Return the page."""
    ours = {client.name for client in clients if client.is_ours}
    guarded = [one for one in results.outcomes if one.client in ours]
    missing = {**NOT_MEASURED, **dict.fromkeys(results.missing, "not installed")}
    return Template(_TEMPLATE.read_text()).substitute(
        timeout=CLIENT_TIMEOUT_S,
        machine=machine,
        totals=_totals(results.totals),
        faults=_faults(results),
        lost=_count_lost(guarded),
        missing="".join(f"- `{name}`: {reason}.\n" for name, reason in missing.items()),
    )


def _totals(totals: dict[str, Totals]) -> str:
    rows = [
        (
            f"`{name}`",
            sums.purchases,
            _strong(sums.signed_twice),
            _strong(sums.paid_twice),
            sums.answered,
            sums.paid_unanswered,
            sums.unpaid,
        )
        for name, sums in totals.items()
    ]
    head = ("client", "purchases", "signed twice", "paid twice", "answered", "paid, no answer")
    return _table((*head, "not paid"), rows)


def _faults(results: Results) -> str:
    names = list(results.totals)
    rows = []
    for fault in Fault:
        cells = []
        for name in names:
            runs = [one for one in results.outcomes if (one.client, one.fault) == (name, fault)]
            counts = (
                sum(one.signed for one in runs),
                sum(one.settled for one in runs),
                sum(one.is_answered for one in runs),
            )
            cells.append("/".join(map(str, counts)) if runs else "")
        rows.append((str(fault), *cells))
    return _table(("fault", *(f"`{name}`" for name in names)), rows)


def _count_lost(outcomes: Sequence[Outcome]) -> str:
    sellers = list(dict.fromkeys(one.seller for one in outcomes))
    rows = []
    for fault in Fault:
        cells = []
        for seller in sellers:
            runs = [one for one in outcomes if (one.seller, one.fault) == (seller, fault)]
            lost = sum(one.settled > 0 and not one.is_answered for one in runs)
            cells.append(f"{lost} of {len(runs)}")
        rows.append((str(fault), *cells))
    return _table(("fault", *sellers), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in lines)


def _strong(number: int) -> str:
    return f"**{number}**" if number else "0"
