"""A seller's file, with announcements signed by real keys."""

from __future__ import annotations

import json
from typing import Any

from eth_account import Account
from eth_account.messages import encode_defunct

from tollgauge.core.directory.seller_file import Announcement, SiteList

HOST = "api.seller.dev"
NETWORK = "eip155:8453"
OLD = Account.from_key("0x" + "11" * 32)
NEW = Account.from_key("0x" + "22" * 32)


def announcement(**changed: Any) -> Announcement:
    """Return the old payTo's announcement of the new one, with changes."""
    values = {
        "host": HOST,
        "network": NETWORK,
        "before": OLD.address.lower(),
        "after": NEW.address.lower(),
        "not_before": 1_795_000_000,
    }
    return Announcement(**(values | changed))


def row(item: Announcement, *, by: Any = OLD, **changed: Any) -> dict[str, Any]:
    """Return an announcement as it appears in the file, signed."""
    signature = by.sign_message(encode_defunct(text=item.text)).signature
    written = {
        "network": item.network,
        "from": item.before,
        "to": item.after,
        "notBefore": item.not_before,
        "signature": "0x" + bytes(signature).hex(),
    }
    return written | changed


def site_list(**changed: Any) -> SiteList:
    """Return a list of two sites that share the old payTo, with changes."""
    values = {
        "network": NETWORK,
        "pay_to": OLD.address.lower(),
        "sites": ("other.com", "seller.dev"),
        "issued": 1_794_000_000,
        "expires": 1_800_000_000,
    }
    return SiteList(**(values | changed))


def list_row(item: SiteList, *, by: Any = OLD, **changed: Any) -> dict[str, Any]:
    """Return a list of sites as it appears in the file, signed."""
    signature = by.sign_message(encode_defunct(text=item.text)).signature
    written = {
        "network": item.network,
        "payTo": item.pay_to,
        "sites": list(item.sites),
        "issued": item.issued,
        "expires": item.expires,
        "signature": "0x" + bytes(signature).hex(),
    }
    return written | changed


def file(*rows: Any, **fields: Any) -> bytes:
    """Return a file with announcements."""
    return json.dumps({"payToChanges": list(rows)} | fields).encode()
