"""`tollgauge watch`: watches and their deliveries, as the operator sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tollgauge.cli.inputs import load_config
from tollgauge.cli.terminal import BAD, GOOD, ConfigFile, Json, errors, print_json
from tollgauge.core.errors import TollgaugeError

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from tollgauge.config import Config
    from tollgauge.store import outbox

watch_app = typer.Typer(help="Look after watches and their deliveries.", no_args_is_help=True)


@watch_app.command(name="list")
def watch_list(
    config: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 50,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters instead of watches.")] = False,
    as_json: Json = False,
) -> None:
    """The newest watches, or the deliveries that were given up. Exit 1 when any was."""
    found = asyncio.run(_watches(load_config(config), limit))
    rows = found["dead"] if dead else found["watches"]
    if as_json:
        print_json(found)
    for row in () if as_json else rows:
        print(" ".join(str(value) for value in row.values() if not isinstance(value, list)))
    raise typer.Exit(BAD if found["dead"] else GOOD)


@watch_app.command(name="show")
def watch_show(watch_id: str, config: ConfigFile = None, as_json: Json = False) -> None:
    """One watch: what it listens to, where to, and its newest deliveries. URLs are masked."""
    found = asyncio.run(_watch(load_config(config), watch_id))
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        for row in value if isinstance(value, list) else [value]:
            shown = " ".join(map(str, row.values())) if isinstance(row, dict) else row
            print(f"{key:12} {shown}")


@watch_app.command(name="resend")
def watch_resend(
    ids: Annotated[list[str], typer.Argument(help="Dead deliveries (dlv_…), or a watch (wat_…).")],
    config: ConfigFile = None,
) -> None:
    """Queue dead letters again, with all their tries. Exit 1 when there was none."""
    again = asyncio.run(_resend(load_config(config), tuple(ids)))
    errors.print(f"{again} queued again.")
    raise typer.Exit(GOOD if again else BAD)


async def _watches(config: Config, limit: int) -> dict[str, Any]:
    from tollgauge import app as root
    from tollgauge.store import endpoints, outbox, watches
    from tollgauge.web import wire

    async with root.opened(config) as service, service.store.read() as tx:
        rows = await watches.latest(tx, limit=limit)
        known = await endpoints.get_many(tx, {row.endpoint_id for row in rows})
        depth = await outbox.depth(tx)
        letters = await outbox.dead(tx, limit=limit)
    return {
        "queued": depth.queued,
        "oldestDue": None if depth.oldest_due is None else wire.iso(depth.oldest_due),
        "watches": [
            {
                "watchId": row.id,
                "state": row.state.value,
                "expiresAt": wire.iso(row.expires_at),
                "resource": known[row.endpoint_id].resource,
            }
            for row in rows
        ],
        "dead": [_delivery(each) for each in letters],
    }


async def _watch(config: Config, watch_id: str) -> dict[str, Any]:
    from tollgauge import app as root
    from tollgauge.store import destinations, endpoints, outbox, watch_events, watches
    from tollgauge.web import wire

    async with root.opened(config) as service, service.store.read() as tx:
        found = await watches.get(tx, watch_id)
        if found is None:
            raise TollgaugeError(
                f"There is no watch {watch_id}.", hint="tollgauge watch list names them."
            )
        endpoint = await endpoints.get(tx, found.endpoint_id)
        targets = (await destinations.of_watches(tx, [watch_id]))[watch_id]
        sent = await outbox.of_watch(tx, watch_id, limit=50)
        own = await watch_events.of_watch(tx, watch_id, after=0, limit=500)
    return {
        "watchId": found.id,
        "state": found.state.value,
        "resource": endpoint.resource if endpoint else None,
        "createdAt": wire.iso(found.created_at),
        "expiresAt": wire.iso(found.expires_at),
        "events": ", ".join(found.wish.events),
        "sensitivity": found.wish.sensitivity,
        "destinations": [
            {
                "id": each.id,
                "kind": each.kind.value,
                "url": each.masked,
                "failures": each.failures,
                "disabled": each.disabled_reason or None,
            }
            for each in targets
        ],
        "lifecycle": [{"at": wire.iso(each.at), "type": each.type} for each in own],
        "deliveries": [_delivery(each) for each in sent],
    }


async def _resend(config: Config, ids: tuple[str, ...]) -> int:
    from tollgauge import app as root
    from tollgauge.store import outbox

    async with root.opened(config) as service, service.store.write() as tx:
        letters = {each for each in ids if not each.startswith("wat_")}
        for watch_id in set(ids) - letters:
            found = await outbox.dead(tx, limit=10_000, watch_id=watch_id)
            letters |= {each.notice.id for each in found}
        return await outbox.resend(tx, letters, now=service.clock())


def _delivery(each: outbox.Delivery) -> dict[str, Any]:
    """A delivery as the operator sees it: where it goes is its watch's to show."""
    from tollgauge.web import wire

    return {
        "id": each.notice.id,
        "watchId": each.notice.watch_id,
        "event": each.notice.event_id,
        "type": each.notice.type,
        "state": each.state,
        "attempts": each.attempts,
        "error": each.last_error or None,
        "due": wire.iso(each.due),
    }
