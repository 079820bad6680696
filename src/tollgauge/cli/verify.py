"""`tollgauge verify`: check the signature of a saved response, and that its score follows from its
evidence (docs/signatures.md). `tollgauge score`: recompute a score from its evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import orjson
import typer

from tollgauge.cli.buy import SERVICE, SUFFIX
from tollgauge.cli.terminal import (
    BAD,
    FAILED,
    GOOD,
    ConfigFile,
    Json,
    download,
    load_config,
    read_input,
    show,
)
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import LAST_SECOND

if TYPE_CHECKING:
    from tollgauge.core.sale.signature import PublicKey, Signature
    from tollgauge.core.score.evidence_document import EvidenceError
    from tollgauge.core.score.improvement import Improvement
    from tollgauge.core.score.score import Score
    from tollgauge.web.wire.claims import Difference

_FINGERPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_VERDICTS: Final = {
    GOOD: " is authentic",
    BAD: " cannot be trusted",
    FAILED: " has a valid signature, but not every check could be made",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check; `passed` is None if the check could not be made."""

    name: str
    passed: bool | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The trusted keys and their source; `offline` disables downloads."""

    keys: tuple[PublicKey, ...]
    source: str
    offline: bool


def verify(
    file: Annotated[str, typer.Argument(help="A saved report, snapshot or bundle, or -.")],
    signature: Annotated[
        str,
        typer.Option("--signature", metavar="JWS", help="Its signature. Default: read FILE.jws."),
    ] = "",
    headers: Annotated[
        str, typer.Option("--headers", metavar="FILE", help="Its headers, as saved by curl -D.")
    ] = "",
    key: Annotated[
        str, typer.Option("--key", help="The trusted key: a JWK, its file, or a fingerprint.")
    ] = "",
    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar=SERVICE,
            help="Service URL for its keys. Default: base_url in tollgauge.toml, then the demo.",
        ),
    ] = "",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Check the signature of a saved response, and a report's score. Exit 1 if a check fails, 2 if
    one could not be made.

    With a JWK or its file, nothing is downloaded. With a fingerprint, tollgauge
    downloads the service's keys and accepts only the matching one.

    Evidence that a report only refers to is downloaded, unless offline.
    """
    body = read_input(file)
    text = _signature_text(file, signature, headers)
    trust = _trust(key, url, config)
    signed, checks = _signature_checks(body, text, trust)
    if signed is not None and signed.typ == "tollgauge-report":
        genuine = all(check.passed for check in checks)
        checks += _report_checks(body, fetch=genuine and not trust.offline)
    code = _exit_code(checks, offline=trust.offline)
    document = {
        "file": file,
        "good": code == GOOD,
        "typ": signed and signed.typ,
        "kid": signed and signed.kid,
        "signedAt": signed and signed.iat,
        "sale": signed and signed.bound,
        "checks": [asdict(check) for check in checks],
    }
    show(document, _lines(file, signed, checks, code), as_json=as_json)
    raise typer.Exit(code)


def _signature_text(file: str, signature: str, headers: str) -> str:
    """Return the given signature, or that in FILE.jws. Raises TollgaugeError."""
    if signature:
        return signature
    if headers:
        return _read_signature_header(headers)
    jws_file = Path(f"{file}{SUFFIX}")
    if not jws_file.is_file():
        raise TollgaugeError(
            f"{file} has no signature: the file {jws_file} does not exist.",
            hint="Give it with --signature, or the response headers with --headers.",
        )
    return read_input(str(jws_file)).decode("ascii", "replace")


def _read_signature_header(file: str) -> str:
    """Return the signature in saved headers: the last one, which follows those of redirects."""
    from tollgauge.core.sale.signature import SIGNATURE_HEADER

    lines = read_input(file).decode("latin-1").splitlines()
    pairs = [line.partition(":") for line in lines]
    values = [
        value.strip()
        for name, _, value in pairs
        if name.strip().lower() == SIGNATURE_HEADER.lower()
    ]
    if not values:
        raise TollgaugeError(
            f"{file} has no header {SIGNATURE_HEADER}.",
            hint="Save them with `curl -D headers.txt`. A service without a key does not sign.",
        )
    return values[-1]


