"""The entries of `accepts`: the terms that a client can pay, and the entry as the rules check it.

`terms_of_accepts` reads listings and challenges alike, so that both have the same terms. Every
function accepts any JSON value and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tollgauge.core.base.units import LEGACY_NETWORKS, SDK, UINT256_MAX, known_asset
from tollgauge.core.endpoint.terms import GATEWAY_DOMAIN, Terms
from tollgauge.core.lint.accounts import OTHER_CHAINS, evm_address, solana_key, ton_address
from tollgauge.core.lint.parsing import members
from tollgauge.core.probe.exchange import OfficialClient

ENTRIES_MAX: Final = 64
"""Entries that are read. Real challenges have far fewer; a hostile one may have thousands."""
TEXT_MAX: Final = 256
"""Maximum length of an identifier in characters; a Cardano asset needs 120."""
TIMEOUT_MAX: Final = 2**53
"""Largest timeout in seconds that JavaScript adds to a clock without losing precision."""
_DIGITS: Final = re.compile(r"[0-9]{1,78}", re.ASCII)
AMOUNT_KEYS: Final = {1: "maxAmountRequired", 2: "amount"}
"""The name of the amount, by envelope version."""
FLOWS: Final = (None, "authorization", "upfront", "escrow")
"""The payment flows that clients know; they skip entries with another flow."""
FAMILIES: Final = ("eip155", "solana", "tvm")
"""The CAIP-2 namespaces of the networks whose schemes an official client implements. `tvm` is TON.
"""
SCHEMES: Final = {
    key: frozenset[str]().union(*(table.get(key, frozenset()) for table in SDK.schemes.values()))
    for table in SDK.schemes.values()
    for key in table
}
"""The schemes that an official client signs, by kind of network and version (`eip155 2`)."""
_NO_SCHEMES: Final = frozenset[str]()


@dataclass(frozen=True, kw_only=True)
class AcceptsEntry:
    """One element of `accepts`. Values that several rules need are computed once."""

    index: int
    version: int
    raw: object

    @cached_property
    def fields(self) -> dict[str, object]:
        """The entry's members; empty if it is not an object."""
        return members(self.raw)

    @cached_property
    def extra(self) -> dict[str, object]:
        """The members of `extra`; empty if it is not an object."""
        return members(self.fields.get("extra"))

    def text(self, field: str) -> str:
        """Return a member that is a string; empty for any other value."""
        value = self.fields.get(field)
        return value if isinstance(value, str) else ""

    @property
    def amount_key(self) -> str:
        """The amount's name in this version."""
        return AMOUNT_KEYS[self.version]

    @cached_property
    def amount(self) -> int | None:
        """The amount in atomic units; None unless it is a whole number that fits a uint256."""
        return atomic_amount(self.fields.get(self.amount_key))

    @cached_property
    def timeout(self) -> int | None:
        """`maxTimeoutSeconds`; None unless it is a positive whole number."""
        return timeout_seconds(self.fields.get("maxTimeoutSeconds"))

    @cached_property
    def domain(self) -> dict[str, str]:
        """The parts of the token's EIP-712 domain in `extra`: `name` and `version`."""
        parts = ((key, self.extra.get(key)) for key in ("name", "version"))
        return {key: value for key, value in parts if isinstance(value, str) and value}

    def domain_gaps(self) -> Iterator[str]:
        """Return the paths of the missing parts of the domain."""
        return (self.at(f"extra.{key}") for key in ("name", "version") if key not in self.domain)

    @cached_property
    def terms(self) -> tuple[Terms, ...]:
        """The terms of the entry; empty if they cannot be read."""
        return terms_of_accepts([self.raw], version=self.version)

    @cached_property
    def scheme(self) -> str:
        """The scheme; empty if it is not a string."""
        return self.text("scheme")

    @cached_property
    def network(self) -> str:
        """The network; empty if it is not a string. Known plain names are converted to CAIP-2."""
        text = self.text("network")
        return LEGACY_NETWORKS.get(text, text)

    @cached_property
    def chain(self) -> str:
        """The CAIP-2 namespace of the network, or the one that a plain name implies.

        An unknown name is treated as an EVM network, as most are. Empty without a network.
        """
        namespace, colon, _ = self.network.partition(":")
        if colon or not namespace:
            return namespace
        word = re.split(r"[^a-z]", namespace.lower(), maxsplit=1)[0]
        return word if word == "solana" or word in OTHER_CHAINS else "eip155"

    @cached_property
    def evaluated(self) -> bool:
        """Whether an official client signs on this kind of network in this version."""
        return self._kind in SCHEMES

    @cached_property
    def schemes(self) -> frozenset[str]:
        """The schemes of the official clients on this kind of network in this version."""
        return SCHEMES.get(self._kind, _NO_SCHEMES)

    @cached_property
    def _kind(self) -> str:
        return f"{self.chain} {self.version}"

    @property
    def decidable(self) -> bool:
        """Whether the linter can decide if a client can pay: the network or scheme is missing, or
        an installed official client signs for both.
        """
        if not isinstance(self.raw, dict) or not self.chain or not self.scheme:
            return True
        return self.formats_apply and not (self.scheme == "exact" and self.method == "erc7710")

    def is_supported_by(self, client: OfficialClient) -> bool:
        """Return whether the SDK for TypeScript or Python considers it: it has the scheme and knows
        the payment flow. In version 1, the Python client does not read the flow.
        """
        if self.scheme not in SDK.schemes[client].get(self._kind, _NO_SCHEMES):
            return False
        if self.version == 1 and self.text("network") not in SDK.v1_networks[client]:
            return False
        if self.version == 2 and not self.text("network").startswith(f"{self.chain}:"):
            return False
        if self.chain == "tvm" and self.network not in SDK.ton_networks:
            return False
        ignored = client is OfficialClient.PYTHON and self.version == 1
        return ignored or self.extra.get("paymentFlow") in FLOWS

    @property
    def completed_domain(self) -> bool:
        """Whether the Python client takes the domain from its table: `exact` without a name, of a
        default token. In version 1, the version may be missing instead.
        """
        if self.scheme != "exact" or ("name" in self.extra and self.version == 2):
            return False
        token = known_asset(self.network, self.text("asset"))
        gaps = {"name", "version"} - self.domain.keys()
        return token is not None and token.default and not gaps & self.extra.keys()

    @cached_property
    def gateway(self) -> bool:
        """Whether it is an offer of Circle Gateway, which only Circle's client signs."""
        offered = self.evm and self.version == 2 and self.scheme == "exact"
        return offered and self.extra.get("name") == GATEWAY_DOMAIN

    @cached_property
    def evm(self) -> bool:
        """Whether EVM formats apply: an EVM network, and a scheme that clients have or none."""
        return self.chain == "eip155" and self._known_scheme

    @cached_property
    def solana(self) -> bool:
        """Whether Solana formats apply, by the same rule."""
        return self.chain == "solana" and self._known_scheme

    @cached_property
    def ton(self) -> bool:
        """Whether TON formats apply, by the same rule."""
        return self.chain == "tvm" and self.evaluated and self._known_scheme

    @property
    def formats_apply(self) -> bool:
        """Whether the formats of any network apply."""
        return self.evm or self.solana or self.ton

    @cached_property
    def method(self) -> str:
        """The transfer method on an EVM network; version 1 has only EIP-3009."""
        method = self.extra.get("assetTransferMethod")
        if self.scheme == "upto":
            return "permit2"
        return method if self.version == 2 and isinstance(method, str) else "eip3009"

    @cached_property
    def eip3009(self) -> bool:
        """Whether clients sign an EIP-3009 authorization for it."""
        return self.evm and not self.gateway and self.method not in ("permit2", "erc7710")

    @cached_property
    def _known_scheme(self) -> bool:
        return not self.scheme or self.scheme.strip().lower() in self.schemes

    def account(self, field: str) -> str | None:
        """Return the account in `asset` or `payTo` in comparable form.

        None unless it is an account of the network and the network's accounts are validated.
        """
        if not self.formats_apply:
            return None
        parse = evm_address if self.evm else solana_key if self.solana else ton_address
        return parse(self.fields.get(field))

    def at(self, where: str) -> str:
        """Return the path of a member, or of the entry if `where` is empty."""
        return f"accepts[{self.index}].{where}" if where else f"accepts[{self.index}]"


