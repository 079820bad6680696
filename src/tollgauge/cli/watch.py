"""`tollgauge watch`: buy and read a watch as its owner; list, show and resend as the operator. With
--once: check an endpoint without a service.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
import typer

from tollgauge.cli.buy import (
    NOT_OF_A_SERVICE,
    Force,
    MaxPrice,
    Network,
    Service,
    buy_answer,
    check_output,
    check_resource,
    order_at,
    paid_line,
    parse_limits,
    useless,
)
from tollgauge.cli.terminal import (
    BAD,
    GOOD,
    ConfigFile,
    Json,
    load_existing,
    progress_bar,
    read_input,
    show,
    with_store,
)
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import BASE, iso

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    import httpx
    from sqlalchemy import Connection

    from tollgauge.store.watches import outbox


FILE: Final = "watch.json"
POLL_S: Final = 5.0
_TIMEOUT_S: Final = 20.0
_PAGE: Final = frozenset({"events", "next_cursor", "resource", "checkedTimes"})
_EVENT: Final = frozenset({"observed_at_iso", "type", "severity", "reason"})
_NO_WATCH: Final = "`tollgauge watch buy URL` writes it. Name the file of another watch to read it."

watch_app = typer.Typer(no_args_is_help=True)


@watch_app.callback(invoke_without_command=True)
def watch(
    once: Annotated[
        str, typer.Option("--once", metavar="SOURCE", help="Check an endpoint without a service.")
    ] = "",
    state: Annotated[Path, typer.Option(help="File with the result of the last check.")] = Path(
        "watch-state.json"
    ),
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Buy, read and manage watches.

    --once compares a response with that of the last check, and prints the
    events that a watch would send: a changed payTo, price, asset or network,
    a new error in the 402, an outage. Exit 1 if there are any. The source is
    a URL or a saved response, as for `tollgauge lint`.
    """
    if not once:
        return
    from tollgauge.cli.watch_once import check

    first, changes = check(once, state, config)
    events = [
        {
            "type": change.type,
            "severity": change.severity.value,
            "reason": change.reason,
            "before": change.before,
            "after": change.after,
        }
        for change in changes
    ]
    lines = [f"{change.type} ({change.severity}): {change.reason}" for change in changes]
    if not lines:
        lines = [f"{state} written; the next check compares with it" if first else "no changes"]
    show({"source": once, "first": first, "events": events}, lines, as_json=as_json)
    raise typer.Exit(BAD if events else GOOD)


