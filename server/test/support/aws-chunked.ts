import { crc32 } from 'node:zlib';

/** An answer of the service that a correct client may meet. */
export class S3Error extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message = code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** A part of the protocol that a correct client never breaks. */
export class Fault extends S3Error {}

/** Takes the frames of `aws-chunked` away and checks the checksum in its trailer. */
export async function* unframed(source: AsyncIterable<Buffer>, length: number): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0);
  let left: number | null = null;
  let seen = 0;
  let sum = 0;
  const trailer: string[] = [];
  let ended = false;
  for await (const chunk of source) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (;;) {
      if (left !== null && left > 0) {
        if (rest.length === 0) break;
        const piece = rest.subarray(0, left);
        rest = rest.subarray(piece.length);
        left -= piece.length;
        seen += piece.length;
        sum = crc32(piece, sum);
        yield piece;
        continue;
      }
      const line = rest.indexOf('\r\n');
      if (line < 0) break;
      const text = rest.subarray(0, line).toString('latin1');
      rest = rest.subarray(line + 2);
      if (ended) {
        if (text !== '') trailer.push(text);
      } else if (left === 0) {
        if (text !== '') throw new Fault(400, 'IncompleteBody', 'a chunk is longer than it says');
        left = null;
      } else {
        const size = /^([0-9a-f]+)(?:;chunk-signature=[0-9a-f]{64})?$/i.exec(text);
        if (size === null) throw new Fault(400, 'IncompleteBody', `chunk header ${text.slice(0, 60)}`);
        left = Number.parseInt(size[1] ?? '', 16);
        if (left === 0) ended = true;
      }
    }
  }
  if (!ended) throw new Fault(400, 'IncompleteBody', 'the last chunk is missing');
  if (seen !== length) throw new Fault(400, 'IncompleteBody', `${seen} bytes instead of ${length}`);
  for (const line of trailer) {
    const [name, value] = line.split(':');
    if (name !== 'x-amz-checksum-crc32') continue;
    const wanted = Buffer.alloc(4);
    wanted.writeUInt32BE(sum >>> 0);
    if (value?.trim() !== wanted.toString('base64')) throw new Fault(400, 'BadDigest', 'the crc32 of the trailer');
  }
}
