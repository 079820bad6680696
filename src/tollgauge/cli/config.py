"""`tollgauge init` writes a configuration file; `tollgauge config check` validates one; `tollgauge
anchors suggest` lists candidates for `[demand] anchors` (docs/operating/anchors.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tollgauge.cli.terminal import (
    BAD,
    FAILED,
    ConfigFile,
    Json,
    load_config,
    load_existing,
    note,
    print_error,
    show,
    with_store,
    write_new_file,
)
from tollgauge.core.base.units import DAY_MS, dollars

if TYPE_CHECKING:  # heavy: loaded by the functions that need them, so that --help is quick
    from tollgauge.config import Config
    from tollgauge.store.chain.anchor_candidates import AnchorCandidate


def init(
    file: Annotated[Path, typer.Argument(help="File to write, or - for standard output.")] = Path(
        "tollgauge.toml"
    ),
    as_json: Json = False,
) -> None:
    """Write a configuration file that lists every setting with its description and default.

    All values are commented out: remove the # of those that you change. An existing file is not
    overwritten (exit 2).
    """
    from tollgauge.config import Config
    from tollgauge.config.settings import template

    text = template(Config)
    if str(file) == "-":
        sys.stdout.write(text)
        return
    hint = "Name another file. To print all settings: tollgauge init -"
    write_new_file(file, text, hint=hint)
    show({"file": str(file)}, [f"wrote {file}", *_NEXT], as_json=as_json)


_NEXT: Final = (
    "Set at least server.base_url, egress.user_agent and one of [[sources]] in it. Then run:",
    "  tollgauge config check    # errors and advice",
    "  tollgauge doctor          # checks that the configured services respond",
    "  tollgauge run             # API, pages and workers",
)

config_app = typer.Typer(help="Check the configuration.", no_args_is_help=True)


@config_app.callback()
def config_commands() -> None:
    """Check the configuration."""


@config_app.command(name="check")
def config_check(config: ConfigFile = None, as_json: Json = False) -> None:
    """Validate the configuration and print advice. Exit 1 if it has errors.

    Sends no requests and writes nothing. Exit 2 if the file cannot be read.
    """
    from tollgauge.config import ConfigError

    try:
        loaded = load_config(config)
    except ConfigError as error:
        show({"good": False, "problems": error.problems, "warnings": []}, (), as_json=as_json)
        if not as_json:
            print_error(error)
        raise typer.Exit(FAILED if error.unread else BAD) from error
    warnings = collect_advice(loaded)
    sells = "sells reports" if loaded.sale.pay_to else "sells nothing (sale.pay_to is not set)"
    store = loaded.store.url.split("://", 1)[0]
    show(
        {"good": True, "problems": [], "warnings": warnings, **_summary(loaded)},
        [f"good: serves {loaded.server.base_url}, stores in {store}, {sells}"],
        as_json=as_json,
    )
    for warning in () if as_json else warnings:
        note(f"warning: {warning}")


def collect_advice(config: Config) -> list[str]:
    """Return advice about valid settings, and the variables that are not settings."""
    from tollgauge.config import find_unused
    from tollgauge.config.rules import advice

    return [*advice(config), *find_unused(os.environ)]


def _summary(config: Config) -> dict[str, object]:
    """Summarize the configuration without secrets."""
    return {
        "serves": config.server.base_url,
        "stores": config.store.url.split("://", 1)[0],
        "sells": bool(config.sale.pay_to),
        "network": config.sale.network,
        "sources": [source.name for source in config.sources],
        "references": config.references,
    }


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
    from tollgauge.service_status import now_ms
    from tollgauge.store.chain import anchor_candidates

    candidates = with_store(
        load_existing(config),
        lambda store: store.reading(anchor_candidates.rank_candidates, now=now_ms(), limit=limit),
    )
    rows = [asdict(candidate) for candidate in candidates]
    show({"candidates": rows}, _candidate_lines(candidates), as_json=as_json)


def _candidate_lines(candidates: Sequence[AnchorCandidate]) -> Iterator[str]:
    if not candidates:
        yield "No seller with an indexed payTo is known yet."
    for one in candidates:
        yield (
            f"{one.site}  {one.address}  known for {one.age_ms // DAY_MS} days, "
            f"{one.proven_payers} proven payers spent {dollars(one.proven_volume)}"
        )