def _trust(key: str, url: str, config: Path | None) -> Trust:
    """Return the trusted keys. Raises TollgaugeError."""
    from tollgauge.core.sale.signature import JWKS_PATH, KeyFormatError, read_keys

    is_text = key.startswith("{") or not key or _FINGERPRINT.fullmatch(key)
    text = key.encode() if is_text else read_input(key)
    pinned = text.decode("ascii", "replace").strip()
    pinned = pinned if _FINGERPRINT.fullmatch(pinned) else ""
    source = "--key"
    if pinned or not key:
        base_url = (url or load_config(config).server.base_url).rstrip("/")
        source = f"{base_url}{JWKS_PATH}"
        text = download(source, hint="Give the key itself with --key.")
    try:
        keys = read_keys(text)
    except KeyFormatError as error:
        raise TollgaugeError(
            f"{source} contains no usable key. {error}",
            hint="--key takes a public JWK, a file that contains one, or a fingerprint.",
        ) from error
    if pinned:
        keys = tuple(item for item in keys if item.fingerprint == pinned)
    return Trust(keys=keys, source=source, offline=bool(key) and not pinned)


def _signature_checks(
    body: bytes, text: str, trust: Trust
) -> tuple[Signature | None, tuple[Check, ...]]:
    """Parse and check a signature; the first value is None if it cannot be parsed."""
    from tollgauge.core.sale.signature import SignatureError, read

    try:
        signed = read(text)
    except SignatureError as error:
        return None, (Check("signature", False, str(error)),)
    keys = [key for key in trust.keys if key.fingerprint == signed.kid]
    if not keys:
        unknown = f"{signed.kid} is not a key of {trust.source}"
        return signed, (
            Check("key", False, unknown),
            Check("signature", None, "it cannot be checked without the key"),
        )
    at = _time(signed.iat)
    counted = any(key.counts_at(signed.iat) for key in keys)
    when = f"signed {at}, when the key was valid" if counted else f"the key was not valid {at}"
    try:
        valid = signed.is_valid(body, keys[0])
        what = f"of this {signed.typ}" if valid else "not that of this file"
    except SignatureError as error:
        valid, what = False, str(error)
    return signed, (
        Check("key", True, f"{signed.kid} of {trust.source}"),
        Check("time", counted, when),
        Check("signature", valid, what),
    )


def _report_checks(body: bytes, *, fetch: bool) -> tuple[Check, ...]:
    """Check the evidence and score of a report, or of each report of a preview."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ()
    samples = document.get("samples") if isinstance(document, dict) else None
    if not isinstance(samples, list):
        return tuple(_evidence_checks(body, fetch=fetch))
    reports = [orjson.dumps(row.get("report")) for row in samples if isinstance(row, dict)]
    return tuple(
        replace(check, name=f"{check.name} {number}")
        for number, report in enumerate(reports, 1)
        for check in _evidence_checks(report, fetch=fetch)
    )


def _evidence_checks(report: bytes, *, fetch: bool) -> Iterator[Check]:
    """Check that a report's evidence has the named digest and results in its score."""
    from tollgauge.core.score.evidence_document import EvidenceError
    from tollgauge.core.score.score import ScoreError
    from tollgauge.web.wire.claims import check_claim, evidence_url, with_evidence

    try:
        url = evidence_url(report)
        if url and not fetch:
            yield Check("evidence", None, f"it is not in the report, but at {url}")
            yield Check("score", None, "it cannot be checked without the evidence")
            return
        whole = with_evidence(report, download(url)) if url else report
        check = check_claim(whole)
    except (EvidenceError, ScoreError) as error:
        yield Check("evidence", False, str(error))
        return
    except TollgaugeError as error:
        yield Check("evidence", None, f"{error} {error.hint}")
        return
    differences = check.differences or ()
    named = [item.field for item in differences if item.field.startswith(("evidence", "resource"))]
    others = [item.field for item in differences if item.field not in named]
    yield Check("evidence", not named, _differ(named) or "it matches the report's digest")
    yield Check("score", not others, _differ(others) or "it follows from the evidence")


def _differ(fields: Sequence[str]) -> str:
    """Describe the contradicted fields; empty if there are no contradictions."""
    return f"the evidence gives another {', '.join(fields)}" if fields else ""


def _exit_code(checks: Sequence[Check], *, offline: bool) -> int:
    """Return BAD if a check failed, FAILED if one could not be made although not offline."""
    results = {check.passed for check in checks}
    if False in results:
        return BAD
    return FAILED if None in results and not offline else GOOD


