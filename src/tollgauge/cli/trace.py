"""`tollgauge trace`: decode the payments of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tollgauge.cli.terminal import (
    BAD,
    GOOD,
    ConfigFile,
    Json,
    json_input,
    load_config,
    progress_bar,
    run_async,
    show,
)
from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.config import Config
    from tollgauge.core.chain.trace.result import TraceResult


def trace(
    txhash: Annotated[str, typer.Argument(help="Transaction hash, looked up at a node.")] = "",
    network: Annotated[
        str | None, typer.Option(help="Network name. Default: base-mainnet.")
    ] = None,
    tx: Annotated[str, typer.Option(help="A saved transaction, or -.")] = "",
    receipt: Annotated[str, typer.Option(help="Its saved receipt or logs.")] = "",
    calls: Annotated[str, typer.Option(help="Its saved call trace (callTracer).")] = "",
    model: Annotated[
        str | None, typer.Option(help="Decoder. Default: the cheapest sufficient one.")
    ] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Decode the payments of a transaction (EIP-3009, Solana). Exit 1 if it contains none.

    Saved files may come from a node, cast, viem, ethers, web3.py or
    Blockscout. Without a receipt, whether money moved is unknown.
    """
    from tollgauge.core.chain.trace.decode import trace_files
    from tollgauge.web.wire.traces import trace_json

    if bool(txhash) == bool(tx) or (txhash and (receipt or calls)):
        raise TollgaugeError(
            "Name either a transaction hash or saved files.",
            hint="tollgauge trace TXHASH, or tollgauge trace --tx FILE [--receipt FILE].",
        )
    if tx:
        transaction, logs, call_trace = (json_input(source) for source in (tx, receipt, calls))
        result = trace_files(transaction, logs, model, calls=call_trace, network=network)
    else:
        with progress_bar() as progress:
            progress("querying a node", 0, 0)
            result = run_async(_trace(load_config(config), txhash, network, model))
    show(trace_json(result) | {"ledger": None}, _lines(result), as_json=as_json)
    raise typer.Exit(GOOD if result.payments else BAD)


async def _trace(
    config: Config, tx_hash: str, network: str | None, model: str | None
) -> TraceResult:
    from tollgauge.clients.chain.transactions import NetworkNotConfiguredError, Transactions
    from tollgauge.config.read import nodes_variable
    from tollgauge.core.base.units import EVM_WORD_PATTERN, SOLANA_SIGNATURE_PATTERN
    from tollgauge.core.chain.trace.result import DEFAULT_NETWORK, named_model, named_network

    name = network or DEFAULT_NETWORK
    chain = named_network(name)
    is_solana = chain.startswith("solana:")
    if not (SOLANA_SIGNATURE_PATTERN if is_solana else EVM_WORD_PATTERN).fullmatch(tx_hash):
        raise TollgaugeError(
            "A transaction hash is 0x and 64 hex digits; on Solana it is a signature in base58.",
            hint="For a saved transaction: tollgauge trace --tx FILE [--receipt FILE].",
        )
    decoder = None if model is None else named_model(model)
    transactions = Transactions.open(config.chains)
    try:
        return await transactions.trace(chain, tx_hash, decoder)
    except NetworkNotConfiguredError as error:
        raise TollgaugeError(
            f"No node of {name} is configured, so the transaction cannot be looked up.",
            hint=f"Set {nodes_variable(chain)} to a node's URL, or decode "
            "saved files: tollgauge trace --tx FILE [--receipt FILE].",
        ) from error
    finally:
        await transactions.close()


def _lines(result: TraceResult) -> Iterator[str]:
    yield f"{result.status}, decoded from {result.decoder}"
    verb = "" if result.proven else "asks for "
    for payment in result.payments:
        name = payment.token.symbol or payment.token.address
        yield f"{verb}{payment.amount} atomic {name} from {payment.payer} to {payment.payee}"
        yield f"  by {payment.method or 'an unknown method'}, nonce {payment.nonce}"
        if payment.suffix:
            yield f"  data suffix 0x{payment.suffix.hex()}"
    if result.reason:
        yield result.reason
