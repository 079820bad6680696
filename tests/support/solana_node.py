"""Nodes of a local Solana network that respond correctly, late, or with faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.fake_node import FakeNode, RefusedError

from tollgauge.demo.solana_ledger import SolanaLedger

GENESIS = "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG"
Change = Callable[[str, list[Any], Any], Any]


@dataclass(eq=False)
class SolanaNode(FakeNode):
    """A node. `omit` is the share of signatures that its lists lack, `page_max` the length of its
    pages, `change` replaces results, `first_slot` is the first slot of its history.
    """

    chain: Any = field(default_factory=SolanaLedger)
    omit: float = 0.0
    page_max: int = 1_000
    first_slot: int = 0
    change: Change = lambda method, params, result: result

    def result(self, method: str, params: list[Any]) -> Any:
        return self.change(method, params, self._answer(method, params))

    @property
    def _last_slot(self) -> int:
        return int(self.chain.slot) - self.mood.lag

    def _answer(self, method: str, params: list[Any]) -> Any:
        ledger: SolanaLedger = self.chain
        if method == "getGenesisHash":
            return GENESIS
        if method == "getSlot":
            assert params[0]["commitment"] == "finalized"
            return self._last_slot
        if method == "getBlockTime":
            return (ledger.started_at + params[0] * 400) // 1_000
        if method == "getFirstAvailableBlock":
            return self.first_slot
        if method == "getSignaturesForAddress":
            return self._signatures(params[0], params[1])
        if method == "getTransaction":
            assert params[1]["maxSupportedTransactionVersion"] == 0
            found = ledger.by_signature.get(params[0])
            return found if found is not None and self._has(found) else None
        if method == "getTokenAccountsByOwner":
            return {"value": [{"pubkey": one} for one in ledger.accounts_of(params[0])]}
        raise RefusedError(-32601, "the method does not exist")

    def _has(self, transaction: dict[str, Any]) -> bool:
        return self.first_slot <= int(transaction["slot"]) <= self._last_slot

    def _signatures(self, address: str, config: dict[str, Any]) -> list[dict[str, Any]]:
        assert config["commitment"] == "finalized"
        listed = [one for one in self.chain.by_account.get(address, []) if self._has(one)][::-1]
        names = [one["transaction"]["signatures"][0] for one in listed]
        if config.get("before") in names:
            listed = listed[names.index(config["before"]) + 1 :]
        rows = []
        for one in listed:
            signature = one["transaction"]["signatures"][0]
            if signature == config.get("until"):
                break
            if self.dice.random() < self.omit:
                continue
            rows.append(
                {
                    "signature": signature,
                    "slot": one["slot"],
                    "blockTime": one["blockTime"],
                    "err": one["meta"]["err"],
                }
            )
        return rows[: min(config["limit"], self.page_max)]
