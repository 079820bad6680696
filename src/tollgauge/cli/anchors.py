"""`tollgauge anchors suggest`: candidates for `[demand] anchors` (docs/operating/anchors.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tollgauge.cli.terminal import ConfigFile, Json, load_existing, show, with_store
from tollgauge.core.base.units import DAY_MS, dollars

if TYPE_CHECKING:  # heavy: loaded by the function that needs it, so that --help is quick
    from tollgauge.store.chain.anchor_candidates import AnchorCandidate

anchors_app = typer.Typer(help="Find sellers that can prove payers.", no_args_is_help=True)


@anchors_app.callback()
def anchors_commands() -> None:
    """Find sellers that can prove payers."""


@anchors_app.command(name="suggest")
def suggest(
    config: ConfigFile = None,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of candidates.")] = 20,
    as_json: Json = False,
) -> None:
    """List candidates by what payers spend there who are proven at another anchor, then by age.

    Wallets and volume that prove nothing do not count. Nothing is added: check each candidate by
    hand, and name those that you choose in the configuration.
    """
    from tollgauge.app import now_ms
    from tollgauge.store.chain import anchor_candidates

    candidates = with_store(
        load_existing(config),
        lambda store: store.reading(anchor_candidates.rank_candidates, now=now_ms(), limit=limit),
    )
    rows = [asdict(candidate) for candidate in candidates]
    show({"candidates": rows}, _lines(candidates), as_json=as_json)


def _lines(candidates: Sequence[AnchorCandidate]) -> Iterator[str]:
    if not candidates:
        yield "No seller with an indexed payTo is known yet."
    for one in candidates:
        yield (
            f"{one.site}  {one.address}  known for {one.age_ms // DAY_MS} days, "
            f"{one.proven_payers} proven payers spent {dollars(one.proven_volume)}"
        )
