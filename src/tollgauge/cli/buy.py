"""`tollgauge buy`: buy a trust report with the key of an account.

Also contains the steps that `buy` and `watch buy` share.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import orjson
import typer

from tollgauge.cli.terminal import (
    BAD,
    GOOD,
    ConfigFile,
    Json,
    load_config,
    note,
    progress_bar,
    run_async,
    show,
)
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import BASE, dollars, parse_dollars

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from tollgauge.clients.purchase import Order, Purchase
    from tollgauge.clients.spending import KeptPayment, Limits

KEY: Final = "TOLLGAUGE_BUYER_KEY"
"""The environment variable with the buyer's private key."""
SERVICE: Final = "TOLLGAUGE_URL"
SUFFIX: Final = ".jws"
"""Suffix of the file with the signature of a saved response."""
_STANDARD_OUTPUT: Final = "-"
NOT_OF_A_SERVICE: Final = (orjson.JSONDecodeError, KeyError, TypeError)
"""Exceptions raised when a response is not from a tollgauge service."""

Service = Annotated[
    str,
    typer.Option(
        "--service",
        envvar=SERVICE,
        help="Service URL. Default: base_url in tollgauge.toml, then the local demo.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
MaxPrice = Annotated[str, typer.Option("--max-price", help="Maximum price in dollars.")]
Network = Annotated[str, typer.Option("--network", help="Network for the USDC payment (CAIP-2).")]


class EvidenceChoice(StrEnum):
    """Whether the report contains its evidence or only refers to it."""

    NAMED = "named"
    FULL = "full"


def buy(
    url: Annotated[str, typer.Argument(help="The endpoint's https:// URL.")],
    service: Service = "",
    output: Annotated[str, typer.Option(help="File for the report, or - to print it.")] = (
        "report.json"
    ),
    force: Force = False,
    max_price: MaxPrice = "0.05",
    network: Network = BASE,
    evidence: Annotated[
        EvidenceChoice, typer.Option(help="full: include the evidence in the report.")
    ] = EvidenceChoice.NAMED,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Buy the live-probed trust report of an endpoint. Exit 1 if it advises against paying, or
    if the endpoint is down.

    The private key is read from TOLLGAUGE_BUYER_KEY; for a demo on this
    machine, the demo's key is used. The payment is saved in a file next to
    the output until the report is written. If the command fails, run it
    again: it does not pay twice.
    """
    from tollgauge.core.sale.payment import REPORT_PATH
    from tollgauge.core.score.advice import AVOIDED

    check_resource(url)
    limits = parse_limits(max_price, network)
    body = {"resource": url} | ({"evidence": "full"} if evidence is EvidenceChoice.FULL else {})
    check_output(output, force=force)
    order = order_at(REPORT_PATH, body, service=service, config=config)
    purchase = buy_answer(order, limits, output, config=config)
    document = _document(purchase, output)
    if output != _STANDARD_OUTPUT:
        show(document, _lines(document, purchase), as_json=as_json)
    elif not as_json:
        for line in _lines(document, purchase):
            note(line)
    outage = document["down"]
    is_down = outage is not None and outage["confirmed"]
    raise typer.Exit(BAD if is_down or document["recommendation"] in AVOIDED else GOOD)


def check_resource(url: str) -> None:
    """Raise TollgaugeError unless `url` is https: the service would reject it after the payment."""
    if not url.startswith("https://"):
        raise TollgaugeError(f"{url} is not an https:// URL.", hint="Give the endpoint's URL.")


def parse_limits(max_price: str, network: str) -> Limits:
    """Return the buyer's limits. Raises typer.BadParameter if the price is not a number."""
    from tollgauge.clients.spending import Limits

    try:
        return Limits(network=network, max_amount=parse_dollars(max_price))
    except ValueError as error:
        raise typer.BadParameter("Give dollars, such as 0.05.", param_hint="--max-price") from error


def order_at(path: str, body: dict[str, Any], *, service: str, config: Path | None) -> Order:
    """Build a request to a paid route of the given or configured service.

    Raises:
        TollgaugeError: The service's address is not an http or https URL.
    """
    from tollgauge.clients.purchase import Order

    base_url = (service or load_config(config).server.base_url).rstrip("/")
    if not base_url.startswith(("http://", "https://")):
        raise TollgaugeError(
            f"{base_url} is not a service URL.",
            hint="Use https://, or http:// on this machine (--service or TOLLGAUGE_URL).",
        )
    return Order(url=f"{base_url}{path}", body=body)


def buy_answer(order: Order, limits: Limits, output: str, *, config: Path | None) -> Purchase:
    """Buy a response and write it to `output`, readable only by its owner.

    `config` may name a demo, which is paid with the demo's key.
    """
    purchase, kept = _pay(order, limits, output, key=_key(order.url, config))
    # The saved payment is deleted last: until then a repeated command fetches the same response
    # again without paying.
    if output != _STANDARD_OUTPUT:
        if purchase.signature:
            _write(purchase.signature.encode(), f"{output}{SUFFIX}")
        else:  # an earlier response may have had one
            Path(f"{output}{SUFFIX}").unlink(missing_ok=True)
    _write(purchase.body, output)
    kept.remove(purchase.payment)
    return purchase


def useless(bought: str, purchase: Purchase, output: str) -> TollgaugeError:
    """Return the error for a response that is not a `bought` product."""
    where = "printed" if output == _STANDARD_OUTPUT else f"in {output}"
    return TollgaugeError(
        f"The purchased response is not a {bought}.",
        hint=f"It is {where}. The payment's nonce is {purchase.payment.nonce}. Contact the "
        "service's operator.",
    )


def paid_line(purchase: Purchase) -> str:
    """Describe the amount and the transaction of a payment."""
    receipt = purchase.transaction or "a transaction that the service does not name"
    return f"paid {dollars(purchase.payment.value)} in USDC by {receipt}"


def _pay(order: Order, limits: Limits, output: str, *, key: str) -> tuple[Purchase, KeptPayment]:
    """Pay for and fetch an answer; also returns the saved payment."""
    from tollgauge.clients import purchase

    try:
        payer = purchase.derive_payer(key)
    except ValueError:
        raise TollgaugeError(
            f"{KEY} is not a private key.", hint="A private key is 0x and 64 hex digits."
        ) from None  # the original exception may contain the key
    kept = order.kept_payment(Path(output).parent, payer)
    with progress_bar() as progress:
        result = run_async(
            purchase.buy(
                order,
                key=key,
                limits=limits,
                now_s=int(time.time()),
                kept=kept,
                report=lambda label: progress(label, 0, 0),
            )
        )
    return result, kept


def _key(url: str, config: Path | None) -> str:
    """Return the buyer's private key.

    For a service on this machine it defaults to the demo's key, which is public and worthless.

    Raises:
        TollgaugeError: There is no key to pay with.
    """
    from tollgauge.clients.purchase import LOOPBACK, derive_payer
    from tollgauge.demo.chain import BUYER

    key = os.environ.get(KEY, "").strip()
    if key:
        return key
    if urlsplit(url).hostname in LOOPBACK:
        key = load_config(config).demo.buyer_key or BUYER.key
        note(f"{KEY} is not set: paying with the demo's key, {derive_payer(key)}.")
        return key
    raise TollgaugeError(
        f"{KEY} is not set: there is no key to pay with. Nothing was paid.",
        hint="Set it to the private key (0x and 64 hex digits) of an account that holds only a "
        "small amount of USDC.",
    )


def check_output(output: str, *, force: bool) -> None:
    """Raise TollgaugeError if the output cannot be written. Called before the payment."""
    path = Path(output)
    if output == _STANDARD_OUTPUT:
        return
    if path.exists() and not (force and path.is_file()):
        raise TollgaugeError(
            f"{output} exists already.",
            hint="Nothing was paid. Use --force to overwrite it, or --output to name another file.",
        )
    if not path.parent.is_dir():
        raise TollgaugeError(
            f"The folder {path.parent} does not exist.", hint="Nothing was paid. Create it first."
        )


def _write(body: bytes, output: str) -> None:
    if output == _STANDARD_OUTPUT:
        sys.stdout.buffer.write(body + b"\n")
        sys.stdout.flush()
        return
    try:
        Path(output).touch(mode=0o600)
        Path(output).write_bytes(body + b"\n")
    except OSError as error:
        raise TollgaugeError(
            f"{output} cannot be written ({error.strerror}).",
            hint="The response is paid for. Free up space and run the same command again: it "
            "fetches the response with the same payment.",
        ) from error


def _document(purchase: Purchase, output: str) -> dict[str, Any]:
    """Summarise a report. Raises KeyError or TypeError for a response that is not a report."""
    payment = purchase.payment
    try:
        report = orjson.loads(purchase.body)
        return {
            "resource": report["resource"],
            "down": report["down"],
            "recommendation": report["verdict"]["recommendation"],
            "reason": report["verdict"]["reason"],
            "score": report["score"],
            "grade": report["grade"],
            "confidence": report["confidence"],
            "payment": {
                "transaction": purchase.transaction or None,
                "network": payment.network,
                "amount": str(payment.value),
                "payer": payment.payer,
                "payTo": payment.to,
                "nonce": payment.nonce,
            },
            "output": output,
        }
    except NOT_OF_A_SERVICE as error:
        raise useless("trust report", purchase, output) from error


def _lines(document: dict[str, Any], purchase: Purchase) -> Iterator[str]:
    output = document["output"]
    if (outage := document["down"]) is not None:
        event = "down since" if outage["confirmed"] else "failed once at"
        yield f"{event} {outage['since']}: {outage['reason']}"
    yield f"{document['recommendation']}: {document['reason']}"
    if document["score"] is None:
        yield "no score and no grade"
    else:
        grade, confidence = document["grade"], document["confidence"]
        yield f"score {document['score']}, grade {grade}, confidence {confidence:.2f}"
    yield paid_line(purchase)
    if output != _STANDARD_OUTPUT:
        yield f"wrote {output}; run `tollgauge score {output}` to recompute the score"
        if purchase.signature:
            yield f"wrote {output}{SUFFIX}; run `tollgauge verify {output}` to check the signature"
