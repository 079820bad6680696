/** OpenTelemetry spans around payments, if `@opentelemetry/api` is installed; without query or body. */

import { type Call, PaymentRefused } from "./call.js";
import { parseResource } from "./resource.js";

interface Span {
  setAttribute(name: string, value: string | number): unknown;
  end(): void;
}

interface Tracer {
  startActiveSpan<T>(name: string, work: (span: Span) => Promise<T>): Promise<T>;
}

interface Api {
  readonly trace: { getTracer(name: string): Tracer };
}

/** Is optional, so the compiler must not look for it. */
const API: string = "@opentelemetry/api";
/** Forwards to the provider that the program registers, also to one that it registers later. */
const loaded: Promise<Tracer | null> = (import(API) as Promise<Api>).then(
  ({ trace }) => trace.getTracer("tollgauge_guard"),
  () => null,
);

/** Creates the payment of a call in a span. */
export async function inSpan<T>(call: Call, work: () => Promise<T>): Promise<T> {
  const tracer = await loaded;
  if (tracer === null) return work();
  return tracer.startActiveSpan("tollgauge_guard.pay", async (span) => {
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
