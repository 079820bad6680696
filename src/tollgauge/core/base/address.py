"""Classes of IP addresses, and which of them are public.

This table replaces `ipaddress.is_global`, which accepts NAT64, 6to4, multicast and cloud metadata
addresses. IPv6 is public only inside 2000::/3 and outside the deny list; an address that embeds an
IPv4 address is never public.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_V4: Final = tuple(
    (ipaddress.IPv4Network(net), name)
    for net, name in (
        ("0.0.0.0/8", "this-network"),  # RFC 1122
        ("10.0.0.0/8", "private"),  # RFC 1918
        ("100.64.0.0/10", "carrier-nat"),  # RFC 6598; contains Alibaba's metadata address
        ("127.0.0.0/8", "loopback"),  # RFC 1122
        ("168.63.129.16/32", "cloud-metadata"),  # Azure's wire server
        ("169.254.0.0/16", "link-local"),  # RFC 3927; contains the metadata address
        ("172.16.0.0/12", "private"),  # RFC 1918
        ("192.0.0.0/24", "protocol"),  # RFC 6890; contains Oracle's metadata address
        ("192.0.2.0/24", "documentation"),  # RFC 5737
        ("192.31.196.0/24", "anycast-sink"),  # RFC 7535
        ("192.52.193.0/24", "anycast-sink"),  # RFC 7450
        ("192.88.99.0/24", "6to4-relay"),  # RFC 7526
        ("192.168.0.0/16", "private"),  # RFC 1918
        ("192.175.48.0/24", "anycast-sink"),  # RFC 7534
        ("198.18.0.0/15", "benchmark"),  # RFC 2544
        ("198.51.100.0/24", "documentation"),  # RFC 5737
        ("203.0.113.0/24", "documentation"),  # RFC 5737
        ("224.0.0.0/4", "multicast"),  # RFC 5771
        ("240.0.0.0/4", "reserved"),  # RFC 1112, and broadcast
    )
)

_V6: Final = tuple(
    (ipaddress.IPv6Network(net), name)
    for net, name in (
        ("2001::/23", "protocol"),  # RFC 2928; contains Teredo, ORCHID and benchmarking
        ("2001:db8::/32", "documentation"),  # RFC 3849
        ("2002::/16", "6to4"),  # RFC 3056
        ("2620:4f:8000::/48", "anycast-sink"),  # RFC 7534
        ("3fff::/20", "documentation"),  # RFC 9637
    )
)
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # RFC 4291
_NUMERIC_LABEL: Final = re.compile(r"0x[0-9a-f]*|[0-9]+", re.ASCII)


def address_class(text: str) -> str:
    """Return `public`, or the name of the class that makes an address not public.

    `text` is an address in the notation of `inet_ntop`; any other text is `not-an-address`, and a
    scoped IPv6 address is `link-local`.
    """
    if "%" in text:
        return "link-local"
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "not-an-address"
    if isinstance(address, ipaddress.IPv4Address):
        return next((name for net, name in _V4 if address in net), "public")
    if address.ipv4_mapped is not None:
        return "ipv4-embedded"
    if address not in _GLOBAL_UNICAST:
        return "not-global-unicast"
    return next((name for net, name in _V6 if address in net), "public")


def literal_class(host: str) -> str | None:
    """Return the class of a host that a parser may read as an address; None for a name.

    A host whose last label is a number is an address according to the WHATWG URL standard and to
    `inet_aton`: decimal, octal, hexadecimal, short and dotted forms alike.
    """
    bare = host.removesuffix(".").lower()
    if ":" in bare:
        return address_class(bare)
    if not _NUMERIC_LABEL.fullmatch(bare.rsplit(".", 1)[-1]):
        return None
    name = address_class(bare)
    return "ambiguous-literal" if name == "not-an-address" else name
