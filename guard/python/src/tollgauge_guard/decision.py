"""Decision: whether an offer may be paid. Pure; money is integers and `now` an argument.

The rules are checked in the order of `Code`. The first rule that refuses decides; where none does,
the first that asks. So nobody is asked about a payment that a later rule refuses anyway.
guard/cases/decisions.json holds the same rules as cases for every language.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge_guard.address import parse_address
from tollgauge_guard.offer import EIP_3009, SCHEME, Offer, Terms
from tollgauge_guard.policy import GRADES, Policy, Unknown
from tollgauge_guard.record import Record
from tollgauge_guard.resource import ResourceError, parse
from tollgauge_guard.units import USDC, Asset, dollars, parse_amount

STALE_S: Final = 48 * 3_600
"""A bundle that is older than this vouches for nobody; what it refuses stays refused."""
OLD_S: Final = 7 * 24 * 3_600
"""A bundle that is older than this lets pay no more than `Policy.unknown_max`."""
REPEAT_S: Final = 600
"""The time in which payments for the same request are counted."""
PAYTO_VARIES: Final = "payto-varies"
"""The flag of an endpoint that has asked for another payee each time since it was first seen."""
_ASSETS: Final = {(asset.network, asset.address): asset for asset in USDC}


class Code(StrEnum):
    """Why a payment was refused or needs consent, in the order in which it is checked."""

    RESOURCE_MISMATCH = "resource-mismatch"
    """The 402 names another host than the one that was asked, and payTo or price are not known."""
    ASSET_UNKNOWN = "asset-unknown"
    """It asks for no `exact` EIP-3009 transfer of the network's USDC or an allowed token."""
    AMOUNT_INVALID = "amount-invalid"
    """The amount is no positive number of atomic units."""
    OVER_CALL_CAP = "over-call-cap"
    """The amount is above `max_call`."""
    PAYTO_MALFORMED = "payto-malformed"
    """The payee is no address, has a wrong checksum, or is the token itself."""
    TIMEOUT_INVALID = "timeout-invalid"
    """The authorization would be valid for no time, or for longer than `max_timeout`."""
    NOT_PAYABLE = "not-payable"
    """The service recommends `not-payable`."""
    AVOID = "avoid"
    """The service recommends `avoid`."""
    PAYTO_UNKNOWN = "payto-unknown"
    """The endpoint did not ask to be paid to this address in the last 30 days."""
    PAYTO_VARIES = "payto-varies"
    """The endpoint asks for another payee each time, and the policy has no pin that fits: asks
    without a pin of the host, refuses where the pin does not fit.
    """
    NETWORK_UNKNOWN = "network-unknown"
    """The endpoint is known on another network."""
    PRICE_JUMP = "price-jump"
    """The amount is above `price_factor` times the known price."""
    CAUTION = "caution"
    """The service recommends `caution`: asks."""
    GRADE_LOW = "grade-low"
    """The grade is below `min_grade`: asks."""
    BUNDLE_OLD = "bundle-old"
    """The bundle is older than 7 days and the amount above `unknown_max`, or there is no bundle."""
    UNKNOWN_RESOURCE = "unknown-resource"
    """The bundle does not know the endpoint, or has no opinion: `unknown` says what to do."""
    BUNDLE_STALE = "bundle-stale"
    """The bundle is older than 48 hours, so the endpoint counts as unknown."""
    OVER_HOST_BUDGET = "over-host-budget"
    """With this payment the host would get more than `max_host_day` today."""
    OVER_DAY_BUDGET = "over-day-budget"
    """With this payment more than `max_day` would be spent today."""
    RETRY_STORM = "retry-storm"
    """The same request was paid `max_repeats` times in the last ten minutes."""
    SIGNED_DIFFERS = "signed-differs"
    """What was signed, or is about to be sent, is not what was allowed."""
    PAYMENT_UNRESOLVED = "payment-unresolved"
    """An earlier payment of the same purchase has no answer, and may still be taken or was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was signed before: micro-dollars today (UTC) to this host and to all, and how often
    this very request was paid in the last ten minutes.
    """

    host_day: int = 0
    day: int = 0
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Allow:
    """The payment may be signed, with these terms. `warning` is a rule that speaks against it and
    does not decide.
    """

    terms: Terms
    warning: Code | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The payment must not be signed."""

    code: Code
    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """The payment may be signed, with these terms, if whoever is asked agrees."""

    code: Code
    reason: str
    terms: Terms


Decision = Allow | Refuse | Ask
Verdict = Refuse | Ask | None


def decide(
    record: Record | None,
    offer: Offer,
    request_url: object,
    policy: Policy,
    now: int,
    *,
    bundle_as_of: int | None,
    spent: Spent,
    inherited: Sequence[Record] = (),
) -> Decision:
    """Whether an offer that answered a request to `request_url` may be paid at `now` (unix
    seconds). `record` is what the bundle of `bundle_as_of` (unix seconds, None: there is no bundle)
    knows of the endpoint. `inherited` are the records of the URLs that redirected there, and of
    variants of its path: they refuse and ask, and permit nothing. Never raises, whatever the offer
    holds.
    """
    mismatch = _resource_mismatch(offer.resource_url, request_url)
    if isinstance(mismatch, Refuse):
        return mismatch
    terms = read_terms(offer, policy)
    age = None if bundle_as_of is None else abs(now - bundle_as_of)
    if mismatch is not None:
        is_fresh = age is not None and age <= STALE_S
        if isinstance(terms, Refuse) or not is_fresh or not _is_usual(record, terms, policy):
            return Refuse(Code.RESOURCE_MISMATCH, mismatch)
    if isinstance(terms, Refuse):
        return terms
    host = parse(request_url).host
    verdicts = [
        *_of_record(record, terms, host, policy),
        *_of_inherited(inherited, record, terms, host, policy),
        _of_age(age, terms, policy),
        _of_unknown(record, age, terms, policy),
        over_budget(terms.micro_usd, spent, policy),
    ]
    refused = (verdict for verdict in verdicts if isinstance(verdict, Refuse))
    asked = (verdict for verdict in verdicts if isinstance(verdict, Ask))
    warning = None if mismatch is None else Code.RESOURCE_MISMATCH
    return next(refused, None) or next(asked, None) or Allow(terms, warning)


def read_terms(offer: Offer, policy: Policy) -> Terms | Refuse:
    """The terms of an offer that is well formed and within the limit of a call."""
    asset = _asset(offer, policy)
    if asset is None:
        return Refuse(
            Code.ASSET_UNKNOWN,
            "It asks for something else than an exact transfer of the network's USDC by signature.",
        )
    amount = parse_amount(offer.amount)
    if amount is None:
        return Refuse(Code.AMOUNT_INVALID, "The amount is no positive number of atomic units.")
    micro_usd = asset.micro_usd(amount)
    if micro_usd > policy.max_call:
        return Refuse(
            Code.OVER_CALL_CAP,
            f"{dollars(micro_usd)} is more than one call may cost ({dollars(policy.max_call)}).",
        )
    contract = asset.address.lower()
    pay_to = parse_address(offer.pay_to)
    if pay_to is None or pay_to == contract:
        return Refuse(Code.PAYTO_MALFORMED, "The payee is no address of an account.")
    timeout = offer.timeout
    if type(timeout) is not int or not 1 <= timeout <= policy.max_timeout:
        return Refuse(
            Code.TIMEOUT_INVALID,
            f"The payment would not be valid for 1 to {policy.max_timeout} seconds.",
        )
    name, version = _domain(offer, asset)
    return Terms(
        network=asset.network,
        asset=contract,
        amount=amount,
        micro_usd=micro_usd,
        pay_to=pay_to,
        timeout=timeout,
        domain_name=name,
        domain_version=version,
        facilitator=_facilitator(offer),
    )


def over_budget(micro_usd: int, spent: Spent, policy: Policy) -> Refuse | None:
    """Whether a payment goes over a budget of the day, or repeats one too often."""
    if spent.host_day + micro_usd > policy.max_host_day:
        return Refuse(
            Code.OVER_HOST_BUDGET,
            f"The host got {dollars(spent.host_day)} today, and may get "
            f"{dollars(policy.max_host_day)} a day.",
        )
    if spent.day + micro_usd > policy.max_day:
        return Refuse(
            Code.OVER_DAY_BUDGET,
            f"{dollars(spent.day)} were spent today, and {dollars(policy.max_day)} may be.",
        )
    if spent.repeats >= policy.max_repeats:
        return Refuse(
            Code.RETRY_STORM,
            f"The same request was paid {spent.repeats} times in {REPEAT_S // 60} minutes.",
        )
    return None


def _resource_mismatch(resource_url: object, request_url: object) -> str | Refuse | None:
    """Which other host a 402 names; a refusal where one of the URLs cannot be read."""
    try:
        asked = parse(request_url)
    except ResourceError as error:
        reason = f"The URL that was asked cannot be read. {error}"
        return Refuse(Code.RESOURCE_MISMATCH, reason)
    try:
        claimed = parse(resource_url)
    except ResourceError as error:
        return Refuse(Code.RESOURCE_MISMATCH, f"The 402 names no URL as its resource. {error}")
    if not claimed.names_host_of(asked):
        return f"The 402 is for {claimed.origin}, but {asked.origin} was asked."
    return None


def _is_usual(record: Record | None, terms: Terms, policy: Policy) -> bool:
    """Whether payTo, network and price are those of the record."""
    return (
        record is not None
        and terms.pay_to in {payee.address.lower() for payee in record.payees}
        and terms.network == record.network
        and record.amount is not None
        and terms.micro_usd <= policy.price_factor * record.amount
    )


def _asset(offer: Offer, policy: Policy) -> Asset | None:
    """The token of an offer, None unless the guard can read what would be signed for it."""
    network, address = offer.network, offer.asset
    extra = offer.extra if isinstance(offer.extra, dict) else {}
    method = extra.get("assetTransferMethod", EIP_3009)
    if not isinstance(network, str) or not isinstance(address, str):
        return None
    if offer.scheme != SCHEME or method != EIP_3009:
        return None
    key = (network, address.lower())
    allowed = {(asset.network, asset.address.lower()): asset for asset in policy.assets}
    return _ASSETS.get(key) or allowed.get(key)


def _domain(offer: Offer, asset: Asset) -> tuple[str, str]:
    """Name and version of the token's EIP-712 domain, as the SDK takes them from an offer."""
    extra = offer.extra if isinstance(offer.extra, dict) else {}
    if "name" not in extra:
        return asset.domain_name, asset.domain_version
    name, version = extra["name"], extra.get("version", "1")
    return name if isinstance(name, str) else "", version if isinstance(version, str) else ""


