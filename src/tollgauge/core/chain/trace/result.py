"""TraceResult: the outcome of a payment trace, which core/chain/trace/decode computes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tollgauge.core.base.units import evm_chain_id, known_asset, micro_usd
from tollgauge.core.chain.trace.calldata import Method
from tollgauge.core.chain.trace.catalogue import Model
from tollgauge.core.chain.trace.transaction import Block


class Status(StrEnum):
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
    status: Status
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
