"""`GET /endpoint/{id}/upgrade`: buy a live report with a browser wallet.

The page is free. Its script (static/upgrade.js) buys `POST /v1/x402-trust` with the same 402 flow
as any other client. It receives the displayed terms from the page, and refuses a 402 response with
different terms.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from tollgauge.core.base.units import dollars, known_asset
from tollgauge.core.endpoint.identity import Resource
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.sale.payment import Offer
from tollgauge.monitor.reports.snapshots import Snapshot
from tollgauge.web.edge.demo import WALLET_RDNS, DemoSettings
from tollgauge.web.pages import labels
from tollgauge.web.pages.render import render

_ETHER: Final = {"name": "Ether", "symbol": "ETH", "decimals": 18}
_POL: Final = {"name": "POL", "symbol": "POL", "decimals": 18}
_CHAINS: Final[dict[str, dict[str, Any]]] = {
    f"eip155:{chain_id}": {
        "chainId": hex(chain_id),
        "chainName": name,
        "nativeCurrency": coin,
        "rpcUrls": [f"https://{node}"],
        "blockExplorerUrls": [f"https://{explorer}"],
    }
    for chain_id, name, coin, node, explorer in (
        (8453, "Base", _ETHER, "mainnet.base.org", "basescan.org"),
        (84532, "Base Sepolia", _ETHER, "sepolia.base.org", "sepolia.basescan.org"),
        (10, "OP Mainnet", _ETHER, "mainnet.optimism.io", "optimistic.etherscan.io"),
        (42161, "Arbitrum One", _ETHER, "arb1.arbitrum.io/rpc", "arbiscan.io"),
        (137, "Polygon", _POL, "polygon-rpc.com", "polygonscan.com"),
    )
}
"""Parameters for wallets to add a network (EIP-3085, `wallet_addEthereumChain`), as published by
the networks. Every wallet includes Ethereum itself.
"""


def upgrade_html(
    sold: Snapshot | Resource,
    offer: Offer | None,
    *,
    base_url: str,
    demo: DemoSettings = DemoSettings(),  # noqa: B008 - frozen
) -> bytes:
    """Render the wallet page of an endpoint or of an unmonitored resource.

    `offer` is None if sales are not configured. In the demo, only the demo wallet can pay.
    """
    snapshot: RatedEndpoint = (
        RatedEndpoint(id=sold.id, resource=sold.url, host=sold.host, first_seen=0)
        if isinstance(sold, Resource)
        else sold
    )
    return render(
        "upgrade.html",
        base_url,
        snapshot=snapshot,
        known=sold is snapshot,
        simulated=snapshot.simulated,
        offer=offer,
        network=offer and (demo.chain_name or labels.network_title(offer.network)),
        price=offer and dollars(offer.amount),
        deal=offer and orjson.dumps(_deal(snapshot, offer) | _demo_deal(demo)).decode(),
        demo_wallet=WALLET_RDNS if demo.buyer_key else None,
        words=orjson.dumps(labels.RECOMMENDATIONS).decode(),
    )


def _deal(snapshot: RatedEndpoint, offer: Offer) -> dict[str, Any]:
    """Return the only terms that the script may sign."""
    asset = known_asset(offer.network, offer.asset)
    return {
        "endpoint": snapshot.id,
        "resource": snapshot.resource,
        "network": offer.network,
        "networkName": labels.network_title(offer.network),
        "asset": offer.asset.lower(),
        "decimals": asset.decimals if asset else 6,
        "amount": str(offer.amount),
        "payTo": offer.pay_to.lower(),
        "seconds": offer.timeout_seconds,
        "chain": _CHAINS.get(offer.network),
    }


def _demo_deal(demo: DemoSettings) -> dict[str, Any]:
    """Restrict payment to the demo wallet; other wallets do not know the demo's chain."""
    if not demo.buyer_key:
        return {}
    return {"wallet": WALLET_RDNS, "networkName": demo.chain_name, "chain": None}
