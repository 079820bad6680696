"""Writes resources.json: texts and their canonical resource as the service computes it (null for
invalid URLs). Run it again after a change of the rules in src/tollgauge/core/endpoint/identity.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tollgauge.core.endpoint.identity import ResourceError, parse_resource

FILE: Final = Path(__file__).with_name("resources.json")
ACCEPTED: Final = (
    "https://api.example.com",
    "https://api.example.com/",
    "HTTPS://API.Example.COM/Path",
    "https://api.example.com:443/v1",
    "https://api.example.com:0443/v1",
    "https://api.example.com:/v1",
    "https://api.example.com./v1",
    "https://api.example.com/v1?q=1",
    "https://api.example.com/v1?q=1#top",
    "https://api.example.com/v1#top",
    "https://api.example.com?q=1",
    "https://api.example.com/v1/",
    "https://api.example.com/a//b",
    "https://api.example.com//",
    "https://api.example.com/a/./b",
    "https://api.example.com/a/../b",
    "https://api.example.com/a/..",
    "https://api.example.com/a/.",
    "https://api.example.com/../..",
    "https://api.example.com/a/../../b/",
    "https://api.example.com/a//../b",
    "https://api.example.com/...",
    "https://api.example.com/.well-known/x402",
    "https://api.example.com/%2e%2e/a",
    "https://api.example.com/a/%2E%2e/b",
    "https://api.example.com/a/%2e",
    "https://api.example.com/a/.%2e/b",
    "https://api.example.com/%7euser",
    "https://api.example.com/%7Euser/%41%2d%5F",
    "https://api.example.com/%2f%2F",
    "https://api.example.com/%c3%a9",
    "https://api.example.com/%C3%A9",
    "https://api.example.com/é",
    "https://api.example.com/e\u0301",
    "https://api.example.com/日本/🙂",
    "https://api.example.com/100%",
    "https://api.example.com/%zz",
    "https://api.example.com/%2",
    "https://api.example.com/%%41",
    "https://api.example.com/%2541",
    "https://api.example.com/%00%0a%20",
    "https://api.example.com/a;b=1,2",
    "https://api.example.com/a:b@c!$&'()*+",
    'https://api.example.com/"<>^`{|}[]',
    "https://api.example.com/{id}/:name",
    "https://a_b.example.com/",
    "https://-a-.example.com/",
    "https://xn--bcher-kva.example.com/",
    "https://XN--BCHER-KVA.example.com/",
    "https://bücher.example.com/",
    "https://BÜCHER.example.com/",
    "https://bu\u0308cher.example.com/",
    "https://straße.example.com/",
    "https://βόλος.example.com/",
    "https://日本語.example.com/",
    "https://api．example。com/",
    "https://ａｐｉ.example.com/",
    "https://a.b.c.d.example.com/",
)
REFUSED: Final = (
    "",
    "api.example.com/v1",
    "//api.example.com/v1",
    "/v1",
    "https:",
    "https://",
    "https:///v1",
    "https:api.example.com/v1",
    "https:/api.example.com/v1",
    "ftp://api.example.com/",
    "javascript:alert(1)",
    "https://user@api.example.com/",
    "https://user:word@api.example.com/",
    "https://@api.example.com/",
    "https://api.example.com../",
    "https://api.example%2ecom/",
    "https://api.example.com:99999/",
    "https://api.example.com:x/",
    "https://api.example.com:-1/",
    "https://api.example.com\\@evil.example.net/",
    " https://api.example.com/",
    "https://api.example.com/ ",
    "https://api.example.com/a b",
    "https://api.example.com/a\tb",
    "https://api.example.com/\n",
    "https://api.exam\u00adple.com/",
    "https://api.example.com/\u200b",
    "https://api.example.com/\u3000",
    "https://xn--.example.com/",
)


def resource(url: str) -> str | None:
    """The canonical resource of a URL."""
    try:
        return parse_resource(url).url
    except ResourceError:
        return None


def document() -> str:
    """The text of resources.json, one case a line."""
    cases = [[url, resource(url)] for url in (*ACCEPTED, *REFUSED)]
    return "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n"


if __name__ == "__main__":
    FILE.write_text(document())
