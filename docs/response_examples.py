"""The response examples of the OpenAPI document, produced by the code of the real responses.

One invented endpoint is scored from invented evidence. `docs/generate.py` writes the responses as
JSON files to web/wire/examples, and a test compares the files with the output of the code. No value
is null, because FastAPI would omit it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

import orjson
from msgspec import structs

from docs.statistics_examples import AS_OF, as_json, calibration, facilitators, shares, stats
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS, day_of
from tollgauge.core.directory.entry_record import (
    CatalogueStatus,
    DropReason,
    EntryStatement,
    TermDifference,
)
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import KnownOffer, Quote
from tollgauge.core.guard.bundle import TrustRecord
from tollgauge.core.guard.preflight import PreflightOffer, decide
from tollgauge.core.lists.rated_endpoint import RatedEndpoint, extract_figures
from tollgauge.core.probe.exchange import OfficialClient, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult, Spans
from tollgauge.core.probe.rollup import rollup
from tollgauge.core.score.evidence import (
    Anchor,
    ChainEvidence,
    DemandEvidence,
    Evidence,
    LastProbe,
    LatestState,
)
from tollgauge.core.score.improvement import improvements
from tollgauge.core.score.income import Income, TopPayer, WalletIncome
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import score_from_json
from tollgauge.monitor.directories import DirectoryEntry, DirectoryFigures, DirectoryReport
from tollgauge.monitor.lists import EndpointPage, Search, SearchResult
from tollgauge.monitor.ranking import MoreOfSite
from tollgauge.monitor.reports.overview import Leaderboard
from tollgauge.monitor.reports.snapshots import Snapshot, build_snapshot
from tollgauge.monitor.reports.trust_reports import Sample, TrustReport
from tollgauge.monitor.reports.wallets import NetworkIncome, Wallet
from tollgauge.monitor.scoring import score_evidence
from tollgauge.store.endpoints.listings import StoredListing
from tollgauge.store.scores.scores import ScoreRow
from tollgauge.web.free.downloads import describe
from tollgauge.web.free.preflight import build_decision
from tollgauge.web.wire import directory_answers, lists, snapshots, trust
from tollgauge.web.wire.examples import BASE_URL, PAY_TO, RESOURCE
from tollgauge.web.wire.trust import short
from tollgauge.web.wire.wallet_answers import wallet_response

_QUOTE: Final = Quote(
    network="eip155:8453",
    asset="0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
    amount=10_000,
    pay_to=PAY_TO,
)
_ANCHORS: Final = tuple(
    Anchor(owner=owner, since=AS_OF - 90 * DAY_MS, addresses=("0x" + digit * 40,))
    for owner, digit in (("books.example", "a"), ("maps.example", "b"), ("news.example", "c"))
)
_ENDPOINT: Final = Endpoint(
    id=parse_resource(RESOURCE).id,
    resource=RESOURCE,
    host="api.example.com",
    learned="GET",
    first_seen=AS_OF - 60 * DAY_MS,
    last_seen=AS_OF - HOUR_MS,
    last_probed=AS_OF - MINUTE_MS,
    service_name="Example Weather",
    description="Current conditions for any city.",
    sources=("cdp",),
    quote=_QUOTE,
    quote_at=AS_OF - 60 * DAY_MS,
)

_FIGURES: Final = DirectoryFigures(
    source="cdp",
    entries=14_865,
    dead=2_230,
    compared=11_200,
    wrong_price=560,
    wrong_pay_to=112,
    median_age_ms=41 * DAY_MS,
    crawled_at=AS_OF - HOUR_MS,
    duplicates=318,
)


def trust_report() -> Any:
    """Return a trust report as sold by default."""
    return as_json(short(trust.trust_report(sample_report(), base_url=BASE_URL)))


def evidence() -> Any:
    """Return the evidence of the example's score."""
    return orjson.loads(_row().evidence)


def preview() -> Any:
    """Return the preview."""
    roles = (("best", 1), ("median", 20), ("worst", 40))
    # The roles are the three literals that Sample accepts; mypy sees plain strings.
    samples = tuple(Sample(role=role, rank=rank, report=sample_report()) for role, rank in roles)  # type: ignore[arg-type]
    return as_json(trust.preview(samples, base_url=BASE_URL))


