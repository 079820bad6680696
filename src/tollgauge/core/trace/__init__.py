"""Trace: which payments by authorization (EIP-3009) a transaction holds.

Pure functions over what an Ethereum node sends: captured reads the objects, calldata and nesting
the call data, calls the call trace, logs the receipt; decode puts them together, answer makes the
JSON. Asking a node is clients/chain/transactions' work.
"""

from tollgauge.core.trace.answer import (
    known_tokens,
    named_model,
    named_network,
    trace_files,
    trace_json,
    with_tokens,
)
from tollgauge.core.trace.calldata import Authorized, Method
from tollgauge.core.trace.calls import CallTrace, read_call_trace
from tollgauge.core.trace.captured import (
    TX_HASH,
    Block,
    CaptureError,
    Log,
    Receipt,
    Transaction,
    read_receipt,
    read_transaction,
)
from tollgauge.core.trace.catalogue import (
    DECODERS,
    DEFAULT_NETWORK,
    NETWORKS,
    Decoder,
    Model,
    network_name,
)
from tollgauge.core.trace.decode import decode, not_found
from tollgauge.core.trace.result import Status, Token, TracedPayment, TraceResult

__all__ = [
    "DECODERS",
    "DEFAULT_NETWORK",
    "NETWORKS",
    "TX_HASH",
    "Authorized",
    "Block",
    "CallTrace",
    "CaptureError",
    "Decoder",
    "Log",
    "Method",
    "Model",
    "Receipt",
    "Status",
    "Token",
    "TraceResult",
    "TracedPayment",
    "Transaction",
    "decode",
    "known_tokens",
    "named_model",
    "named_network",
    "network_name",
    "not_found",
    "read_call_trace",
    "read_receipt",
    "read_transaction",
    "trace_files",
    "trace_json",
    "with_tokens",
]
