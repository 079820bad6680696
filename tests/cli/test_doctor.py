"""`tollgauge doctor` with servers on loopback that answer or fail."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.command_line import Command
from tests.support.tls_server import serve_answers, serve_documents

from tollgauge.demo.serving import closed_port

KIND = {"x402Version": 2, "scheme": "exact", "network": "eip155:8453"}
OTHERS = [KIND | {"network": "eip155:84532"}, KIND | {"x402Version": 1}, KIND | {"scheme": "upto"}]


def supported_response(*kinds: dict[str, object]) -> bytes:
    return json.dumps({"kinds": kinds, "extensions": [], "signers": {}}).encode()


@contextlib.contextmanager
def node(*, chain: int = 8453, block_age_s: int = 1) -> Iterator[str]:
    """Start a node that reports its chain and newest block."""

    def answer(_path: str, sent: bytes) -> bytes:
        hashes = {"hash": "0x" + "2a" * 32, "parentHash": "0x" + "29" * 32}
        time_s = hex(int(time.time()) - block_age_s)
        block = {"number": "0x2a", "timestamp": time_s, **hashes}
        results = {"eth_chainId": hex(chain), "eth_getBlockByNumber": block}
        replies = [
            {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
            for asked in json.loads(sent)
        ]
        return json.dumps(replies).encode()

    with serve_answers(answer) as url:
        yield f"{url}/secret-key"


def test_reachable_services_are_good(tollgauge: Command, tmp_path: Path) -> None:
    listing = {"items": [{"resource": "https://a.example.com/x", "accepts": []}]}
    (tmp_path / "list.json").write_text(json.dumps(listing))
    (tmp_path / "tollgauge.toml").write_text(
        '[[sources]]\nname = "mine"\nkind = "file"\nlocation = "list.json"\n'
    )
    documents = {"/supported": supported_response(*OTHERS, KIND)}
    with serve_documents(documents) as url, node() as rpc:
        done = tollgauge("doctor", TOLLGAUGE_FACILITATOR_URL=url, TOLLGAUGE_CHAINS_8453_NODES=rpc)
        as_json = tollgauge("doctor", "--json", TOLLGAUGE_FACILITATOR_URL=url)
    assert done.code == as_json.code == 0, done.err
    assert done.out.splitlines() == [
        "good  facilitator: it settles exact payments on eip155:8453",
        "good  node 127.0.0.1: it follows eip155:8453, at block 42",
        "good  directory mine: entries on its first page: 1 of 1",
    ]
    assert [(check["name"], check["good"]) for check in as_json.json] == [
        ("facilitator", True),
        ("directory mine", True),
    ]
    assert not list(tmp_path.glob("*.sqlite"))


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        (
            {"/supported": supported_response(*OTHERS)},
            "v2 upto eip155:8453, but not v2 exact eip155:8453",
        ),
        ({"/supported": supported_response()}, "nothing, but not v2 exact eip155:8453"),
        ({"/supported": b"<html>"}, "The facilitator's supported reply is malformed."),
        ({"/supported": b"{}"}, "The facilitator's supported reply is malformed."),
        ({}, "The facilitator returned 404 for supported."),
    ],
)
def test_facilitator_that_does_not_settle_is_bad(
    tollgauge: Command, documents: dict[str, bytes], words: str
) -> None:
    with serve_documents(documents) as url:
        done = tollgauge("doctor", TOLLGAUGE_FACILITATOR_URL=url)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("bad   facilitator: ")
    assert words in done.out


@pytest.mark.parametrize(
    ("serves", "words"),
    [
        (lambda: node(chain=1), "is not a node of chain 8453."),
        (lambda: node(block_age_s=7_200), "seconds old: the node is lagging."),
    ],
)
def test_node_of_another_chain_or_behind_is_bad(
    tollgauge: Command, serves: Callable[[], contextlib.AbstractContextManager[str]], words: str
) -> None:
    with serves() as rpc:
        done = tollgauge("doctor", TOLLGAUGE_CHAINS_8453_NODES=rpc)
    assert done.code == 1
    assert words in done.out
    assert "secret-key" not in done.out + done.err


@pytest.mark.parametrize(
    ("genesis", "block_age_s", "code", "words"),
    [
        ("EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG", 1, 0, "at block 42"),
        ("EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG", 7_200, 1, "the node is lagging."),
        ("5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d", 1, 1, "is not a node of solana:EtWT"),
    ],
)
def test_node_of_solana_is_checked_by_its_genesis_and_newest_block(
    tollgauge: Command, genesis: str, block_age_s: int, code: int, words: str
) -> None:
    def answer(_path: str, sent: bytes) -> bytes:
        asked = json.loads(sent)
        at = int(time.time()) - block_age_s
        results = {"getGenesisHash": genesis, "getSlot": 42, "getBlockTime": at}
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
        return json.dumps(reply).encode()

    with serve_answers(answer) as url:
        done = tollgauge("doctor", TOLLGAUGE_CHAINS_SOLANA_DEVNET_NODES=f"{url}/secret-key")
    assert done.code == code
    assert words in " ".join(done.out.split())
    assert "secret-key" not in done.out + done.err


def test_unreachable_service_is_bad_and_the_others_are_still_queried(
    tollgauge: Command, tmp_path: Path
) -> None:
    (tmp_path / "tollgauge.toml").write_text(
        '[[sources]]\nname = "gone"\nkind = "file"\nlocation = "gone.json"\n'
        '[[sources]]\nname = "own"\nkind = "bazaar"\nlocation = "https://own.internal/list"\n'
    )
    with closed_port() as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = tollgauge("doctor", TOLLGAUGE_FACILITATOR_URL=url, TOLLGAUGE_CHAINS_8453_NODES=url)
    assert done.code == 1
    lines = done.out.splitlines()
    assert [line.partition(": ")[0] for line in lines][:4] == [
        "bad   facilitator",
        "bad   node 127.0.0.1",
        "bad   directory gone",
        "bad   directory own",
    ]
    assert "did not respond to supported" in lines[0]
    assert "gone.json" in lines[2]


def test_configuration_without_services_is_good(tollgauge: Command) -> None:
    done = tollgauge("doctor")
    assert (done.code, done.out.startswith("The configuration names no facilitator")) == (0, True)
