"""SellerFile: a seller's statements at `https://HOST/.well-known/tollgauge.json`.

Rules (docs/seller-file.md):
- the file is a JSON object of at most BYTES_MAX; invalid members are ignored, and `problems` lists
  them in fixed texts;
- its texts are the provider's and untrusted: cleaned, cut and shown as text only;
- a change of payTo counts as announced if the old payTo signed it (EIP-191) for this host, this
  network and these two addresses, the file was read before the announced time, and the change came
  within ANNOUNCED_MS after it. An announcement written afterwards has no effect.
- a payTo that several sites share is shared by exactly the sites of the newest list that it signed,
  as long as the list is valid. A host can only publish a list that names its own site.

jobs/seller_files fetches the file, and store/endpoints/seller_file_states stores it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import orjson

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, EVM_ADDRESS_PATTERN, EVM_SIGNATURE_PATTERN, SECOND_MS
from tollgauge.core.endpoint.identity import site

T = TypeVar("T")

PATH: Final = "/.well-known/tollgauge.json"
BYTES_MAX: Final = 16 * 1_024
STATEMENT_MAX: Final = 500
CONTACT_MAX: Final = 200
CHANGES_MAX: Final = 20
"""Maximum number of changes of payTo that one file can announce."""
LISTS_MAX: Final = 5
"""Maximum number of lists of sites in a file."""
SITES_MAX: Final = 20
"""Maximum number of sites that share a payTo."""
LIST_VALID_MAX_S: Final = 400 * 86_400
"""Maximum time from the issue of a list to its expiry, in seconds."""
ANNOUNCED_MS: Final = 14 * DAY_MS
"""Period after the announced time in which the change may come."""
VARIES: Final = "varies"
"""Value of `to` that announces another payTo in each offer."""
_TO: Final = re.compile(rf"{EVM_ADDRESS_PATTERN.pattern}|{VARIES}", re.ASCII)
_NETWORK: Final = re.compile(r"eip155:[1-9][0-9]{0,17}", re.ASCII)
_ON_NETWORK: Final = ("network", _NETWORK, "an EVM network such as `eip155:8453`")
_UNIX_TIME_MAX: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A change of payTo that a host announces.

    Attributes:
        network: CAIP-2.
        before, after: Addresses in lower-case hex. If `after` is VARIES, each offer will name
            another payTo.
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
class SiteList:
    """The sites that share the demand of a payTo.

    Attributes:
        network: CAIP-2.
        pay_to: Address in lower-case hex.
        sites: Registrable domains, sorted.
        issued, expires: Unix seconds.
    """

    network: str
    pay_to: str
    sites: tuple[str, ...]
    issued: int
    expires: int

    @property
    def text(self) -> str:
        """The text that the payTo signs."""
        return (
            "x402 payTo sites\n"
            f"Network: {self.network}\n"
            f"PayTo: {self.pay_to}\n"
            f"Sites: {', '.join(self.sites)}\n"
            f"Issued: {self.issued}\n"
            f"Expires: {self.expires}"
        )

    def is_valid(self, at: int) -> bool:
        """Return whether it is valid at a time (ms UTC)."""
        return self.issued * SECOND_MS <= at < self.expires * SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedStatement(Generic[T]):
    """An announcement or a list with its signature, not yet verified. `place` is its path in the
    file.
    """

    statement: T
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
    announcements: tuple[SignedStatement[Announcement], ...] = ()
    site_lists: tuple[SignedStatement[SiteList], ...] = ()
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
            ("payToSites", list, "an array"),
        )
        if name in content and not isinstance(content[name], type_)
    ]
    announcements, wrong = _read_entries(content, "payToChanges", CHANGES_MAX, host, _read_change)
    site_lists, wrong_lists = _read_entries(content, "payToSites", LISTS_MAX, host, _read_site_list)
    problems += [*wrong, *wrong_lists]
    return SellerFile(
        contact=clean_text(content.get("contact"), CONTACT_MAX),
        statement=clean_text(content.get("statement"), STATEMENT_MAX),
        opt_out=content.get("optOut") is True,
        announcements=tuple(announcements),
        site_lists=tuple(site_lists),
        problems=tuple(problems),
    )


def _read_entries(
    content: Mapping[str, Any],
    name: str,
    most: int,
    host: str,
    parse: Callable[[Mapping[str, Any], str], T | str],
) -> tuple[list[SignedStatement[T]], list[str]]:
    """Parse the signed entries of a member; return them and the problems of the others."""
    rows = content.get(name)
    rows = rows if isinstance(rows, list) else []
    entries, problems = [], []
    if len(rows) > most:
        problems.append(f"`{name}` has more than {most} entries: the others are ignored.")
    for index, row in enumerate(rows[:most]):
        place = f"{name}[{index}]"
        entry = parse(row, host) if isinstance(row, dict) else "it is not an object."
        if isinstance(entry, str):
            problems.append(f"`{place}`: {entry}")
        else:
            signature = bytes.fromhex(row["signature"][2:])
            entries.append(SignedStatement(statement=entry, signature=signature, place=place))
    return entries, problems


def _find_problem(
    fields: Mapping[str, Any],
    texts: Iterable[tuple[str, re.Pattern[str], str]],
    times: Iterable[str],
) -> str:
    """Return the problem of an entry's texts and times, or an empty string."""
    for name, pattern, kind in (*texts, ("signature", EVM_SIGNATURE_PATTERN, "a signature in hex")):
        if not isinstance(fields.get(name), str) or not pattern.fullmatch(fields[name]):
            return f"`{name}` is not {kind}."
    for name in times:
        if type(fields.get(name)) is not int or not 0 <= fields[name] < _UNIX_TIME_MAX:
            return f"`{name}` is not a time in Unix seconds."
    return ""


def _read_site_list(fields: Mapping[str, Any], host: str) -> SiteList | str:
    """Parse one list of sites; return the problem if it is invalid."""
    texts = (_ON_NETWORK, ("payTo", EVM_ADDRESS_PATTERN, "an address of 20 bytes"))
    if problem := _find_problem(fields, texts, ("issued", "expires")):
        return problem
    sites = fields.get("sites")
    if not isinstance(sites, list) or not 1 <= len(sites) <= SITES_MAX:
        return f"`sites` is not an array of 1 to {SITES_MAX} domains."
    if any(not isinstance(one, str) or len(one) > 253 or site(one) != one for one in sites):
        return "`sites` contains a name that is not a registrable domain, such as `example.com`."
    if sorted(set(sites)) != sites:
        return "`sites` is not sorted, or contains a domain twice."
    if site(host) not in sites:
        return f"`sites` does not contain `{site(host)}`, the site of this host."
    if not 0 < fields["expires"] - fields["issued"] <= LIST_VALID_MAX_S:
        return f"`expires` is not within {LIST_VALID_MAX_S // 86_400} days after `issued`."
    return SiteList(
        network=fields["network"],
        pay_to=fields["payTo"].lower(),
        sites=tuple(sites),
        issued=fields["issued"],
        expires=fields["expires"],
    )


def _read_change(fields: Mapping[str, Any], host: str) -> Announcement | str:
    """Parse one announcement; return the problem if it is invalid."""
    texts = (
        _ON_NETWORK,
        ("from", EVM_ADDRESS_PATTERN, "an address of 20 bytes"),
        ("to", _TO, f"an address of 20 bytes or `{VARIES}`"),
    )
    if problem := _find_problem(fields, texts, ("notBefore",)):
        return problem
    return Announcement(
        host=host,
        network=fields["network"],
        before=fields["from"].lower(),
        after=fields["to"].lower(),
        not_before=fields["notBefore"],
    )
