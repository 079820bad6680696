"""`tollgauge config`: check the configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from tollgauge.cli.inputs import load_config
from tollgauge.cli.terminal import BAD, FAILED, ConfigFile, Json, errors, print_error, show

if TYPE_CHECKING:
    from tollgauge.config import Config

config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


@config_app.callback()
def config_commands() -> None:
    """Look at the configuration."""


@config_app.command(name="check")
def config_check(config: ConfigFile = None, as_json: Json = False) -> None:
    """Say what is wrong with the configuration, and what is unwise. Exit 1 when it is bad.

    Nothing is asked and nothing is written. Exit 2 when the file cannot be read.
    """
    from tollgauge.config import ConfigError

    try:
        loaded = load_config(config)
    except ConfigError as error:
        show({"good": False, "problems": error.problems, "warnings": []}, (), as_json=as_json)
        if not as_json:
            print_error(error)
        raise typer.Exit(FAILED if error.unread else BAD) from error
    warnings = advised(loaded)
    sells = "sells reports" if loaded.sale.pay_to else "sells nothing (sale.pay_to is not set)"
    store = loaded.store.url.split("://", 1)[0]
    show(
        {"good": True, "problems": [], "warnings": warnings, **_summary(loaded)},
        [f"good: serves {loaded.server.base_url}, stores in {store}, {sells}"],
        as_json=as_json,
    )
    for words in () if as_json else warnings:
        errors.print(f"warning: {words}", soft_wrap=True, markup=False)


def advised(config: Config) -> list[str]:
    """What is unwise in a configuration that works, and which variables are not settings."""
    from tollgauge.config import unused
    from tollgauge.config.advice import advice

    return [*advice(config), *unused(os.environ)]


def _summary(config: Config) -> dict[str, object]:
    """What the service does with this configuration; nothing in it is a secret."""
    return {
        "serves": config.server.base_url,
        "stores": config.store.url.split("://", 1)[0],
        "sells": bool(config.sale.pay_to),
        "network": config.sale.network,
        "sources": [source.name for source in config.sources],
        "references": config.references,
    }
