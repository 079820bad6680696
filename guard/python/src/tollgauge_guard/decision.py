"""Decision: whether an offer may be paid. Pure; money is integers and `now` is an argument.

The rules are checked in the order of `Code`. The first rule that refuses decides; otherwise the
first that asks. guard/cases/decide.json has the rules as cases for every language.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from tollgauge_guard.codes import REMEDIES, Code
from tollgauge_guard.offer import BadOffer, Offer, Terms, read_terms
from tollgauge_guard.policy import GRADES, Policy, Trust, Unknown, normal_name
from tollgauge_guard.record import Conduct, Record
from tollgauge_guard.resource import ResourceError, parse
from tollgauge_guard.units import dollars

STALE_S: Final = 48 * 3_600  # an older bundle vouches for no endpoint
OLD_S: Final = 7 * 24 * 3_600  # an older bundle limits payments to `Policy.unknown_max`
MIN_ABUSIVE: Final = 3
PAYTO_VARIES: Final = "payto-varies"
_ORDER: Final = {code: index for index, code in enumerate(Code)}
_BY_TRUST: Final = frozenset(
    {
        *(Code.PAYTO_UNKNOWN, Code.PAYTO_VARIES, Code.PRICE_JUMP, Code.NETWORK_UNKNOWN),
        *(Code.RESOURCE_MISMATCH, Code.CAUTION),
    }
)
_BY_TRUSTED_PAYTO: Final = frozenset(
    {Code.AVOID, Code.GRADE_LOW, Code.HOST_ABUSIVE, Code.PAYTO_ABUSIVE}
)
_BY_TRUSTED_LIMIT: Final = frozenset({Code.UNKNOWN_RESOURCE, Code.BUNDLE_STALE})


@dataclass(frozen=True, slots=True)
class Allow:
    """The payment may be signed, with these terms. `warning` is a rule that was not decisive."""

    terms: Terms
    warning: Code | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The payment must not be signed. `remedy` names the setting that would allow it."""

    code: Code
    reason: str
    remedy: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        """Fill in the remedy of the code."""
        object.__setattr__(self, "remedy", self.remedy or REMEDIES[self.code])


