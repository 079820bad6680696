"""The commands to try while the demo runs, as the demo prints them and as the README shows them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tollgauge.demo.seller import Seller

SERVICE_PORT: Final = 8402
_WAIT_S: Final = 120
"""Timeout for an alert: two probes of a watched endpoint on a busy machine."""


def tour(
    seller: Seller, *, folder: str, service: int = SERVICE_PORT, control: int = SERVICE_PORT + 1
) -> str:
    """Return the commands for a seller, with the ports of the service and of the control server.

    `folder` is the folder of the `tollgauge` command, or "" if it is on the PATH.
    """
    fault = f"tollgauge demo fault {seller.label} down"
    at = "" if control == service + 1 else f" --port {control}"
    url = f"http://127.0.0.1:{service}"
    commands = (
        f'export PATH="{folder}:$PATH"' if folder else "",
        f"export TOLLGAUGE_URL={url}" if service != SERVICE_PORT else "",
        f"tollgauge buy {seller.url} --force",
        "tollgauge verify report.json",
        "tollgauge score report.json",
        f"curl -si {url}/v1/x402-trust | tollgauge lint -",
        f"tollgauge watch buy {seller.url} --force",
        f"{fault} on{at}",
        f"tollgauge watch events --wait {_WAIT_S}",
        f"{fault} off{at}",
    )
    return "\n".join(command for command in commands if command)


def tour_at(seller: Seller, service: str, control: str) -> str:
    """Return the commands for the URLs of a running demo and for the shell that started it."""
    ports = [urlsplit(url).port or SERVICE_PORT for url in (service, control)]
    known = shutil.which("tollgauge")
    folder = "" if known else str(Path(sys.argv[0]).absolute().parent)
    return tour(seller, folder=folder, service=ports[0], control=ports[1])
