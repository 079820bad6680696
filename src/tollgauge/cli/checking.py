"""`tollgauge config`: look at the configuration."""

from __future__ import annotations

import typer

from tollgauge.cli.inputs import load_config
from tollgauge.cli.terminal import ConfigFile, errors

config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


@config_app.command(name="check")
def config_check(config: ConfigFile = None) -> None:
    """Say everything that is wrong with the configuration. Exit 2 when something is."""
    found = load_config(config)
    where = found.store.url.split("://", 1)[0]
    sells = "sells reports" if found.sale.pay_to else "sells nothing (sale.pay_to is not set)"
    print(f"good: serves {found.server.base_url}, stores in {where}, {sells}")
    if found.sale.pay_to and not found.rpc.url:
        errors.print(
            "warning: rpc.url is not set, so a settlement that a facilitator leaves unclear "
            "cannot be proven (TOLLGAUGE_RPC_URL)"
        )
