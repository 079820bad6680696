"""Logs and metrics of the service.

Each unit of work (a probe batch, a crawl page, a paid request, a score round) logs one `noun.verb`
event with plain fields. Payment headers, secrets, node URLs and texts of foreign exceptions are
never logged. All metrics are here, with their texts in metrics.json.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
import traceback
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

REGISTRY: Final = CollectorRegistry()
_DECLARED: Final = json.loads(files("tollgauge").joinpath("metrics.json").read_text("utf-8"))

M = TypeVar("M", bound=MetricWrapperBase)


def _declare(kind: type[M], name: str) -> M:
    """Create a metric with the texts and labels of metrics.json."""
    declared = _DECLARED[name]
    more = {"buckets": declared["buckets"]} if "buckets" in declared else {}
    labels = declared.get("labels", ())
    return kind(name, declared["help"], labels, registry=REGISTRY, **more)


PROBES: Final = _declare(Counter, "tollgauge_probes")
PROBE_LAG: Final = _declare(Histogram, "tollgauge_probe_lag_seconds")
PROBE_OVERDUE: Final = _declare(Gauge, "tollgauge_probe_overdue_seconds")
SCORES: Final = _declare(Counter, "tollgauge_scores")
JOB_RUNS: Final = _declare(Counter, "tollgauge_job_runs")
JOB_SECONDS: Final = _declare(Histogram, "tollgauge_job_seconds")
PAID_REQUESTS: Final = _declare(Counter, "tollgauge_paid_requests")
LEDGER_ALARMS: Final = _declare(Counter, "tollgauge_ledger_alarms")
LIVE_PROBES: Final = _declare(Gauge, "tollgauge_live_probes")
CHANGES: Final = _declare(Counter, "tollgauge_changes")
DELIVERIES: Final = _declare(Counter, "tollgauge_deliveries")
INDEX_TRANSFERS: Final = _declare(Counter, "tollgauge_index_transfers")
INDEX_MISSED: Final = _declare(Counter, "tollgauge_index_missed")
OUTBOX_QUEUED: Final = _declare(Gauge, "tollgauge_outbox_queued")
OUTBOX_DEAD: Final = _declare(Gauge, "tollgauge_outbox_dead")
OUTBOX_AGE: Final = _declare(Gauge, "tollgauge_outbox_age_seconds")

# Read from the database when the metrics are requested (web/admin).
DATABASE_UP: Final = _declare(Gauge, "tollgauge_database_up")
QUEUE_DUE: Final = _declare(Gauge, "tollgauge_queue_due")
QUEUE_AGE: Final = _declare(Gauge, "tollgauge_queue_age_seconds")
PROBES_LATE: Final = _declare(Gauge, "tollgauge_probes_late_ratio")
INDEX_LAG: Final = _declare(Gauge, "tollgauge_index_lag_seconds")
BUNDLE_AGE: Final = _declare(Gauge, "tollgauge_bundle_age_seconds")
BUNDLE_BYTES: Final = _declare(Gauge, "tollgauge_bundle_bytes")
BUNDLE_SECONDS: Final = _declare(Gauge, "tollgauge_bundle_build_seconds")
PAYMENTS: Final = _declare(Gauge, "tollgauge_payments")
PAYMENTS_STUCK: Final = _declare(Gauge, "tollgauge_payments_stuck")
DATABASE_BYTES: Final = _declare(Gauge, "tollgauge_database_bytes")
DISK_FULL: Final = _declare(Gauge, "tollgauge_disk_full_ratio")
PROBLEMS: Final = _declare(Gauge, "tollgauge_problems")


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
