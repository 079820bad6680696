"""Rules about extensions: `bazaar`, from which directories build their listings, signed offers,
payment identifiers and sign-in challenges.

Sources: x402 v2 specification, extensions; the validators of npm @x402/extensions 2.27. Only an
`extensions` of the wrong type prevents payments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from tollgauge.core.endpoint.terms import extension_names
from tollgauge.core.lint.parsing import members
from tollgauge.core.lint.reading import Reading
from tollgauge.core.lint.rule import error, note, warning
from tollgauge.core.lint.schema import SchemaVerdict, evaluate, has_external_reference
from tollgauge.core.lint.sign_in import SIGN_IN, find_challenge_faults
from tollgauge.core.lint.signed_offer import OfferStanding
from tollgauge.core.probe.exchange import BODY_METHODS, OfficialClient

_QUERY_METHODS: Final = frozenset({"GET", "HEAD", "DELETE"})
_BODY_TYPES: Final = ("json", "form-data", "text")
_ROUTE: Final = re.compile(r"/[a-zA-Z0-9_/:.\-~%]+", re.ASCII)
_ROUTE_DECODINGS: Final = 5  # an SDK rejects a template that is still encoded after these
_TRANSPORTS: Final = (None, "streamable-http", "sse")
_BAZAAR: Final = "bazaar"
_IDENTIFIER: Final = "payment-identifier"
_PAYMENT_ID: Final = re.compile(r"[a-zA-Z0-9_-]{16,128}", re.ASCII)
_WITHOUT_SCHEMA: Final = frozenset({"http-message-signatures"})
_SPONSORING: Final = frozenset({"eip2612GasSponsoring", "erc20ApprovalGasSponsoring"})
UNCHECKED_OFFER: Final = "signed-offer-unchecked"
"""Slug of the rule about an offer whose signer has not been checked yet."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_BUILDER_CODE: Final = "builder-code"
_CODE: Final = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)
_SUPPORT: Final = {
    **dict.fromkeys((_BAZAAR, "offer-receipt", _IDENTIFIER, SIGN_IN), "evaluated"),
    **dict.fromkeys((*_SPONSORING, _BUILDER_CODE, "http-message-signatures"), "recognised"),
}


def describe_support(names: Iterable[str]) -> dict[str, str]:
    """Return the linter's support for each well-formed name of an extension: `evaluated` if rules
    check its content, `recognised` if only its name is known, otherwise `unknown`.
    """
    return {name: _SUPPORT.get(name, "unknown") for name in extension_names(names)}


def app_code(extensions: Mapping[str, object]) -> str:
    """Return the builder code of the seller's app (ERC-8021), which settlements of official
    facilitators carry; empty without a valid one.
    """
    code = members(members(extensions.get(_BUILDER_CODE)).get("info")).get("a")
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _find_http_method(reading: Reading) -> str | None:
    """Return the declared HTTP method if the input is of type http and declares one."""
    declared = reading.bazaar_input
    method = declared.get("method")
    return method.upper() if declared.get("type") == "http" and isinstance(method, str) else None


@error("extensions", stops={OfficialClient.PYTHON})
def extensions_object(reading: Reading) -> bool:
    """`extensions` in version 2 is not an object. The official Python client rejects the
    envelope.
    """
    extensions = reading.envelope.document.get("extensions")
    return reading.envelope.version == 2 and not isinstance(extensions, dict | None)


@warning()
def bazaar_shape(reading: Reading) -> Iterator[str]:
    """The bazaar extension lacks `info` or `schema`; directories do not list the resource."""
    if reading.envelope.extensions.get(_BAZAAR) is None:
        return
    for key in ("info", "schema"):
        if not isinstance(reading.bazaar.get(key), dict):
            yield f"extensions.bazaar.{key}"


@warning()
def extension_shape(reading: Reading) -> Iterator[str]:
    """Another extension without `info` or `schema`. The specification requires both, except for
    extensions that it publishes without a schema (http-message-signatures).
    """
    for name, extension in reading.envelope.extensions.items():
        wanted = {"info"} if name in _WITHOUT_SCHEMA else {"info", "schema"}
        if name != _BAZAAR and not wanted <= members(extension).keys():
            yield f"extensions.{name}" if _NAME.fullmatch(name) else "extensions"
            return


