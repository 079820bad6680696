"""Networks: which names clients know, what an account looks like on each, and the SDKs' tables."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import x402
from tests.support.lint_envelopes import (
    PAYEE,
    SEPOLIA_USDC,
    USDC,
    V1,
    V2,
    change_envelope,
    fired_rules,
    lint_answer,
    wheres,
)

from tollgauge.core.probe.exchange import Lint, Severity

ENTRY = "accepts.0."
MAINNET = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
DEVNET = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
TESTNET = "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z"
FLARE = "0xe7cd86e13AC4309349F30B3435a9d337750fC82D"
"""USD\u20ae0 on Flare."""
SOLANA_USDC = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"
DEVNET_USDC = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
SOLANA: dict[str, Any] = change_envelope(
    V2,
    "accepts",
    [
        {
            "scheme": "exact",
            "network": MAINNET,
            "amount": "1000",
            "asset": SOLANA_USDC,
            "payTo": "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4",
            "maxTimeoutSeconds": 60,
            "extra": {"feePayer": "EwWqGE4ZFKLofuestmU4LDdK7XM1N4ALgdZccwYugwGd"},
        }
    ],
)
NODE_MODULES = Path(__file__).parents[3] / "node_modules"


def on(network: str, **members: Any) -> Lint:
    """The lint of a version 1 body with the good entry on another network."""
    entry = {**V1["accepts"][0], "network": network, **members}
    return lint_answer(body=change_envelope(V1, "accepts", [entry]))


def errors(result: Lint) -> set[str]:
    return {one.rule for one in result.findings if one.severity is Severity.ERROR}


def sdk_file(*path: str) -> ModuleType:
    """A constants module of the SDK whose package cannot be imported without Solana libraries."""
    place = Path(x402.__file__).parent.joinpath(*path)
    spec = importlib.util.spec_from_file_location("sdk_constants", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def node(script: str) -> Any:
    """Return the JSON output of a script that runs with the TypeScript SDK."""
    command = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(command, cwd=NODE_MODULES.parent, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("network", [MAINNET, DEVNET, TESTNET])
def test_good_offer_on_solana_is_payable(network: str) -> None:
    mint = SOLANA_USDC if network == MAINNET else DEVNET_USDC
    asked = change_envelope(
        change_envelope(SOLANA, ENTRY + "network", network), ENTRY + "asset", mint
    )
    assert lint_answer(asked).findings == ()


SHORT = "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDB"


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (ENTRY + "asset", USDC, "asset-form"),
        (ENTRY + "asset", "USDC", "asset-form"),
        (ENTRY + "asset", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1O", "asset-form"),
        (ENTRY + "payTo", PAYEE, "payto-form"),
        (ENTRY + "payTo", SHORT, "payto-form"),
        (ENTRY + "payTo", "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4l", "payto-form"),
        (ENTRY + "payTo", "11111111111111111111111111111111", "address-zero"),
        (ENTRY + "payTo", SOLANA_USDC, "payto-asset"),
        (ENTRY + "network", "solana:mainnet", "solana-cluster"),
        (ENTRY + "network", "solana:101", "solana-cluster"),
        (ENTRY + "network", MAINNET.lower(), "solana-cluster"),
        (ENTRY + "network", "Solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "network-form"),
        (ENTRY + "network", DEVNET, "solana-mint"),
        (ENTRY + "asset", DEVNET_USDC, "solana-mint"),
        (ENTRY + "amount", str(2**64), "amount-form"),
        (ENTRY + "amount", "0.01", "amount-form"),
        (ENTRY + "amount", 1000, "amount-form"),
        (ENTRY + "extra", {}, "fee-payer-missing"),
        (ENTRY + "extra.feePayer", PAYEE, "fee-payer-form"),
        (ENTRY + "extra.feePayer", "the facilitator", "fee-payer-form"),
        (ENTRY + "extra.memo", "x" * 257, "solana-memo"),
        (ENTRY + "extra.memo", "\u20ac" * 86, "solana-memo"),
    ],
)
def test_unpayable_solana_entry_is_an_error(path: str, value: Any, rule: str) -> None:
    result = lint_answer(change_envelope(SOLANA, path, value))
    assert rule in errors(result)
    assert not result.payable


@pytest.mark.parametrize("memo", ["x" * 256, "\u20ac" * 85, "", None])
def test_memo_of_256_bytes_is_allowed_on_solana(memo: str | None) -> None:
    assert lint_answer(change_envelope(SOLANA, ENTRY + "extra.memo", memo)).findings == ()


def test_token_that_clients_on_solana_do_not_know_is_a_warning() -> None:
    mint = "DezXAZ8z7PnrnRJjz3wXBoRgixCa6xjnB7YaB1pPB263"
    result = lint_answer(change_envelope(SOLANA, ENTRY + "asset", mint))
    assert (fired_rules(result), result.payable) == ({"asset-not-default"}, True)


def test_version_1_names_of_solana_are_checked_like_its_clusters() -> None:
    mint = {"asset": SOLANA_USDC, "payTo": SOLANA["accepts"][0]["payTo"]}
    extra = SOLANA["accepts"][0]["extra"]
    assert on("solana", **mint, extra=extra).payable
    assert on("solana-testnet", **{**mint, "asset": DEVNET_USDC}, extra=extra).payable
    assert {"asset-form", "payto-form"} <= errors(on("solana", extra=extra))
    assert "solana-mint" in errors(on("solana-devnet", **mint, extra=extra))
    assert "network-unknown" in errors(on("solana-mainnet", **mint, extra=extra))


@pytest.mark.parametrize(
    "name",
    [
        *("monad", "megaeth", "story", "educhain", "sepolia", "skale-base-sepolia", "stable"),
        *("stable-testnet", "celo", "flare", "monad-testnet", "polygon", "sei", "base"),
    ],
)
def test_version_1_name_known_to_a_client_has_no_finding(name: str) -> None:
    token = {"asset": "0x" + "ab" * 20, "extra": {"name": "Some Dollar", "version": "1"}}
    result = on(name, **token)
    assert "network-unknown" not in fired_rules(result)
    assert result.payable


@pytest.mark.parametrize(
    "name",
    [
        *("arbitrum", "optimism", "x-layer", "bsc", "xdc", "linea", "Base", "BASE", "base "),
        *("base-mainnet", "mainnet", "eth", "8453", "arbitrum-sepolia"),
    ],
)
def test_version_1_name_that_no_client_knows_is_an_error(name: str) -> None:
    result = on(name)
    assert "network-unknown" in errors(result)
    assert not result.payable


@pytest.mark.parametrize("name", ["monad", "bsc", "base", "linea", "some-new-chain"])
def test_shapes_are_checked_whatever_the_network_is_called(name: str) -> None:
    result = on(name, payTo="0xYOUR_WALLET", asset="USDC", maxAmountRequired="0.01")
    assert {"payto-form", "asset-form", "amount-form"} <= errors(result)
    assert not result.payable


@pytest.mark.parametrize(
    "network",
    [
        *("EIP155:8453", "Eip155:8453", "eip155 :8453", " eip155:8453", "evm:8453", "base:8453"),
        *("ethereum:1", "eth:1", "base:mainnet", "eip155:", "eip155:9007199254740992"),
        *("eip155:8453/erc20", "eip155:0x2105", "eip155:-1", "eip155:8453 ", "base", "8453"),
    ],
)
def test_evm_network_that_is_not_written_as_caip2_is_an_error(network: str) -> None:
    result = lint_answer(change_envelope(V2, ENTRY + "network", network))
    assert errors(result) & {"network-form", "network-chain"}
    assert not result.payable


OTHERS = [
    ("stellar:pubnet", "GBBD47IF6LWK7P7MDEVSCWR7DPUWV3NY3DTQEVFL4NAT4AQH3ZLLFLA5"),
    ("aptos:1", "0x" + "1a" * 32),
    ("sui:mainnet", "0x" + "1a" * 32),
    ("hedera:mainnet", "0.0.1234567"),
    ("xrpl:0", "rN7n7otQDd6FczFgLdSqtcsAUxDkw6fzRH"),
    ("algorand:SGO1GKSzyE7IEPItTxCByw9x8FmnrCDe", "A" * 58),
    ("near:mainnet", "seller.near"),
    ("kaspa:mainnet", "kaspa:qz" + "q" * 59),
    ("ton:mainnet", "0:" + "ab" * 32),
    ("fiat:usd", "merchant"),
]


@pytest.mark.parametrize(("network", "payee"), OTHERS)
def test_other_chains_are_not_evaluated_and_never_called_broken(network: str, payee: str) -> None:
    entry = {**V2["accepts"][0], "network": network, "asset": "USDC", "payTo": payee, "extra": {}}
    result = lint_answer(change_envelope(V2, "accepts", [entry]))
    assert fired_rules(result) == {"network-not-evaluated", "not-evaluated"}
    assert (result.payable, result.compliant) == (True, True)


@pytest.mark.parametrize("network", [network for network, _ in OTHERS[:-1]])
def test_evm_address_as_payee_of_another_chain_is_a_warning(network: str) -> None:
    entry = {**V2["accepts"][0], "network": network, "asset": "USDC", "payTo": PAYEE, "extra": {}}
    result = lint_answer(change_envelope(V2, "accepts", [entry]))
    assert ("payto-network" in fired_rules(result)) == (network != "hedera:mainnet")
    assert result.compliant


def test_version_1_name_of_another_chain_is_not_evaluated_either() -> None:
    result = on("stellar-testnet", asset="USDC", payTo=OTHERS[0][1], extra=None)
    assert "network-not-evaluated" in fired_rules(result)
    assert result.compliant


def test_network_on_which_clients_of_version_1_differ_is_worth_a_note() -> None:
    result = on("story", asset="0x" + "ab" * 20)
    assert "network-divided" in fired_rules(result)
    assert (result.payable, result.compliant) == (True, True)
    assert "network-divided" not in fired_rules(on("base"))


USDT0 = "0x779Ded0c9e1022225f8E0630b35a9b54bE713736"
"""USD\u20ae0 on Stable and, at the same address, on X Layer."""


@pytest.mark.parametrize(
    ("network", "asset"),
    [("eip155:196", USDT0), ("eip155:196", USDC), ("eip155:8453", USDT0), ("eip155:143", FLARE)],
)
def test_address_that_is_a_token_elsewhere_is_only_unknown_here(network: str, asset: str) -> None:
    domain = {"name": "USD\u20ae0", "version": "1"}
    entry = {**V2["accepts"][0], "network": network, "asset": asset, "extra": domain}
    result = lint_answer(change_envelope(V2, "accepts", [entry]))
    assert fired_rules(result) == {"asset-not-default"}
    assert (result.payable, result.compliant) == (True, True)


def test_usdc_of_another_network_is_named_on_every_network_of_the_table() -> None:
    assert wheres(lint_answer(change_envelope(V2, ENTRY + "asset", SEPOLIA_USDC)), "asset-network")
    celo = "0xcebA9300f2b948710d2653dD7B07f33A8B32118C"
    assert wheres(lint_answer(change_envelope(V2, ENTRY + "asset", celo)), "asset-network")
