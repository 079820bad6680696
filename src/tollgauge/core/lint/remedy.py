"""Remedy: how each web framework's x402 middleware writes what a rule asks for.

Rules with the same kind of fix share one remedy. Most fixes are a route's configuration, which is
the same for all frameworks of a language; `fixes/install` shows how a framework takes it. The
options are those of the published packages: @x402/* 2.27 (TypeScript), x402 2.25 (Python) and
github.com/x402-foundation/x402/go/v2 (Go).

The code is in `fixes`, in one folder for each kind, and in each folder one file for each language,
or for each framework if frameworks differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Final


class RemedyKind(StrEnum):
    """What has to be changed to mend a rule."""

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
    """A web framework with a middleware for x402. `file` is the stem of its files in `fixes`."""

    name: str
    package: str
    language: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The fix of a kind of rules: its title, and what to do in words."""

    kind: RemedyKind
    title: str
    advice: str

    def by_framework(self) -> Iterator[tuple[Framework, str]]:
        """Each framework with the code that it needs."""
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
        title="Let the payment middleware answer first",
        advice="An unpaid request has to reach the payment middleware before anything else can "
        "refuse or serve it: before logins, rate limits, redirects and the validation of the "
        "request. The route's key has to name the method and the path that are listed.",
    ),
    Remedy(
        kind=RemedyKind.ENVELOPE,
        title="Let the middleware write the envelope",
        advice="The middlewares of version 2 write PAYMENT-REQUIRED themselves: one header, "
        "standard base64, the right version and members. Remove code that writes the header or "
        "the 402 by hand, replace packages of version 1 (x402-express, x402-hono, x402-next), and "
        "check that no proxy drops, repeats or rewraps the header.",
    ),
    Remedy(
        kind=RemedyKind.HEADERS,
        title="Send the headers beside the envelope",
        advice="The middlewares of version 2 send Cache-Control: no-store with the 402; a proxy or "
        "a CDN must not replace it. They send no CORS headers: those come from the framework, "
        "around the payment middleware, so that the 402 has them too.",
    ),
    Remedy(
        kind=RemedyKind.BODY,
        title="Mend the body for clients of version 1, or leave it empty",
        advice="Clients of version 2 read the header alone, so the default body, {}, is enough. "
        "Write a body of version 1 only if your server also settles payments of version 1, and "
        "make it from the same price and payTo as the route.",
    ),
    Remedy(
        kind=RemedyKind.OPTION,
        title="Set the payment option",
        advice="scheme, network, price, payTo and the timeout stand in each option of the route. "
        'From a price in dollars ("$0.01") the middleware computes the atomic amount of the '
        "network's default token.",
    ),
    Remedy(
        kind=RemedyKind.ASSET,
        title="Name the token and its signature domain",
        advice="With a price in dollars the middleware takes the network's default token, with its "
        "address and its EIP-712 domain. For another token write the price as an amount of it, and "
        "the name and version of the domain exactly as the token's contract has them.",
    ),
    Remedy(
        kind=RemedyKind.SCHEME,
        title="Register the scheme, and let the facilitator fill its terms in",
        advice="What a scheme needs in extra (the fee payer on Solana, the facilitator's address "
        "of upto, the terms of a channel or a capture) comes from the scheme's server class and "
        "from the facilitator's /supported. Register the class for the network, and take a "
        "facilitator that supports the scheme there.",
    ),
    Remedy(
        kind=RemedyKind.RESOURCE,
        title="Describe the resource",
        advice="Set resource to the public URL: left out, it is built from the request, and behind "
        "a proxy that names an internal host or http. The description is what agents choose by.",
    ),
    Remedy(
        kind=RemedyKind.DISCOVERY,
        title="Declare the input for directories",
        advice="Declare an example of the input and of the output with the helper of the package: "
        "it writes info and schema so that they fit. The method comes from the route's key. Keep "
        "both short, because a payment echoes them in a header.",
    ),
)
REMEDIES: Final = {remedy.kind: remedy for remedy in _ALL}