def _facilitator(offer: Offer) -> str | None:
    extra = offer.extra if isinstance(offer.extra, dict) else {}
    return parse_address(extra.get("facilitatorAddress"))


def _of_inherited(
    inherited: Sequence[Record], own: Record | None, terms: Terms, host: str, policy: Policy
) -> Iterator[Verdict]:
    """What the records of redirecting URLs and of path variants refuse or ask. An endpoint with a
    record of its own is held to its own payTo, network and price.
    """
    for record in inherited:
        if own is None:
            yield from _of_record(record, terms, host, policy)
        else:
            yield from _of_advice(record, terms, policy)


def _of_advice(record: Record, terms: Terms, policy: Policy) -> Iterator[Verdict]:
    """What the service advises about an endpoint."""
    if record.recommendation in (Code.NOT_PAYABLE, Code.AVOID):
        yield Refuse(Code(record.recommendation), f"The service says {record.recommendation}.")
    if not record.payees:
        return
    if record.recommendation == Code.CAUTION:
        yield Ask(Code.CAUTION, "The service says caution.", terms)
    if record.grade is not None and _rank(record.grade) > _rank(policy.min_grade):
        yield Ask(Code.GRADE_LOW, f"Grade {record.grade} is below {policy.min_grade}.", terms)


def _of_payee(record: Record, terms: Terms, host: str, policy: Policy) -> Verdict:
    """Whether the payee is one of the endpoint's."""
    if terms.pay_to in {payee.address.lower() for payee in record.payees}:
        return None
    if PAYTO_VARIES not in record.flags:
        return Refuse(
            Code.PAYTO_UNKNOWN,
            f"The endpoint did not ask to be paid at {terms.pay_to} in the last 30 days.",
        )
    pin = policy.pins.get(host)
    if pin is None:
        reason = "The endpoint asks for another payee each time, and its host is not pinned."
        return Ask(Code.PAYTO_VARIES, reason, terms)
    if terms.micro_usd > pin.max_amount:
        reason = f"{dollars(terms.micro_usd)} is more than the pin of {host} allows "
        return Refuse(Code.PAYTO_VARIES, f"{reason}({dollars(pin.max_amount)}).")
    if pin.facilitator is not None and terms.facilitator != pin.facilitator.lower():
        reason = f"The offer does not name the facilitator that {host} is pinned to."
        return Refuse(Code.PAYTO_VARIES, reason)
    return None


