"""Source: the documents that the rules of the linter come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Source:
    """The document that a rule comes from: its name with the section, and where it is."""

    name: str
    url: str


_SPECS: Final = "https://github.com/x402-foundation/x402/blob/main/specs/"
_SCHEMES: Final = f"{_SPECS}schemes/"
REQUIRED: Final = Source(
    "x402 v2 specification, section 5.1: PaymentRequired", f"{_SPECS}x402-specification-v2.md"
)
HTTP: Final = Source(
    "x402 v2 HTTP transport: Payment Required Signaling",
    f"{_SPECS}transports-v2/http.md#payment-required-signaling",
)
BODY: Final = Source(
    "x402 v2 HTTP transport: Response Body", f"{_SPECS}transports-v2/http.md#response-body"
)
V1: Final = Source("x402 v1 specification", f"{_SPECS}x402-specification-v1.md")
EXACT: Final = Source("x402 scheme exact on EVM", f"{_SCHEMES}exact/scheme_exact_evm.md")
SVM: Final = Source("x402 scheme exact on Solana", f"{_SCHEMES}exact/scheme_exact_svm.md")
SVM_UP_TO: Final = Source("x402 scheme upto on Solana", f"{_SCHEMES}upto/scheme_upto_svm.md")
TVM: Final = Source("x402 scheme exact on TON", f"{_SCHEMES}exact/scheme_exact_tvm.md")
UP_TO: Final = Source("x402 scheme upto on EVM", f"{_SCHEMES}upto/scheme_upto_evm.md")
CHANNEL: Final = Source(
    "x402 scheme batch-settlement on EVM",
    f"{_SCHEMES}batch-settlement/scheme_batch_settlement_evm.md",
)
ESCROW: Final = Source(
    "x402 scheme auth-capture on EVM", f"{_SCHEMES}auth-capture/scheme_auth_capture_evm.md"
)
_BAZAAR: Final = f"{_SPECS}extensions/bazaar.md"
INFO: Final = Source(
    "x402 extension bazaar: Discovery Info Structure", f"{_BAZAAR}#discovery-info-structure"
)
SCHEMA: Final = Source("x402 extension bazaar: Schema Validation", f"{_BAZAAR}#schema-validation")
METADATA: Final = Source(
    "x402 extension bazaar: Service Metadata on resource", f"{_BAZAAR}#service-metadata-on-resource"
)
SIGN_IN: Final = Source("x402 extension sign-in-with-x", f"{_SPECS}extensions/sign-in-with-x.md")
OFFERS: Final = Source(
    "x402 extension offer-and-receipt", f"{_SPECS}extensions/extension-offer-and-receipt.md"
)
GAS: Final = Source(
    "x402 extension eip2612GasSponsoring", f"{_SPECS}extensions/eip2612_gas_sponsoring.md"
)
CLIENTS: Final = Source(
    "what the official clients do (Python 2.25, TypeScript 2.27)",
    "https://github.com/x402-foundation/x402",
)
GATEWAY_SOURCE: Final = Source(
    "Circle Gateway: npm @circle-fin/x402-batching",
    "https://www.npmjs.com/package/@circle-fin/x402-batching",
)
CAIP2: Final = Source("CAIP-2: Blockchain ID", "https://chainagnostic.org/CAIPs/caip-2")
CHECKSUM: Final = Source("EIP-55: checksum of addresses", "https://eips.ethereum.org/EIPS/eip-55")
DOMAINS: Final = Source("EIP-712: signature domain", "https://eips.ethereum.org/EIPS/eip-712")
BASE64: Final = Source(
    "RFC 4648, section 4: base64", "https://www.rfc-editor.org/rfc/rfc4648#section-4"
)
JOINED: Final = Source(
    "RFC 9110, section 5.3: repeated fields", "https://www.rfc-editor.org/rfc/rfc9110#section-5.3"
)
NO_STORE: Final = Source(
    "RFC 9111, section 5.2.2.5: no-store", "https://www.rfc-editor.org/rfc/rfc9111#section-5.2.2.5"
)
CORS: Final = Source(
    "Fetch standard: Access-Control-Expose-Headers",
    "https://fetch.spec.whatwg.org/#http-access-control-expose-headers",
)
