"""Batch-settlement payments: a deposit into a payment channel with a voucher, or a voucher only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from x402.mechanisms.evm.batch_settlement.constants import PERMIT2_DEPOSIT_COLLECTOR_ADDRESS
from x402.mechanisms.evm.batch_settlement.types import ChannelConfig
from x402.mechanisms.evm.batch_settlement.utils import compute_channel_id

from tollgauge_guard.address import parse_address
from tollgauge_guard.authorization import (
    Authorization,
    Payload,
    SignedError,
    common_fields,
    read_signature,
)
from tollgauge_guard.offer import CHANNEL
from tollgauge_guard.units import parse_amount

_PARTS: Final = {"type", "channelConfig", "voucher", "deposit"}
_COLLECTOR: Final = PERMIT2_DEPOSIT_COLLECTOR_ADDRESS.lower()


def read_channel(payload: Payload) -> Authorization:
    """Return the authorization in a payment of a channel.

    Its `value` is the price of the offer, `exposed` the deposit: a voucher can only take earlier
    deposits. Raises SignedError.
    """
    inner, common = payload.payload, common_fields(payload)
    config, voucher = inner.get("channelConfig"), inner.get("voucher")
    if set(inner) - _PARTS or not isinstance(config, Mapping) or not isinstance(voucher, Mapping):
        raise SignedError("The payment is not exactly one deposit and voucher of a channel.")
    try:
        read = ChannelConfig.from_dict(dict(config))
        channel = str(compute_channel_id(read, str(common["network"]))).lower()
    except Exception as error:  # the SDK raises errors of several kinds
        raise SignedError("The channel of the payment cannot be read.") from error
    payer, pay_to = parse_address(read.payer), parse_address(read.receiver)
    token = parse_address(read.token)
    if payer is None or pay_to is None or common["asset"] not in (None, token):
        raise SignedError("The channel has another token, or an account that is not an address.")
    if str(voucher.get("channelId")).lower() != channel:
        raise SignedError("The voucher is for another channel.")
    cumulative = parse_amount(voucher.get("maxClaimableAmount"))
    signature = read_signature(voucher.get("signature"))
    accepted = getattr(payload, "accepted", None)
    price = parse_amount(getattr(accepted, "amount", None))
    if parse_address(getattr(accepted, "pay_to", None)) != pay_to:
        raise SignedError("The channel pays another account than the payTo.")
    if cumulative is None or price is None:
        raise SignedError("The voucher names no amount.")
    exposed, valid_before = _read_deposit(inner.get("deposit"), token)
    return Authorization(
        **common,
        method=CHANNEL,
        payer=payer,
        pay_to=pay_to,
        value=price,
        valid_after=0,
        valid_before=valid_before,
        nonce=f"{channel}:{cumulative}",
        signature=signature,
        evidence=channel,
        exposed=exposed,
    )


def _read_deposit(deposit: object, token: str | None) -> tuple[int, int]:
    """Return the amount of a deposit (atomic units) and the time until which it is valid.

    Both are 0 without a deposit.
    """
    if deposit is None:
        return 0, 0
    fields = deposit if isinstance(deposit, Mapping) else {}
    amount, found = parse_amount(fields.get("amount")), fields.get("authorization")
    authorization = found if isinstance(found, Mapping) and len(found) == 1 else {}
    transfer = authorization.get("erc3009Authorization")
    permit = authorization.get("permit2Authorization")
    valid_before = None
    if isinstance(transfer, Mapping):
        valid_before = parse_amount(transfer.get("validBefore"))
    elif isinstance(permit, Mapping):
        valid_before = parse_amount(permit.get("deadline"))
        permitted = permit.get("permitted")
        what = permitted if isinstance(permitted, Mapping) else {}
        spender = parse_address(permit.get("spender"))
        is_same = parse_amount(what.get("amount")) == amount
        if not is_same or parse_address(what.get("token")) != token or spender != _COLLECTOR:
            raise SignedError("The deposit permits another token, amount or contract.")
    if amount is None or valid_before is None:
        raise SignedError("The deposit names no amount, or is valid for ever.")
    return amount, valid_before
