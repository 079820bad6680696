"""Writes variants.json: URLs and the resources whose refusals they inherit, in the order in which
they are looked up. Run it again after a change of `variants` in tollgauge_guard.resource.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tollgauge_guard.resource import parse, variants

FILE: Final = Path(__file__).with_name("variants.json")
URLS: Final = (
    "https://api.example.com/pay",
    "https://api.example.com/pay/",
    "https://api.example.com/pay//",
    "https://api.example.com//pay",
    "https://api.example.com/PAY",
    "https://api.example.com/Pay/",
    "https://api.example.com/pay;x=1",
    "https://api.example.com/pay;",
    "https://api.example.com/v1;a=b/pay;x=1",
    "https://api.example.com/;x/pay",
    "https://api.example.com/pay?x=1",
    "https://api.example.com/%70%61y",
    "https://api.example.com/%2570ay",
    "https://api.example.com/pay%2F",
    "https://api.example.com/pay%2f",
    "https://api.example.com/v1%2Fpay",
    "https://api.example.com/pay%3Bx=1",
    "https://api.example.com/pay%3Fx=1",
    "https://api.example.com/pay%23x",
    "https://api.example.com/pay%252F",
    "https://api.example.com/pay%2F..",
    "https://api.example.com/a%2F..%2Fpay",
    "https://api.example.com/pay/.",
    "https://api.example.com/V1//Pay;x/%2F",
    "https://api.example.com/caf%C3%A9",
    "https://api.example.com/CAF\u00c9/",
    "https://api.example.com/",
    "https://api.example.com",
    "https://api.example.com//",
    "https://api.example.com/;x=1",
    "https://api.example.com:8443/Pay",
    "http://api.example.com/pay/",
    "http://127.0.0.1:8402/pay/",
    "mcp://tool/Weather",
)


def document() -> str:
    """The text of variants.json, one case per line."""
    cases = [[url, [variant.url for variant in variants(parse(url))]] for url in URLS]
    return "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n"


if __name__ == "__main__":
    FILE.write_text(document())
