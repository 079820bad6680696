"""A local Solana network: the real token programs in litesvm (package solders).

A payment has the form that the official client builds: limits of compute units, `TransferChecked`,
and a memo, signed by the payer and by the facilitator, which pays the fee.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from solders.account import Account
from solders.instruction import AccountMeta, Instruction
from solders.keypair import Keypair
from solders.litesvm import LiteSVM
from solders.message import MessageV0
from solders.pubkey import Pubkey
from solders.token import ID as TOKEN_PROGRAM
from solders.token.associated import get_associated_token_address
from solders.token.state import Mint, TokenAccount, TokenAccountState
from solders.transaction import VersionedTransaction
from solders.transaction_metadata import FailedTransactionMetadata, TransactionMetadata

from tollgauge.core.base.units import base58_text, settlement_token

DEVNET: Final = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
_COMPUTE_BUDGET: Final = Pubkey.from_string("ComputeBudget111111111111111111111111111111")
_MEMO: Final = Pubkey.from_string("MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr")
_LAMPORTS: Final = 10**10
_DECIMALS: Final = 6
_SLOT_MS: Final = 400
_ACCOUNT_BYTES: Final = 165


def token_account(owner: Pubkey, mint: Pubkey) -> Pubkey:
    """Return the address of an owner's token account."""
    return get_associated_token_address(owner, mint)


def transfer_checked(
    source: Pubkey, mint: Pubkey, destination: Pubkey, authority: Pubkey, amount: int
) -> Instruction:
    """Build the instruction of the token program that x402 payments use."""
    return Instruction(
        TOKEN_PROGRAM,
        bytes([12]) + amount.to_bytes(8, "little") + bytes([_DECIMALS]),
        [
            AccountMeta(source, is_signer=False, is_writable=True),
            AccountMeta(mint, is_signer=False, is_writable=False),
            AccountMeta(destination, is_signer=False, is_writable=True),
            AccountMeta(authority, is_signer=True, is_writable=False),
        ],
    )


