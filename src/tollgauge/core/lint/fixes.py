"""Fixes: the code of the remedies, by language, or by framework where that makes the difference."""

from __future__ import annotations

from textwrap import dedent
from typing import Final


def _code(**texts: str) -> dict[str, str]:
    """Code by the name of a language or a framework, without the indentation of this file."""
    return {_NAMES.get(name, name): dedent(text).strip("\n") for name, text in texts.items()}


_NAMES: Final = {"NextJs": "Next.js", "Gin": "Go (Gin)"}

ORDER: Final = _code(
    Express="""
        app.use(paymentMiddleware({ "GET /weather": route }, server));  // first
        app.use(rateLimit);                                             // then the others
        app.get("/weather", validate, handler);
        """,
    Hono="""
        app.use(paymentMiddleware({ "GET /weather": route }, server));  // first
        app.use(rateLimit);                                             // then the others
        app.get("/weather", validate, handler);
        """,
    NextJs="""
        // app/weather/route.ts: withX402 answers 402 before it calls the handler, so validate
        // inside the handler, and leave the path out of the logins and redirects of proxy.ts.
        export const GET = withX402(handler, route, server);
        """,
    FastAPI="""
        routes = {"GET /weather": route}
        app.add_middleware(ApiKeys)
        # The middleware that is added last runs first, before the request is validated.
        app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)
        """,
    Flask="""
        app.wsgi_app = ApiKeys(app.wsgi_app)
        # It wraps the whole application: what wraps it before runs after it, and so do
        # before_request functions.
        PaymentMiddleware(app, {"GET /weather": route}, server)
        """,
    Gin="""
        r.Use(payments)  // ginmw.X402Payment(...) first
        r.Use(apiKeys)   // then the others
        r.GET("/weather", handler)
        """,
)

ENVELOPE: Final = _code(
    TypeScript="""
        const facilitator = new HTTPFacilitatorClient({ url: facilitatorUrl });
        const server = new x402ResourceServer(facilitator)
          .register("eip155:8453", new ExactEvmScheme());
        const route = {
          accepts: [{ scheme: "exact", network: "eip155:8453", price: "$0.01", payTo }],
        };
        """,
    Python="""
        facilitator = HTTPFacilitatorClient(FacilitatorConfig(url=facilitator_url))
        server = x402ResourceServer(facilitator)
        server.register("eip155:8453", ExactEvmServerScheme())
        option = PaymentOption(scheme="exact", network="eip155:8453", price="$0.01", pay_to=pay_to)
        route = RouteConfig(accepts=option)
        """,
    Go="""
        facilitator := x402http.NewHTTPFacilitatorClient(
        \t&x402http.FacilitatorConfig{URL: facilitatorURL},
        )
        route := x402http.RouteConfig{
        \tAccepts: x402http.PaymentOptions{
        \t\t{Scheme: "exact", Network: "eip155:8453", Price: "$0.01", PayTo: payTo},
        \t},
        }
        """,
)

HEADERS: Final = _code(
    Express="""
        // package cors, before the payment middleware
        app.use(cors({ exposedHeaders: ["PAYMENT-REQUIRED", "PAYMENT-RESPONSE"] }));
        app.use(paymentMiddleware({ "GET /weather": route }, server));
        """,
    Hono="""
        // hono/cors, before the payment middleware
        const exposeHeaders = ["PAYMENT-REQUIRED", "PAYMENT-RESPONSE"];
        app.use(cors({ origin: "*", exposeHeaders }));
        app.use(paymentMiddleware({ "GET /weather": route }, server));
        """,
    NextJs="""
        // next.config.js
        const exposed = "PAYMENT-REQUIRED, PAYMENT-RESPONSE";
        export default {
          headers: async () => [
            {
              source: "/weather",
              headers: [
                { key: "Access-Control-Allow-Origin", value: "*" },
                { key: "Access-Control-Expose-Headers", value: exposed },
              ],
            },
          ],
        };
        """,
    FastAPI="""
        app.add_middleware(PaymentMiddlewareASGI, routes=routes, server=server)
        # Added last: it is around the payment middleware, so that the 402 has its headers.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=["*"],
            expose_headers=["PAYMENT-REQUIRED", "PAYMENT-RESPONSE"],
        )
        """,
    Flask="""
        PaymentMiddleware(app, {"GET /weather": route}, server)
        paid = app.wsgi_app  # Flask's after_request does not see the 402


        def with_cors(environ, start_response):
            cors = [
                ("Access-Control-Allow-Origin", "*"),
                ("Access-Control-Expose-Headers", "PAYMENT-REQUIRED, PAYMENT-RESPONSE"),
            ]

            def start(status, headers, exc_info=None):
                return start_response(status, [*headers, *cors], exc_info)

            return paid(environ, start)


        app.wsgi_app = with_cors
        """,
    Gin="""
        // github.com/gin-contrib/cors, before the payment middleware
        r.Use(cors.New(cors.Config{
        \tAllowAllOrigins: true,
        \tAllowMethods:    []string{"GET"},
        \tExposeHeaders:   []string{"PAYMENT-REQUIRED", "PAYMENT-RESPONSE"},
        }))
        r.Use(payments)
        """,
)