@dataclass(frozen=True, slots=True)
class Ask:
    """The payment may be signed with these terms if the approver agrees."""

    code: Code
    reason: str
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The bundle's records for a request.

    `inherited` are the records of the URLs that redirected here and of variants of its path: they
    refuse and ask, and permit nothing. `host` and `payee` are the records of the host and of the
    offer's payTo. `as_of` is the time of the bundle (unix seconds), None without a bundle.
    """

    record: Record | None = None
    inherited: tuple[Record, ...] = ()
    host: Conduct | None = None
    payee: Conduct | None = None
    as_of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request that answered 402: its URL, the URLs that redirected to it, and the values of
    this call, which only tighten the policy.
    """

    url: object
    hops: tuple[str, ...] = ()
    max_amount: int | None = None
    expect_pay_to: str | None = None
    is_stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Spent amounts in micro-dollars: at the host and in total within 24 hours, in this
    session, and ever. `lost` and `losses` are the sum and number of unanswered payments at the
    host within 24 hours.
    """

    host: int = 0
    day: int = 0
    session: int = 0
    lifetime: int = 0
    lost: int = 0
    losses: int = 0

    def without(self, exposure: int, *, is_same_session: bool) -> Spent:
        """Return the sums without a payment of the last 24 hours."""
        return replace(
            self,
            host=max(0, self.host - exposure),
            day=max(0, self.day - exposure),
            session=max(0, self.session - exposure) if is_same_session else self.session,
            lifetime=max(0, self.lifetime - exposure),
        )


Decision = Allow | Refuse | Ask
Verdict = Refuse | Ask | None


def decide(
    known: Known, offer: Offer, asked: Asked, policy: Policy, now: int, spent: Spent
) -> Decision:
    """Return whether an offer may be paid at `now` (unix seconds). Never raises."""
    if asked.is_stopped:
        return Refuse(Code.STOPPED, "Payments were stopped.")
    mismatch = _check_resource(offer.resource_url, asked.url)
    if isinstance(mismatch, Refuse):
        return mismatch
    terms = read_terms(offer, policy)
    if isinstance(terms, BadOffer):
        if mismatch is not None:
            return Refuse(Code.RESOURCE_MISMATCH, mismatch)
        return Refuse(terms.code, terms.reason)
    host = parse(asked.url).host
    trust = _find_trust(terms, host, policy)
    age = None if known.as_of is None else abs(now - known.as_of)
    warning = None
    if mismatch is not None:
        is_fresh = age is not None and age <= STALE_S
        if not trust and not (is_fresh and _is_usual(known.record, terms, policy)):
            return Refuse(Code.RESOURCE_MISMATCH, mismatch)
        warning = Code.RESOURCE_MISMATCH
    overridden = _find_overrides(trust)
    verdicts = [
        _check_deny(terms, host, asked, policy),
        *_check_call(terms, asked, policy),
        *_check_records(known, terms, policy),
        _check_flow(terms),
        _check_age(age, terms, policy),
        _check_unknown(known.record, age, terms, policy),
        over_budget(terms.exposure, spent, policy),
        _check_losses(terms, spent, policy),
    ]
    left = [verdict for verdict in verdicts if verdict and verdict.code not in overridden]
    left.sort(key=lambda verdict: _ORDER[verdict.code])
    refused = (verdict for verdict in left if isinstance(verdict, Refuse))
    return next(refused, None) or next(iter(left), None) or Allow(terms, warning)


def over_budget(exposure: int, spent: Spent, policy: Policy) -> Refuse | None:
    """Return the refusal of a payment that exceeds a budget."""
    limits = (
        (Code.OVER_HOST_BUDGET, spent.host, policy.max_host_day, "paid to the host in 24 hours"),
        (Code.OVER_DAY_BUDGET, spent.day, policy.max_day, "spent in 24 hours"),
        (Code.OVER_SESSION_BUDGET, spent.session, policy.max_session, "spent in this session"),
        (Code.OVER_LIFETIME_BUDGET, spent.lifetime, policy.max_lifetime, "spent by this account"),
    )
    for code, sum_, limit, what in limits:
        if limit is not None and sum_ + exposure > limit:
            return Refuse(code, f"{dollars(sum_)} {what}; the limit is {dollars(limit)}.")
    return None


def is_over_losses(spent: Spent, policy: Policy) -> bool:
    """Whether a host took too much without an answer."""
    return spent.lost >= policy.loss_budget or spent.losses >= policy.loss_count


def _check_resource(resource_url: object, request_url: object) -> str | Refuse | None:
    """Return which other host a 402 names; a refusal if a URL cannot be read."""
    try:
        asked = parse(request_url)
    except ResourceError as error:
        return Refuse(Code.RESOURCE_MISMATCH, f"The requested URL cannot be read. {error}")
    try:
        claimed = parse(resource_url)
    except ResourceError as error:
        return Refuse(Code.RESOURCE_MISMATCH, f"The 402 names no URL as its resource. {error}")
    if not claimed.names_host_of(asked):
        return f"The 402 is for {claimed.origin}, but {asked.origin} was requested."
    return None


def _find_trust(terms: Terms, host: str, policy: Policy) -> Trust | None:
    """Return the owner's trust in the host, if it covers these terms."""
    trust = policy.trust.get(host)
    if trust is None or (trust.max is not None and terms.exposure > trust.max):
        return None
    if trust.pay_to and terms.pay_to not in map(normal_name, trust.pay_to):
        return None
    if trust.facilitator is not None and terms.facilitator != normal_name(trust.facilitator):
        return None
    return trust


def _find_overrides(trust: Trust | None) -> frozenset[Code]:
    if trust is None:
        return frozenset()
    if not trust.pay_to:
        return _BY_TRUST
    by_limit = _BY_TRUSTED_LIMIT if trust.max is not None else frozenset()
    return _BY_TRUST | _BY_TRUSTED_PAYTO | by_limit


def _check_deny(terms: Terms, host: str, asked: Asked, policy: Policy) -> Verdict:
    names = {host, terms.pay_to}
    for hop in asked.hops:
        try:
            names.add(parse(hop).host)
        except ResourceError:
            continue  # it could not be paid
    found = sorted(name for name in names if name in policy.deny)
    return Refuse(Code.DENIED, f"{found[0]} is on the deny list.") if found else None


def _check_call(terms: Terms, asked: Asked, policy: Policy) -> Iterator[Verdict]:
    limit = policy.max_call
    if asked.max_amount is not None:
        limit = min(limit, asked.max_amount)
    if terms.exposure > limit:
        reason = f"{dollars(terms.exposure)} is more than a call may cost ({dollars(limit)})."
        yield Refuse(Code.OVER_CALL_CAP, reason)
    expected = asked.expect_pay_to
    if expected is not None and terms.pay_to != normal_name(expected):
        yield Refuse(Code.PAYTO_UNEXPECTED, f"The offer is to {terms.pay_to}, not {expected}.")


def _check_records(known: Known, terms: Terms, policy: Policy) -> Iterator[Verdict]:
    """Judge by all records; an endpoint's own record decides about payTo, network and price."""
    own = known.record
    if own is not None:
        yield from _check_record(own, terms, policy)
    for record in known.inherited:
        if own is None:
            yield from _check_record(record, terms, policy)
        else:
            yield from _check_advice(record, terms, policy)
    if own is None or not own.offers:
        yield _check_conduct(Code.HOST_ABUSIVE, "the host", known.host, terms)
        yield _check_conduct(Code.PAYTO_ABUSIVE, "the payTo", known.payee, terms)


