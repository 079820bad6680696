// Each payment and each refusal is a span, which contains no query.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { trace } from "@opentelemetry/api";
import { wrapFetchWithPayment } from "@x402/fetch";
import { row } from "./support/bundles.mjs";
import { paying, refusal } from "./support/client.mjs";
import { PAYEE, seller, sells, THIEF } from "./support/seller.mjs";

const spans = [];
let shop;

before(async () => {
  const startActiveSpan = (name, work) => {
    const span = { name, attributes: {}, isEnded: false };
    spans.push(span);
    const setAttribute = (key, value) => (span.attributes[key] = value);
    return work({ setAttribute, end: () => (span.isEnded = true) });
  };
  trace.setGlobalTracerProvider({ getTracer: () => ({ startActiveSpan }) });
  shop = await seller({ "/good": sells(), "/moved": sells({ payTo: THIEF }) });
});
after(() => {
  trace.disable();
  shop.close();
});

test("payments and refusals are spans", async () => {
  const rows = ["/good", "/moved"].map((path) => row(shop.url + path, { payTo: [PAYEE] }));
  const { guard } = paying(rows);
  const pay = guard.fetch(wrapFetchWithPayment);
  const { handle } = guard.payment(await pay(`${shop.url}/good?key=secret`));
  assert.equal(await refusal(pay(`${shop.url}/moved?key=secret`)), "payto-unknown");
  const common = { "server.address": "127.0.0.1" };
  assert.deepEqual(spans, [
    {
      ...{ name: "tollgauge_guard.pay", isEnded: true },
      attributes: {
        ...{ ...common, "tollgauge.decision": "allow", "tollgauge.handle": handle },
        ...{ "tollgauge.network": "eip155:8453", "tollgauge.exposure": 1000 },
      },
    },
    {
      ...{ name: "tollgauge_guard.pay", isEnded: true },
      attributes: { ...common, "tollgauge.decision": "refuse", "tollgauge.code": "payto-unknown" },
    },
  ]);
});
