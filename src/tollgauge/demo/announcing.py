"""The file in which a demo seller announces changes of payTo, signed with the old payTo's key.

The keys are derived from public names. They control only the demo's coins.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import TYPE_CHECKING, Final

from coincurve import PrivateKey

from tollgauge.core.base.signature import recover_signer, text_digest
from tollgauge.core.base.units import BASE, DAY_MS, SECOND_MS
from tollgauge.core.directory.seller_file import Announcement

if TYPE_CHECKING:
    from tollgauge.demo.seller import Seller

AHEAD_MS: Final = 3 * DAY_MS
"""Time between an announcement and the change."""


@cache
def wallet(owner: str) -> str:
    """Return the address (lower-case hex) of an owner."""
    digest = text_digest(owner)
    return recover_signer(digest, _sign(owner, digest)) or ""


def turns(seller: Seller, start: int, end: int) -> range:
    """Return the times (ms UTC) after `start` and up to `end` at which the payTo changes."""
    return range((start // seller.turn_ms + 1) * seller.turn_ms, end + 1, seller.turn_ms)


def announcement(seller: Seller, turn_at: int) -> Announcement:
    """Return a seller's announcement of the change at a time."""
    number = turn_at // seller.turn_ms
    before, after = (seller.payees[place % len(seller.payees)] for place in (number - 1, number))
    return Announcement(
        host=seller.host,
        network=BASE,
        before=before,
        after=after,
        not_before=turn_at // SECOND_MS,
    )


def file_at(seller: Seller, now: int) -> bytes | None:
    """Return the seller's file at `now` (ms UTC), or None if the seller does not announce changes.

    The file lists the changes of the last and the next AHEAD_MS.
    """
    if not seller.owners:
        return None
    rows = []
    for turn_at in turns(seller, now - AHEAD_MS, now + AHEAD_MS):
        item = announcement(seller, turn_at)
        owner = seller.owners[(turn_at // seller.turn_ms - 1) % len(seller.owners)]
        rows.append(
            {
                "network": item.network,
                "from": item.before,
                "to": item.after,
                "notBefore": item.not_before,
                "signature": "0x" + _sign(owner, text_digest(item.text)).hex(),
            }
        )
    content = {
        "contact": f"ops@{seller.host}",
        "statement": f"We change our receiving wallet every {seller.turn_ms // DAY_MS} days and "
        f"announce each change here {AHEAD_MS // DAY_MS} days in advance.",
        "payToChanges": rows,
    }
    return json.dumps(content).encode()


def _sign(owner: str, digest: bytes) -> bytes:
    """Return the owner's signature of a digest: r, s, v."""
    key = PrivateKey(hashlib.sha256(f"the demo's wallet of {owner}".encode()).digest())
    signature = key.sign_recoverable(digest, hasher=None)
    return signature[:64] + bytes([27 + signature[64]])