def _check_conduct(code: Code, what: str, found: Conduct | None, terms: Terms) -> Verdict:
    """Judge a host or a payTo, if the endpoint itself has no record."""
    if found is None or found.abusive == 0:
        return None
    reason = f"{found.abusive} of {found.endpoints} endpoints of {what} are abusive."
    if found.endpoints >= MIN_ABUSIVE and found.abusive == found.endpoints:
        return Refuse(code, reason)
    return Ask(code, reason, terms)


def _check_record(record: Record, terms: Terms, policy: Policy) -> Iterator[Verdict]:
    yield from _check_advice(record, terms, policy)
    if not record.offers:
        return
    if terms.pay_to not in record.pay_to:
        if PAYTO_VARIES in record.flags:
            reason = "The endpoint asks for another payTo each time."
            yield Ask(Code.PAYTO_VARIES, reason, terms)
        else:
            yield Refuse(
                Code.PAYTO_UNKNOWN,
                f"The endpoint did not ask to be paid at {terms.pay_to} in the last 30 days.",
            )
    if terms.network not in record.networks:
        networks = ", ".join(record.networks)
        yield Refuse(
            Code.NETWORK_UNKNOWN, f"The endpoint is known on {networks}, not on {terms.network}."
        )
    usual = record.usual_price(terms.network, terms.scheme)
    if usual is not None and terms.exposure > policy.price_factor * usual:
        reason = (
            f"{dollars(terms.exposure)} is more than {policy.price_factor} times the usual price "
            f"({dollars(usual)})."
        )
        yield Ask(Code.PRICE_JUMP, reason, terms)


def _check_advice(record: Record, terms: Terms, policy: Policy) -> Iterator[Verdict]:
    """Judge by the service's recommendation and grade."""
    if record.recommendation in (Code.NOT_PAYABLE, Code.AVOID):
        code = Code(record.recommendation)
        yield Refuse(code, f"The service recommends {record.recommendation}.")
    if not record.offers:
        return
    if record.recommendation == Code.CAUTION:
        yield Ask(Code.CAUTION, "The service recommends caution.", terms)
    if record.grade is not None and _rank(record.grade) > _rank(policy.min_grade):
        yield Ask(Code.GRADE_LOW, f"Grade {record.grade} is below {policy.min_grade}.", terms)


def _check_flow(terms: Terms) -> Verdict:
    if not terms.is_slow:
        return None
    return Ask(Code.FLOW_UNUSUAL, "The seller is paid before it does the work.", terms)


def _check_age(age: int | None, terms: Terms, policy: Policy) -> Verdict:
    if age is None:
        no_bundle = Refuse(Code.BUNDLE_OLD, "There is no bundle, and the policy fails closed.")
        return None if policy.fail_open else no_bundle
    if age > OLD_S and terms.exposure > policy.unknown_max:
        return Refuse(
            Code.BUNDLE_OLD,
            f"The bundle is older than 7 days, and {dollars(terms.exposure)} is more than "
            f"{dollars(policy.unknown_max)}.",
        )
    return None


def _check_unknown(record: Record | None, age: int | None, terms: Terms, policy: Policy) -> Verdict:
    """Apply `unknown` of the policy if the bundle does not recommend to pay the endpoint."""
    is_known = (
        record is not None
        and bool(record.offers)
        and record.recommendation in ("proceed", Code.CAUTION)
    )
    is_fresh = age is not None and age <= STALE_S
    if is_known and is_fresh:
        return None
    code = Code.UNKNOWN_RESOURCE if is_fresh or age is None else Code.BUNDLE_STALE
    reason = (
        "The bundle is older than 48 hours, so the endpoint counts as unknown."
        if code == Code.BUNDLE_STALE
        else "The bundle does not recommend this endpoint."
    )
    if policy.unknown == Unknown.REFUSE:
        return Refuse(code, reason)
    if policy.unknown == Unknown.ASK:
        return Ask(code, reason, terms)
    if terms.exposure > policy.unknown_max:
        limit = f" Up to {dollars(policy.unknown_max)} is paid without asking."
        return Ask(code, reason + limit, terms)
    return None


def _check_losses(terms: Terms, spent: Spent, policy: Policy) -> Verdict:
    if not is_over_losses(spent, policy):
        return None
    reason = f"The host took {dollars(spent.lost)} in {spent.losses} payments without an answer."
    return Ask(Code.OVER_LOSS_BUDGET, reason, terms)


def _is_usual(record: Record | None, terms: Terms, policy: Policy) -> bool:
    """Whether payTo, network and price are those of the record."""
    if record is None or terms.pay_to not in record.pay_to:
        return False
    usual = record.usual_price(terms.network, terms.scheme)
    is_network = terms.network in record.networks
    return is_network and usual is not None and terms.exposure <= policy.price_factor * usual


def _rank(grade: str) -> int:
    """Return 0 for the best grade; an unknown one is the worst."""
    return GRADES.index(grade) if grade in tuple(GRADES) else len(GRADES)