def leaderboard() -> Any:
    """Return the leaderboard."""
    row = _endpoint()
    more = {row.id: MoreOfSite("example.com", 12)}
    board = Leaderboard(as_of=AS_OF, policy_version=POLICY.version, rows=(row,), more=more)
    return as_json(snapshots.leaderboard(board, base_url=BASE_URL))


def snapshot() -> Any:
    """Return a snapshot."""
    return as_json(snapshots.snapshot(_snapshot(), now=AS_OF + 2 * HOUR_MS, base_url=BASE_URL))


def preflight() -> Any:
    """Return a preflight for an offer with an unknown payTo."""
    offer = KnownOffer(_QUOTE.network, "exact", PAY_TO, _QUOTE.micro_usd)
    view = _snapshot()
    record = TrustRecord(
        resource=view.resource,
        recommendation=view.recommendation,
        grade=view.grade,
        score_tenths=view.score_tenths,
        offers=(offer,),
        flags=(),
        as_of=AS_OF,
    )
    verdict = decide(record, PreflightOffer(pay_to=f"0x{'12' * 20}", amount="10000"))
    return as_json(build_decision(verdict, record, resource=RESOURCE))


def directories() -> Any:
    """Return an endpoint's entry in a directory with an old price."""
    called = AS_OF - 12 * DAY_MS
    listing = StoredListing(
        endpoint_id=_ENDPOINT.id,
        source="cdp",
        crawl_id=1,
        first_seen=_ENDPOINT.first_seen,
        last_seen=_ENDPOINT.last_seen,
        delisted_at=None,
        terms=replace(_QUOTE, amount=5_000),
        scheme="exact",
        statement=EntryStatement(
            status=CatalogueStatus.SUCCESS, calls=78, payers=12, last_called_at=called
        ),
    )
    difference = TermDifference(field="price", listed="$0.005", live="$0.01")
    entry = DirectoryEntry(
        listing=listing, resource=RESOURCE, drop_reason=None, differences=(difference,)
    )
    return as_json(directory_answers.entries(RESOURCE, [entry]))


def directory_figures() -> Any:
    """Return the figures of a directory."""
    report = DirectoryReport(as_of=AS_OF, directories=(_FIGURES,))
    return as_json(directory_answers.directories(report))


def directory() -> Any:
    """Return a directory that dropped an endpoint without calls."""
    listing = StoredListing(
        endpoint_id="0" * 16,
        source="cdp",
        crawl_id=1,
        first_seen=AS_OF - 90 * DAY_MS,
        last_seen=AS_OF - DAY_MS,
        delisted_at=AS_OF - HOUR_MS,
        terms=None,
    )
    dropped = DirectoryEntry(
        listing=listing,
        resource="https://api.example.com/tides",
        drop_reason=DropReason.NO_RECENT_CALL,
        differences=None,
    )
    return as_json(directory_answers.directory(_FIGURES, [dropped]))


def guard_packages() -> Any:
    """Return the packages of the payment guards."""
    names = ("tollgauge_guard-0.1.0-py3-none-any.whl", "tollgauge-guard-0.1.0.tgz")
    packages = {name: name.encode() for name in names}
    return as_json(describe(packages, base_url=BASE_URL, key=None, now=AS_OF))


def search() -> Any:
    """Return the results of a search."""
    results = (SearchResult(endpoint=_endpoint(), percent=46),)
    return as_json(lists.search(Search(match="meaning", results=results), base_url=BASE_URL))


def endpoint_list() -> Any:
    """Return a page of a list."""
    return as_json(_list_page())


def endpoint_csv() -> str:
    """Return a page of a list as CSV."""
    return lists.endpoint_csv(_list_page()).decode().replace("\r\n", "\n")


def _list_page() -> lists.EndpointListResponse:
    page = EndpointPage(
        rows=(_endpoint(),),
        total=1_313,
        before=0,
        next=f"-914100~{_ENDPOINT.id}",
        previous=None,
        networks=(),
    )
    next_url = f"{BASE_URL}/trust/endpoints?cursor=-914100~{_ENDPOINT.id}"
    return lists.endpoint_list(page, next_url=next_url, base_url=BASE_URL)


def _endpoint() -> RatedEndpoint:
    return RatedEndpoint(
        id=_ENDPOINT.id,
        resource=_ENDPOINT.resource,
        host=_ENDPOINT.host,
        first_seen=_ENDPOINT.first_seen,
        last_probed=_ENDPOINT.last_probed,
        quote=_QUOTE,
        sources=_ENDPOINT.sources,
        service_name=_ENDPOINT.service_name,
        description=_ENDPOINT.description,
        **structs.asdict(extract_figures(score_from_json(_row().result), _ENDPOINT.resource)),
    )


