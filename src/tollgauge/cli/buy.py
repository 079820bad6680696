"""`tollgauge buy`: a trust report, bought with the key of an account; and what every command that
buys shares (`watch buy` is in cli/watch).
"""

from __future__ import annotations

import asyncio
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
    errors,
    load_config,
    progress_bar,
    show,
)
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import BASE, dollars

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from tollgauge.clients.purchase import Order, Purchase
    from tollgauge.clients.spending import KeptPayment, Limits

KEY: Final = "TOLLGAUGE_BUYER_KEY"
"""The variable of the environment that holds the buyer's private key."""
SERVICE: Final = "TOLLGAUGE_URL"
SUFFIX: Final = ".jws"
"""Ends the name of the file that holds the signature of another, beside it."""
_STANDARD_OUTPUT: Final = "-"
NOT_OF_A_SERVICE: Final = (orjson.JSONDecodeError, KeyError, TypeError)
"""What reading an answer raises that is not one of a service."""

Service = Annotated[
    str,
    typer.Option(
        "--service",
        envvar=SERVICE,
        help="Who is asked; else tollgauge.toml's base_url, or the demo.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Write over a file.")]
MaxPrice = Annotated[str, typer.Option("--max-price", help="The most to pay, in dollars.")]
Network = Annotated[str, typer.Option("--network", help="Where to pay in USDC (CAIP-2).")]


class EvidenceChoice(StrEnum):
    """Whether the report carries its evidence or only names it."""

    NAMED = "named"
    FULL = "full"


