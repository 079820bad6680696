"""SellerFile: a seller's statements at `https://HOST/.well-known/tollgauge.json`.

Rules (docs/seller-file.md):
- the file is a JSON object of at most BYTES_MAX; invalid members are ignored, and `problems` lists
  them in fixed texts;
- its texts are the provider's and untrusted: cleaned, cut and shown as text only;
- a change of payTo counts as announced if the old payTo signed it (EIP-191) for this host, this
  network and these two addresses, the file was read before the announced time, and the change came
  within ANNOUNCED_MS after it. An announcement written afterwards has no effect.

jobs/seller_files fetches the file, and store/endpoints/seller_file_states stores it.
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
"""Maximum number of changes of payTo that one file can announce."""
ANNOUNCED_MS: Final = 14 * DAY_MS
"""Period after the announced time in which the change may come."""
VARIES: Final = "varies"
"""Value of `to` that announces another payTo in each offer."""
_TO: Final = re.compile(rf"{EVM_ADDRESS_PATTERN.pattern}|{VARIES}", re.ASCII)
_NETWORK: Final = re.compile(r"eip155:[1-9][0-9]{0,17}", re.ASCII)
_UNIX_TIME_MAX: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A change of payTo that a host announces.

    Attributes:
        network: CAIP-2.
        before, after: Addresses in lower-case hex. If `after` is VARIES, each offer will name
        another
            payTo.
        not_before: Earliest time of the change, in Unix seconds.
    """

    host: str
    network: str
    before: str
    after: str
    not_before: int

    @property
    def text(self) -> str:
        """The text that the old payTo signs."""
        return (
            "x402 payTo change\n"
            f"Host: {self.host}\n"
            f"Network: {self.network}\n"
            f"From: {self.before}\n"
            f"To: {self.after}\n"
            f"Not before: {self.not_before}"
        )

    def covers(self, at: int) -> bool:
        """Return whether a change seen at a time (ms UTC) falls into the announced period."""
        begin = self.not_before * SECOND_MS
        return begin <= at <= begin + ANNOUNCED_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAnnouncement:
    """An announcement with its signature, not yet verified. `place` is its path in the file."""

    announcement: Announcement
    signature: bytes
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SellerFile:
    """The content of a host's file.

    Attributes:
        opt_out: The seller asks not to be bought from as a test.
        problems: The ignored members, with reasons.
    """

    contact: str = ""
    statement: str = ""
    opt_out: bool = False
    announcements: tuple[SignedAnnouncement, ...] = ()
    problems: tuple[str, ...] = ()


def read(document: bytes, host: str) -> SellerFile | None:
    """Parse the file of a host; None unless it is a JSON object of at most BYTES_MAX. Never
    raises.
    """
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
            ("contact", str, "a string"),
            ("statement", str, "a string"),
            ("optOut", bool, "true or false"),
            ("payToChanges", list, "an array"),
        )
        if name in content and not isinstance(content[name], type_)
    ]
    rows = content.get("payToChanges")
    rows = rows if isinstance(rows, list) else []
    if len(rows) > CHANGES_MAX:
        problems.append(
            f"`payToChanges` has more than {CHANGES_MAX} entries: the others are ignored."
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
    """Parse one announcement; return the problem if it is invalid."""
    if not isinstance(row, dict):
        return "it is not an object."
    fields: Mapping[str, Any] = row
    for name, pattern, kind in (
        ("network", _NETWORK, "an EVM network such as `eip155:8453`"),
        ("from", EVM_ADDRESS_PATTERN, "an address of 20 bytes"),
        ("to", _TO, f"an address of 20 bytes or `{VARIES}`"),
        ("signature", EVM_SIGNATURE_PATTERN, "a signature in hex"),
    ):
        if not isinstance(fields.get(name), str) or not pattern.fullmatch(fields[name]):
            return f"`{name}` is not {kind}."
    not_before = fields.get("notBefore")
    if type(not_before) is not int or not 0 <= not_before < _UNIX_TIME_MAX:
        return "`notBefore` is not a time in Unix seconds."
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
