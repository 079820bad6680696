"""The tables of the official SDKs against the installed packages."""

from __future__ import annotations

import pytest

from bench.oracle.tables import TABLES, build_tables, changes, encode_tables
from tollgauge.core.base.units import ASSETS, BASE, SDK, V1_NETWORKS, V1_NETWORKS_DIVIDED


@pytest.mark.node
def test_tables_are_those_of_the_installed_sdks() -> None:
    recorded = TABLES.read_text(encoding="utf-8")
    assert list(changes(recorded, encode_tables(build_tables()))) == []


def test_difference_of_the_tables_is_printed_by_line() -> None:
    lines = list(changes('{\n  "memoBytes": 256\n}\n', '{\n  "memoBytes": 512\n}\n'))
    assert lines[-2:] == ['-  "memoBytes": 256', '+  "memoBytes": 512']


def test_tables_have_the_values_that_rules_read() -> None:
    usdc = ASSETS[BASE, "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"]
    assert (usdc.domain_name, usdc.domain_version, usdc.default) == ("USD Coin", "2", True)
    assert SDK.schemes["typescript"]["solana 2"] == {"exact", "upto"}
    assert SDK.withdraw_delay == (900, 2_592_000)


def test_name_that_the_clients_map_to_different_chains_has_the_chain_of_typescript() -> None:
    assert V1_NETWORKS["story"] == "eip155:1514"
    assert {"story", "sepolia", "monad-testnet"} <= V1_NETWORKS_DIVIDED
    assert "base" not in V1_NETWORKS_DIVIDED
