"""Rule: one check of an answer, as a small pure function with a name, and the source it comes from.

A rule's function yields the places where it fires and never raises. `fatal` means that a stock
client cannot pay while the rule fires (core/lint/judge defines stock clients). The docstring of the
function is its public documentation: docs/lint-rules.md is generated from it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from tollgauge.core.endpoint.finding import Finding, Severity

Subject = TypeVar("Subject")
Check = Callable[[Subject], Iterator[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[Subject]):
    """A named check. `fix` is the message of its findings: it says what to write instead;
    `expected` names in a few words what belongs at the place of a finding.
    `revision` is raised when the check begins to find what it passed before, so that our change is
    not reported as a change of endpoints (core/watch/change_state).
    """

    slug: str
    severity: Severity
    fix: str
    expected: str
    check: Check[Subject]
    fatal: bool = False
    revision: int = 1

    @property
    def doc(self) -> str:
        """What the rule looks for and where that comes from: the docstring of its function."""
        return inspect.cleandoc(self.check.__doc__ or "")

    def finding(self, where: str) -> Finding:
        """The finding of a place where the rule fires."""
        return Finding(rule=self.slug, severity=self.severity, message=self.fix, where=where)


@dataclass(frozen=True)
class RuleSet:
    """The rules whose findings are errors, by slug with their revisions: what an endpoint was
    judged by.
    """

    revisions: Mapping[str, int]

    @cached_property
    def id(self) -> str:
        """16 hex digits that are the same for sets with the same rules."""
        text = json.dumps(dict(self.revisions), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def shares(self, slug: str, other: RuleSet) -> bool:
        """Whether both sets have this rule in the same revision."""
        known = self.revisions.get(slug)
        return known is not None and known == other.revisions.get(slug)


def rules_of(*modules: ModuleType) -> tuple[Rule[Any], ...]:
    """Every rule that the modules define, in the order of their source."""
    members = (member for module in modules for member in vars(module).values())
    return tuple(member for member in members if isinstance(member, Rule))


def error(
    slug: str, fix: str, *, expected: str, fatal: bool = False, revision: int = 1
) -> Callable[[Check[Subject]], Rule[Subject]]:
    """The rule of a function whose finding keeps a stock client from paying the right thing."""
    return lambda check: Rule(
        slug=slug,
        severity=Severity.ERROR,
        fix=fix,
        expected=expected,
        check=check,
        fatal=fatal,
        revision=revision,
    )


def warning(
    slug: str, fix: str, *, expected: str, fatal: bool = False
) -> Callable[[Check[Subject]], Rule[Subject]]:
    """The rule of a function whose finding costs some clients or is a defect of what only
    describes the resource; `fatal` when it costs the stock clients although nothing is broken.
    """
    return lambda check: Rule(
        slug=slug, severity=Severity.WARN, fix=fix, expected=expected, check=check, fatal=fatal
    )


def note(slug: str, fix: str, *, expected: str) -> Callable[[Check[Subject]], Rule[Subject]]:
    """The rule of a function whose finding is only worth knowing."""
    return lambda check: Rule(
        slug=slug, severity=Severity.INFO, fix=fix, expected=expected, check=check
    )


@dataclass(frozen=True, slots=True)
class RuleSource:
    """The document that a rule comes from: its name with the section, and where it is."""

    name: str
    url: str


_SPECS: Final = "https://github.com/x402-foundation/x402/blob/main/specs/"
_SCHEMES: Final = f"{_SPECS}schemes/"
REQUIRED: Final = RuleSource(
    "x402 v2 specification, section 5.1: PaymentRequired", f"{_SPECS}x402-specification-v2.md"
)
HTTP: Final = RuleSource(
    "x402 v2 HTTP transport: Payment Required Signaling",
    f"{_SPECS}transports-v2/http.md#payment-required-signaling",
)
BODY: Final = RuleSource(
    "x402 v2 HTTP transport: Response Body", f"{_SPECS}transports-v2/http.md#response-body"
)
V1: Final = RuleSource("x402 v1 specification", f"{_SPECS}x402-specification-v1.md")
EXACT: Final = RuleSource("x402 scheme exact on EVM", f"{_SCHEMES}exact/scheme_exact_evm.md")
SVM: Final = RuleSource("x402 scheme exact on Solana", f"{_SCHEMES}exact/scheme_exact_svm.md")
SVM_UP_TO: Final = RuleSource("x402 scheme upto on Solana", f"{_SCHEMES}upto/scheme_upto_svm.md")
TVM: Final = RuleSource("x402 scheme exact on TON", f"{_SCHEMES}exact/scheme_exact_tvm.md")
UP_TO: Final = RuleSource("x402 scheme upto on EVM", f"{_SCHEMES}upto/scheme_upto_evm.md")
CHANNEL: Final = RuleSource(
    "x402 scheme batch-settlement on EVM",
    f"{_SCHEMES}batch-settlement/scheme_batch_settlement_evm.md",
)
ESCROW: Final = RuleSource(
    "x402 scheme auth-capture on EVM", f"{_SCHEMES}auth-capture/scheme_auth_capture_evm.md"
)
_BAZAAR: Final = f"{_SPECS}extensions/bazaar.md"
INFO: Final = RuleSource(
    "x402 extension bazaar: Discovery Info Structure", f"{_BAZAAR}#discovery-info-structure"
)
SCHEMA: Final = RuleSource(
    "x402 extension bazaar: Schema Validation", f"{_BAZAAR}#schema-validation"
)
METADATA: Final = RuleSource(
    "x402 extension bazaar: Service Metadata on resource", f"{_BAZAAR}#service-metadata-on-resource"
)
SIGN_IN: Final = RuleSource(
    "x402 extension sign-in-with-x", f"{_SPECS}extensions/sign-in-with-x.md"
)
OFFERS: Final = RuleSource(
    "x402 extension offer-and-receipt", f"{_SPECS}extensions/extension-offer-and-receipt.md"
)
GAS: Final = RuleSource(
    "x402 extension eip2612GasSponsoring", f"{_SPECS}extensions/eip2612_gas_sponsoring.md"
)
CLIENTS: Final = RuleSource(
    "what the official clients do (Python 2.25, TypeScript 2.27)",
    "https://github.com/x402-foundation/x402",
)
GATEWAY_SOURCE: Final = RuleSource(
    "Circle Gateway: npm @circle-fin/x402-batching",
    "https://www.npmjs.com/package/@circle-fin/x402-batching",
)
CAIP2: Final = RuleSource("CAIP-2: Blockchain ID", "https://chainagnostic.org/CAIPs/caip-2")
CHECKSUM: Final = RuleSource(
    "EIP-55: checksum of addresses", "https://eips.ethereum.org/EIPS/eip-55"
)
DOMAINS: Final = RuleSource("EIP-712: signature domain", "https://eips.ethereum.org/EIPS/eip-712")
BASE64: Final = RuleSource(
    "RFC 4648, section 4: base64", "https://www.rfc-editor.org/rfc/rfc4648#section-4"
)
JOINED: Final = RuleSource(
    "RFC 9110, section 5.3: repeated fields", "https://www.rfc-editor.org/rfc/rfc9110#section-5.3"
)
NO_STORE: Final = RuleSource(
    "RFC 9111, section 5.2.2.5: no-store", "https://www.rfc-editor.org/rfc/rfc9111#section-5.2.2.5"
)
CORS: Final = RuleSource(
    "Fetch standard: Access-Control-Expose-Headers",
    "https://fetch.spec.whatwg.org/#http-access-control-expose-headers",
)
