"""Payments through the escrows of batch-settlement and auth-capture on a local chain.

The contracts are stand-ins with the interface in the official SDKs (tests/support/wrappers), at the
addresses of the real ones. Channels and vouchers are hashed and signed as the SDK does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eth_abi.abi import encode
from eth_account import Account
from eth_utils.crypto import keccak
from tests.support.trace_world import World, encode_call
from x402.mechanisms.evm.batch_settlement import constants
from x402.mechanisms.evm.batch_settlement.types import ChannelConfig
from x402.mechanisms.evm.batch_settlement.utils import (
    compute_channel_id,
    get_batch_settlement_eip712_domain,
)

from tollgauge.demo.envelopes import USDC

CHAIN_ID = 8453
BATCH = constants.BATCH_SETTLEMENT_ADDRESS
ESCROW_10 = "0xBdEA0D1bcC5966192B070Fdf62aB4EF5b4420cff"
ESCROW_11 = "0xf96815976523E00e65Be8f34cA5e64b4f41EB19c"
"""`AUTH_CAPTURE_ESCROW_V1_0_ADDRESS` and `…_V1_1_ADDRESS` of @x402/evm."""
CHANNEL = "(address,address,address,address,address,uint40,bytes32)"
CLAIMS = f"(({CHANNEL},uint128),bytes,uint128)[]"
INFO = (
    "(address,address,address,address,uint120,uint48,uint48,uint48,uint16,uint16,address,uint256)"
)
LATER = 2**40
ARTEFACT = Path(__file__).parent / "wrappers" / "Escrows.json"
FEES = {ESCROW_10: "uint16", ESCROW_11: "uint256"}
_STAND_INS = {
    BATCH: "BatchSettlementStandIn",
    constants.ERC3009_DEPOSIT_COLLECTOR_ADDRESS: "DepositCollectorStandIn",
    ESCROW_10: "AuthCapture10StandIn",
    ESCROW_11: "AuthCapture11StandIn",
}
_DEPLOYED = (
    "GenerousCollector",
    "PaymentCollectorStandIn",
    "RefundCollectorStandIn",
    "OperatorStandIn",
    "WalletFactory",
)


def escrow_contracts() -> dict[str, dict[str, Any]]:
    """Return the compiled stand-ins by name: `creation`, `abi`."""
    document: dict[str, dict[str, Any]] = json.loads(ARTEFACT.read_text(encoding="utf-8"))
    return document


@dataclass(frozen=True)
class Channel:
    """A payment channel of the escrow for batch-settlement."""

    payer: str
    receiver: str
    authorizer: str
    salt: int
    payer_authorizer: str = "0x" + "00" * 20

    @property
    def values(self) -> tuple[object, ...]:
        named = (self.payer, self.payer_authorizer, self.receiver, self.authorizer, USDC)
        return (*named, 86_400, self.salt.to_bytes(32))

    @property
    def id(self) -> bytes:
        config = ChannelConfig(
            payer=self.payer,
            payer_authorizer=self.payer_authorizer,
            receiver=self.receiver,
            receiver_authorizer=self.authorizer,
            token=USDC,
            withdraw_delay=86_400,
            salt="0x" + self.salt.to_bytes(32).hex(),
        )
        return bytes.fromhex(compute_channel_id(config, CHAIN_ID)[2:])


@dataclass(frozen=True)
class Payment:
    """A payment of auth-capture: the struct that its hash identifies."""

    operator: str
    payer: str
    receiver: str
    amount: int
    salt: int
    escrow: str = ESCROW_11
    fee_receiver: str = "0x" + "fe" * 20
    max_fee: int = 500

    @property
    def values(self) -> tuple[object, ...]:
        named = (self.operator, self.payer, self.receiver, USDC, self.amount)
        return (*named, LATER, LATER, LATER, 0, self.max_fee, self.fee_receiver, self.salt)


@dataclass
class Escrows:
    """The stand-ins on the chain of a world. Senders are account numbers."""

    world: World
    salts: int = 0

    async def open(self) -> None:
        """Deploy the stand-ins."""
        contracts = escrow_contracts()
        for name in (*_STAND_INS.values(), *_DEPLOYED):
            call = {"from": self.world.sender(), "data": contracts[name]["creation"]}
            sent = await self.world.chain.rpc("eth_sendTransaction", call)
            self.world.places[name] = (await self.world.receipt(sent))["contractAddress"]
        for address, name in _STAND_INS.items():
            code = await self.world.chain.rpc("eth_getCode", self.world.places[name], "latest")
            await self.world.chain.rpc("anvil_setCode", address, code)

    def salt(self) -> int:
        self.salts += 1
        return self.salts

    def channel(self, payer: int, receiver: str, *, authorizer: int = 2) -> Channel:
        sender = self.world.sender
        return Channel(sender(payer), receiver, sender(authorizer), self.salt())

    def deposit_call(self, channel: Channel, amount: int) -> str:
        """Return the call that deposits with an authorization of the channel's payer."""
        salt = self.salt()
        collector = constants.ERC3009_DEPOSIT_COLLECTOR_ADDRESS
        nonce = keccak(encode(["bytes32", "uint256"], [channel.id, salt]))
        signature = self._authorize(channel.payer, collector, amount, nonce, LATER)
        data = encode(["uint256", "uint256", "uint256", "bytes"], [0, LATER, salt, signature])
        return self._deposit(channel, amount, collector, data)

    def gift_call(self, channel: Channel, amount: int, *, source: int) -> str:
        """Return the call that funds a channel with the money of another account."""
        data = encode(["address"], [self.world.sender(source)])
        return self._deposit(channel, amount, self.world.places["GenerousCollector"], data)

    def _deposit(self, channel: Channel, amount: int, collector: str, data: bytes) -> str:
        signature = f"deposit({CHANNEL},uint128,address,bytes)"
        return encode_call(signature, channel.values, amount, collector, data)

    def claim_call(self, *claims: tuple[Channel, int], signer: int | None = None) -> str:
        """Return the call that claims channels up to a total, with vouchers signed by the payers,
        or by one other account.
        """
        rows = [
            (
                (channel.values, total),
                self._voucher(channel, total, signer),
                total,
            )
            for channel, total in claims
        ]
        return encode_call(f"claim({CLAIMS})", rows)

    def settle_call(self, receiver: str) -> str:
        return encode_call("settle(address,address)", receiver, USDC)

    def refund_call(self, channel: Channel, amount: int) -> str:
        return encode_call(f"refund({CHANNEL},uint128)", channel.values, amount)

    async def batch(self, *calls: str, sender: int = 2) -> str:
        """Send one call to the escrow for batch-settlement, or several in one transaction."""
        data = calls[0] if len(calls) == 1 else self.multicall(*calls)
        return await self.world.send(BATCH, data, sender=sender)

    def multicall(self, *calls: str) -> str:
        return encode_call("multicall(bytes[])", [bytes.fromhex(call[2:]) for call in calls])

    def payment(self, receiver: str, amount: int, *, operator: str, **changes: Any) -> Payment:
        payer = self.world.sender(1)
        return replace(Payment(operator, payer, receiver, amount, self.salt()), **changes)

    def authorize_call(self, payment: Payment) -> str:
        collector = self.world.places["PaymentCollectorStandIn"]
        signature = f"authorize({INFO},uint256,address,bytes)"
        signed = self._sign_payment(payment)
        return encode_call(signature, payment.values, payment.amount, collector, signed)

    def charge_call(self, payment: Payment, amount: int, fee: int = 0) -> str:
        collector = self.world.places["PaymentCollectorStandIn"]
        signature = f"charge({INFO},uint256,address,bytes,{FEES[payment.escrow]},address)"
        signed = self._sign_payment(payment)
        named = (payment.values, amount, collector, signed, fee, payment.fee_receiver)
        return encode_call(signature, *named)

    def capture_call(self, payment: Payment, amount: int, fee: int = 0) -> str:
        signature = f"capture({INFO},uint256,{FEES[payment.escrow]},address)"
        return encode_call(signature, payment.values, amount, fee, payment.fee_receiver)

    def void_call(self, payment: Payment) -> str:
        return encode_call(f"void({INFO})", payment.values)

    def returned_call(self, payment: Payment, amount: int) -> str:
        """Return the call that refunds a payment with its operator's money."""
        collector = self.world.places["RefundCollectorStandIn"]
        signature = f"refund({INFO},uint256,address,bytes)"
        return encode_call(signature, payment.values, amount, collector, b"")

    async def allow_refunds(self, sender: int) -> None:
        """Let the collector of refunds take money of an account."""
        collector = self.world.places["RefundCollectorStandIn"]
        approval = encode_call("approve(address,uint256)", collector, 2**255)
        await self.world.send(USDC, approval, sender=sender)

    def _sign_payment(self, payment: Payment) -> bytes:
        """Sign the authorization whose nonce is the payment's hash without its payer."""
        typehash = keccak(
            text="PaymentInfo(address operator,address payer,address receiver,address token,"
            "uint120 maxAmount,uint48 preApprovalExpiry,uint48 authorizationExpiry,"
            "uint48 refundExpiry,uint16 minFeeBps,uint16 maxFeeBps,address feeReceiver,"
            "uint256 salt)"
        )
        agnostic = replace(payment, payer="0x" + "00" * 20)
        inner = keccak(encode(["bytes32", INFO], [typehash, agnostic.values]))
        nonce = keccak(encode(["uint256", "address", "bytes32"], [CHAIN_ID, payment.escrow, inner]))
        collector = self.world.places["PaymentCollectorStandIn"]
        return self._authorize(payment.payer, collector, payment.amount, nonce, LATER)

    def _authorize(self, payer: str, to: str, value: int, nonce: bytes, before: int) -> bytes:
        message = {
            "from": payer,
            "to": to,
            "value": value,
            "validAfter": 0,
            "validBefore": before,
            "nonce": nonce,
        }
        domain = {
            "name": "USD Coin",
            "version": "2",
            "chainId": CHAIN_ID,
            "verifyingContract": USDC,
        }
        signer = self._account(payer)
        signed = signer.sign_typed_data(domain, constants.RECEIVE_AUTHORIZATION_TYPES, message)
        return bytes(signed.signature)

    def _voucher(self, channel: Channel, total: int, signer: int | None) -> bytes:
        account = self._account(channel.payer if signer is None else self.world.sender(signer))
        signed = account.sign_typed_data(
            get_batch_settlement_eip712_domain(CHAIN_ID),
            constants.VOUCHER_TYPES,
            {"channelId": channel.id, "maxClaimableAmount": total},
        )
        return bytes(signed.signature)

    def _account(self, address: str) -> Any:
        keys = {account.address: account.key for account in self.world.chain.accounts}
        return Account.from_key(keys[address])
