"""The rows of what the owner of a watch reads and changes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tollgauge.web.dependencies import Dependencies
from tollgauge.web.route import Route
from tollgauge.web.watches import edit, poll, rotate
from tollgauge.web.watches.watch_auth import SECURITY


def watch_routes(dependencies: Dependencies) -> Iterable[Route]:
    """What the owner of a watch reads and changes."""
    watch, events = "/v1/watch/{id}", poll.Polling(dependencies).poll
    watching, rotation = edit.Watching(dependencies), rotate.Rotation(dependencies)
    row = partial(Route, tag="watch", strict_query=True)
    for method, path, summary, handler, answers, request in (
        ("GET", f"{watch}/events", "What a watch has seen", events, poll.ANSWERS, SECURITY),
        ("PATCH", watch, edit.EDIT, watching.edit, edit.EDIT_ANSWERS, edit.EDIT_REQUEST),
        ("DELETE", watch, edit.CANCEL, watching.cancel, edit.CANCEL_ANSWERS, SECURITY),
        ("POST", f"{watch}/rotate", rotate.ROTATE, rotation.rotate, rotate.ANSWERS, rotate.REQUEST),
    ):
        id_ = f"watch_{handler.__name__}"
        yield row(method, path, summary, handler, id_, answers, request=request)
