import { SluiceError } from './errors.ts';

const NEWLINE = 0x0a;

/**
 * The lines of a byte stream without their line feeds, the last one also when none follows it. A line may be empty. Only
 * one line is held at a time; one longer than `limit` bytes throws `upstream_invalid`.
 */
export async function* linesOf(source: AsyncIterable<Buffer | string>, limit: number): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let held = 0;
  const add = (part: Buffer): void => {
    held += part.length;
    if (held > limit) {
      throw new SluiceError('upstream_invalid', `A line of the provider's answer is longer than ${limit} bytes.`);
    }
    if (part.length > 0) parts.push(part);
  };
  for await (const piece of source) {
    const chunk = typeof piece === 'string' ? Buffer.from(piece) : piece;
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      add(chunk.subarray(from, at));
      from = at + 1;
      const line = parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
      parts = [];
      held = 0;
      yield line;
    }
    add(chunk.subarray(from));
  }
  if (held > 0) yield Buffer.concat(parts);
}
