"""Fixes for the findings, as code for each web framework with x402 middleware.

Rules with the same kind of fix share one remedy. Most fixes are a route's configuration, which is
the same for all frameworks of a language; `fixes/install` shows how a framework uses it. The
options are those of the published packages: @x402/* 2.27 (TypeScript), x402 2.25 (Python) and
github.com/x402-foundation/x402/go/v2 (Go).

The code is in `fixes`: a folder per kind, with a file per language, or per framework if frameworks
differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Final


class RemedyKind(StrEnum):
    """The part of a server that the fix of a rule changes."""

    ORDER = "order"
    ENVELOPE = "envelope"
    HEADERS = "headers"
    BODY = "body"
    OPTION = "option"
    ASSET = "asset"
    SCHEME = "scheme"
    RESOURCE = "resource"
    DISCOVERY = "discovery"


@dataclass(frozen=True, slots=True)
class Framework:
    """A web framework with x402 middleware. `file` is the stem of its files in `fixes`."""

    name: str
    package: str
    language: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The fix for a kind of rules: its title, and instructions."""

    kind: RemedyKind
    title: str
    advice: str

    def by_framework(self) -> Iterator[tuple[Framework, str]]:
        """Yield each framework with its code."""
        code, install = _read_folder(self.kind), _read_folder("install")
        for framework in FRAMEWORKS:
            own = code.get(framework.file)
            if own is None:
                own = f"{code[framework.language.lower()]}\n\n{install[framework.file]}"
            yield framework, own


@cache
def _read_folder(name: str) -> Mapping[str, str]:
    """Return the code in a folder of `fixes` by the stem of its file."""
    files = resources.files("tollgauge.core.lint").joinpath("fixes", name).iterdir()
    return {
        file.name.split(".")[0]: file.read_text(encoding="utf-8").rstrip("\n") for file in files
    }


_GIN: Final = "github.com/x402-foundation/x402/go/v2/http/gin"
FRAMEWORKS: Final = (
    Framework("Express", "@x402/express", "TypeScript", "express"),
    Framework("Hono", "@x402/hono", "TypeScript", "hono"),
    Framework("Next.js", "@x402/next", "TypeScript", "next"),
    Framework("FastAPI", "x402[fastapi]", "Python", "fastapi"),
    Framework("Flask", "x402[flask]", "Python", "flask"),
    Framework("Go (Gin)", _GIN, "Go", "gin"),
)

_ALL: Final = (
    Remedy(
        kind=RemedyKind.ORDER,
        title="Run the payment middleware first",
        advice="An unpaid request must reach the payment middleware before other code can refuse "
        "or serve it: before logins, rate limits, redirects and request validation. The route's "
        "key must contain the listed method and path.",
    ),
    Remedy(
        kind=RemedyKind.ENVELOPE,
        title="Let the middleware write the envelope",
        advice="Version 2 middleware writes PAYMENT-REQUIRED itself: one header, standard base64, "
        "the right version and members. Remove code that writes the header or the 402 by hand, "
        "replace version 1 packages (x402-express, x402-hono, x402-next), and make sure that no "
        "proxy drops, repeats or rewraps the header.",
    ),
    Remedy(
        kind=RemedyKind.HEADERS,
        title="Send the other headers of the 402",
        advice="Version 2 middleware sends Cache-Control: no-store with the 402; a proxy or a CDN "
        "must not replace it. It does not send CORS headers. Add them with the framework's CORS "
        "middleware, outside the payment middleware, so that the 402 has them too.",
    ),
    Remedy(
        kind=RemedyKind.BODY,
        title="Fix the body for version 1 clients, or leave it empty",
        advice="Version 2 clients read only the header, so the default body, {}, is sufficient. "
        "Write a version 1 body only if your server also settles version 1 payments, and build it "
        "from the route's price and payTo.",
    ),
    Remedy(
        kind=RemedyKind.OPTION,
        title="Set the payment option",
        advice="Each option of the route has a scheme, network, price, payTo and timeout. "
        'From a price in dollars ("$0.01") the middleware computes the atomic amount of the '
        "network's default token.",
    ),
    Remedy(
        kind=RemedyKind.ASSET,
        title="Set the token and its signature domain",
        advice="With a price in dollars the middleware uses the network's default token, with its "
        "address and its EIP-712 domain. For another token, write the price as an amount of that "
        "token, and copy the name and version of the domain from its contract.",
    ),
    Remedy(
        kind=RemedyKind.SCHEME,
        title="Register the scheme, and let the facilitator fill in its terms",
        advice="The members of extra that a scheme requires (the fee payer on Solana, the "
        "facilitator's address of upto, the terms of a channel or a capture) come from the "
        "scheme's server class and from the facilitator's /supported. Register the class for the "
        "network, and use a facilitator that supports the scheme there.",
    ),
    Remedy(
        kind=RemedyKind.RESOURCE,
        title="Describe the resource",
        advice="Set resource to the public URL. Otherwise it is built from the request, which "
        "contains an internal host or http behind a proxy. Agents select resources by their "
        "description.",
    ),
    Remedy(
        kind=RemedyKind.DISCOVERY,
        title="Declare the input for directories",
        advice="Declare an example of the input and of the output with the package's helper: it "
        "writes a matching info and schema. The method comes from the route's key. Keep both "
        "short, because a payment returns them in a header.",
    ),
)
REMEDIES: Final = {remedy.kind: remedy for remedy in _ALL}
