/** Bodies that report whether all of them came. */

/** How many bytes are read ahead, so that a short body is complete before it is read. */
const AHEAD = 65_536;

/** Is called once: with the body, which is empty unless it is kept, or null if it was cut. */
export type BodyEnd = (body: Uint8Array | null) => void;

/** A response with the same content, which calls `end`. */
export function watchResponse(answer: Response, end: BodyEnd, keepsBody: boolean): Response {
  const { status, statusText, headers, url, redirected, type } = answer;
  // There is no body, or it is one of another library's `fetch`, which cannot be watched.
  if (!(answer.body instanceof ReadableStream)) {
    end(new Uint8Array());
    return answer;
  }
  const body = watchStream(answer.body, end, keepsBody);
  const copy = new Response(body, { status, statusText, headers });
  const same = { url, redirected, type };
  for (const [name, value] of Object.entries(same)) Object.defineProperty(copy, name, { value });
  return copy;
}

/** A stream with the same content, which calls `end`. */
export function watchStream(
  body: ReadableStream<Uint8Array>,
  end: BodyEnd,
  keepsBody: boolean,
): ReadableStream<Uint8Array> {
  const chunks: Uint8Array[] = [];
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        try {
          const { done, value } = await reader.read();
          if (!done) {
            if (keepsBody) chunks.push(value);
            return controller.enqueue(value);
          }
          end(Buffer.concat(chunks));
          controller.close();
        } catch (error) {
          end(null);
          throw error;
        }
      },
      cancel: (reason) => {
        end(null);
        return reader.cancel(reason);
      },
    },
    new ByteLengthQueuingStrategy({ highWaterMark: AHEAD }),
  );
}
