"""JSON of facilitators: `GET /trust/facilitators`."""

from __future__ import annotations

from tollgauge.core.base.units import network_of
from tollgauge.monitor.facilitators import FacilitatorRecord, Facilitators
from tollgauge.store.chain.periods import ChainPeriods
from tollgauge.store.chain.submitters import SETTLED, FacilitatorSample
from tollgauge.web.wire.response_model import Day, Dollars, ResponseModel, Time, from_attribute


class SettledResponse(ResponseModel):
    """Payments to monitored sellers that the address submitted in the complete days."""

    settlements: int
    volume_usd: Dollars = from_attribute("volume")
    buyers: int


class AttemptsResponse(ResponseModel):
    """Attempts of the address, to any seller, in sampled blocks of the last 30 days. `failedShare`
    of the `attempts` moved no money; `failures` counts these by the party that caused them:
    `facilitator`, `payer`, `chain` (the token's contract refused), or `unknown`. `p50DelaySeconds`
    and `p95DelaySeconds` are from the payer's signature to the block, null unless a client signed
    the time.
    """

    attempts: int
    failed_share: float
    failures: dict[str, int]
    forms: list[str]
    p50_delay_seconds: int | None = from_attribute("p50_delay_s")
    p95_delay_seconds: int | None = from_attribute("p95_delay_s")


class ChainFacilitatorResponse(ResponseModel):
    """One address that submits payments. `configured` if this service's facilitator names it as its
    signer. `settled` and `sampled` are null if none of its payments were seen in that way.
    """

    address: str
    configured: bool
    settled: SettledResponse | None
    sampled: AttemptsResponse | None


class ChainFacilitatorsResponse(ResponseModel):
    """The facilitators of a network in the `days` complete UTC days up to `lastDay`, those with the
    most settlements first. `lookedUpShare` of the settlements were looked up (null without
    settlements).
    """

    network: str
    last_day: Day
    days: int
    settlements: int
    looked_up_share: float | None
    facilitators: list[ChainFacilitatorResponse]


class SupportedChangeResponse(ResponseModel):
    """Payment kinds and signers that `/supported` added or removed."""

    at: Time
    added: list[str]
    removed: list[str]


class AvailabilityResponse(ResponseModel):
    """Requests for `/supported` on a UTC day, and how many were answered."""

    day: Day
    requests: int
    answered: int


class ConfiguredFacilitatorResponse(ResponseModel):
    """The facilitator that settles this service's own sales. `kinds` (version, scheme, network) and
    `signers` are as `/supported` last named them; `changes` are newest first.
    """

    host: str
    checked_at: Time
    answered: bool
    kinds: list[str]
    signers: list[str]
    answered_share: float
    days: list[AvailabilityResponse]
    changes: list[SupportedChangeResponse]


class FacilitatorsResponse(ResponseModel):
    """Facilitators by network, and the one that this service uses, null if it sells nothing."""

    networks: list[ChainFacilitatorsResponse]
    configured: ConfiguredFacilitatorResponse | None


def facilitators(known: Facilitators) -> FacilitatorsResponse:
    """Build the JSON of facilitators."""
    return FacilitatorsResponse(
        networks=[_chain(chain) for chain in known.chains if chain.facilitators],
        configured=None if known.configured is None else _record(known.configured),
    )


def _chain(chain: ChainPeriods) -> ChainFacilitatorsResponse:
    period = chain.facilitators[-1]
    samples = {sample.address: sample for sample in chain.samples}
    rows = [
        ChainFacilitatorResponse(
            address=row.address,
            configured=row.configured,
            settled=SettledResponse.build(row),
            sampled=_attempts(samples.pop(row.address, None)),
        )
        for row in period.top
    ]
    rows += [
        ChainFacilitatorResponse(
            address=address, configured=False, settled=None, sampled=_attempts(sample)
        )
        for address, sample in samples.items()
    ]
    return ChainFacilitatorsResponse.build(
        period, chain, network=network_of(chain.chain), facilitators=rows
    )


def _attempts(sample: FacilitatorSample | None) -> AttemptsResponse | None:
    if sample is None:
        return None
    failures = {outcome: count for outcome, count in sample.outcomes if outcome != SETTLED}
    attempts, failed = sum(count for _, count in sample.outcomes), sum(failures.values())
    return AttemptsResponse.build(
        sample, attempts=attempts, failed_share=failed / attempts, failures=failures
    )


def _record(record: FacilitatorRecord) -> ConfiguredFacilitatorResponse:
    requests = sum(count for _, count, _ in record.days)
    answers = sum(count for *_, count in record.days)
    return ConfiguredFacilitatorResponse.build(
        record,
        answered_share=answers / requests,
        days=[
            AvailabilityResponse.build(day=day, requests=count, answered=answered)
            for day, count, answered in record.days
        ],
    )
