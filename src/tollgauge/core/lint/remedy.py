"""Remedy: how each web framework's x402 middleware writes what a rule asks for.

Rules with the same kind of fix share one remedy. Most fixes are a route's configuration, which is
the same for all frameworks of a language; a framework adds how it takes that. The options are those
of the published packages: @x402/* 2.27 (TypeScript), x402 2.25 (Python) and
github.com/x402-foundation/x402/go/v2 (Go). The code of the fixes is in fixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.lint import fixes


class Kind(StrEnum):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A web framework with a middleware for x402: the package that has it, the framework's
    language, and how it takes a `route`.
    """

    name: str
    package: str
    language: str
    install: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The fix of a kind of rules: its title, what to do in words, and the code by language or by
    framework.
    """

    title: str
    advice: str
    code: dict[str, str]

    def by_framework(self) -> Iterator[tuple[Framework, str]]:
        """Each framework with the code that it needs."""
        for framework in FRAMEWORKS:
            own = self.code.get(framework.name)
            yield framework, own or f"{self.code[framework.language]}\n\n{framework.install}"


FRAMEWORKS: Final = (
    Framework(
        name="Express",
        package="@x402/express",
        language="TypeScript",
        install='app.use(paymentMiddleware({ "GET /weather": route }, server));',
    ),
    Framework(
        name="Hono",
        package="@x402/hono",
        language="TypeScript",
        install='app.use(paymentMiddleware({ "GET /weather": route }, server));',
    ),
    Framework(
        name="Next.js",
        package="@x402/next",
        language="TypeScript",
        install="// app/weather/route.ts\nexport const GET = withX402(handler, route, server);",
    ),
    Framework(
        name="FastAPI",
        package="x402[fastapi]",
        language="Python",
        install='routes = {"GET /weather": route}\n'
        "app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)",
    ),
    Framework(
        name="Flask",
        package="x402[flask]",
        language="Python",
        install='PaymentMiddleware(app, {"GET /weather": route}, server)'
        "  # server: x402ResourceServerSync",
    ),
    Framework(
        name="Go (Gin)",
        package="github.com/x402-foundation/x402/go/v2/http/gin",
        language="Go",
        install="// net/http and Echo have packages with the same Config.\n"
        "r.Use(ginmw.X402Payment(ginmw.Config{\n"
        '\tRoutes:      x402http.RoutesConfig{"GET /weather": route},\n'
        "\tFacilitator: facilitator,\n"
        '\tSchemes:     []ginmw.SchemeConfig{{Network: "eip155:*", Server: '
        "evm.NewExactEvmScheme()}},\n"
        "}))",
    ),
)

REMEDIES: Final = {
    Kind.ORDER: Remedy(
        title="Let the payment middleware answer first",
        advice="An unpaid request has to reach the payment middleware before anything else can "
        "refuse or serve it: before logins, rate limits, redirects and the validation of the "
        "request. The route's key has to name the method and the path that are listed.",
        code=fixes.ORDER,
    ),
    Kind.ENVELOPE: Remedy(
        title="Let the middleware write the envelope",
        advice="The middlewares of version 2 write PAYMENT-REQUIRED themselves: one header, "
        "standard base64, the right version and members. Remove code that writes the header or "
        "the 402 by hand, replace packages of version 1 (x402-express, x402-hono, x402-next), and "
        "check that no proxy drops, repeats or rewraps the header.",
        code=fixes.ENVELOPE,
    ),
    Kind.HEADERS: Remedy(
        title="Send the headers beside the envelope",
        advice="The middlewares of version 2 send Cache-Control: no-store with the 402; a proxy or "
        "a CDN must not replace it. They send no CORS headers: those come from the framework, "
        "around the payment middleware, so that the 402 has them too.",
        code=fixes.HEADERS,
    ),
    Kind.BODY: Remedy(
        title="Mend the body for clients of version 1, or leave it empty",
        advice="Clients of version 2 read the header alone, so the default body, {}, is enough. "
        "Write a body of version 1 only if your server also settles payments of version 1, and "
        "make it from the same price and payTo as the route.",
        code=fixes.BODY,
    ),
    Kind.OPTION: Remedy(
        title="Set the payment option",
        advice="scheme, network, price, payTo and the timeout stand in each option of the route. "
        'From a price in dollars ("$0.01") the middleware computes the atomic amount of the '
        "network's default token.",
        code=fixes.OPTION,
    ),
    Kind.ASSET: Remedy(
        title="Name the token and its signature domain",
        advice="With a price in dollars the middleware takes the network's default token, with its "
        "address and its EIP-712 domain. For another token write the price as an amount of it, and "
        "the name and version of the domain exactly as the token's contract has them.",
        code=fixes.ASSET,
    ),
    Kind.SCHEME: Remedy(
        title="Register the scheme, and let the facilitator fill its terms in",
        advice="What a scheme needs in extra (the fee payer on Solana, the facilitator's address "
        "of upto, the terms of a channel or a capture) comes from the scheme's server class and "
        "from the facilitator's /supported. Register the class for the network, and take a "
        "facilitator that supports the scheme there.",
        code=fixes.SCHEME,
    ),
    Kind.RESOURCE: Remedy(
        title="Describe the resource",
        advice="Set resource to the public URL: left out, it is built from the request, and behind "
        "a proxy that names an internal host or http. The description is what agents choose by.",
        code=fixes.RESOURCE,
    ),
    Kind.DISCOVERY: Remedy(
        title="Declare the input for directories",
        advice="Declare an example of the input and of the output with the helper of the package: "
        "it writes info and schema so that they fit. The method comes from the route's key. Keep "
        "both short, because a payment echoes them in a header.",
        code=fixes.DISCOVERY,
    ),
}
"""The remedy of each kind."""
