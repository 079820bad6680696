"""`tollgauge watch`: watches and their deliveries, as the operator sees them. Its owner's commands
are in cli/watch_buy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tollgauge.cli.inputs import load_existing, with_service
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, show
from tollgauge.cli.watch_buy import watch_buy, watch_events
from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from sqlalchemy import Connection

    from tollgauge.store.watches import outbox

watch_app = typer.Typer(help="Buy, read and manage watches.", no_args_is_help=True)
watch_app.command(name="buy")(watch_buy)
watch_app.command(name="events")(watch_events)


@watch_app.command(name="list")
def watch_list(
    config: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 50,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters instead of watches.")] = False,
    as_json: Json = False,
) -> None:
    """The newest watches, or the deliveries that were given up. Exit 1 when any was."""
    document = with_service(
        load_existing(config), lambda service: service.store.reading(_watches, limit=limit)
    )
    rows = document["dead"] if dead else document["watches"]
    lines = (
        " ".join(str(value) for value in row.values() if not isinstance(value, list))
        for row in rows
    )
    none = "No delivery was given up." if dead else "There is no watch."
    show(document, lines if rows else [none], as_json=as_json)
    raise typer.Exit(BAD if document["dead"] else GOOD)


@watch_app.command(name="show")
def watch_show(
    watch_id: Annotated[str, typer.Argument(help="Its id (wat_…), as `watch list` names it.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """One watch: what it listens to, where to, and its newest deliveries. URLs are masked."""
    document = with_service(
        load_existing(config), lambda service: service.store.reading(_watch, watch_id)
    )
    show(document, _lines(document), as_json=as_json)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        for row in value if isinstance(value, list) else [value]:
            shown = " ".join(map(str, row.values())) if isinstance(row, dict) else row
            yield f"{key:12} {shown}"


@watch_app.command(name="resend")
def watch_resend(
    ids: Annotated[list[str], typer.Argument(help="Dead deliveries (dlv_…), or a watch (wat_…).")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Queue dead letters again, with all their tries. Exit 1 when there was none."""
    queued = with_service(
        load_existing(config),
        lambda service: service.store.writing(_resend, ids, now=service.clock()),
    )
    show({"queued": queued}, [f"{queued} queued again."], as_json=as_json)
    raise typer.Exit(GOOD if queued else BAD)


def _watches(tx: Connection, *, limit: int) -> dict[str, Any]:
    from tollgauge.store.endpoints import endpoints
    from tollgauge.store.watches import outbox, watches
    from tollgauge.web.wire.figures import iso

    rows = watches.latest(tx, limit=limit)
    known = endpoints.get_many(tx, {row.endpoint_id for row in rows})
    depth = outbox.depth(tx)
    return {
        "queued": depth.queued,
        "oldestDue": iso(depth.oldest_due),
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
    """A watch as the operator sees it. Raises TollgaugeError if there is none."""
    from tollgauge.store.endpoints import endpoints
    from tollgauge.store.watches import destinations, outbox, watch_events, watches
    from tollgauge.web.wire.figures import iso

    watch = watches.get(tx, watch_id)
    if watch is None:
        raise TollgaugeError(
            f"There is no watch {watch_id}.", hint="tollgauge watch list names them."
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
            for target in destinations.of_watches(tx, [watch_id])[watch_id]
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
    delivery_ids = {letter.notice.id for letter in letters} | set(ids) - watch_ids
    return outbox.resend(tx, delivery_ids, now=now)


def _delivery(delivery: outbox.Delivery) -> dict[str, Any]:
    """A delivery as the operator sees it, without its destination: `watch show` has that."""
    from tollgauge.web.wire.figures import iso

    return {
        "id": delivery.notice.id,
        "watchId": delivery.notice.watch_id,
        "event": delivery.notice.event_id,
        "type": delivery.notice.type,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "error": delivery.last_error or None,
        "due": iso(delivery.due),
    }
