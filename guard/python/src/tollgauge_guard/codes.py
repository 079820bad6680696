"""Codes of decisions, in the order in which the rules are checked, and what allows each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Code(StrEnum):
    """Why a payment was refused or needs consent."""

    STOPPED = "stopped"
    """`stop()` was called."""
    RESOURCE_MISMATCH = "resource-mismatch"
    """The 402 names another host than the requested one, and payTo or price are not known."""
    SCHEME_UNSUPPORTED = "scheme-unsupported"
    """The guard cannot prove the state of a payment by this scheme."""
    ASSET_UNKNOWN = "asset-unknown"
    """The token is neither the network's USDC nor allowed by the policy."""
    AMOUNT_INVALID = "amount-invalid"
    """The amount is not a positive number of atomic units."""
    PAYTO_MALFORMED = "payto-malformed"
    """The payTo is not an address of an account on its network, or is the token itself."""
    TIMEOUT_INVALID = "timeout-invalid"
    """The authorization would be valid for no time, or for longer than `max_validity`."""
    OFFER_CONTRADICTED = "offer-contradicted"
    """The 402 contains a signed offer of the seller that contradicts this one."""
    DENIED = "denied"
    """The host or the payTo is on the owner's deny list."""
    OVER_CALL_CAP = "over-call-cap"
    """The exposure is above `max_call`, or above `max_amount` of the call."""
    PAYTO_UNEXPECTED = "payto-unexpected"
    """The payTo is not the `expect_pay_to` of the call."""
    EXTENSION_SIGNS = "extension-signs"
    """An extension of the seller would have the wallet sign something in addition."""
    NOT_PAYABLE = "not-payable"
    """The service recommends `not-payable`."""
    AVOID = "avoid"
    """The service recommends `avoid`."""
    HOST_ABUSIVE = "host-abusive"
    """Endpoints of the host are abusive: all of at least three (refused), or some (asks)."""
    PAYTO_ABUSIVE = "payto-abusive"
    """Endpoints paid at this payTo are abusive: all of at least three, or some (asks)."""
    PAYTO_UNKNOWN = "payto-unknown"
    """The endpoint did not ask to be paid at this address in the last 30 days."""
    PAYTO_VARIES = "payto-varies"
    """The endpoint asks for another payTo each time: asks."""
    NETWORK_UNKNOWN = "network-unknown"
    """The endpoint did not ask to be paid on this network."""
    PRICE_JUMP = "price-jump"
    """The exposure is above `price_factor` times the usual price: asks."""
    CAUTION = "caution"
    """The service recommends `caution`: asks."""
    GRADE_LOW = "grade-low"
    """The grade is below `min_grade`: asks."""
    FLOW_UNUSUAL = "flow-unusual"
    """The payment flow is `upfront` or `escrow`: asks."""
    BUNDLE_OLD = "bundle-old"
    """The bundle is older than 7 days and the exposure above `unknown_max`, or there is none."""
    UNKNOWN_RESOURCE = "unknown-resource"
    """The bundle has no advice about the endpoint: `unknown` decides."""
    BUNDLE_STALE = "bundle-stale"
    """The bundle is older than 48 hours, so the endpoint counts as unknown."""
    OVER_HOST_BUDGET = "over-host-budget"
    """The host would get more than `max_host_day` within 24 hours."""
    OVER_DAY_BUDGET = "over-day-budget"
    """More than `max_day` would be spent within 24 hours."""
    OVER_SESSION_BUDGET = "over-session-budget"
    """More than `max_session` would be spent in this session."""
    OVER_LIFETIME_BUDGET = "over-lifetime-budget"
    """More than `max_lifetime` would be spent by this account."""
    OVER_LOSS_BUDGET = "over-loss-budget"
    """Too much was paid to the host without an answer within 24 hours: asks."""
    PAY_AGAIN = "pay-again"
    """An earlier payment of this purchase got no answer: asks whether to pay again."""
    SDK_REFUSED = "sdk-refused"
    """The x402 client itself refused all offers, or failed."""
    PAID_ALREADY = "paid-already"
    """The request was paid already, and is not paid a second time."""
    SIGNED_DIFFERS = "signed-differs"
    """The signed or outgoing payment differs from the allowed one."""
    PAYMENT_UNRESOLVED = "payment-unresolved"
    """An earlier payment of the same purchase has no answer, and may still be taken or was."""