BODY: Final = _code(
    TypeScript="""
        const offer = {
          scheme: "exact",
          network: "base",
          maxAmountRequired: "10000",
          resource: "https://api.example.com/weather",
          description: "Current weather of any city",
          mimeType: "application/json",
          payTo,
          maxTimeoutSeconds: 60,
          asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
          extra: { name: "USD Coin", version: "2" },
        };
        const route = {
          accepts: [{ scheme: "exact", network: "eip155:8453", price: "$0.01", payTo }],
          unpaidResponseBody: () => ({  // leave it out if you settle version 2 alone
            contentType: "application/json",
            body: { x402Version: 1, error: "Payment required", accepts: [offer] },
          }),
        };
        """,
    Python="""
        offer = {
            "scheme": "exact",
            "network": "base",
            "maxAmountRequired": "10000",
            "resource": "https://api.example.com/weather",
            "description": "Current weather of any city",
            "mimeType": "application/json",
            "payTo": pay_to,
            "maxTimeoutSeconds": 60,
            "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
            "extra": {"name": "USD Coin", "version": "2"},
        }
        option = PaymentOption(scheme="exact", network="eip155:8453", price="$0.01", pay_to=pay_to)
        route = RouteConfig(
            accepts=option,
            # leave it out if you settle version 2 alone
            unpaid_response_body=lambda context: HTTPResponseBody(
                content_type="application/json",
                body={"x402Version": 1, "error": "Payment required", "accepts": [offer]},
            ),
        )
        """,
    Go="""
        route := x402http.RouteConfig{
        \tAccepts: x402http.PaymentOptions{
        \t\t{Scheme: "exact", Network: "eip155:8453", Price: "$0.01", PayTo: payTo},
        \t},
        \t// UnpaidResponseBody is left out: the body is empty, and clients read the header.
        }
        """,
)

OPTION: Final = _code(
    TypeScript="""
        const route = {
          accepts: [
            {
              scheme: "exact",
              network: "eip155:8453",  // Base
              price: "$0.01",
              payTo: "0xYourAddress",  // your own account on this network
              maxTimeoutSeconds: 60,
            },
          ],
        };
        """,
    Python="""
        route = RouteConfig(
            accepts=[
                PaymentOption(
                    scheme="exact",
                    network="eip155:8453",  # Base
                    price="$0.01",
                    pay_to="0xYourAddress",  # your own account on this network
                    max_timeout_seconds=60,
                ),
            ],
        )
        """,
    Go="""
        route := x402http.RouteConfig{
        \tAccepts: x402http.PaymentOptions{
        \t\t{
        \t\t\tScheme:            "exact",
        \t\t\tNetwork:           "eip155:8453", // Base
        \t\t\tPrice:             "$0.01",
        \t\t\tPayTo:             "0xYourAddress", // your own account on this network
        \t\t\tMaxTimeoutSeconds: 60,
        \t\t},
        \t},
        }
        """,
)

ASSET: Final = _code(
    TypeScript="""
        const price = {  // or "$0.01" for the network's default token
          asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
          amount: "10000",
          extra: { name: "USD Coin", version: "2" },
        };
        const route = {
          accepts: [{ scheme: "exact", network: "eip155:8453", price, payTo }],
        };
        """,
    Python="""
        price = AssetAmount(  # or "$0.01" for the network's default token
            asset="0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
            amount="10000",
            extra={"name": "USD Coin", "version": "2"},
        )
        option = PaymentOption(scheme="exact", network="eip155:8453", price=price, pay_to=pay_to)
        route = RouteConfig(accepts=option)
        """,
    Go="""
        price := map[string]interface{}{ // or "$0.01" for the network's default token
        \t"asset":  "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
        \t"amount": "10000",
        \t"extra":  map[string]interface{}{"name": "USD Coin", "version": "2"},
        }
        route := x402http.RouteConfig{
        \tAccepts: x402http.PaymentOptions{
        \t\t{Scheme: "exact", Network: "eip155:8453", Price: price, PayTo: payTo},
        \t},
        }
        """,
)