def _of_record(record: Record | None, terms: Terms, host: str, policy: Policy) -> Iterator[Verdict]:
    """What the bundle knows of the endpoint."""
    if record is None:
        return
    yield from _of_advice(record, terms, policy)
    if not record.payees:
        return
    yield _of_payee(record, terms, host, policy)
    if record.network is not None and terms.network != record.network:
        yield Refuse(
            Code.NETWORK_UNKNOWN,
            f"The endpoint is known on {record.network}, not on {terms.network}.",
        )
    if record.amount is not None and terms.micro_usd > policy.price_factor * record.amount:
        yield Refuse(
            Code.PRICE_JUMP,
            f"{dollars(terms.micro_usd)} is more than {policy.price_factor} times the known price "
            f"({dollars(record.amount)}).",
        )


def _of_unknown(record: Record | None, age: int | None, terms: Terms, policy: Policy) -> Verdict:
    """What the policy says where the bundle does not vouch for the endpoint."""
    is_known = (
        record is not None
        and bool(record.payees)
        and record.recommendation in ("proceed", Code.CAUTION)
    )
    is_fresh = age is not None and age <= STALE_S
    if is_known and is_fresh:
        return None
    code = Code.UNKNOWN_RESOURCE if is_fresh or age is None else Code.BUNDLE_STALE
    why = (
        "The bundle is older than 48 hours, so the endpoint counts as unknown."
        if code == Code.BUNDLE_STALE
        else "Nothing is known of this endpoint."
    )
    if policy.unknown == Unknown.REFUSE:
        return Refuse(code, why)
    if policy.unknown == Unknown.ASK or terms.micro_usd > policy.unknown_max:
        limit = f" Up to {dollars(policy.unknown_max)} would be paid unasked."
        return Ask(code, why + (limit if policy.unknown == Unknown.ALLOW_UP_TO else ""), terms)
    return None


def _of_age(age: int | None, terms: Terms, policy: Policy) -> Verdict:
    """What the age of the bundle forbids."""
    if age is None:
        no_bundle = Refuse(
            Code.BUNDLE_OLD, "There is no bundle, and the policy does not fail open."
        )
        return None if policy.fail_open else no_bundle
    if age > OLD_S and terms.micro_usd > policy.unknown_max:
        return Refuse(
            Code.BUNDLE_OLD,
            f"The bundle is older than 7 days, and {dollars(terms.micro_usd)} is more than "
            f"{dollars(policy.unknown_max)}.",
        )
    return None


def _rank(grade: str) -> int:
    """0 for the best grade; an unknown one is the worst."""
    return GRADES.index(grade) if grade in tuple(GRADES) else len(GRADES)
