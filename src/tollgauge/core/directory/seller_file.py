"""SellerFile: what a seller says of itself at `https://HOST/.well-known/tollgauge.json`.

Rules (docs/seller-file.md):
- the file is a JSON object of at most BYTES_MAX; what it does not name, or names wrongly, is left
  out, and `problems` says so in words of ours;
- its texts are the provider's own and untrusted: cleaned, cut and shown as text only;
- a change of payTo counts as announced if the old payTo signed it (EIP-191) for this host, this
  network and these two addresses, we had read it before the instant that it names, and the change
  came after that instant, within ANNOUNCED_MS. So nothing that is written afterwards counts.

Fetching it is jobs/seller_files' work, the rows are store/endpoints/seller_file_states'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, EVM_ADDRESS_PATTERN, EVM_SIGNATURE_PATTERN, SECOND_MS

PATH: Final = "/.well-known/tollgauge.json"
BYTES_MAX: Final = 16 * 1_024
STATEMENT_MAX: Final = 500
CONTACT_MAX: Final = 200
CHANGES_MAX: Final = 20
"""How many changes of payTo one file can announce."""
ANNOUNCED_MS: Final = 14 * DAY_MS
"""For how long after the instant that an announcement names a change may come."""
VARIES: Final = "varies"
"""The value of `to` in the announcement that each offer will name another payTo."""
_TO: Final = re.compile(rf"{EVM_ADDRESS_PATTERN.pattern}|{VARIES}", re.ASCII)
_NETWORK: Final = re.compile(r"eip155:[1-9][0-9]{0,17}", re.ASCII)
_INSTANT_MAX: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A change of payTo that a host announces: on a CAIP-2 network from the address `before` to
    `after` (lower-case hex), not before an instant in unix seconds. An `after` of VARIES announces
    that each offer will name another payTo.
    """

    host: str
    network: str
    before: str
    after: str
    not_before: int

    @property
    def text(self) -> str:
        """What the old payTo signs."""
        return (
            "x402 payTo change\n"
            f"Host: {self.host}\n"
            f"Network: {self.network}\n"
            f"From: {self.before}\n"
            f"To: {self.after}\n"
            f"Not before: {self.not_before}"
        )

    def covers(self, at: int) -> bool:
        """Whether a change that was seen at an instant (ms UTC) came when this says."""
        begin = self.not_before * SECOND_MS
        return begin <= at <= begin + ANNOUNCED_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAnnouncement:
    """An announcement and the signature that came with it, which nobody checked yet. `place` is
    where it stands in its file.
    """

    announcement: Announcement
    signature: bytes
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SellerFile:
    """What a host's file says. `opt_out`: the seller asks not to be bought from as a test;
    `problems` are the parts that were left out, and why.
    """

    contact: str = ""
    statement: str = ""
    opt_out: bool = False
    announcements: tuple[SignedAnnouncement, ...] = ()
    problems: tuple[str, ...] = ()


def read(document: bytes, host: str) -> SellerFile | None:
    """The file of a host; None for what is no JSON object of at most BYTES_MAX. Never raises."""
    if len(document) > BYTES_MAX:
        return None
    try:
        content = orjson.loads(document)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(content, dict):
        return None
    problems = [
        f"`{name}` is not {kind}."
        for name, type_, kind in (
            ("contact", str, "a text"),
            ("statement", str, "a text"),
            ("optOut", bool, "true or false"),
            ("payToChanges", list, "a list"),
        )
        if name in content and not isinstance(content[name], type_)
    ]
    rows = content.get("payToChanges")
    rows = rows if isinstance(rows, list) else []
    if len(rows) > CHANGES_MAX:
        problems.append(
            f"`payToChanges` has more than {CHANGES_MAX} rows: the others are not read."
        )
    announcements = []
    for index, row in enumerate(rows[:CHANGES_MAX]):
        place = f"payToChanges[{index}]"
        signed = _signed(row, host, place)
        if isinstance(signed, str):
            problems.append(f"`{place}`: {signed}")
        else:
            announcements.append(signed)
    return SellerFile(
        contact=clean_text(content.get("contact"), CONTACT_MAX),
        statement=clean_text(content.get("statement"), STATEMENT_MAX),
        opt_out=content.get("optOut") is True,
        announcements=tuple(announcements),
        problems=tuple(problems),
    )


def _signed(row: object, host: str, place: str) -> SignedAnnouncement | str:
    """One announcement, or what is wrong with it."""
    if not isinstance(row, dict):
        return "it is not an object."
    fields: Mapping[str, Any] = row
    for name, pattern, kind in (
        ("network", _NETWORK, "a network of the EVM as `eip155:8453`"),
        ("from", EVM_ADDRESS_PATTERN, "an address of 20 bytes"),
        ("to", _TO, f"an address of 20 bytes or `{VARIES}`"),
        ("signature", EVM_SIGNATURE_PATTERN, "a signature in hex"),
    ):
        if not isinstance(fields.get(name), str) or not pattern.fullmatch(fields[name]):
            return f"`{name}` is not {kind}."
    not_before = fields.get("notBefore")
    if type(not_before) is not int or not 0 <= not_before < _INSTANT_MAX:
        return "`notBefore` is not an instant in unix seconds."
    return SignedAnnouncement(
        announcement=Announcement(
            host=host,
            network=fields["network"],
            before=fields["from"].lower(),
            after=fields["to"].lower(),
            not_before=not_before,
        ),
        signature=bytes.fromhex(fields["signature"][2:]),
        place=place,
    )