def _time(unix_s: int) -> str:
    if not 0 <= unix_s <= LAST_SECOND:
        return f"at second {unix_s}"
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _lines(
    file: str, signed: Signature | None, checks: Sequence[Check], code: int
) -> Iterator[str]:
    marks: dict[bool | None, str] = {True: "yes", False: "no", None: "?"}
    for check in checks:
        yield f"{check.name:10} {marks[check.passed]:3} {check.reason}"
    for name, value in (signed.bound if signed else {}).items():
        yield f"sale           {name} {value}"
    name = "standard input" if file == "-" else file
    yield name + _VERDICTS[code]


def score(
    evidence: Annotated[str, typer.Argument(help="An evidence document, a trust report, or -.")],
    as_json: Json = False,
) -> None:
    """Recompute a score from its evidence, and compare it with a report's claim.

    If a report contains only a reference to its evidence, the evidence is
    downloaded from the URL in the report and checked against its digest.

    Exit 1 if a report claims anything that its evidence does not confirm,
    or if the advice for an evidence document is to avoid the endpoint.
    """
    from tollgauge.core.score.advice import AVOIDED
    from tollgauge.core.score.evidence_document import EvidenceError
    from tollgauge.web.wire.claims import check_claim, evidence_url, with_evidence
    from tollgauge.web.wire.scores import ImprovementResponse

    document = read_input(evidence)
    try:
        if url := evidence_url(document):
            document = with_evidence(document, download(url))
        check = check_claim(document)
    except EvidenceError as error:
        raise _no_evidence(evidence, error) from error
    differences = check.differences
    raising = [
        ImprovementResponse.build(row).model_dump(by_alias=True) for row in check.improvements
    ]
    given = check.given | {"improvements": raising}
    score_lines = (*_score_lines(check.score), *_improvement_lines(check.improvements))
    if differences is None:
        show(given, score_lines, as_json=as_json)
        raise typer.Exit(BAD if check.score.recommendation in AVOIDED else GOOD)
    claim = {
        "agrees": not differences,
        "differences": [asdict(item) for item in differences],
    }
    lines = [*_claim_lines(check.score, differences), *score_lines]
    show(given | {"claim": claim}, lines, as_json=as_json)
    raise typer.Exit(BAD if differences else GOOD)


def _no_evidence(source: str, error: EvidenceError) -> TollgaugeError:
    """Return an error that names the invalid part of a document."""
    name = "Standard input" if source == "-" else source
    where = "" if error.path == "$" else f" at {error.path}"
    message = str(error).removeprefix(f"{error.path}: ")
    return TollgaugeError(
        f"{name} is not valid evidence{where}: {message}",
        hint="Give a whole trust report from POST /v1/x402-trust, or its `evidence.document`. "
        "The schema is in docs/evidence.schema.json.",
    )


def _claim_lines(score: Score, differences: tuple[Difference, ...]) -> Iterator[str]:
    """List each claim that the evidence contradicts, or state that the score agrees."""
    for item in differences:
        field = "" if item.field == "score" else f"{item.field} "
        claimed, given = _text(item.claimed), _text(item.given)
        yield f"report claims {field}{claimed}, evidence gives {given}"
    if not differences:
        points = _text(None if score.score_tenths is None else score.score_tenths / 10)
        yield f"report claims {points}, evidence gives {points}: they agree"


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "none" if value is None else orjson.dumps(value).decode()


def _score_lines(score: Score) -> Iterator[str]:
    from tollgauge.core.score.advice import summary
    from tollgauge.web.pages.labels import chance

    yield summary(score)
    now, day = score.payable_now_permille, score.payable_24h_permille
    if now is not None and day is not None:
        yield f"payable    {chance(now)} in half an hour, {chance(day)} in 24 hours"
    for component in score.components:
        points = component.tenths / 10
        yield f"{component.name:10} {points:6.1f} of 100, weight {component.weight}"
    for flag in score.flags:
        yield f"{flag.severity.value:5} {flag.code}: {flag.message}"


def _improvement_lines(improvements: tuple[Improvement, ...]) -> Iterator[str]:
    """List what would raise the score, one item per line."""
    from tollgauge.web.pages.labels import within

    if improvements:
        yield "what would raise this score:"
    for row in improvements:
        points, points_then = row.points_tenths / 10, row.score_tenths / 10
        when = within(row.in_days)
        yield f"{points:+6.1f} to {points_then:.1f} {row.grade} {when} ({row.code}): {row.fix}"
