/** One zstd frame (RFC 8878) to its content, with a limit that is checked before any work. */

import { Decompress } from "fzstd";

const MAGIC = 0xfd2fb528;

/**
 * The content of one zstd frame that declares its size.
 * Throws RangeError for a frame that declares more than `limit` bytes or needs a larger window, and
 * Error for one that is broken, declares no size, or has another size than it declares.
 */
export function decompress(frame: Uint8Array, limit: number): Buffer {
  const size = contentSize(frame, limit);
  const content = Buffer.alloc(size);
  let filled = 0;
  const stream = new Decompress((chunk) => {
    if (filled + chunk.length > size) throw new Error("The zstd frame is longer than it declares.");
    content.set(chunk, filled);
    filled += chunk.length;
  });
  stream.push(frame, true);
  if (filled !== size) throw new Error("The zstd frame is shorter than it declares.");
  return content;
}

/** The frame's own size of its content: RFC 8878 section 3.1.1.1. */
function contentSize(frame: Uint8Array, limit: number): number {
  const header = Buffer.alloc(18);
  header.set(frame.subarray(0, 18));
  const descriptor = header[4] ?? 0;
  if (header.readUInt32LE(0) !== MAGIC) throw new Error("The body is not a zstd frame.");
  const singleSegment = (descriptor & 0x20) !== 0;
  const sizeFlag = descriptor >> 6;
  if (sizeFlag === 0 && !singleSegment) throw new Error("The zstd frame does not say its size.");
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3] ?? 0;
  const offset = (singleSegment ? 5 : 6) + dictionaryBytes;
  const size = [
    BigInt(header.readUInt8(offset)),
    BigInt(header.readUInt16LE(offset)) + 256n,
    BigInt(header.readUInt32LE(offset)),
    header.readBigUInt64LE(Math.min(offset, 10)),
  ][sizeFlag] as bigint;
  const window = singleSegment ? 0 : windowSize(header.readUInt8(5));
  if (size > BigInt(limit) || window > limit) {
    throw new RangeError(`The zstd frame is larger than ${limit} bytes.`);
  }
  return Number(size);
}

/** RFC 8878 section 3.1.1.1.2. */
function windowSize(descriptor: number): number {
  const base = 2 ** (10 + (descriptor >> 3));
  return base + (base / 8) * (descriptor & 7);
}
