"""`tollgauge init` writes a configuration file; `tollgauge config check` validates one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tollgauge.cli.terminal import (
    BAD,
    FAILED,
    ConfigFile,
    Json,
    errors,
    load_config,
    print_error,
    show,
    write_new_file,
)

if TYPE_CHECKING:
    from tollgauge.config import Config


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
    from tollgauge.config.template import template

    text = template()
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
    for words in () if as_json else warnings:
        errors.print(f"warning: {words}", soft_wrap=True, markup=False)


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
