"""Site: what tells unrelated hosts apart.

Hosts of one registrable domain are one site: `api.shop.co.uk` and `www.shop.co.uk` belong to
`shop.co.uk`. The public suffix list (https://publicsuffix.org, in the package publicsuffixlist)
says what can be registered, its private part included: two shops of `vercel.app` are two sites.
"""

from __future__ import annotations

from functools import cache, lru_cache

from publicsuffixlist import PublicSuffixList


@lru_cache(maxsize=16_384)
def site(host: str) -> str:
    """The site of a host, in lower case. An address, and a host that is itself a public suffix, is
    a site of its own.
    """
    name = host.lower().rstrip(".")
    is_address = ":" in name or name.rpartition(".")[2].isdecimal()
    return name if is_address else _suffixes().privatesuffix(name) or name


@cache
def _suffixes() -> PublicSuffixList:
    """The list, read when it is first needed: that takes a tenth of a second."""
    return PublicSuffixList()