def buy(
    url: Annotated[str, typer.Argument(help="The endpoint to ask about: a https:// URL.")],
    service: Service = "",
    output: Annotated[str, typer.Option(help="The report's file, or - to print it.")] = (
        "report.json"
    ),
    force: Force = False,
    max_price: MaxPrice = "0.05",
    network: Network = BASE,
    evidence: Annotated[
        EvidenceChoice, typer.Option(help="full: the evidence is in the report.")
    ] = EvidenceChoice.NAMED,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Buy the live-probed trust report of an endpoint. Exit 1 when it says not to pay it,
    or that it is down.

    The private key is read from TOLLGAUGE_BUYER_KEY; the demo on this
    machine is paid with its own. A payment is kept in a file beside the
    output until its report is written: whenever something breaks, run the
    same command again, and nothing is paid twice.
    """
    from tollgauge.core.score.advice import AVOIDED
    from tollgauge.web.paid.products.trust import PRODUCT

    check_resource(url)
    limits = limits_of(max_price, network)
    body = {"resource": url} | ({"evidence": "full"} if evidence is EvidenceChoice.FULL else {})
    check_output(output, force=force)
    order = order_at(PRODUCT.path, body, service=service, config=config)
    purchase = buy_answer(order, limits, output, config=config)
    document = _document(purchase, output)
    if output != _STANDARD_OUTPUT:
        show(document, _lines(document, purchase), as_json=as_json)
    elif not as_json:
        for line in _lines(document, purchase):
            errors.print(line, soft_wrap=True, markup=False)
    outage = document["down"]
    is_down = outage is not None and outage["confirmed"]
    raise typer.Exit(BAD if is_down or document["recommendation"] in AVOIDED else GOOD)


def check_resource(url: str) -> None:
    """Raises TollgaugeError for what is no https:// URL: a service would refuse it once paid."""
    if not url.startswith("https://"):
        raise TollgaugeError(f"{url} is no https:// URL.", hint="Name an endpoint as it is listed.")


def limits_of(max_price: str, network: str) -> Limits:
    """The buyer's limits. Raises typer.BadParameter for a text that is no amount of dollars."""
    from tollgauge.clients.spending import Limits
    from tollgauge.web.paid.sale_settings import micro_usd

    try:
        return Limits(network=network, max_amount=micro_usd(max_price))
    except ValueError as error:
        raise typer.BadParameter("Give dollars, such as 0.05.", param_hint="--max-price") from error


def order_at(path: str, body: dict[str, Any], *, service: str, config: Path | None) -> Order:
    """A request to a paid route of the service that was named, or else configured. Raises
    TollgaugeError for an address that is not of the web.
    """
    from tollgauge.clients.purchase import Order

    base_url = (service or load_config(config).server.base_url).rstrip("/")
    if not base_url.startswith(("http://", "https://")):
        raise TollgaugeError(
            f"{base_url} is no address of a service.",
            hint="Begin it (--service, TOLLGAUGE_URL) with https://, or http:// on this machine.",
        )
    return Order(url=f"{base_url}{path}", body=body)


def buy_answer(order: Order, limits: Limits, output: str, *, config: Path | None) -> Purchase:
    """Buy an answer and write it to its output, for its owner alone, after its signature in a file
    beside it: then its payment need not be kept any more. `config` may name the demo that is paid
    with its own key.
    """
    purchase, kept = _pay(order, limits, output, key=_key(order.url, config))
    if output != _STANDARD_OUTPUT:
        _write_signature(purchase.signature, f"{output}{SUFFIX}")
    _write(purchase.body, output)
    kept.remove(purchase.payment)
    return purchase


def useless(bought: str, purchase: Purchase, output: str) -> TollgaugeError:
    """The error for an answer that is not what was `bought`."""
    where = "printed" if output == _STANDARD_OUTPUT else f"in {output}"
    return TollgaugeError(
        f"What was bought is no {bought}.",
        hint=f"It is {where}, and was paid by nonce {purchase.payment.nonce}. Ask whoever runs the "
        "service.",
    )


def paid_line(purchase: Purchase) -> str:
    """What was paid, and where that can be looked up."""
    receipt = purchase.transaction or "a transaction that the service does not name"
    return f"paid {dollars(purchase.payment.value)} in USDC by {receipt}"


def _pay(order: Order, limits: Limits, output: str, *, key: str) -> tuple[Purchase, KeptPayment]:
    """The purchase, and its kept payment."""
    from tollgauge.clients import purchase

    try:
        payer = purchase.payer_of(key)
    except ValueError:
        raise TollgaugeError(
            f"{KEY} is no private key.", hint="A private key is 0x and 64 hex digits."
        ) from None  # its text may be the key
    folder = Path() if output == _STANDARD_OUTPUT else Path(output).parent
    kept = order.kept_payment(folder, payer)
    with progress_bar() as progress:
        result = asyncio.run(
            purchase.buy(
                order,
                key=key,
                limits=limits,
                now_s=int(time.time()),
                kept=kept,
                report=lambda words: progress(words, 0, 0),
            )
        )
    return result, kept


def _key(url: str, config: Path | None) -> str:
    """The buyer's private key; for a service on this machine that of the demo, which everyone
    knows and which is worth nothing elsewhere. Raises TollgaugeError where there is none.
    """
    from tollgauge.clients.purchase import LOOPBACK, payer_of
    from tollgauge.demo.chain import BUYER

    key = os.environ.get(KEY, "").strip()
    if key:
        return key
    if urlsplit(url).hostname in LOOPBACK:
        key = load_config(config).demo.buyer_key or BUYER.key
        words = f"{KEY} is not set: paying with the demo's key, {payer_of(key)}."
        errors.print(words, soft_wrap=True, markup=False)
        return key
    raise TollgaugeError(
        f"There is no key to pay with: {KEY} is not set.",
        hint="Set it to the private key (0x and 64 hex digits) of an account that holds a little "
        "USDC, and nothing that you would miss.",
    )


def check_output(output: str, *, force: bool) -> None:
    """Raises TollgaugeError where the report could not be written, before anything is paid."""
    path = Path(output)
    if output == _STANDARD_OUTPUT:
        return
    if path.exists() and not (force and path.is_file()):
        raise TollgaugeError(
            f"{output} exists already.",
            hint="Nothing was paid. --force writes over it, --output names another file.",
        )
    if not path.parent.is_dir():
        raise TollgaugeError(
            f"There is no folder {path.parent}.", hint="Nothing was paid. Make it first."
        )


def _write_signature(signature: str, output: str) -> None:
    """Write a signature; one that an earlier answer had must not stay beside another."""
    if signature:
        _write(signature.encode(), output)
    else:
        Path(output).unlink(missing_ok=True)


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
            hint="It is paid for: run the same command again when there is room. The same payment "
            "fetches it again.",
        ) from error


def _document(purchase: Purchase, output: str) -> dict[str, Any]:
    """What is printed of a report. Raises TollgaugeError for an answer that is none."""
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
        yield f"wrote {output}; `tollgauge score {output}` computes the score again"
        if purchase.signature:
            yield f"wrote {output}{SUFFIX}; `tollgauge verify {output}` checks the signature"