_ASK: Final = "Give the guard an approver (`ask`, or the queue of `tollgauge-guard approve`)"
_TRUST: Final = "or name the host and its payTo in `trust` of the policy"

REMEDIES: Final = {
    Code.STOPPED: "Start a new guard.",
    Code.RESOURCE_MISMATCH: f"Send the request to the seller's own address, {_TRUST}.",
    Code.SCHEME_UNSUPPORTED: "Use another offer or another seller.",
    Code.ASSET_UNKNOWN: "Add the token to `assets` of the policy.",
    Code.AMOUNT_INVALID: "The seller has to correct its offer.",
    Code.PAYTO_MALFORMED: "The seller has to correct its offer.",
    Code.TIMEOUT_INVALID: "Raise `max_validity` of the policy.",
    Code.OFFER_CONTRADICTED: "Ask the seller which of its offers is right.",
    Code.DENIED: "Remove the host or the payTo from `deny` of the policy.",
    Code.OVER_CALL_CAP: "Raise `max_call` of the policy, or `max_amount` of the call.",
    Code.PAYTO_UNEXPECTED: "Check `expect_pay_to` of the call with the seller.",
    Code.EXTENSION_SIGNS: "Name the extension in `allow_extensions` of the policy.",
    Code.NOT_PAYABLE: "Use another seller.",
    Code.AVOID: "Use another seller, or name host and payTo in `trust` of the policy.",
    Code.HOST_ABUSIVE: f"{_ASK}, {_TRUST}.",
    Code.PAYTO_ABUSIVE: f"{_ASK}, {_TRUST}.",
    Code.PAYTO_UNKNOWN: f"Wait for a newer bundle, {_TRUST}.",
    Code.PAYTO_VARIES: f"{_ASK}, or name the host in `trust` of the policy.",
    Code.NETWORK_UNKNOWN: f"Wait for a newer bundle, {_TRUST}.",
    Code.PRICE_JUMP: f"{_ASK}, {_TRUST}, or raise `price_factor`.",
    Code.CAUTION: f"{_ASK}, {_TRUST}.",
    Code.GRADE_LOW: f"{_ASK}, or lower `min_grade` of the policy.",
    Code.FLOW_UNUSUAL: f"{_ASK}.",
    Code.BUNDLE_OLD: "Check the address of the bundle and the pinned keys.",
    Code.UNKNOWN_RESOURCE: f"{_ASK}, {_TRUST}, or raise `unknown_max`.",
    Code.BUNDLE_STALE: f"Check the address of the bundle. {_ASK}.",
    Code.OVER_HOST_BUDGET: "Wait, or raise `max_host_day` of the policy.",
    Code.OVER_DAY_BUDGET: "Wait, or raise `max_day` of the policy.",
    Code.OVER_SESSION_BUDGET: "Raise `max_session` of the policy, or start a new session.",
    Code.OVER_LIFETIME_BUDGET: "Raise `max_lifetime` of the policy.",
    Code.OVER_LOSS_BUDGET: f"{_ASK}, or raise `loss_budget` or `loss_count` of the policy.",
    Code.PAY_AGAIN: f"{_ASK}, or set `pay_again` of the policy.",
    Code.SDK_REFUSED: "Check the schemes, policies and spend controls of the x402 client.",
    Code.PAID_ALREADY: "Find the hook that asks for a second payment.",
    Code.SIGNED_DIFFERS: "Find the hook, extension or redirect that changes the payment.",
    Code.PAYMENT_UNRESOLVED: "See `tollgauge-guard unresolved`.",
}
"""Remedies: how the owner can allow a refused payment."""
