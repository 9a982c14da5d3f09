/** One line of a text file, without its line end. */
export interface FileLine {
  /** From 1, empty lines counted. */
  readonly number: number;
  /** Where it starts in the file, bytes. */
  readonly offset: number;
  /** Where the next line starts. */
  readonly end: number;
  /** Bytes in the file without the line end; larger than `bytes.length` when the line was too long to be kept. */
  readonly length: number;
  readonly bytes: Buffer;
}

const LF = 10;
const CR = 13;
const NOTHING = Buffer.alloc(0);

/** Bytes of white space are all an empty line may hold. */
export function isBlank(line: FileLine): boolean {
  for (const byte of line.bytes) if (byte !== 32 && byte !== 9 && byte !== CR) return false;
  return line.length === line.bytes.length;
}

/**
 * Lines of a stream, ended by LF or CRLF and by nothing else: U+2028 and a lone CR are legal inside JSON texts. Memory
 * is one chunk and one line; of a line longer than `maxBytes` nothing is kept but its length. `from` continues a file
 * whose stream starts at that byte and line.
 */
export async function* linesOf(
  stream: AsyncIterable<Buffer>,
  maxBytes: number,
  from: { readonly number: number; readonly offset: number } = { number: 1, offset: 0 },
): AsyncGenerator<FileLine> {
  let { number, offset } = from;
  let parts: Buffer[] = [];
  let length = 0;
  const add = (part: Buffer) => {
    length += part.length;
    if (length > maxBytes) parts = [];
    else parts.push(part);
  };
  const take = (end: number): FileLine => {
    let bytes = length > maxBytes ? NOTHING : parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts);
    let kept = length;
    if (bytes.length > 0 && bytes[bytes.length - 1] === CR) {
      bytes = bytes.subarray(0, -1);
      kept -= 1;
    }
    const line = { number, offset, end: offset + length + end, length: kept, bytes };
    offset = line.end;
    number += 1;
    parts = [];
    length = 0;
    return line;
  };
  for await (const chunk of stream) {
    let at = 0;
    for (;;) {
      const end = chunk.indexOf(LF, at);
      if (end === -1) break;
      add(chunk.subarray(at, end));
      yield take(1);
      at = end + 1;
    }
    if (at < chunk.length) add(chunk.subarray(at));
  }
  if (length > 0) yield take(0);
}