@watch_app.command(name="buy")
def watch_buy(
    url: Annotated[str, typer.Argument(help="The https:// URL of the endpoint to watch.")],
    webhook: Annotated[
        list[str] | None, typer.Option(help="Webhook URL for alerts; may be given 5 times.")
    ] = None,
    service: Service = "",
    output: Annotated[str, typer.Option(help="File for the watch and its secret.")] = FILE,
    force: Force = False,
    max_price: MaxPrice = "0.25",
    network: Network = BASE,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Buy 30 days of alerts about an endpoint. Keys and retries work as with `buy`.

    The file contains the watch's secret, which `watch events` needs. Keep
    it private.
    """
    from tollgauge.core.sale.payment import WATCH_PATH

    check_resource(url)
    limits = parse_limits(max_price, network)
    if output == "-":
        raise TollgaugeError("The watch's secret is not printed.", hint="Name a file: --output.")
    check_output(output, force=force)
    body = {"endpoint": url} | ({"delivery": {"webhook_url": webhook}} if webhook else {})
    order = order_at(WATCH_PATH, body, service=service, config=config)
    purchase = buy_answer(order, limits, output, config=config)
    try:
        watch = orjson.loads(purchase.body)
        shown = {name: watch[name] for name in ("watch_id", "resource", "expires_at", "events")}
    except NOT_OF_A_SERVICE as error:
        raise useless("watch", purchase, output) from error
    lines = [
        f"{watch['watch_id']} watches {watch['resource']} until {watch['expires_at']}",
        paid_line(purchase),
        f"wrote {output}; run `tollgauge watch events {output}` to read its events",
    ]
    document = shown | {"transaction": purchase.transaction or None, "output": output}
    show(document, lines, as_json=as_json)


@watch_app.command(name="events")
def watch_events(
    file: Annotated[str, typer.Argument(help="The file that `watch buy` wrote.")] = FILE,
    wait: Annotated[
        int, typer.Option(min=0, help="Seconds to wait if there are no events yet.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """List the events of a watched endpoint, oldest first. Exit 1 if there are none."""
    poll_url, secret = _read_watch(file)
    until = time.monotonic() + wait
    with progress_bar() as progress:
        document = _fetch_events(poll_url, secret)
        while not document["events"] and time.monotonic() < until:
            progress("waiting for an event", 0, 0)
            time.sleep(POLL_S)
            document = _fetch_events(poll_url, secret)
    show(document, _lines(document), as_json=as_json)
    raise typer.Exit(GOOD if document["events"] else BAD)


def _read_watch(file: str) -> tuple[str, str]:
    """Return the polling URL and the secret from a file. Raises TollgaugeError."""
    try:
        watch = orjson.loads(read_input(file, hint=_NO_WATCH))
        return str(watch["poll_url"]), str(watch["secret"])
    except (ValueError, KeyError, TypeError) as error:
        raise TollgaugeError(
            f"{file} was not written by `tollgauge watch buy`.",
            hint="The file must contain the watch's poll_url and its secret. The wallet that paid "
            "can request a new secret (docs/watching.md).",
        ) from error


def _fetch_events(poll_url: str, secret: str) -> dict[str, Any]:
    """Fetch all events since the watch began."""
    import httpx

    events: list[Any] = []
    cursor = {"since": "0"}
    try:
        while True:
            answer = httpx.get(
                poll_url,
                params=cursor,
                headers={"Authorization": f"Bearer {secret}"},
                timeout=_TIMEOUT_S,
            )
            if answer.status_code != 200:
                raise TollgaugeError(
                    f"{poll_url} answered {answer.status_code}.",
                    hint="401 and 404: the secret belongs to another watch, or was replaced.",
                )
            document = _page(answer)
            events += document["events"]
            if not document["events"]:
                return document | {"events": events}
            cursor = {"since": document["next_cursor"]}
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TollgaugeError(
            f"{poll_url} cannot be reached ({type(error).__name__}).",
            hint="Check that the service is running. No events are lost between polls.",
        ) from error


def _page(answer: httpx.Response) -> dict[str, Any]:
    """Validate one response. Raises TollgaugeError if it is not that of a watch."""
    try:
        document = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict) and document.keys() >= _PAGE:
        events = document["events"]
        if isinstance(events, list) and all(
            isinstance(event, dict) and event.keys() >= _EVENT for event in events
        ):
            return document
    raise TollgaugeError(
        f"{answer.url.copy_with(query=None)} did not respond as a watch.",
        hint="Another service responds at this URL. No events are lost between polls.",
    )


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for event in document["events"]:
        yield f"{event['observed_at_iso']} {event['type']} ({event['severity']}): {event['reason']}"
    if not document["events"]:
        checked = document["checkedTimes"]
        yield f"no events for {document['resource']}, which was checked {checked} times"


@watch_app.command(name="list")
def watch_list(
    config: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Number of watches to list.")] = 50,
    dead: Annotated[bool, typer.Option("--dead", help="List failed deliveries instead.")] = False,
    as_json: Json = False,
) -> None:
    """List the newest watches, or the failed deliveries. Exit 1 if a delivery failed for good."""
    document = with_store(load_existing(config), lambda store: store.reading(_watches, limit=limit))
    rows = document["dead"] if dead else document["watches"]
    lines = (
        " ".join(str(value) for value in row.values() if not isinstance(value, list))
        for row in rows
    )
    none = "There are no failed deliveries." if dead else "There are no watches."
    show(document, lines if rows else [none], as_json=as_json)
    raise typer.Exit(BAD if document["dead"] else GOOD)


@watch_app.command(name="show")
def watch_show(
    watch_id: Annotated[str, typer.Argument(help="The watch's ID (wat_…) from `watch list`.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show one watch: its events, destinations and newest deliveries. URLs are masked."""
    document = with_store(load_existing(config), lambda store: store.reading(_watch, watch_id))
    show(document, _describe(document), as_json=as_json)


def _describe(document: dict[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        for row in value if isinstance(value, list) else [value]:
            shown = " ".join(map(str, row.values())) if isinstance(row, dict) else row
            yield f"{key:12} {shown}"


@watch_app.command(name="resend")
def watch_resend(
    ids: Annotated[list[str], typer.Argument(help="IDs of deliveries (dlv_…) or watches (wat_…).")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Queue failed deliveries again, with all their attempts. Exit 1 if there were none."""
    from tollgauge.service_status import now_ms

    queued = with_store(
        load_existing(config), lambda store: store.writing(_resend, ids, now=now_ms())
    )
    show({"queued": queued}, [f"{queued} queued again."], as_json=as_json)
    raise typer.Exit(GOOD if queued else BAD)


def _watches(tx: Connection, *, limit: int) -> dict[str, Any]:
    from tollgauge.store.endpoints import endpoints
    from tollgauge.store.watches import outbox, watches

    rows = watches.latest(tx, limit=limit)
    known = endpoints.get_many(tx, {row.endpoint_id for row in rows})
    depth = outbox.depth(tx)
    return {
        "queued": depth.queued,
        "oldestDue": None if depth.oldest_due is None else iso(depth.oldest_due),
        "watches": [
            {
                "watchId": row.id,
                "state": row.state.value,
                "expiresAt": iso(row.expires_at),
                "resource": known[row.endpoint_id].resource,
            }
            for row in rows
        ],
        "dead": [_delivery(letter) for letter in outbox.dead(tx, limit=limit)],
    }


def _watch(tx: Connection, watch_id: str) -> dict[str, Any]:
    """Return a watch as the operator sees it. Raises TollgaugeError for an unknown ID."""
    from tollgauge.store.endpoints import endpoints
    from tollgauge.store.watches import outbox, watch_events, watches

    watch = watches.get(tx, watch_id)
    if watch is None:
        raise TollgaugeError(
            f"No watch with ID {watch_id}.", hint="`tollgauge watch list` lists the IDs."
        )
    endpoint = endpoints.get(tx, watch.endpoint_id)
    lifecycle = watch_events.of_watch(tx, watch_id, after=0, limit=500)
    deliveries = outbox.of_watch(tx, watch_id, limit=50)
    return {
        "watchId": watch.id,
        "state": watch.state.value,
        "resource": endpoint.resource if endpoint else None,
        "createdAt": iso(watch.created_at),
        "expiresAt": iso(watch.expires_at),
        "events": ", ".join(watch.watch_request.events),
        "sensitivity": watch.watch_request.sensitivity,
        "destinations": [
            {
                "id": target.id,
                "kind": target.kind.value,
                "url": target.masked,
                "failures": target.failures,
                "disabled": target.disabled_reason or None,
            }
            for target in watches.load_destinations(tx, [watch_id])[watch_id]
        ],
        "lifecycle": [{"at": iso(event.at), "type": event.type} for event in lifecycle],
        "deliveries": [_delivery(delivery) for delivery in deliveries],
    }


def _resend(tx: Connection, ids: list[str], *, now: int) -> int:
    from tollgauge.store.watches import outbox

    watch_ids = {id_ for id_ in ids if id_.startswith("wat_")}
    letters = [
        letter
        for watch_id in watch_ids
        for letter in outbox.dead(tx, limit=10_000, watch_id=watch_id)
    ]
    delivery_ids = {letter.alert.id for letter in letters} | set(ids) - watch_ids
    return outbox.resend(tx, delivery_ids, now=now)


def _delivery(delivery: outbox.OutboxDelivery) -> dict[str, Any]:
    """Return a delivery without its destination, which `watch show` lists."""
    return {
        "id": delivery.alert.id,
        "watchId": delivery.alert.watch_id,
        "event": delivery.alert.event_id,
        "type": delivery.alert.type,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "error": delivery.last_error or None,
        "due": iso(delivery.due),
    }
