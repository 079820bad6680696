"""OpenTelemetry spans around payments, if it is installed; they contain no query or body."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import trace
except ImportError:  # the extra `otel` is not installed
    trace = None  # type: ignore[assignment]


@contextmanager
def payment_span(host: str) -> Iterator[Any]:
    """Open a span for the creation of a payment; yields it, or None without OpenTelemetry."""
    if trace is None:
        yield None
        return
    tracer = trace.get_tracer("tollgauge_guard")
    with tracer.start_as_current_span("tollgauge_guard.pay") as span:
        span.set_attribute("server.address", host)
        yield span


def describe_payment(span: Any, **attributes: str | int | None) -> None:
    """Add attributes to a span, for example the decision and the handle."""
    if span is not None:
        for name, value in attributes.items():
            if value is not None:
                span.set_attribute(f"tollgauge.{name}", value)
