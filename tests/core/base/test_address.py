"""The table of public addresses, against cases with a name each."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.address import address_class, literal_class

NOT_PUBLIC = {
    "0.0.0.0": "this-network",
    "10.0.0.1": "private",
    "100.64.0.1": "carrier-nat",
    "100.100.100.200": "carrier-nat",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "cloud-metadata",
    "169.254.169.254": "link-local",
    "169.254.170.2": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "protocol",
    "192.0.2.1": "documentation",
    "192.31.196.1": "anycast-sink",
    "192.52.193.1": "anycast-sink",
    "192.88.99.1": "6to4-relay",
    "192.168.255.255": "private",
    "192.175.48.1": "anycast-sink",
    "198.18.0.1": "benchmark",
    "198.19.255.255": "benchmark",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "not-global-unicast",
    "::1": "not-global-unicast",
    "::127.0.0.1": "not-global-unicast",
    "::ffff:127.0.0.1": "ipv4-embedded",
    "::ffff:8.8.8.8": "ipv4-embedded",
    "::ffff:0:127.0.0.1": "not-global-unicast",
    "64:ff9b::a9fe:a9fe": "not-global-unicast",
    "64:ff9b:1::7f00:1": "not-global-unicast",
    "100::1": "not-global-unicast",
    "2001::1": "protocol",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "protocol",
    "2001:2::1": "protocol",
    "2001:20::1": "protocol",
    "2001:db8::1": "documentation",
    "2002:7f00:1::": "6to4",
    "2620:4f:8000::1": "anycast-sink",
    "3fff::1": "documentation",
    "5f00::1": "not-global-unicast",
    "fc00::1": "not-global-unicast",
    "fd00:ec2::254": "not-global-unicast",
    "fe80::1": "not-global-unicast",
    "fe80::1%eth0": "link-local",
    "2606:4700::1111%1": "link-local",
    "fec0::1": "not-global-unicast",
    "ff02::1": "not-global-unicast",
}


@pytest.mark.parametrize(("text", "name"), NOT_PUBLIC.items())
def test_address_that_is_not_public_has_a_class(text: str, name: str) -> None:
    assert address_class(text) == name


@pytest.mark.parametrize(
    "text",
    [
        *("1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0"),
        *("169.253.255.255", "192.0.1.0", "198.17.255.255", "198.20.0.0", "223.255.255.255"),
        *("168.63.129.15", "2606:4700:4700::1111", "2a00:1450:4001::64", "2001:200::1", "2003::1"),
    ],
)
def test_neighbours_of_the_table_are_public(text: str) -> None:
    assert address_class(text) == "public"


@pytest.mark.parametrize(
    "text", ["", " 8.8.8.8", "8.8.8.8 ", "8.8.8", "08.8.8.8", "0x8.8.8.8", "a.com", "\u0668.8.8.8"]
)
def test_text_that_is_not_an_address_is_not_public(text: str) -> None:
    assert address_class(text) == "not-an-address"


@given(st.ip_addresses(v=4))
def test_table_is_never_laxer_than_the_standard_library(address: ipaddress.IPv4Address) -> None:
    if address_class(str(address)) == "public":
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=6))
def test_only_global_unicast_ipv6_is_public(address: ipaddress.IPv6Address) -> None:
    if address_class(str(address)) == "public":
        assert address in ipaddress.ip_network("2000::/3")
        assert address.is_global
        assert address.sixtofour is None
        assert address.teredo is None


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("8.8.8.8", "public"),
        ("127.0.0.1.", "loopback"),
        ("0x7f.1", "ambiguous-literal"),
        ("2130706433", "ambiguous-literal"),
        ("017700000001", "ambiguous-literal"),
        ("0x", "ambiguous-literal"),
        ("a.b.1", "ambiguous-literal"),
        ("::1", "not-global-unicast"),
    ],
)
def test_every_notation_of_an_address_is_a_literal(host: str, name: str) -> None:
    assert literal_class(host) == name


@pytest.mark.parametrize("host", ["a.com", "1.a", "0x7f.com", "1password.com", "a1"])
def test_name_is_not_a_literal(host: str) -> None:
    assert literal_class(host) is None