def wallet() -> Any:
    """Return the report on a payTo address."""
    whole = Income(transfers=78, volume=780_000, payers=12, proven_payers=3, proven_volume=310_000)
    income = WalletIncome(
        last_day=AS_OF // DAY_MS - 1,
        incomes=((1, Income()), (7, whole._replace(transfers=20, volume=200_000)), (30, whole)),
        top=(TopPayer(payer="0x" + 40 * "1", transfers=30, paid=300_000, returned=0, proven=True),),
    )
    report = Wallet(
        address=PAY_TO,
        rows=(_endpoint(),),
        more=False,
        networks=(
            NetworkIncome(
                network="eip155:8453",
                owner="example.com",
                indexed=True,
                measured=True,
                income=income,
            ),
        ),
        changes=(),
        seller_files=(),
    )
    return as_json(wallet_response(report, base_url=BASE_URL))


def sample_report() -> TrustReport:
    """Return the trust report of the example, with its evidence."""
    row = _row()
    return TrustReport(
        endpoint=_ENDPOINT,
        score=score_from_json(row.result),
        row=row,
        probe=_probe(AS_OF - MINUTE_MS),
    )


def _snapshot() -> Snapshot:
    score = score_from_json(_row().result)
    brief = build_snapshot(_endpoint(), score, now=AS_OF)
    return structs.replace(
        brief, better_alternatives=3, improvements=improvements(sample_evidence())
    )


@cache
def _row() -> ScoreRow:
    return score_evidence(_ENDPOINT.id, sample_evidence())


@cache
def sample_evidence() -> Evidence:
    """Return the evidence of the example's score."""
    last = AS_OF - MINUTE_MS
    begin = AS_OF - DAY_MS
    day = rollup(day_of(begin), [_probe(at) for at in range(begin, AS_OF, 30 * MINUTE_MS)])
    spans = Spans(up=DAY_MS, payable=DAY_MS, compliance=100 * DAY_MS)
    window = range(day_of(AS_OF - WINDOW_MS), day_of(AS_OF))
    return Evidence(
        resource=RESOURCE,
        as_of=AS_OF,
        first_seen=_ENDPOINT.first_seen,
        quote=_QUOTE,
        days=tuple(structs.replace(day, day=number, spans=spans) for number in window),
        last=LastProbe(
            at=last,
            outcome=Outcome.PAYMENT_REQUIRED.value,
            up=True,
            payable=True,
            accepts=1,
            tls_not_after=AS_OF + 60 * DAY_MS,
        ),
        state=LatestState(
            at=last,
            outcome=Outcome.PAYMENT_REQUIRED.value,
            up=True,
            payable=True,
            payable_since=_ENDPOINT.first_seen,
        ),
        chain=ChainEvidence(
            network=_QUOTE.network,
            pay_to=PAY_TO,
            indexed_ms=WINDOW_MS,
            indexed_to_block=40_218_326,
            indexed_to=AS_OF - MINUTE_MS,
            demand=DemandEvidence(
                transfers=78,
                payers=12,
                volume=780_000,
                proven_payers=4,
                proven_volume=320_000,
                weights=tuple((anchor.owner, 2_400_000) for anchor in _ANCHORS),
            ),
        ),
        anchors=_ANCHORS,
    )


def _probe(at: int) -> ProbeResult:
    return ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        timings=Timings(dns=4, connect=21, tls=43, ttfb=88, total=158),
        status=402,
        compliance=100,
        compliant=True,
        payable=True,
        payable_by=frozenset({OfficialClient.TYPESCRIPT, OfficialClient.PYTHON}),
        version=2,
        quote=_QUOTE,
        accepts=1,
        tls_not_after=AS_OF + 60 * DAY_MS,
    )


def render_examples() -> dict[str, str]:
    """Return the files of web/wire/examples by their paths from this folder."""
    answers: tuple[Callable[[], Any], ...] = (
        *(trust_report, evidence, preview, leaderboard, snapshot, preflight, search),
        *(endpoint_list, stats, shares, facilitators, calibration, wallet, guard_packages),
        *(directories, directory_figures, directory),
    )
    return {
        f"../src/tollgauge/web/wire/examples/{answer.__name__}.json": orjson.dumps(
            answer(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        ).decode()
        for answer in answers
    }