def terms_of_accepts(accepts: object, *, version: int) -> tuple[Terms, ...]:
    """Return the terms of every readable entry, in order, at most ENTRIES_MAX.

    `version` selects the name of the amount that is tried first. The other version's name and a
    JSON number are accepted too, because directories list both. Version 1 network names become
    CAIP-2.
    """
    if not isinstance(accepts, list):
        return ()
    read = [_read_terms(entry, version) for entry in accepts[:ENTRIES_MAX]]
    return tuple([terms for terms in read if terms is not None])


def atomic_amount(text: object) -> int | None:
    """Parse decimal digits as an amount in atomic units; None unless it fits a uint256.

    Leading zeros are accepted: clients and facilitators compare the number.
    """
    if not isinstance(text, str) or not _DIGITS.fullmatch(text):
        return None
    value = int(text)
    return value if value <= UINT256_MAX else None


def timeout_seconds(value: object) -> int | None:
    """Return a timeout that clients can add to a clock: a positive whole number; None otherwise."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value <= TIMEOUT_MAX else None


def _read_name(value: object) -> str | None:
    """Return a printable text of 1 to TEXT_MAX characters, or None."""
    if isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.isprintable():
        return value
    return None


def _read_terms(entry: object, version: int) -> Terms | None:
    """Return the terms of one entry; None if amount, token or payee is missing."""
    fields = members(entry)
    extra = members(fields.get("extra"))
    scheme, network = _read_name(fields.get("scheme")), _read_name(fields.get("network"))
    asset, pay_to = _read_name(fields.get("asset")), _read_name(fields.get("payTo"))
    amount = _read_amount(fields, version)
    if not scheme or not network or not asset or not pay_to or amount is None:
        return None
    return Terms(
        version=version,
        scheme=scheme,
        network=LEGACY_NETWORKS.get(network, network),
        asset=asset,
        amount=amount,
        pay_to=pay_to,
        timeout_seconds=timeout_seconds(fields.get("maxTimeoutSeconds")),
        domain_name=_read_name(extra.get("name")),
        domain_version=_read_name(extra.get("version")),
        transfer_method=_read_name(extra.get("assetTransferMethod")),
        fee_payer=_read_name(extra.get("feePayer")),
    )


def _read_amount(fields: dict[str, object], version: int) -> int | None:
    v1, v2 = AMOUNT_KEYS.values()
    for key in (v1, v2) if version == 1 else (v2, v1):
        value = fields.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value if 0 <= value <= UINT256_MAX else None
        amount = atomic_amount(value)
        if amount is not None:
            return amount
    return None
