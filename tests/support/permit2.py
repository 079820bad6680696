"""Payments through the Permit2 proxies on a local chain.

The payloads are signed by the official Python clients. The contracts are stand-ins made from the
clients' ABI (tests/support/wrappers), at the addresses of the real ones.
"""

from __future__ import annotations

from typing import Any

from tests.support.trace_world import NETWORK, World, encode_call
from x402.mechanisms.evm import constants
from x402.mechanisms.evm.exact.client import ExactEvmScheme
from x402.mechanisms.evm.upto.client import UptoEvmScheme
from x402.schemas import PaymentRequirements

from tollgauge.demo.envelopes import USDC

PERMIT = "((address,uint256),uint256,uint256)"
EXACT_SETTLE = f"settle({PERMIT},address,(address,uint256),bytes)"
EXACT_WITH_PERMIT = (
    f"settleWithPermit((uint256,uint256,bytes32,bytes32,uint8),{PERMIT},address,(address,uint256),"
    "bytes)"
)
UPTO_SETTLE = f"settle({PERMIT},uint256,address,(address,address,uint256),bytes)"
STAND_INS = {
    constants.PERMIT2_ADDRESS: "Permit2StandIn",
    constants.X402_EXACT_PERMIT2_PROXY_ADDRESS: "ExactProxyStandIn",
    constants.X402_UPTO_PERMIT2_PROXY_ADDRESS: "UptoProxyStandIn",
}
PAYER, FACILITATOR, SELLER = 1, 2, 3


async def open_permit2(world: World) -> None:
    """Place the stand-ins, and let Permit2 take the payer's money."""
    for address, name in STAND_INS.items():
        code = await world.chain.rpc("eth_getCode", world.places[name], "latest")
        await world.chain.rpc("anvil_setCode", address, code)
    approval = encode_call("approve(address,uint256)", constants.PERMIT2_ADDRESS, 2**255)
    await world.send(USDC, approval, sender=PAYER)


def sign(
    world: World, scheme: str, amount: int, *, pay_to: str = "", facilitator: str = ""
) -> dict[str, Any]:
    """Return the payload that the official client signs."""
    requirements = PaymentRequirements(
        scheme=scheme,
        network=NETWORK,
        asset=USDC,
        amount=str(amount),
        pay_to=pay_to or world.sender(SELLER),
        max_timeout_seconds=3_600,
        extra={
            "name": "USD Coin",
            "version": "2",
            "assetTransferMethod": "permit2",
            "facilitatorAddress": facilitator or world.sender(FACILITATOR),
        },
    )
    client = UptoEvmScheme if scheme == "upto" else ExactEvmScheme
    return dict(client(world.payer).create_payment_payload(requirements))


def arguments(payload: dict[str, Any]) -> tuple[Any, ...]:
    """Return permit, owner, witness and signature for a proxy."""
    signed = payload["permit2Authorization"]
    permitted = (signed["permitted"]["token"], int(signed["permitted"]["amount"]))
    witness = signed["witness"]
    named = (witness["to"], *filter(None, [witness.get("facilitator")]))
    return (
        (permitted, int(signed["nonce"]), int(signed["deadline"])),
        signed["from"],
        (*named, int(witness["validAfter"])),
        bytes.fromhex(payload["signature"][2:]),
    )


def exact_call(payload: dict[str, Any], *, amount_with_permit: int = 0) -> str:
    """Return the call of the proxy for `exact`."""
    values = arguments(payload)
    if amount_with_permit:
        permit = (amount_with_permit, 2**40, bytes(32), bytes(32), 27)
        return encode_call(EXACT_WITH_PERMIT, permit, *values)
    return encode_call(EXACT_SETTLE, *values)


def upto_call(payload: dict[str, Any], amount: int) -> str:
    """Return the call of the proxy for `upto`."""
    permit, *rest = arguments(payload)
    return encode_call(UPTO_SETTLE, permit, amount, *rest)
