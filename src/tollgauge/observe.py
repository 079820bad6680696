"""Logs and metrics of the service.

Each unit of work (a probe batch, a crawl page, a paid request, a score round) logs one `noun.verb`
event with plain fields. Payment headers, secrets, node URLs and texts of foreign exceptions are
never logged. All metrics are declared here.
"""

from __future__ import annotations

import datetime as dt
import logging
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY: Final = CollectorRegistry()
_counter: Final = partial(Counter, registry=REGISTRY)
_gauge: Final = partial(Gauge, registry=REGISTRY)
_histogram: Final = partial(Histogram, registry=REGISTRY)

PROBES: Final = _counter(
    "tollgauge_probes", "Probes by outcome and attribution", ("outcome", "attribution")
)
PROBE_LAG: Final = _histogram(
    "tollgauge_probe_lag_seconds",
    "Delay between an endpoint's due time and its claim, by standing",
    ("standing",),
    buckets=(1, 2, 5, 10, 30, 60, 120, 300, 900, 3_600, 14_400, 86_400),
)
PROBE_OVERDUE: Final = _gauge(
    "tollgauge_probe_overdue_seconds",
    "Longest time that a host has waited for a due probe: of all and of watched endpoints",
    ("of",),
)
SCORES: Final = _counter("tollgauge_scores", "Scores computed")
JOB_RUNS: Final = _counter("tollgauge_job_runs", "Job rounds by name and result", ("job", "result"))
JOB_SECONDS: Final = _histogram("tollgauge_job_seconds", "Duration of a job round", ("job",))
PAID_REQUESTS: Final = _counter(
    "tollgauge_paid_requests",
    "Requests to paid routes by route and HTTP status",
    ("route", "status"),
)
LEDGER_ALARMS: Final = _counter(
    "tollgauge_ledger_alarms",
    "Contradictions between the chain and the facilitator (unproven), a ledger row (lost) or a "
    "day's sales (books), and payments missing in the ledger (unknown-settlement)",
    ("kind",),
)
LIVE_PROBES: Final = _gauge("tollgauge_live_probes", "Live probes for paid reports in flight")
CHANGES: Final = _counter("tollgauge_changes", "Changes dispatched to watches, by type", ("type",))
DELIVERIES: Final = _counter(
    "tollgauge_deliveries", "Attempts to deliver an alert, by format and result", ("kind", "result")
)
OUTBOX_QUEUED: Final = _gauge(
    "tollgauge_outbox_queued", "Deliveries waiting for a first attempt or a retry"
)
OUTBOX_DEAD: Final = _gauge(
    "tollgauge_outbox_dead", "Deliveries that failed permanently and were not resent"
)
OUTBOX_AGE: Final = _gauge(
    "tollgauge_outbox_age_seconds", "Time since the oldest queued delivery became due"
)

# Read from the database when the metrics are requested (web/admin).
DATABASE_UP: Final = _gauge("tollgauge_database_up", "1 if the database could be read, otherwise 0")
QUEUE_DUE: Final = _gauge("tollgauge_queue_due", "Work that is due, by queue", ("queue",))
QUEUE_AGE: Final = _gauge(
    "tollgauge_queue_age_seconds",
    "Time since the oldest work in a queue became due",
    ("queue",),
)
PROBES_LATE: Final = _gauge(
    "tollgauge_probes_late_ratio",
    "Share of monitored endpoints that are overdue by more than one interval",
)
INDEX_LAG: Final = _gauge(
    "tollgauge_index_lag_seconds", "Age of the newest indexed block, by chain", ("chain",)
)
BUNDLE_AGE: Final = _gauge(
    "tollgauge_bundle_age_seconds",
    "Age of the newest bundle of trust records, by variant",
    ("variant",),
)
BUNDLE_BYTES: Final = _gauge(
    "tollgauge_bundle_bytes", "Size of the newest bundle, by variant", ("variant",)
)
BUNDLE_SECONDS: Final = _gauge(
    "tollgauge_bundle_build_seconds", "Build time of the newest bundle, by variant", ("variant",)
)
PAYMENTS: Final = _gauge("tollgauge_payments", "Payments in the ledger, by state", ("state",))
PAYMENTS_STUCK: Final = _gauge(
    "tollgauge_payments_stuck",
    "Payments whose outcome is overdue, at most ten",
)
DATABASE_BYTES: Final = _gauge("tollgauge_database_bytes", "Size of the database on disk")
DISK_FULL: Final = _gauge(
    "tollgauge_disk_full_ratio", "Used share of the disk of an SQLite file; 0 with PostgreSQL"
)
ATTENTION: Final = _gauge("tollgauge_attention", "Number of problems that `tollgauge status` lists")


def metrics_text() -> bytes:
    """Return all metrics in the Prometheus text format."""
    return generate_latest(REGISTRY)


def configure_logs(*, json_lines: bool, level: str = "info") -> None:
    """Send logs to standard error: JSON lines for machines, aligned text for a terminal."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if json_lines
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=_to_standard_error,
        cache_logger_on_first_use=False,
    )
    # The MCP library logs foreign texts: a rejected Host header, an invalid message.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def _to_standard_error(*_names: object) -> structlog.PrintLogger:
    """Return a logger for the current standard error, which may have been replaced since the
    start.
    """
    return structlog.PrintLogger(sys.stderr)


def log() -> structlog.typing.FilteringBoundLogger:
    """Return the logger. Call it at each use, so that the current configuration applies."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


_DATABASE: Final = "db"  # every statement passes through it: the caller's frame is more useful


def cause_of(error: Exception) -> Exception:
    """Return the first error of a group of tasks, or the error itself."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def place_of(error: BaseException) -> str:
    """Return file and line of the innermost frame of this package, preferably outside of `db`.

    Empty without such a frame. The exception's text must not be logged.
    """
    frames = [
        (Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
    ]
    ours = [(path, line) for path, line in frames if "tollgauge" in path.parts]
    callers = [(path, line) for path, line in ours if path.parent.name != _DATABASE]
    return next((f"{path.name}:{line}" for path, line in reversed(callers or ours)), "")


def alarm(kind: str, payment_id: str) -> None:
    """Alert the operator that the chain contradicts the facilitator or the ledger."""
    LEDGER_ALARMS.labels(kind).inc()
    log().error("ledger.alarm", kind=kind, payment=payment_id)


def reconciliation_alarm(pay_to: str, day: int, difference: int) -> None:
    """Alert the operator that a complete day's sales differ from the deposits on the chain.

    `day` counts UTC days since the epoch; `difference` is in atomic units.
    """
    LEDGER_ALARMS.labels("books").inc()
    named = (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()
    log().error("ledger.alarm", kind="books", pay_to=pay_to, day=named, difference=str(difference))
