"""A request as callers of egress write it, and the limits and identity of all requests."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.clients.egress.resolve import Lookup, TextLookup, system_lookup, system_texts
from tollgauge.core.endpoint.identity import PUBLIC, Perimeter

FIELD_VALUE: Final = re.compile(r"[\x20-\x7e\t]*", re.ASCII)
"""A field value without control characters (RFC 9110 section 5.5)."""


def _agent(text: str) -> str:
    if not FIELD_VALUE.fullmatch(text) or not text.strip():
        raise ValueError(
            "must be printable ASCII that names the project, a contact and how to opt out"
        )
    return text


def _loopback(address: str) -> str:
    if not ipaddress.ip_address(address).is_loopback:
        raise ValueError(f"{address} is not a loopback address (127.0.0.0/8 or ::1)")
    return address


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _file(path: str) -> str:
    if not Path(path).is_file():
        raise ValueError(f"the file {path} does not exist")
    return path


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class EgressSettings:
    """Limits and identity of outgoing requests. `resolver` and `texts` are the blocking name
    lookups.
    """

    user_agent: Annotated[str, AfterValidator(_agent)] = (
        "tollgauge (x402 endpoint monitor; no contact configured)"
    )
    """User-Agent of probes. Include your name, a contact address and a way to opt out."""
    deadline_ms: PositiveInt = 10_000
    """Timeout for a whole request."""
    connect_deadline_ms: PositiveInt = 6_000
    """Timeout for connecting, including TLS."""
    dns_deadline_ms: PositiveInt = 6_000
    """Timeout for resolving a name. Resolvers retry after 5 seconds; a longer timeout tolerates one
    lost packet.
    """
    wire_cap: PositiveInt = 512 * 1_024
    """Maximum bytes read from the network."""
    header_cap: PositiveInt = 64 * 1_024
    """Maximum bytes of the response header."""
    body_cap: PositiveInt = 256 * 1_024
    """Maximum bytes kept of the decoded body."""
    max_in_flight: PositiveInt = 1_024
    """Maximum concurrent requests."""
    dns_threads: PositiveInt = 512
    """Maximum concurrent name lookups."""
    ports: frozenset[Annotated[int, Field(ge=1, le=65_535)]] = PUBLIC.ports
    """Ports allowed on public hosts."""
    mapped: Annotated[
        Mapping[str, tuple[Annotated[str, AfterValidator(_loopback)], int]],
        Field(examples=[{"api.example.com": ("127.0.0.1", 8443)}]),
    ] = field(default_factory=dict)
    """Host names mapped to this machine, for a closed test market. base_url must be loopback."""
    ca_file: Annotated[Annotated[str, AfterValidator(_file)] | None, Field(examples=["ca.pem"])] = (
        None
    )
    """File with CA certificates that replaces the default ones."""
    source_address: Annotated[
        Annotated[str, AfterValidator(_address)] | None, Field(examples=["192.0.2.7"])
    ] = None
    """Local address for outgoing requests, if this machine has several."""
    resolver: Lookup = system_lookup
    texts: TextLookup = system_texts

    @property
    def perimeter(self) -> Perimeter:
        """The addresses that core/endpoint/identity may accept beyond the public internet."""
        return Perimeter(ports=self.ports, mapped=frozenset(self.mapped))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. Header names are tokens, values are printable ASCII; egress sets User-Agent, Host,
    length and connection headers itself.

    `ends_body` receives each part of the response's body in a thread of egress, and returns whether
    the rest is not needed: a server may keep a stream of events open.
    """

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    ends_body: Callable[[bytes], bool] | None = None
