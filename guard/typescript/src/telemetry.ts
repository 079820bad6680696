/** OpenTelemetry spans around payments, if `@opentelemetry/api` is installed; without query or body. */

import { type Call, PaymentRefused } from "./call.js";
import { parseResource } from "./resource.js";

interface Span {
  setAttribute(name: string, value: string | number): unknown;
  end(): void;
}

interface Api {
  readonly trace: {
    getTracer(name: string): {
      startActiveSpan<T>(name: string, work: (span: Span) => Promise<T>): Promise<T>;
    };
  };
}

/** Is optional, so the compiler must not look for it. */
const API: string = "@opentelemetry/api";
const loaded: Promise<Api | null> = import(API).catch(() => null) as Promise<Api | null>;

/** Creates the payment of a call in a span. */
export async function inSpan<T>(call: Call, work: () => Promise<T>): Promise<T> {
  const api = await loaded;
  if (api === null) return work();
  return api.trace.getTracer("tollgauge_guard").startActiveSpan("tollgauge_guard.pay", async (span) => {
    try {
      return await work();
    } finally {
      for (const [name, value] of Object.entries(attributesOf(call))) {
        if (value !== null) span.setAttribute(name, value);
      }
      span.end();
    }
  });
}

function attributesOf({ url, attempt, sealed, refused }: Call): Record<string, string | number | null> {
  const isRefused = refused instanceof PaymentRefused;
  return {
    "server.address": parseResource(url)?.host ?? null,
    "tollgauge.decision": refused === null ? "allow" : "refuse",
    "tollgauge.code": isRefused ? refused.code : null,
    "tollgauge.handle": sealed?.handle ?? attempt?.handle ?? null,
    "tollgauge.network": attempt?.terms.network ?? null,
    "tollgauge.exposure": attempt === null ? null : Number(attempt.terms.exposure),
  };
}