@error(stops=())
def signed_offer_mismatch(reading: Reading) -> Iterator[str]:
    """A signed offer of the extension offer-receipt that is malformed, differs from every entry of
    `accepts`, or was signed neither by payTo nor by a key of the host. Such a signature does not
    prove the terms.
    """
    yield from (path for path, kind in reading.signed_offers if kind is OfferStanding.MISMATCH)


@note()
def signed_offer_unchecked(reading: Reading) -> Iterator[str]:
    """A signed offer with correct terms whose signer was not checked: payTo did not sign it, and
    the keys of the host were not fetched or could not be read. The linter does not fetch documents.
    """
    yield from (path for path, kind in reading.signed_offers if kind is OfferStanding.UNCHECKED)


@warning()
def payment_identifier_shape(reading: Reading) -> Iterator[str]:
    """A payment-identifier extension that the validators of the official SDKs reject: `required` is
    not a boolean, `id` is not 16 to 128 letters, digits, hyphens or underscores, or `info` does not
    match `schema`.
    """
    if _IDENTIFIER not in reading.envelope.extensions:
        return
    extension = members(reading.envelope.extensions[_IDENTIFIER])
    info, schema = members(extension.get("info")), extension.get("schema")
    identifier = info.get("id", "0" * 16)
    if not isinstance(info.get("required"), bool):
        yield f"extensions.{_IDENTIFIER}.info.required"
    elif not (isinstance(identifier, str) and _PAYMENT_ID.fullmatch(identifier)):
        yield f"extensions.{_IDENTIFIER}.info.id"
    elif schema and not _fits(info, schema):
        yield f"extensions.{_IDENTIFIER}.info"


@warning(f"extensions.{_IDENTIFIER}.info.required")
def payment_identifier_required(reading: Reading) -> bool:
    """A payment-identifier extension that requires an ID. The official clients repeat the extension
    in their payment without an ID; only an application that calls the SDK's helper adds one.
    """
    info = members(members(reading.envelope.extensions.get(_IDENTIFIER)).get("info"))
    return info.get("required") is True


@warning()
def sign_in_challenge(reading: Reading) -> Iterator[str]:
    """A challenge of the sign-in-with-x extension that the official client does not sign: a member
    is missing or malformed, `domain` or `uri` is not of the origin that sent the 402, or
    `supportedChains` does not name an EVM network with eip191 or a Solana network with ed25519.
    """
    if SIGN_IN in reading.envelope.extensions:
        extension = members(reading.envelope.extensions[SIGN_IN])
        for path in find_challenge_faults(extension, reading.exchange.url):
            yield f"extensions.{SIGN_IN}.{path}"


@note()
def permit2_allowance(reading: Reading) -> Iterator[str]:
    """A payment by Permit2 without a gas sponsoring extension: the payer's first payment in this
    token fails until the payer has sent an approval transaction.
    """
    if _SPONSORING & reading.envelope.extensions.keys():
        return
    for entry in reading.envelope.entries:
        if entry.evm and entry.method == "permit2":
            yield entry.at("extra")


@warning("extensions")
def schema_external_ref(reading: Reading) -> bool:
    """A `$ref` or `$id` that points outside the document."""
    return reading.external_reference


@warning("extensions.bazaar.info")
def schema_mismatch(reading: Reading) -> bool:
    """The example does not match its own schema: facilitators then drop the listing without an
    error. Keywords with regular expressions are not evaluated.
    """
    return reading.schema_verdict is SchemaVerdict.MISMATCH


@warning("extensions.bazaar.schema")
def schema_broken(reading: Reading) -> bool:
    """The schema itself cannot be evaluated."""
    return reading.schema_verdict is SchemaVerdict.BROKEN


@warning("extensions.bazaar.schema")
def schema_too_complex(reading: Reading) -> bool:
    """The evaluation exceeded its limits because of deep or multiplying references."""
    return reading.schema_verdict is SchemaVerdict.TOO_COMPLEX


