"""Hosts of one registrable domain are one site."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.endpoint.identity import site


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("api.shop.com", "shop.com"),
        ("A.B.Shop.COM.", "shop.com"),
        ("api.shop.co.uk", "shop.co.uk"),
        ("api.shop.vercel.app", "shop.vercel.app"),
        ("vercel.app", "vercel.app"),
        ("www.xn--55qw42g.cn", "xn--55qw42g.cn"),
        ("api.site-1.example", "site-1.example"),
        ("localhost", "localhost"),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("", ""),
    ],
)
def test_site_is_the_registrable_domain(host: str, expected: str) -> None:
    assert site(host) == expected


@given(st.text(alphabet="ab.-é:0", max_size=12))
def test_site_is_the_end_of_its_host(host: str) -> None:
    name = site(host)
    assert host.lower().rstrip(".").endswith(name)
    assert site(name) == name
