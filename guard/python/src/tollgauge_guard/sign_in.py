"""sign-in-with-x: asks for the answer to a payment that was made, before anything is paid again.

The message is the one of EIP-4361, or its counterpart for Solana. It is bound to the origin that
asks, so it pays nothing and opens no other site. The rules are cases in guard/cases/sign_in.json.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import urlsplit

from tollgauge_guard.journal import Journal
from tollgauge_guard.payment import Payment, State
from tollgauge_guard.policy import Policy
from tollgauge_guard.request import Attempt
from tollgauge_guard.resource import ResourceError
from tollgauge_guard.wallets import list_wallets

SIGN_IN: Final = "sign-in-with-x"
_TEXTS: Final = ("domain", "uri", "version", "nonce", "issuedAt")
_OPTIONAL: Final = ("statement", "expirationTime", "notBefore", "requestId")
_LABELS: Final = {
    "expirationTime": "Expiration Time",
    "notBefore": "Not Before",
    "requestId": "Request ID",
}
_SOLANA: Final = "solana:"
_EVM_CHAIN: Final = re.compile(r"eip155:([1-9][0-9]{0,18})", re.ASCII)
_SOLANA_CHAIN: Final = re.compile(r"solana:([1-9A-HJ-NP-Za-km-z]{32})", re.ASCII)
# EIP-4361: a line break would let a text look like another field.
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f]+")


class EvmAccount(Protocol):
    """An account that may sign in, such as one of eth-account."""

    @property
    def address(self) -> str:
        """Its address with a checksum."""

    def sign_message(self, message: Any) -> Any:
        """Sign a message as EIP-191; `signature` of the result are its bytes."""


@runtime_checkable
class SolanaAccount(Protocol):
    """An account that may sign in, such as the SDK's `KeypairSigner`."""

    @property
    def address(self) -> str:
        """Its public key in base58."""

    @property
    def keypair(self) -> Any:
        """Its key, whose `sign_message` returns a signature; the text of that is base58."""


SignInAccount = EvmAccount | SolanaAccount


@dataclass(frozen=True, slots=True)
class Challenge:
    """The signed message, and the fields that are sent with the signature."""

    message: str
    fields: dict[str, object]

    def sign(self, account: SignInAccount) -> str:
        """Return the value of the header that carries the signed challenge."""
        if isinstance(account, SolanaAccount):
            signature = str(account.keypair.sign_message(self.message.encode()))
        else:
            from eth_account.messages import encode_defunct  # installed with every EVM account

            signed = account.sign_message(encode_defunct(text=self.message))
            signature = f"0x{bytes(signed.signature).hex()}"
        document = self.fields | {"signature": signature}
        return base64.b64encode(json.dumps(document).encode()).decode()


def read_challenge(header: str | None, url: str, address: str, network: str) -> Challenge | None:
    """Return the challenge of a 402 (the value of its header) that came from a URL.

    Returns None if there is none for an account of that network, or if it is not bound to that
    origin.
    """
    declared = _declaration(header)
    info = _members(declared.get("info"))
    chain = _select_chain(declared.get("supportedChains"), network)
    if chain is None or not _is_well_formed(info) or not _is_bound(info, url):
        return None
    names = (*_TEXTS, *_OPTIONAL, "resources")
    fields = {name: info[name] for name in names if name in info} | {"address": address}
    fields |= {
        name: chain[name] for name in ("chainId", "type", "signatureScheme") if name in chain
    }
    return Challenge(_write_message(info, address, str(chain["chainId"])), fields)


def _select_chain(chains: object, network: str) -> dict[str, Any] | None:
    """Return the entry of a network, otherwise the first that an account of its kind can sign."""
    is_solana = network.startswith(_SOLANA)
    kind, pattern = ("ed25519", _SOLANA_CHAIN) if is_solana else ("eip191", _EVM_CHAIN)
    fitting = [
        chain
        for chain in map(_members, chains if isinstance(chains, list) else [])
        if chain.get("type") == kind and pattern.fullmatch(str(chain.get("chainId")))
    ]
    same = (chain for chain in fitting if chain["chainId"] == network)
    return next(same, fitting[0] if fitting else None)


def _is_well_formed(info: dict[str, Any]) -> bool:
    resources = info.get("resources", [])
    return (
        all(_is_line(info.get(name)) for name in _TEXTS)
        and all(_is_line(info[name]) for name in _OPTIONAL if name in info)
        and isinstance(resources, list)
        and all(map(_is_line, resources))
    )


def _write_message(info: dict[str, Any], address: str, chain_id: str) -> str:
    """Return the message of EIP-4361, or its counterpart for Solana."""
    is_solana = chain_id.startswith(_SOLANA)
    name = "Solana" if is_solana else "Ethereum"
    lines = [f"{info['domain']} wants you to sign in with your {name} account:", address, ""]
    lines += [str(info["statement"])] if "statement" in info else []
    # EIP-4361 keeps the empty line of a missing statement, the SDK's message for Solana does not.
    lines += [] if is_solana and "statement" not in info else [""]
    lines += [f"URI: {info['uri']}", f"Version: {info['version']}"]
    lines += [f"Chain ID: {chain_id.partition(':')[2]}"]
    lines += [f"Nonce: {info['nonce']}", f"Issued At: {info['issuedAt']}"]
    lines += [f"{label}: {info[name]}" for name, label in _LABELS.items() if name in info]
    if resources := info.get("resources"):
        lines += ["Resources:", *(f"- {one}" for one in resources)]
    return "\n".join(lines)


class SigningGuard(Protocol):
    """The parts of a guard that `find_sign_in` uses."""

    journal: Journal
    policy: Policy
    session: str
    account: SignInAccount | None
    is_stopped: bool


def find_sign_in(
    guard: SigningGuard, attempt: Attempt | None, required: str | None
) -> tuple[Payment, str] | None:
    """Return how to ask for the answer to an earlier payment of the same purchase.

    Args:
        guard: whose account may sign in.
        attempt: the request that was answered with 402.
        required: the value of the 402's header.

    Returns:
        The payment and the value of the header `sign-in-with-x`; None if there is no such payment,
        or signing in is not possible or not allowed.
    """
    account, hooks = guard.account, getattr(attempt and attempt.owner, "hooks", None)
    if attempt is None or account is None or hooks is None or guard.is_stopped:
        return None
    attempt.wallets = list_wallets(hooks.payer)
    try:
        purchase = attempt.purchase(guard.session)
    except ResourceError:
        return None
    payment = guard.journal.find_unfinished(purchase)
    if payment is None or payment.state not in (State.OPEN, State.PAID_UNANSWERED):
        return None
    is_same = payment.url_digest == purchase.url_digest
    address = account.address
    if not is_same or payment.payer != (address.lower() if address[:2] == "0x" else address):
        return None
    challenge = read_challenge(required, attempt.url, address, payment.network)
    if challenge is None or purchase.host in guard.policy.deny:
        return None
    return payment, challenge.sign(account)


def _declaration(header: str | None) -> dict[str, Any]:
    try:
        required = json.loads(base64.b64decode(header or "", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return _members(_members(_members(required).get("extensions")).get(SIGN_IN))


def _members(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_line(value: object) -> bool:
    return isinstance(value, str) and _LINE.fullmatch(value) is not None


def _is_bound(info: dict[str, Any], url: str) -> bool:
    try:
        asked, named = urlsplit(url), urlsplit(str(info["uri"]))
    except ValueError:
        return False
    is_same = (named.scheme, named.netloc) == (asked.scheme, asked.netloc)
    return is_same and info["domain"] == asked.netloc