@dataclass
class SolanaLedger:
    """A network with one dollar token, and the transactions on it, oldest first."""

    network: str = DEVNET
    started_at: int = 1_790_000_000_000
    slot: int = 1_000
    transactions: list[dict[str, Any]] = field(default_factory=list)
    svm: LiteSVM = field(default_factory=LiteSVM)
    by_signature: dict[str, dict[str, Any]] = field(default_factory=dict)
    by_account: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    clock: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        if (token := settlement_token(self.network)) is None:
            raise ValueError(f"{self.network} has no dollar token")
        self.mint = Pubkey.from_string(token.address)
        state = Mint(None, 10**15, _DECIMALS, is_initialized=True, freeze_authority=None)
        self._store(self.mint, bytes(state))

    @property
    def now(self) -> int:
        """The time of the newest block (ms UTC)."""
        return self.clock() if self.clock else self.started_at + self.slot * _SLOT_MS

    def fund(self, owner: Pubkey, amount: int = 0, *, at: Pubkey | None = None) -> Pubkey:
        """Create a token account with a balance, by default the owner's usual one."""
        address = at or token_account(owner, self.mint)
        state = TokenAccount(
            self.mint, owner, amount, None, TokenAccountState.Initialized, None, 0, None
        )
        self._store(address, bytes(state))
        return address

    def accounts_of(self, owner: str) -> list[str]:
        """Return the token accounts of an owner that a transaction used."""
        owners = (one for transaction in self.transactions for one in transaction["owners"])
        return sorted({one["account"] for one in owners if one["owner"] == owner})

    def pay(
        self, payer: Keypair, pay_to: Pubkey, amount: int, *, fee_payer: Keypair, memo: bytes
    ) -> str:
        """Pay as the official client and a facilitator do; return the signature."""
        accounts = [token_account(owner, self.mint) for owner in (payer.pubkey(), pay_to)]
        transfer = transfer_checked(accounts[0], self.mint, accounts[1], payer.pubkey(), amount)
        return self.send([transfer, Instruction(_MEMO, memo, [])], [fee_payer, payer])

    def send(self, instructions: Sequence[Instruction], signers: Sequence[Keypair]) -> str:
        """Run a transaction whose fee the first signer pays; return its signature."""
        limits = [
            Instruction(_COMPUTE_BUDGET, bytes([2]) + (200_000).to_bytes(4, "little"), []),
            Instruction(_COMPUTE_BUDGET, bytes([3]) + (1).to_bytes(8, "little"), []),
        ]
        blockhash = self.svm.latest_blockhash()
        payer = signers[0].pubkey()
        self.svm.airdrop(payer, _LAMPORTS)
        message = MessageV0.try_compile(payer, [*limits, *instructions], [], blockhash)
        signed = VersionedTransaction(message, list(dict.fromkeys(signers)))
        before = self._balances(message)
        result = self.svm.send_transaction(signed)
        self.svm.expire_blockhash()
        self.slot += 1
        return self._record(signed, message, before, result)

    def _store(self, address: Pubkey, data: bytes) -> None:
        self.svm.set_account(address, Account(_LAMPORTS, data, TOKEN_PROGRAM, executable=False))

    def _balances(self, message: MessageV0) -> list[dict[str, Any]]:
        rows = []
        for index, key in enumerate(message.account_keys):
            account = self.svm.get_account(key)
            if (
                account is None
                or account.owner != TOKEN_PROGRAM
                or len(account.data) != _ACCOUNT_BYTES
            ):
                continue
            state = TokenAccount.from_bytes(account.data)
            rows.append(
                {
                    "accountIndex": index,
                    "mint": str(state.mint),
                    "owner": str(state.owner),
                    "programId": str(TOKEN_PROGRAM),
                    "uiTokenAmount": {
                        "amount": str(state.amount),
                        "decimals": _DECIMALS,
                        "uiAmountString": f"{state.amount / 10**_DECIMALS:g}",
                    },
                }
            )
        return rows

    def _record(
        self,
        signed: VersionedTransaction,
        message: MessageV0,
        before: list[dict[str, Any]],
        result: TransactionMetadata | FailedTransactionMetadata,
    ) -> str:
        failed = isinstance(result, FailedTransactionMetadata)
        meta = result.meta() if isinstance(result, FailedTransactionMetadata) else result
        keys = [str(key) for key in message.account_keys]
        after = self._balances(message)
        owners = [
            {"account": keys[row["accountIndex"]], "owner": row["owner"]}
            for row in [*before, *after]
            if row["mint"] == str(self.mint)
        ]
        signature = str(signed.signatures[0])
        recorded = {
            "slot": self.slot,
            "blockTime": self.now // 1_000,
            "version": 0,
            "owners": owners,  # not part of the protocol
            "meta": {
                "err": {"InstructionError": [2, {"Custom": 1}]} if failed else None,
                "fee": 5_000 * len(signed.signatures),
                "preTokenBalances": before,
                "postTokenBalances": after,
                "loadedAddresses": {"writable": [], "readonly": []},
                "innerInstructions": [
                    {
                        "index": index,
                        "instructions": [_instruction(one.instruction()) for one in group],
                    }
                    for index, group in enumerate(meta.inner_instructions())
                    if group
                ],
                "logMessages": meta.logs(),
            },
            "transaction": {
                "signatures": [str(one) for one in signed.signatures],
                "message": {
                    "accountKeys": keys,
                    "recentBlockhash": str(message.recent_blockhash),
                    "instructions": [_instruction(one) for one in message.instructions],
                    "addressTableLookups": [],
                },
            },
        }
        self.transactions.append(recorded)
        self.by_signature[signature] = recorded
        for key in keys:
            self.by_account.setdefault(key, []).append(recorded)
        return signature


def _instruction(compiled: Any) -> dict[str, Any]:
    return {
        "programIdIndex": compiled.program_id_index,
        "accounts": list(compiled.accounts),
        "data": base58_text(bytes(compiled.data)),
    }
