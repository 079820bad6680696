"""One check of an endpoint against a file that the last check wrote, by the rules of watches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tollgauge.cli.lint import lint_source
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.probe.probe import ProbeResult, judge
from tollgauge.core.watch.changes import Change, liveness_down, spec_regression, term_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheck:
    """The result of a check, with which the next one is compared.

    Attributes:
        up_at: Time of the last response that was up (ms UTC); None if there was none.
        quote: The terms of that response.
        errors: The rules that it broke.
    """

    up_at: int | None
    quote: Quote | None
    errors: tuple[str, ...]


_FORM: Final = TypeAdapter(LastCheck)


def check(source: str, state: Path, config: Path | None) -> tuple[bool, tuple[Change, ...]]:
    """Check a source and write the result to the file `state`.

    Returns:
        Whether this is the first check, and the changes since the last one.

    Raises:
        TollgaugeError: The source or the file cannot be read, or the check failed here.
    """
    from tollgauge.service_status import now_ms

    before = _read(state)
    exchange, verdict = lint_source(source, config)
    result = judge(replace(exchange, at=now_ms()), verdict)
    if not result.scored:
        raise TollgaugeError(
            f"The check could not be made ({result.reason or result.outcome.value}).",
            hint="The cause is this machine or its network. The saved state is unchanged.",
        )
    last = before or LastCheck(up_at=None, quote=None, errors=())
    changes = tuple(_changes(last, result))
    state.write_bytes(_FORM.dump_json(_after(last, result), indent=2) + b"\n")
    return before is None, changes


def _read(state: Path) -> LastCheck | None:
    try:
        return _FORM.validate_json(state.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise TollgaugeError(
            f"{state} was not written by `tollgauge watch --once`.",
            hint="Name another file with --state, or delete this one to start again.",
        ) from error


def _changes(last: LastCheck, result: ProbeResult) -> Iterator[Change]:
    """Yield the changes. One failed check is an outage, and one response breaks a rule: there are
    no later ones to confirm it.
    """
    if not result.up:
        yield liveness_down(result, n=1, since=result.at, last_good=last.up_at)
        return
    if last.quote is not None and result.quote is not None:
        yield from term_changes(last.quote, result.quote, at=result.at, source="probe")
    broken = [rule for rule in _errors(result) if rule not in last.errors]
    regression = spec_regression(broken, result, known=last.errors)
    if last.up_at is not None and regression is not None:
        yield regression


def _after(last: LastCheck, result: ProbeResult) -> LastCheck:
    if not result.up:
        return last
    return LastCheck(up_at=result.at, quote=result.quote or last.quote, errors=_errors(result))


def _errors(result: ProbeResult) -> tuple[str, ...]:
    errors = {finding.rule for finding in result.findings if finding.severity is Severity.ERROR}
    return tuple(sorted(errors))
