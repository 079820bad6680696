"""Import of journals that earlier versions of this guard wrote (user_version 0 and 1), once."""

from __future__ import annotations

import base64
import json
import secrets
import sqlite3
from typing import Any, Final

from tollgauge_guard.address import parse_address
from tollgauge_guard.budget import Exposure, add_exposure
from tollgauge_guard.payment import State
from tollgauge_guard.purchase_key import account_id

_STATES: Final = {
    "in-flight": State.IN_FLIGHT,
    "unanswered": State.IN_FLIGHT,
    "open": State.OPEN,
    "unknown": State.OPEN,
    "refused": State.OPEN,
    "answered": State.DELIVERED,
    "settled": State.DELIVERED,
    "taken": State.PAID_UNANSWERED,
    "paid-unanswered": State.PAID_UNANSWERED,
    "not-taken": State.DEAD,
    "dead": State.DEAD,
    "lapsed": State.LAPSED,
    "written-off": State.WRITTEN_OFF,
}
_HAS_EARLIER: Final = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'payment'"
_DEFAULT_VALIDITY_S: Final = 3_600


def import_earlier(rows: sqlite3.Connection) -> None:
    """Copy the payments of an earlier schema in the same file, and drop its tables."""
    if rows.execute(_HAS_EARLIER).fetchone() == (0,):
        return
    cursor = rows.execute("SELECT * FROM payment ORDER BY id")
    names = [column[0] for column in cursor.description]
    for row in cursor.fetchall():
        _import(rows, dict(zip(names, row, strict=True)))
    rows.execute("DROP VIEW IF EXISTS entry")
    rows.execute("DROP TABLE payment")


def _import(rows: sqlite3.Connection, old: dict[str, Any]) -> None:
    if old["nonce"] is None and not old.get("header"):
        return  # a reservation: nothing was signed, or nothing that could leave
    state = _STATES.get(str(old["outcome"]), State.OPEN)
    status = old.get("status")
    if state is State.DELIVERED and not (status is not None and 200 <= status < 300):
        state = State.OPEN
    payer = old.get("payer") or payer_of(old.get("header") or "") or ""
    is_live = state in (State.IN_FLIGHT, State.OPEN)
    values = {
        "handle": secrets.token_hex(16),
        "account": account_id([payer]),
        "purchase": f"legacy:{old['request_digest']}",
        "session": "",
        "owner": "",
        "state": state,
        "at": old["at"],
        "changed_at": old["at"],
        "host": old["host"],
        "resource": old["resource"],
        "url_digest": "",
        "scheme": "exact",
        "method": "eip3009",
        "network": old["network"],
        "asset": old["asset"],
        "pay_to": old["pay_to"],
        "amount": old["amount"],
        "exposure": 0 if state is State.DEAD else old["micro_usd"],
        "payer": payer,
        "nonce": old["nonce"],
        "valid_before": old.get("valid_before") or old["at"] + _DEFAULT_VALIDITY_S,
        "payload": old.get("header") if is_live else None,
        "status": status,
        "settlement": old.get("settlement"),
        "found_at": old.get("found_at"),
    }
    names = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    rows.execute(f"INSERT INTO payments ({names}) VALUES ({marks})", values)  # noqa: S608
    exposure = Exposure(
        account=values["account"],
        network=values["network"],
        asset=values["asset"],
        host=values["host"],
        session="",
        at=values["at"],
    )
    add_exposure(rows, exposure, values["exposure"])


def payer_of(header: str) -> str | None:
    """Return the signer of the EIP-3009 authorization in a payment header, None without one."""
    try:
        payload = json.loads(base64.b64decode(header))["payload"]
        return parse_address(payload["authorization"]["from"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
