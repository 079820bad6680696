/** Bodies that tell whether all of them came. */

/** How many bytes are read ahead, so that a short body is complete before it is read. */
const AHEAD = 65_536;

/** A response with the same content, which calls `end` once: whether all of the body came. */
export function watchResponse(answer: Response, end: (isComplete: boolean) => void): Response {
  const { status, statusText, headers, url, redirected, type } = answer;
  // There is no body, or it is one of another library's `fetch`, which cannot be watched.
  if (!(answer.body instanceof ReadableStream)) {
    end(true);
    return answer;
  }
  const copy = new Response(watchStream(answer.body, end), { status, statusText, headers });
  const same = { url, redirected, type };
  for (const [name, value] of Object.entries(same)) Object.defineProperty(copy, name, { value });
  return copy;
}

/** A stream with the same content, which calls `end` once. */
export function watchStream(
  body: ReadableStream<Uint8Array>,
  end: (isComplete: boolean) => void,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        try {
          const { done, value } = await reader.read();
          if (!done) return controller.enqueue(value);
          end(true);
          controller.close();
        } catch (error) {
          end(false);
          throw error;
        }
      },
      cancel: (reason) => {
        end(false);
        return reader.cancel(reason);
      },
    },
    new ByteLengthQueuingStrategy({ highWaterMark: AHEAD }),
  );
}
