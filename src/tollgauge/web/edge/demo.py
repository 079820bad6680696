"""Settings of the running demo, and the progress of loading its history.

Pages of the demo refuse every wallet but its own (demo/wallet): the local chain has the number of a
real one, and a real wallet would sign a payment that is good there too. config/rules rejects the
settings for a service that others can reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import StringConstraints
from pydantic.dataclasses import dataclass as pydantic_dataclass

WALLET_RDNS: Final = "dev.tollgauge.demo"
"""The reverse domain name by which the demo's wallet announces itself (EIP-6963)."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Settings of the running demo; empty in any other service."""

    buyer_key: Annotated[str, StringConstraints(pattern=r"^(0x[0-9a-f]{64})?$")] = ""
    """Private key of an account that has money on the local chain. It is public, and worthless
    elsewhere.
    """
    chain_name: str = ""
    """Name of the local chain on pages."""
    control_url: str = ""
    """URL of the demo's control server, which `tollgauge demo fault` uses."""


@dataclass(slots=True)
class Loading:
    """Progress of loading the demo's history: `percent` of `days`, None if nothing is loading. It
    changes over time.
    """

    days: int = 0
    percent: int | None = None

    @property
    def words(self) -> str:
        """The text on pages, such as `loading 30 days of history: 42%`, or nothing."""
        if self.percent is None:
            return ""
        what = f"{self.days} days of history" if self.days else "the first round"
        return f"loading {what}: {self.percent}%"