@note("extensions")
def bazaar_absent(reading: Reading) -> bool:
    """A version 2 envelope without the bazaar extension: payable, but not discoverable."""
    return reading.envelope.version == 2 and _BAZAAR not in reading.envelope.extensions


@warning("extensions.bazaar.info.input")
def bazaar_input(reading: Reading) -> bool:
    """The input has no `type`, which determines how the other members are read."""
    declared = isinstance(reading.envelope.extensions.get(_BAZAAR), dict)
    return declared and reading.bazaar_input.get("type") not in ("http", "mcp")


@warning("extensions.bazaar.info.input.method")
def bazaar_method(reading: Reading) -> bool:
    """An http input without a method that x402 defines, in capital letters."""
    known = (*_QUERY_METHODS, *BODY_METHODS)
    declared = reading.bazaar_input
    return declared.get("type") == "http" and declared.get("method") not in known


@warning("extensions.bazaar.info.input.method")
def bazaar_method_mismatch(reading: Reading) -> bool:
    """The declared method is not the method of this request. Directories compare them."""
    declared, probed = _find_http_method(reading), reading.exchange.method.upper()
    return declared is not None and probed not in ("", declared)


@warning("extensions.bazaar.info.input.body")
def bazaar_body(reading: Reading) -> bool:
    """A method with a body, and an input without an example body."""
    if _find_http_method(reading) not in BODY_METHODS:
        return False
    declared = reading.bazaar_input
    return declared.get("bodyType") not in _BODY_TYPES or "body" not in declared


@warning("extensions.bazaar.info.input.queryParams")
def bazaar_query(reading: Reading) -> bool:
    """A method without a body whose input has one, or `queryParams` that is not an object."""
    if _find_http_method(reading) not in _QUERY_METHODS:
        return False
    declared = reading.bazaar_input
    if not isinstance(declared.get("queryParams"), dict | None):
        return True
    return not declared.keys().isdisjoint({"body", "bodyType"})


@warning("extensions.bazaar.info.input")
def bazaar_mcp(reading: Reading) -> bool:
    """An mcp input without a tool name (`toolName` or the older `tool`) or without a schema."""
    declared = reading.bazaar_input
    if declared.get("type") != "mcp":
        return False
    tool = declared.get("toolName", declared.get("tool"))
    return not (isinstance(tool, str) and tool) or not isinstance(declared.get("inputSchema"), dict)


@warning("extensions.bazaar.info.input.transport")
def bazaar_transport(reading: Reading) -> bool:
    """An mcp input with a transport that the validators of the official SDKs reject."""
    declared = reading.bazaar_input
    return declared.get("type") == "mcp" and declared.get("transport") not in _TRANSPORTS


@warning("extensions.bazaar.info.input.example")
def bazaar_example(reading: Reading) -> bool:
    """An mcp input whose example arguments do not match the tool's own `inputSchema`: a caller that
    copies them gets an error for its money.
    """
    declared = reading.bazaar_input
    if declared.get("type") != "mcp" or "example" not in declared:
        return False
    return not _fits(declared["example"], declared.get("inputSchema"))


@warning("extensions.bazaar.info.input.tool")
def bazaar_tool_name(reading: Reading) -> bool:
    """`tool` without `toolName`."""
    declared = reading.bazaar_input
    return declared.get("type") == "mcp" and "tool" in declared and "toolName" not in declared


@warning("extensions.bazaar.routeTemplate")
def bazaar_route(reading: Reading) -> bool:
    """A route template that facilitators reject, before or after percent-decoding."""
    template = reading.bazaar.get("routeTemplate")
    return template is not None and not (isinstance(template, str) and _is_route(template))


def _is_route(template: str) -> bool:
    path = template
    for _ in range(_ROUTE_DECODINGS):
        decoded, path = path, unquote(path)
    stable = decoded == path
    return stable and bool(_ROUTE.fullmatch(template)) and ".." not in path and "://" not in path


def _fits(value: object, schema: object) -> bool:
    """Return whether a value matches a schema, as far as it can be evaluated."""
    if not isinstance(schema, dict) or has_external_reference(schema):
        return True
    return evaluate(value, schema) is not SchemaVerdict.MISMATCH
