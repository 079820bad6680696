"""Report the service's health to its operator, from the database only.

All figures are read in one transaction and nothing is written. `problems` lists work that is late,
failing or stuck; `warnings` lists risks. Nothing identifies a payer or, except for the route, a
purchase.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, chain_name, iso_seconds
from tollgauge.core.chain.blocks import FAST_CHAINS
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db import disk, meta
from tollgauge.db.disk import Size
from tollgauge.store import backlog
from tollgauge.store.backlog import JobRound, LastCrawl, Queue, StuckPayment
from tollgauge.store.chain.cursors import Cursor
from tollgauge.store.scores import trust_records
from tollgauge.store.scores.trust_records import StoredBundle
from tollgauge.store.watches import outbox
from tollgauge.store.watches.outbox import Depth

BACKUP_KEY: Final = "backup-at"  # `meta` key: time of the last successful backup (ms UTC)
RATE_MS: Final = 10 * MINUTE_MS  # window of the probe rate
SCORE_LATE_MS: Final = HOUR_MS
DELIVERY_LATE_MS: Final = 5 * MINUTE_MS
PAYMENT_LATE_MS: Final = 10 * MINUTE_MS
CRAWL_LATE_MS: Final = DAY_MS
INDEX_LATE_MS: Final = 10 * MINUTE_MS
BUNDLE_LATE_MS: Final = 3 * HOUR_MS
BACKUP_LATE_MS: Final = DAY_MS
SKEW_MS: Final = 2 * SECOND_MS
AHEAD_MS: Final = MINUTE_MS  # probes further in the future mean that a machine's clock is wrong
LATE_PERCENT: Final = 5  # maximum share of overdue endpoints
DISK_PERCENT: Final = 80
FINAL_LATE_MS: Final = HOUR_MS  # for chains that are read up to the final block


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The service's figures as of `now` (ms UTC).

    `probed` endpoints had their last probe within RATE_MS. `skew_ms` is the database clock minus
    this machine's, None if both are the same. `backup_at` is the time of the last backup.
    """

    now: int
    monitored: int
    probes: Queue
    probed: int
    last_probed: int | None
    scores: Queue
    deliveries: Depth
    payments: dict[str, int]
    stuck: Sequence[StuckPayment]
    crawls: tuple[LastCrawl, ...]
    chains: tuple[Cursor, ...]
    bundles: tuple[StoredBundle, ...]
    jobs: tuple[JobRound, ...]
    size: Size
    skew_ms: int | None
    backup_at: int | None

    @property
    def probes_a_minute(self) -> float:
        """Probes per minute."""
        return round(self.probed * MINUTE_MS / RATE_MS, 1)

    def find_round(self, loop: str) -> JobRound | None:
        """Return the last round of a loop, or None if it never ran."""
        return next((job for job in self.jobs if job.name == loop), None)

    def age_s(self, at: int | None) -> int | None:
        """Return the age of a timestamp in whole seconds, or None for None."""
        return None if at is None else max(0, self.now - at) // SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Figures, problems that need attention, and warnings of risks, as sentences."""

    figures: Figures
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether nothing needs attention."""
        return not self.problems


_INDEX: Final = "index-"


def index_loop(chain: int) -> str:
    """Return the name of the loop that indexes a chain."""
    return f"{_INDEX}{chain_name(chain)}"


def read(tx: Connection, *, now: int, cadence: Cadence) -> Figures:
    """Read the figures. A probe is late if it is overdue by a whole interval."""
    clock, backup = disk.clock_ms(tx), meta.get(tx, BACKUP_KEY)
    return Figures(
        now=now,
        monitored=backlog.count_monitored(tx),
        probes=backlog.probes(tx, now=now, late_since=now - cadence.every_ms),
        probed=backlog.count_probed_since(tx, now - RATE_MS),
        last_probed=backlog.last_probed(tx),
        scores=backlog.scores(tx, now=now, late_since=now - DAY_MS),
        deliveries=outbox.depth(tx),
        payments=backlog.payments_by_state(tx),
        stuck=backlog.stuck_payments(tx, since=now - PAYMENT_LATE_MS),
        crawls=backlog.last_crawls(tx),
        chains=backlog.chains(tx),
        bundles=trust_records.all_bundles(tx),
        jobs=backlog.job_rounds(tx),
        size=disk.measure(tx),
        skew_ms=None if clock is None else clock - now,
        backup_at=None if backup is None else int(backup),
    )


def find_problems(
    figures: Figures, *, sources: Sequence[str], loops: Sequence[str]
) -> Iterator[str]:
    """Yield a sentence per problem.

    Rows of sources and loops that are not configured are ignored.
    """
    yield from _late(figures)
    yield from _jobs(figures, loops)
    yield from _crawls(figures, sources)
    read = {index_loop(cursor.chain) for cursor in figures.chains}
    for loop in loops:
        if loop.startswith(_INDEX) and figures.find_round(loop) and loop not in read:
            chain = loop.removeprefix(_INDEX)
            yield f"Chain {chain} was not read yet. Run `tollgauge doctor` to check its nodes."
    for payment in figures.stuck:
        age = duration(figures.now - payment.updated_at)
        yield f"The payment {payment.id} ({payment.route}) has been {payment.state} for {age}."
    if figures.skew_ms is not None and abs(figures.skew_ms) > SKEW_MS:
        skew = duration(abs(figures.skew_ms))
        yield f"The database's clock differs from this machine's by {skew}."
    elif figures.last_probed is not None and figures.last_probed > figures.now + AHEAD_MS:
        probed = iso_seconds(figures.last_probed)
        yield f"A probe is dated {probed}, in the future. Check the clocks of all machines."
    full = figures.size.full_percent
    if full is not None and full > DISK_PERCENT:
        yield f"The database's disk is {full}% full."


def find_warnings(figures: Figures) -> Iterator[str]:
    """Yield a sentence per risk."""
    if figures.backup_at is None:
        yield "No backup exists. Run `tollgauge backup`."
    elif figures.now - figures.backup_at > BACKUP_LATE_MS:
        yield f"The newest backup is {duration(figures.now - figures.backup_at)} old."


def assess(
    figures: Figures, *, sources: Sequence[str], loops: Sequence[str], advice: Sequence[str]
) -> Status:
    """Add problems and risks to the figures. `advice` contains the risks of the configuration."""
    return Status(
        figures=figures,
        problems=tuple(find_problems(figures, sources=sources, loops=loops)),
        warnings=(*find_warnings(figures), *advice),
    )


def document(status: Status) -> dict[str, Any]:
    """Return the status as JSON: ages in seconds, times in ISO 8601."""
    figures, disk = status.figures, status.figures.size
    return {
        "good": status.good,
        "problems": status.problems,
        "warnings": status.warnings,
        "at": iso_seconds(figures.now),
        "probes": {
            "monitored": figures.monitored,
            **_queue(figures, figures.probes),
            "perMinute": figures.probes_a_minute,
            "last": _iso(figures.last_probed),
        },
        "scores": _queue(figures, figures.scores),
        "deliveries": {
            "queued": figures.deliveries.queued,
            "oldestSeconds": figures.age_s(figures.deliveries.oldest_due),
            "dead": figures.deliveries.dead,
        },
        "payments": {
            "byState": figures.payments,
            "stuck": [_stuck(figures, payment) for payment in figures.stuck],
        },
        "crawls": [_crawl(crawl) for crawl in figures.crawls],
        "chains": [_chain(figures, cursor) for cursor in figures.chains],
        "bundles": [_bundle(figures, bundle) for bundle in figures.bundles],
        "jobs": [_job(job) for job in figures.jobs],
        "disk": {
            "databaseBytes": disk.database,
            "logBytes": disk.log,
            "freeBytes": disk.free,
            "fullPercent": disk.full_percent,
        },
        "clockSkewSeconds": None if figures.skew_ms is None else figures.skew_ms / SECOND_MS,
        "backupAt": _iso(figures.backup_at),
    }


def duration(ms: int) -> str:
    """Format a duration in its largest unit, such as `3 h`."""
    for unit, length in (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS)):
        if ms >= 2 * length:
            return f"{ms // length} {unit}"
    return f"{ms // SECOND_MS} s"


def _late(figures: Figures) -> Iterator[str]:
    now = figures.now
    if figures.probes.late * 100 > figures.monitored * LATE_PERCENT:
        oldest = duration(now - (figures.probes.oldest or now))
        yield (
            f"{figures.probes.late} of {figures.monitored} endpoints are overdue for a probe by "
            f"more than one interval, the longest by {oldest}."
        )
    if figures.scores.oldest is not None and now - figures.scores.oldest > SCORE_LATE_MS:
        yield (
            f"{figures.scores.due} scores are due, the oldest for "
            f"{duration(now - figures.scores.oldest)}; {figures.scores.late} for more than a day."
        )
    deliveries = figures.deliveries
    if deliveries.oldest_due is not None and now - deliveries.oldest_due > DELIVERY_LATE_MS:
        age = duration(now - deliveries.oldest_due)
        yield f"{deliveries.queued} deliveries are queued, the oldest for {age}."
    if deliveries.dead:
        yield f"{deliveries.dead} deliveries failed permanently: `tollgauge watch list --dead`."
    for cursor in figures.chains:
        late_ms = FINAL_LATE_MS if cursor.chain in FAST_CHAINS else INDEX_LATE_MS
        if now - cursor.at > late_ms:
            yield f"The index of chain {cursor.chain} is {duration(now - cursor.at)} behind."
    bundle_ms = max((now - bundle.as_of for bundle in figures.bundles), default=0)
    if bundle_ms > BUNDLE_LATE_MS:
        yield (
            f"The bundle of trust records is {duration(bundle_ms)} old. Payment guards accept it "
            "for 48 hours. Check the `bundle` loop."
        )


def _jobs(figures: Figures, loops: Sequence[str]) -> Iterator[str]:
    by_name = {job.name: job for job in figures.jobs}
    if never := [name for name in loops if name not in by_name]:
        yield f"Loops that never ran: {', '.join(never)}. Check that a worker is running."
    known = [by_name[name] for name in loops if name in by_name]
    quiet = [job for job in known if figures.now > job.expected_by]
    if quiet:
        age = duration(figures.now - max(job.ended_at for job in quiet))
        names = ", ".join(job.name for job in quiet)
        yield f"Loops without a round for {age}: {names}. Check that a worker is running."
    for job in known:
        if job.failing and job not in quiet:
            yield f"The `{job.name}` loop is failing: {job.error}."


def _crawls(figures: Figures, sources: Sequence[str]) -> Iterator[str]:
    by_source = {crawl.source: crawl for crawl in figures.crawls}
    discover = figures.find_round("discover")
    for source in sources:
        crawl = by_source.get(source)
        if crawl is None:
            yield f"The source {source} was never crawled."
        elif crawl.suspicious:
            yield f"The last crawl of {source} is suspicious: it listed {crawl.listed}."
        elif crawl.was_never_whole and discover and crawl.started <= discover.ended_at:
            yield f"No crawl of {source} reached its end. Run `tollgauge doctor` to check it."
        elif figures.now - (crawl.completed_at or crawl.started) > CRAWL_LATE_MS:
            age = duration(figures.now - (crawl.completed_at or crawl.started))
            yield f"The last complete crawl of {source} was {age} ago."


def _queue(figures: Figures, queue: Queue) -> dict[str, int | None]:
    return {"due": queue.due, "oldestSeconds": figures.age_s(queue.oldest), "late": queue.late}


def _stuck(figures: Figures, payment: StuckPayment) -> dict[str, Any]:
    return {
        "id": payment.id,
        "state": payment.state,
        "route": payment.route,
        "forSeconds": figures.age_s(payment.updated_at),
    }


def _chain(figures: Figures, cursor: Cursor) -> dict[str, Any]:
    return {
        "chain": cursor.chain,
        "block": cursor.number,
        "at": iso_seconds(cursor.at),
        "lagSeconds": figures.age_s(cursor.at),
        "finalized": cursor.finalized,
    }


def _crawl(crawl: LastCrawl) -> dict[str, Any]:
    return {
        "source": crawl.source,
        "startedAt": iso_seconds(crawl.started),
        "finishedAt": _iso(crawl.finished_at),
        "complete": crawl.complete,
        "suspicious": crawl.suspicious,
        "listed": crawl.listed,
        "lastCompleteAt": _iso(crawl.completed_at),
    }


def _bundle(figures: Figures, bundle: StoredBundle) -> dict[str, Any]:
    return {
        "variant": bundle.variant,
        "at": iso_seconds(bundle.as_of),
        "ageSeconds": figures.age_s(bundle.as_of),
        "records": bundle.records,
        "bytes": bundle.size,
        "buildSeconds": bundle.took_ms / SECOND_MS,
        "signed": bundle.signature is not None,
    }


def _job(job: JobRound) -> dict[str, Any]:
    return {
        "name": job.name,
        "endedAt": iso_seconds(job.ended_at),
        "seconds": job.took_ms / SECOND_MS,
        "doneAt": _iso(job.done_at),
        "failedAt": _iso(job.failed_at),
        "error": job.error or None,
    }


def _iso(at: int | None) -> str | None:
    return None if at is None else iso_seconds(at)
