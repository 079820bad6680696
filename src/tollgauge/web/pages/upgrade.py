"""`GET /endpoint/{id}/upgrade`: the page where a wallet in the browser pays for a live report.

The page itself is free and the same for everyone. Its script (static/upgrade.js) buys
`POST /v1/x402-trust` by the same 402 flow as any other client; it is told here what the page
promises (price, network, token, payee) and refuses terms that differ. There is no second way to
pay, and the server learns nothing here that the paid route would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.responses import Response

from tollgauge.core.payment import Offer
from tollgauge.core.units import known_asset
from tollgauge.monitor.reports import Snapshot
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import EndpointId, snapshot_of_id
from tollgauge.web.pages import labels
from tollgauge.web.pages.render import render
from tollgauge.web.paid import catalogue
from tollgauge.web.paid.catalogue import PaidDependencies

_HTML: Final = "text/html; charset=utf-8"
_ETHER: Final = {"name": "Ether", "symbol": "ETH", "decimals": 18}
_CHAINS: Final[dict[str, tuple[str, dict[str, Any], str, str]]] = {
    "eip155:8453": ("Base", _ETHER, "https://mainnet.base.org", "https://basescan.org"),
    "eip155:84532": (
        "Base Sepolia",
        _ETHER,
        "https://sepolia.base.org",
        "https://sepolia.basescan.org",
    ),
    "eip155:10": (
        "OP Mainnet",
        _ETHER,
        "https://mainnet.optimism.io",
        "https://optimistic.etherscan.io",
    ),
    "eip155:42161": (
        "Arbitrum One",
        _ETHER,
        "https://arb1.arbitrum.io/rpc",
        "https://arbiscan.io",
    ),
    "eip155:137": (
        "Polygon",
        {"name": "POL", "symbol": "POL", "decimals": 18},
        "https://polygon-rpc.com",
        "https://polygonscan.com",
    ),
}
"""What a wallet that lacks a network is told of it (EIP-3085): its name, its coin, its public node
and its explorer, as the networks publish them. Ethereum itself every wallet knows.
"""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The handler of the wallet page."""

    dependencies: PaidDependencies

    async def page(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """The wallet page of one endpoint."""
        snapshot = await snapshot_of_id(self.dependencies, id, now=self.dependencies.clock())
        html = upgrade_html(snapshot, self._offer(), base_url=self.dependencies.base_url)
        return Response(html, media_type=_HTML)

    def _offer(self) -> Offer | None:
        """What a report costs, None while nothing is for sale."""
        try:
            return self.dependencies.offer(catalogue.TRUST)
        except Problem:
            return None


def upgrade_html(snapshot: Snapshot, offer: Offer | None, *, base_url: str) -> bytes:
    """The wallet page as a pure function of its view."""
    return render(
        "upgrade.html",
        base_url,
        s=snapshot,
        simulated=snapshot.simulated,
        offer=offer,
        network=offer and _network_name(offer),
        price=offer and labels.dollars(offer.amount),
        deal=offer and orjson.dumps(_deal(snapshot, offer)).decode(),
        words=orjson.dumps(labels.RECOMMENDATIONS).decode(),
    )


def _network_name(offer: Offer) -> str:
    known = _CHAINS.get(offer.network)
    return known[0] if known else labels.network_name(offer.network) or offer.network


def _deal(snapshot: Snapshot, offer: Offer) -> dict[str, Any]:
    """What the script may sign for, and nothing else."""
    asset = known_asset(offer.network, offer.asset)
    return {
        "endpoint": snapshot.id,
        "resource": snapshot.resource,
        "network": offer.network,
        "networkName": _network_name(offer),
        "asset": offer.asset.lower(),
        "decimals": asset.decimals if asset else 6,
        "amount": str(offer.amount),
        "payTo": offer.pay_to.lower(),
        "chain": _chain(offer.network),
    }


def _chain(network: str) -> dict[str, Any] | None:
    """The parameters of `wallet_addEthereumChain`."""
    if network not in _CHAINS:
        return None
    name, coin, node, explorer = _CHAINS[network]
    return {
        "chainId": hex(int(network.removeprefix("eip155:"))),
        "chainName": name,
        "nativeCurrency": coin,
        "rpcUrls": [node],
        "blockExplorerUrls": [explorer],
    }