SCHEME: Final = _code(
    TypeScript="""
        // @x402/evm/upto/server, @x402/evm/batch-settlement/server, @x402/svm/exact/server, ...
        server.register("eip155:8453", new UptoEvmScheme());
        const route = {
          accepts: [{ scheme: "upto", network: "eip155:8453", price: "$0.05", payTo }],
        };
        """,
    Python="""
        # x402.mechanisms.evm.upto.server, x402.mechanisms.svm.exact.server, ...
        server.register("eip155:8453", UptoEvmScheme())
        option = PaymentOption(scheme="upto", network="eip155:8453", price="$0.05", pay_to=pay_to)
        route = RouteConfig(accepts=option)
        """,
    Go="""
        // Add the scheme's own server (mechanisms/evm/upto/server, mechanisms/svm/exact/server)
        // to Schemes below, and name it in the route.
        route := x402http.RouteConfig{
        \tAccepts: x402http.PaymentOptions{
        \t\t{Scheme: "upto", Network: "eip155:8453", Price: "$0.05", PayTo: payTo},
        \t},
        }
        """,
)

RESOURCE: Final = _code(
    TypeScript="""
        const route = {
          accepts: [{ scheme: "exact", network: "eip155:8453", price: "$0.01", payTo }],
          resource: "https://api.example.com/weather",
          description: "Current weather of any city",
          mimeType: "application/json",
          serviceName: "Example Weather",
          tags: ["weather", "forecast"],
          iconUrl: "https://api.example.com/icon.png",
        };
        """,
    Python="""
        option = PaymentOption(scheme="exact", network="eip155:8453", price="$0.01", pay_to=pay_to)
        route = RouteConfig(
            accepts=option,
            resource="https://api.example.com/weather",
            description="Current weather of any city",
            mime_type="application/json",
            service_name="Example Weather",
            tags=["weather", "forecast"],
            icon_url="https://api.example.com/icon.png",
        )
        """,
    Go="""
        route := x402http.RouteConfig{
        \tAccepts: x402http.PaymentOptions{
        \t\t{Scheme: "exact", Network: "eip155:8453", Price: "$0.01", PayTo: payTo},
        \t},
        \tResource:    "https://api.example.com/weather",
        \tDescription: "Current weather of any city",
        \tMimeType:    "application/json",
        }
        """,
)

DISCOVERY: Final = _code(
    TypeScript="""
        // @x402/extensions/bazaar; a POST adds bodyType: "json"
        const route = {
          accepts: [{ scheme: "exact", network: "eip155:8453", price: "$0.01", payTo }],
          extensions: {
            ...declareDiscoveryExtension({
              input: { city: "Paris" },
              inputSchema: { properties: { city: { type: "string" } }, required: ["city"] },
              output: { example: { city: "Paris", sky: "fog" } },
            }),
          },
        };
        """,
    Python="""
        # x402.extensions.bazaar; a POST adds body_type="json"
        option = PaymentOption(scheme="exact", network="eip155:8453", price="$0.01", pay_to=pay_to)
        route = RouteConfig(
            accepts=option,
            extensions=declare_discovery_extension(
                input={"city": "Paris"},
                input_schema={"properties": {"city": {"type": "string"}}, "required": ["city"]},
                output=OutputConfig(example={"city": "Paris", "sky": "fog"}),
            ),
        )
        """,
    Go="""
        // go/v2/extensions/bazaar and go/v2/extensions/types; a POST names its body type
        discovery, _ := bazaar.DeclareDiscoveryExtension(
        \tbazaar.MethodGET,
        \tmap[string]interface{}{"city": "Paris"},
        \ttypes.JSONSchema{
        \t\t"properties": map[string]interface{}{
        \t\t\t"city": map[string]interface{}{"type": "string"},
        \t\t},
        \t\t"required": []string{"city"},
        \t},
        \t"",
        \t&types.OutputConfig{Example: map[string]interface{}{"sky": "fog"}},
        )
        route := x402http.RouteConfig{
        \tAccepts: x402http.PaymentOptions{
        \t\t{Scheme: "exact", Network: "eip155:8453", Price: "$0.01", PayTo: payTo},
        \t},
        \tExtensions: map[string]interface{}{types.BAZAAR.Key(): discovery},
        }
        """,
)
