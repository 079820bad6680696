"""The guard's tables agree with those of the service and of the SDK, which they repeat."""

from __future__ import annotations

import pytest
from x402.mechanisms.evm.v1.constants import V1_NETWORK_CHAIN_IDS
from x402.mechanisms.svm import constants

from tollgauge.core.base.units import ASSETS
from tollgauge_guard.address import parse_address
from tollgauge_guard.units import USDC, V1_NETWORKS, dollars, parse_amount

MIXED = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"


def test_usdc_address_equals_that_of_the_service() -> None:
    theirs = {
        (asset.network, asset.address, asset.decimals, asset.domain_name, asset.domain_version)
        for asset in ASSETS.values()
        if asset.symbol == "USDC" and asset.eip3009 and asset.domain_name != "Bridged USDC"
    }
    ours = {
        (asset.network, asset.address, asset.decimals, asset.domain_name, asset.domain_version)
        for asset in USDC
        if asset.network.startswith("eip155:")
    }
    assert ours == theirs


def test_usdc_address_on_solana_equals_that_of_the_sdk() -> None:
    ours = {asset.network: asset.address for asset in USDC if "solana:" in asset.network}
    assert ours == {
        constants.SOLANA_MAINNET_CAIP2: constants.USDC_MAINNET_ADDRESS,
        constants.SOLANA_DEVNET_CAIP2: constants.USDC_DEVNET_ADDRESS,
        constants.SOLANA_TESTNET_CAIP2: constants.USDC_TESTNET_ADDRESS,
    }


def test_networks_of_version_1_are_the_chains_that_the_sdk_signs_for() -> None:
    for name, network in V1_NETWORKS.items():
        assert network == f"eip155:{V1_NETWORK_CHAIN_IDS[name]}"
        assert network in {asset.network for asset in USDC}


@pytest.mark.parametrize("text", [MIXED, MIXED.lower(), "0x" + MIXED[2:].upper()])
def test_address_in_one_case_or_with_checksum_is_valid(text: str) -> None:
    assert parse_address(text) == MIXED.lower()


def test_address_with_wrong_checksum_is_invalid() -> None:
    assert parse_address(MIXED.replace("B", "b", 1)) is None


@pytest.mark.parametrize(
    "text", ["1e3", "-1", "0", "01", "", " 1", "1\n", "٣", str(2**256), 5, None]
)
def test_invalid_amount_is_rejected(text: object) -> None:
    assert parse_amount(text) is None
    assert parse_amount(str(2**256 - 1)) == 2**256 - 1


def test_dollars_have_two_decimals_or_more_if_needed() -> None:
    assert [dollars(amount) for amount in (0, 1, 10_000, 1_500_000)] == [
        *("$0.00", "$0.000001", "$0.01", "$1.50")
    ]
