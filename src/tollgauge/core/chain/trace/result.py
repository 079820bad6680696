"""The result of a payment trace, and the decoders and networks that a request can name.

`GET /v1/models` lists the decoders. Without a name, the cheapest one that satisfies the request is
used (core/chain/trace/decode).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.base.units import chain_of, known_asset, micro_usd
from tollgauge.core.chain.trace.calldata import Method
from tollgauge.core.chain.trace.transaction import Block, TraceInputError
from tollgauge.core.endpoint.terms import EIP3009


class Model(StrEnum):
    """A decoder's name."""

    RECEIPT_LOGS = "receipt-logs"
    CALLDATA = "calldata"
    CALL_TRACE = "call-trace"
    BALANCE_CHANGES = "balance-changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """One row of the catalogue: the node methods that it needs, its output, and its price (USD),
    which is added to the route's.
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
        gives="Payer, payee, amount, token and nonce of every payment, and the method if the call "
        "data shows it; not the validity period of the authorization",
    ),
    Decoder(
        model=Model.CALLDATA,
        needs=_BOTH,
        gives="Also the validity period of the authorization, for every payment in the call data: "
        "direct calls, and calls inside well-known batches and smart accounts",
    ),
    Decoder(
        model=Model.CALL_TRACE,
        needs=(*_BOTH, "debug_traceTransaction"),
        gives="Also the method and the validity period of payments that any other contract makes",
    ),
    Decoder(
        model=Model.BALANCE_CHANGES,
        needs=("getTransaction",),
        gives="Solana only, and its only decoder: payer, payee and amount of every payment in the "
        "network's dollar token, from finalized balances",
    ),
)
"""The decoders of EVM chains, cheapest first, and that of Solana."""

NETWORKS: Final = {
    "base-mainnet": "eip155:8453",
    "ethereum-mainnet": "eip155:1",
    "arbitrum-mainnet": "eip155:42161",
    "optimism-mainnet": "eip155:10",
    "polygon-mainnet": "eip155:137",
    "avalanche-mainnet": "eip155:43114",
    "solana-mainnet": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
    "solana-devnet": "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
}
"""The networks by their names in requests, as CAIP-2 IDs."""
DEFAULT_NETWORK: Final = "base-mainnet"


def named_model(name: str) -> Model:
    """Return a decoder of the catalogue. Raises TraceInputError."""
    try:
        return Model(name)
    except ValueError as error:
        raise TraceInputError(
            "There is no decoder with this name.", hint=f"The decoders are {', '.join(Model)}."
        ) from error


def named_network(name: str) -> str:
    """Return the CAIP-2 ID of a network's name or ID. Raises TraceInputError."""
    name = network_name(name)
    if name not in NETWORKS:
        raise TraceInputError(
            "There is no network with this name.", hint=f"The networks are {', '.join(NETWORKS)}."
        )
    return NETWORKS[name]


def network_name(network: str) -> str:
    """Return the name of a CAIP-2 ID in requests; any other text unchanged."""
    return next((name for name, caip in NETWORKS.items() if caip == network), network)


class TraceStatus(StrEnum):
    """The outcome of a transaction; `unknown` if the given objects do not show it."""

    SUCCESS = "success"
    REVERTED = "reverted"
    PENDING = "pending"
    UNKNOWN = "unknown"
    NOT_FOUND = "not-found"


class Party(StrEnum):
    """The party that caused a transaction to revert. A facilitator verifies a payment before it
    submits it, so that it causes failures that the payer's signature shows.
    """

    FACILITATOR = "facilitator"
    PAYER = "payer"
    CHAIN = "chain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token. `symbol` and `decimals` are None until its contract was queried.

    Both come from the contract, unless the address is in the table of known assets.
    """

    address: str
    symbol: str | None = None
    decimals: int | None = None

    @classmethod
    def on(cls, network: str, address: str) -> Token:
        """Return the token on a network (CAIP-2), with its entry in the table of known assets."""
        asset = known_asset(network, address)
        if asset is None:
            return cls(address=address)
        return cls(address=address, symbol=asset.symbol, decimals=asset.decimals)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPayment:
    """One payment. `amount` is in atomic units, `valid_…` are Unix seconds.

    Attributes:
        nonce: None if only logs show a payment through a contract (core/chain/forms).
        form: The form of payment (core/endpoint/terms).
        method, valid_after, valid_before: None if only logs show the payment.
        log_index: Index of the `Transfer`; None without a log.
        suffix: The bytes after the arguments of a direct call.
    """

    payer: str
    payee: str
    amount: int
    token: Token
    nonce: str | None
    form: str = EIP3009
    method: Method | None = None
    valid_after: int | None = None
    valid_before: int | None = None
    log_index: int | None = None
    suffix: bytes = b""

    def micro_usd(self, network: str) -> int | None:
        """Return millionths of a dollar, rounded half up; None unless the token is a known dollar
        token.
        """
        asset = known_asset(network, self.token.address)
        return None if asset is None else micro_usd(self.amount, asset.decimals)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementAttempt:
    """A transaction that requests a payment in a known dollar token.

    Attributes:
        fault: The party that caused it to fail; None if it settled, or if that is unknown.
        delay_s: Seconds from the payer's signature to the block; None if the authorization does
            not show the time of the signature.
    """

    submitter: bytes
    form: str
    settled: bool
    fault: Party | None
    delay_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """A transaction's payments.

    Attributes:
        network: CAIP-2.
        reason: Why there is no payment, or what proves the payments.
        proven: Logs prove the payments; otherwise the calls only request them.
        fault: The party that caused a transaction to revert; None if that is unknown.
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
    fault: Party | None = None

    @property
    def chain_id(self) -> int | None:
        """The chain's number (EIP-155); None on Solana."""
        return chain_of(self.network)

    @property
    def complete(self) -> bool:
        """Whether every payment's method is known."""
        return all(payment.method is not None for payment in self.payments)
