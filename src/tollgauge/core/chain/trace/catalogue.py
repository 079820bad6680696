"""Catalogue: the decoders and the networks that a request for a payment trace can name.

`GET /v1/models` shows the decoders. Without a name, the cheapest that satisfies the request is used
(core/chain/trace/decode).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.chain.trace.transaction import TraceInputError


class Model(StrEnum):
    """A decoder's name."""

    RECEIPT_LOGS = "receipt-logs"
    CALLDATA = "calldata"
    CALL_TRACE = "call-trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """One row of the catalogue: what it asks the node for, what it gives, and its price (USD),
    which comes on top of the route's.
    """

    model: Model
    needs: tuple[str, ...]
    gives: str
    price_usd: float = 0.0


_BOTH: Final = ("eth_getTransactionByHash", "eth_getTransactionReceipt")

DECODERS: Final = (
    Decoder(
        model=Model.RECEIPT_LOGS,
        needs=_BOTH,
        gives="Payer, payee, amount, token and nonce of every payment, and the method where the "
        "call data tells it; not from when to when the authorization was valid",
    ),
    Decoder(
        model=Model.CALLDATA,
        needs=_BOTH,
        gives="Also from when to when the authorization was valid, for every payment that the "
        "call data holds: direct calls, and calls inside well-known batches and smart accounts",
    ),
    Decoder(
        model=Model.CALL_TRACE,
        needs=(*_BOTH, "debug_traceTransaction"),
        gives="Also the method and the validity of payments that other contracts make, whatever "
        "these contracts are",
    ),
)
"""The decoders, cheapest first."""

NETWORKS: Final = {
    "base-mainnet": "eip155:8453",
    "ethereum-mainnet": "eip155:1",
    "arbitrum-mainnet": "eip155:42161",
    "optimism-mainnet": "eip155:10",
    "polygon-mainnet": "eip155:137",
}
"""The networks by the names that a request gives them, as CAIP-2 ids."""
DEFAULT_NETWORK: Final = "base-mainnet"


def named_model(name: str) -> Model:
    """A decoder of the catalogue. Raises TraceInputError."""
    try:
        return Model(name)
    except ValueError as error:
        raise TraceInputError(
            "There is no decoder of that name.", hint=f"The decoders are {', '.join(Model)}."
        ) from error


def named_network(name: str) -> str:
    """The CAIP-2 id of a network's name, or of the id itself. Raises TraceInputError."""
    name = network_name(name)
    if name not in NETWORKS:
        raise TraceInputError(
            "There is no network of that name.", hint=f"The networks are {', '.join(NETWORKS)}."
        )
    return NETWORKS[name]


def network_name(network: str) -> str:
    """The name that requests give a CAIP-2 id; any other text as it is."""
    return next((name for name, caip in NETWORKS.items() if caip == network), network)
