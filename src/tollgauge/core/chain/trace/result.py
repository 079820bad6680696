"""The result of a payment trace, and the decoders and networks that a request can name.

`GET /v1/models` lists the decoders. Without a name, the cheapest one that satisfies the request is
used (core/chain/trace/decode).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.base.units import evm_chain_id, known_asset, micro_usd
from tollgauge.core.chain.trace.calldata import Method
from tollgauge.core.chain.trace.transaction import Block, TraceInputError


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


class TraceStatus(StrEnum):
    """What became of a transaction; `unknown` where nothing that was given tells it."""

    SUCCESS = "success"
    REVERTED = "reverted"
    PENDING = "pending"
    UNKNOWN = "unknown"
    NOT_FOUND = "not-found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token: `symbol` and `decimals` are None until its contract was asked. Both are the
    contract's own words, unless the address is in our table of known assets.
    """

    address: str
    symbol: str | None = None
    decimals: int | None = None

    @classmethod
    def on(cls, network: str, address: str) -> Token:
        """The token of a network (CAIP-2), with what our table knows of it."""
        asset = known_asset(network, address)
        if asset is None:
            return cls(address=address)
        return cls(address=address, symbol=asset.symbol, decimals=asset.decimals)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPayment:
    """One transfer by authorization. `amount` is in atomic units, `valid_…` are unix seconds.

    `method`, `valid_after` and `valid_before` are None where only logs tell of the payment;
    `log_index` (of the `Transfer`) is None where no log does. `suffix` is what followed the
    arguments of a direct call.
    """

    method: Method | None
    payer: str
    payee: str
    amount: int
    token: Token
    nonce: str
    valid_after: int | None
    valid_before: int | None
    log_index: int | None
    suffix: bytes = b""

    def micro_usd(self, network: str) -> int | None:
        """Millionths of a dollar, rounded half up; None for a token that is no known dollar."""
        asset = known_asset(network, self.token.address)
        return None if asset is None else micro_usd(self.amount, asset.decimals)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """A transaction's payments. `network` is CAIP-2. `proven` says that logs prove the payments;
    without them, they are only what the calls asked for. `reason` says in plain words why there is
    no payment, or what the payments rest on.
    """

    tx_hash: str | None
    network: str
    status: TraceStatus
    block: Block | None = None
    submitter: str | None = None
    decoder: Model = Model.RECEIPT_LOGS
    payments: tuple[TracedPayment, ...] = ()
    reason: str | None = None
    proven: bool = False

    @property
    def chain_id(self) -> int:
        """The chain's number (EIP-155)."""
        return evm_chain_id(self.network)

    @property
    def complete(self) -> bool:
        """Whether every payment's method is known."""
        return all(payment.method is not None for payment in self.payments)
