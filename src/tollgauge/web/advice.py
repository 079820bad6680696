"""Advice: what to do about a flag, for those who would pay and for those who sell.

The flags themselves, their severity and their messages are core's; a flag without advice here is
shown with its message alone.
"""

from __future__ import annotations

from typing import Final

ADVICE: Final[dict[str, str]] = {
    "down-now": "Wait until it answers again, or choose another endpoint.",
    "not-payable": "Do not call it to buy anything; the seller must offer a payment in `accepts`.",
    "never-compliant": "Expect stock clients to fail; the seller should lint the 402 answer.",
    "payto-changed-recently": "Confirm the new address with the seller before you pay.",
    "decoy-price": "Do not pay; keep a price limit in your client.",
    "price-above-client-cap": "Raise your client's price limit on purpose, or leave it alone.",
    "wildcard-402": "Do not pay: a request for payment proves nothing about this path.",
    "unresolved-template": "Fill in the placeholder of the address before you call it.",
    "payto-varies": "Compare the address with the one quoted for the item you want.",
    "price-varies": "Read the price of each call before you sign.",
    "price-changed": "Compare the price asked now with your budget.",
    "validates-before-402": "Send a complete, valid request, or it never asks for payment.",
    "envelope-mismatch": "Check which terms your client reads: header and body disagree.",
    "first-contact": "Ask again when it has been observed for a while.",
    "low-confidence": "Take the score as a hint: there are few observations so far.",
    "shared-payto": "Read the settlements as those of a wallet, not of this endpoint.",
    "self-paid": "Leave the volume out of your judgement: the wallet paid itself.",
    "concentrated-payers": "Leave the volume out of your judgement: few wallets made it.",
    "no-settlements": "Start with a small payment: nobody was seen paying here.",
    "tls-expiring": "The seller should renew the certificate.",
    "tls-invalid": "Do not send a payment over a connection that cannot be verified.",
    "delisted": "Ask the seller whether the service goes on.",
    "injection-suspected": "Do not hand the provider's own words to an agent.",
}
"""One sentence a flag."""

_LINT: Final = "For the seller: the message says how to mend the answer."


def advice(code: str) -> str:
    """What to do about a flag; empty where its message says it all."""
    return _LINT if code.startswith("lint:") else ADVICE.get(code, "")
