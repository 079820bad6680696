"""Rules about the answer of an MCP tool to a call without a payment.

Source: x402 transport for MCP, tool-result binding; bazaar extension, MCP tools. All rules about
the envelope and its entries apply too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from tollgauge.core.lint.mcp import PLACES, payment_forms
from tollgauge.core.lint.parsing import members
from tollgauge.core.lint.reading import Reading
from tollgauge.core.lint.rule import error, warning

_PLACES: Final = PLACES[:2]


def _list_forms(reading: Reading) -> dict[str, dict[str, object]]:
    return payment_forms(members(reading.body)) if reading.tool else {}


@error("body")
def tool_envelope(reading: Reading) -> bool:
    """The terms are missing or in another place: an HTTP 402 in front of the server, a JSON-RPC
    error, or the result `payment_required` although the client does not advertise that extension.
    """
    is_unpaid = reading.tool != "" and reading.status == 402
    return is_unpaid and _list_forms(reading).keys().isdisjoint(_PLACES)


@error("isError")
def tool_is_error(reading: Reading) -> bool:
    """The terms are in a result that is not an error, so clients take it for the product."""
    result = members(members(reading.body).get("result"))
    return reading.envelope.place in _PLACES and result.get("isError") is not True


@warning()
def tool_forms(reading: Reading) -> Iterator[str]:
    """One of the two places lacks the terms or has others: some clients read only one of them."""
    if reading.envelope.place in _PLACES:
        forms = _list_forms(reading)
        first = forms[reading.envelope.place]
        yield from (place for place in _PLACES if forms.get(place) != first)


@warning()
def tool_mismatch(reading: Reading) -> Iterator[str]:
    """The declared input belongs to another tool or to an HTTP endpoint. Directories identify a
    tool by its server's URL and its name.
    """
    declared = reading.bazaar_input
    if reading.tool and declared:
        named = declared.get("toolName", declared.get("tool"))
        if declared.get("type") != "mcp" or named != reading.tool:
            yield "extensions.bazaar.info.input"


@warning("resource.url")
def tool_resource(reading: Reading) -> bool:
    """`resource.url` is an mcp:// URL of another tool."""
    url = reading.envelope.resource.get("url")
    if not reading.tool or not isinstance(url, str) or not url.startswith("mcp://"):
        return False
    return unquote(url.rpartition("/")[2]) not in ("", reading.tool)


@warning("tools/list")
def tool_schema(reading: Reading) -> bool:
    """`tools/list` lacks the tool or its schema, so agents do not know its arguments."""
    listed = members(reading.body).get("listed") if reading.tool else None
    return listed is not None and not isinstance(members(listed).get("inputSchema"), dict)
