"""Logs and the list of metric names.

Rules: one line per unit of work (a probe wave, a crawl page, a paid request, a score round), as
`noun.verb` events with plain fields; never a payment header, a secret, a URL of a node or a
foreign exception's text. Every metric of the service is declared here and nowhere else.
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
    "How long after it was due an endpoint was claimed, by its standing",
    ("standing",),
    buckets=(1, 2, 5, 10, 30, 60, 120, 300, 900, 3_600, 14_400, 86_400),
)
PROBE_OVERDUE: Final = _gauge(
    "tollgauge_probe_overdue_seconds",
    "How long the host has waited that waits longest to be probed: of all, of watched endpoints",
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
    "Where the chain contradicts the facilitator (unproven), a row of the ledger (lost), a day "
    "(books), or shows a payment that the ledger does not know (unknown-settlement)",
    ("kind",),
)
LIVE_PROBES: Final = _gauge("tollgauge_live_probes", "Live probes for paid reports now in flight")
CHANGES: Final = _counter("tollgauge_changes", "Changes dispatched to watches, by type", ("type",))
DELIVERIES: Final = _counter(
    "tollgauge_deliveries", "Attempts to deliver a notice, by format and result", ("kind", "result")
)
OUTBOX_QUEUED: Final = _gauge(
    "tollgauge_outbox_queued", "Deliveries that wait for their turn or a retry"
)
OUTBOX_DEAD: Final = _gauge(
    "tollgauge_outbox_dead", "Deliveries given up, until an operator resends"
)
OUTBOX_AGE: Final = _gauge(
    "tollgauge_outbox_age_seconds", "How long the longest overdue delivery has been due"
)

# What the database says, read when somebody asks for the metrics (web/admin).
DATABASE_UP: Final = _gauge("tollgauge_database_up", "Whether the database could be read just now")
QUEUE_DUE: Final = _gauge("tollgauge_queue_due", "Work that is due, by queue", ("queue",))
QUEUE_AGE: Final = _gauge(
    "tollgauge_queue_age_seconds",
    "How long the longest overdue work of a queue has been due",
    ("queue",),
)
PROBES_LATE: Final = _gauge(
    "tollgauge_probes_late_ratio",
    "The share of monitored endpoints that are overdue by more than a period",
)
INDEX_LAG: Final = _gauge(
    "tollgauge_index_lag_seconds", "How old the newest indexed block is, by chain", ("chain",)
)
BUNDLE_AGE: Final = _gauge(
    "tollgauge_bundle_age_seconds",
    "How old the newest bundle of trust records is, by variant",
    ("variant",),
)
BUNDLE_BYTES: Final = _gauge("tollgauge_bundle_bytes", "Its size, by variant", ("variant",))
BUNDLE_SECONDS: Final = _gauge(
    "tollgauge_bundle_build_seconds", "How long it took to build, by variant", ("variant",)
)
PAYMENTS: Final = _gauge("tollgauge_payments", "Payments in the ledger, by state", ("state",))
PAYMENTS_STUCK: Final = _gauge(
    "tollgauge_payments_stuck",
    "Payments that have waited for their outcome for long, counted up to ten",
)
DATABASE_BYTES: Final = _gauge("tollgauge_database_bytes", "What the database takes on its disk")
DISK_FULL: Final = _gauge(
    "tollgauge_disk_full_ratio", "How full the disk of an SQLite file is; 0 with PostgreSQL"
)
ATTENTION: Final = _gauge(
    "tollgauge_attention", "How many things need attention, as `tollgauge status` lists them"
)


def metrics_text() -> bytes:
    """All metrics in the Prometheus text format."""
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
    # What the MCP library logs holds foreign texts: a refused Host header, a bad message.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def _to_standard_error(*_names: object) -> structlog.PrintLogger:
    """A logger on what standard error is now: it may have been replaced since the start."""
    return structlog.PrintLogger(sys.stderr)


def log() -> structlog.typing.FilteringBoundLogger:
    """The logger; ask for it where it is used, so that configuration always applies."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


_DATABASE: Final = "db"
"""Every statement passes through this folder, so the place of an error is where it came from."""


def cause_of(error: Exception) -> Exception:
    """The first error of a group of tasks, since the group itself says nothing; else the error."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def place_of(error: BaseException) -> str:
    """The file and line of the innermost frame of this package in a traceback, one outside of the
    database's folder if there is any; empty without one. The exception's text is not for the log.
    """
    frames = [
        (Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
    ]
    ours = [(path, line) for path, line in frames if "tollgauge" in path.parts]
    callers = [(path, line) for path, line in ours if path.parent.name != _DATABASE]
    return next((f"{path.name}:{line}" for path, line in reversed(callers or ours)), "")


def alarm(kind: str, payment_id: str) -> None:
    """Tell the operator that the chain contradicts what a facilitator or the ledger says."""
    LEDGER_ALARMS.labels(kind).inc()
    log().error("ledger.alarm", kind=kind, payment=payment_id)


def books_alarm(pay_to: str, day: int, difference: int) -> None:
    """Tell the operator that a complete day's sales are not what the chain brought to `pay_to`.

    `day` counts UTC days since the epoch, `difference` atomic units.
    """
    LEDGER_ALARMS.labels("books").inc()
    named = (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()
    log().error("ledger.alarm", kind="books", pay_to=pay_to, day=named, difference=str(difference))
