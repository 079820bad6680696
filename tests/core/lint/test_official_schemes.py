"""The tables of schemes and networks against the installed official clients: every scheme, network
and version that they register is requested, and signed exactly if the linter expects it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import x402
from pytoniq_core.boc.address import Address
from tests.core.lint.test_network import SOLANA
from tests.core.lint.test_scheme import BATCH, CAPTURE, EXACT, PERMIT2, UPTO
from tests.support.chain_nodes import chain_nodes
from tests.support.lint_envelopes import MISSING, V1, V2, change_envelope, fired_rules, lint_answer
from tests.support.official_clients import (
    ask_typescript,
    python_client,
    python_refusal,
    question,
    ton_signer,
)
from x402.mechanisms.tvm.default_assets import DEFAULT_ASSETS as TON_ASSETS

from tollgauge.core.base.units import ASSETS, SOLANA_NETWORKS, TON_NETWORKS, V1_NETWORKS
from tollgauge.core.lint.example import ANSWERS
from tollgauge.core.lint.reading import SCHEMES
from tollgauge.core.probe.exchange import Severity

pytestmark = pytest.mark.node

Document = dict[str, Any]
ENTRY = "accepts.0."
DEVNET_USDC = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
MAINNET = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
KEY = "GsbwXfJraMomNxBcjYLcG3mxkBUiyWXAB32fGbSMQRdW"


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with chain_nodes(ton_signer("tvm:-239", "").address) as url:
        yield url


def list_registered() -> set[tuple[int, str, str]]:
    """(version, network or pattern, scheme) of both clients."""
    python = python_client()._client.get_registered_schemes()
    (typescript,) = ask_typescript(["registered"])
    return {
        *(
            (version, row["network"], row["scheme"])
            for version in python
            for row in python[version]
        ),
        *((version, network, scheme) for version, network, scheme in typescript),
    }


def namespace(network: str) -> str:
    """The CAIP-2 namespace of a network, a pattern or a name of version 1."""
    return V1_NETWORKS.get(network, network).partition(":")[0]


def test_schemes_are_those_that_official_clients_register() -> None:
    table: dict[tuple[str, int], set[str]] = {}
    for version, network, scheme in list_registered():
        table.setdefault((namespace(network), version), set()).add(scheme)
    assert table == {key: set(schemes) for key, schemes in SCHEMES.items()}


def test_networks_are_those_that_official_clients_register() -> None:
    names = {network for version, network, _ in list_registered() if version == 1}
    assert names == set(V1_NETWORKS)
    patterns = {network for version, network, _ in list_registered() if version == 2}
    assert patterns == {"eip155:*", "solana:*", *TON_NETWORKS}


def test_covers_every_mechanism_of_the_python_sdk() -> None:
    root = Path(x402.__file__).parent / "mechanisms"
    found = {
        (path.relative_to(root).parts[0], path.relative_to(root).parts[1])
        for path in root.glob("*/*/client*")
    }
    assert found == {
        *(("evm", "exact"), ("evm", "upto"), ("evm", "batch_settlement")),
        *(("svm", "exact"), ("tvm", "exact")),
    }


def test_default_assets_of_ton_are_those_of_the_python_sdk() -> None:
    listed = {
        (network, token["asset"], token["symbol"], token["decimals"])
        for network, tokens in TON_ASSETS.items()
        for token in tokens
    }
    ours = {
        (asset.network, asset.address, asset.symbol, asset.decimals)
        for asset in ASSETS.values()
        if asset.network in TON_NETWORKS
    }
    assert listed == ours


def solana(scheme: str, network: str) -> Document:
    base = ANSWERS["solana-upto"].envelope if scheme == "upto" else SOLANA
    assert isinstance(base, dict)
    asset = base["accepts"][0]["asset"] if network == MAINNET else DEVNET_USDC
    return change_envelope(
        change_envelope(base, ENTRY + "network", network), ENTRY + "asset", asset
    )


def on_name(name: str) -> Document:
    """The good body of version 1 on a network."""
    if not name.startswith("solana"):
        return change_envelope(V1, ENTRY + "network", name)
    asked = solana("exact", V1_NETWORKS[name])["accepts"][0]
    members = {key: asked[key] for key in ("asset", "payTo", "extra")}
    return change_envelope(V1, "accepts", [{**V1["accepts"][0], **members, "network": name}])


GOOD: dict[str, tuple[Document, bool]] = {
    **{
        f"evm {name}": (offer, True)
        for name, offer in {
            "exact": EXACT, "permit2": PERMIT2, "upto": UPTO, "batch": BATCH, "capture": CAPTURE,
        }.items()
    },
    **{
        f"{network} {scheme}": (solana(scheme, network), True)
        for network in SOLANA_NETWORKS
        for scheme in ("exact", "upto")
    },
    **{f"version 1 {name}": (on_name(name), False) for name in V1_NETWORKS},
}  # fmt: skip


def test_every_registered_scheme_is_payable_where_an_official_client_signs(node: str) -> None:
    asked = [question(offer, header=header) for offer, header in GOOD.values()]
    client = python_client(node=node)
    unsigned, unpayable = [], []
    for (name, (offer, header)), refusal in zip(
        GOOD.items(), ask_typescript(asked, node), strict=True
    ):
        if refusal and python_refusal(client, offer, header=header):
            unsigned.append((name, refusal))
        result = lint_answer(offer) if header else lint_answer(body=offer)
        token_differs = {"domain-wrong", "asset-network"} & fired_rules(result)
        if not result.payable and not token_differs:
            unpayable.append((name, fired_rules(result)))
    assert (unsigned, unpayable) == ([], [])


def test_solana_upto_is_payable_without_findings() -> None:
    for network in SOLANA_NETWORKS:
        result = lint_answer(solana("upto", network))
        assert (result.findings, result.payable, result.compliant) == ((), True, True)


SOLANA_UPTO_VALUES: dict[str, list[Any]] = {
    "feePayer": [MISSING, None, "", 5, "x", KEY, KEY[:-1], "0x" + "ab" * 20],
    "receiverAuthorizer": [MISSING, None, "", 5, [], "x", KEY, KEY[:-1], "0x" + "ab" * 20],
    "withdrawDelay": [MISSING, None, "3600", 0, -1, 1, 1.5, 3600.0, True, 2**32 - 1, 2**32],
    "tokenProgram": [
        *(None, "", "x", 5, KEY, "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"),
        "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb",
    ],
    "memo": [None, "", "x" * 256, "x" * 257],
}


def test_solana_upto_is_payable_exactly_where_the_typescript_client_signs(node: str) -> None:
    offers = [
        change_envelope(solana("upto", MAINNET), f"{ENTRY}extra.{member}", value)
        for member, values in SOLANA_UPTO_VALUES.items()
        for value in values
        if value is not MISSING or member in solana("upto", MAINNET)["accepts"][0]["extra"]
    ]
    refusals = ask_typescript([question(offer) for offer in offers], node)
    wrong = [
        (offer["accepts"][0]["extra"], refusal[:90], fired_rules(lint_answer(offer)))
        for offer, refusal in zip(offers, refusals, strict=True)
        if lint_answer(offer).payable is bool(refusal)
    ]
    assert wrong == []


def friendly(raw: str = "0:" + "3c" * 32, *, wrong_checksum: bool = False) -> str:
    """The user-friendly form of a raw address of TON."""
    text = str(Address(raw).to_str())  # type: ignore[no-untyped-call]  # it has no types
    return text[:-1] + ("A" if text[-1] != "A" else "B") if wrong_checksum else text


TON_VALUES: dict[str, list[Any]] = {
    "network": ["tvm:-3", "tvm:-1", "tvm:0"],
    "amount": ["1", "0.01", "x", str(2**120 - 1), str(2**120), 5],
    "asset": ["USDT", "0x" + "ab" * 20, friendly("0:" + "4d" * 32), MISSING],
    "payTo": ["0:" + "3C" * 32, friendly(), friendly(wrong_checksum=True), "EQ", "x" * 48],
    "maxTimeoutSeconds": [1, 60, "x", MISSING],
    "extra": [{}, {"areFeesSponsored": "true"}, {"areFeesSponsored": True}, MISSING],
    "extra.forwardTonAmount": [0, 1, -1, "5", "0.1", "x", None, str(2**120)],
    "extra.responseDestination": [None, "0:" + "3c" * 32, friendly(), "x"],
    "extra.forwardPayload": [None, "te6cckEBAQEAAgAAAEysuc0=", "x", 5],
}


def test_ton_is_payable_exactly_where_the_python_client_signs(node: str) -> None:
    base = ANSWERS["ton"].envelope
    assert isinstance(base, dict)
    good = lint_answer(base)
    assert (fired_rules(good, at_least=Severity.WARN), good.payable) == (set(), True)
    wrong = []
    for member, values in TON_VALUES.items():
        for value in values:
            offer = change_envelope(base, ENTRY + member, value)
            network = offer["accepts"][0]["network"]
            ton = network if network in TON_NETWORKS else "tvm:-239"
            with chain_nodes(ton_signer(ton, "").address) as url:
                refusal = python_refusal(python_client(("tvm",), url, ton=ton), offer)
            if lint_answer(offer).payable is bool(refusal):
                wrong.append((member, value, refusal[:90], fired_rules(lint_answer(offer))))
    assert wrong == []


def test_scheme_of_another_network_is_not_payable() -> None:
    for network in ("tvm:-239", MAINNET):
        result = lint_answer(
            change_envelope(
                change_envelope(V2, ENTRY + "network", network), ENTRY + "scheme", "upon"
            )
        )
        assert ("scheme-unknown" in fired_rules(result), result.payable) == (True, False)
