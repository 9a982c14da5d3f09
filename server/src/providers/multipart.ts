import { Readable } from 'node:stream';
import { SluiceError } from '../kernel/errors.ts';
import { base62 } from '../kernel/id.ts';

export interface MultipartFile {
  /** Name of the form field: `file`, `data`. */
  readonly name: string;
  readonly filename: string;
  readonly contentType: string;
  readonly stream: Readable;
  /** Exact size when known; a stream that is shorter or longer ends the body with an error. */
  readonly bytes: number | null;
  /** Fields that are known only when the stream has ended; they follow the file. Only where the size is not known. */
  readonly late?: () => readonly (readonly [name: string, value: string])[];
}

export interface MultipartBody {
  readonly contentType: string;
  /** Destroying it destroys the file's stream, and an error of the file's stream ends it. */
  readonly stream: Readable;
  /** Bytes of the whole body; null when the file's size is unknown. */
  readonly length: number | null;
}

/**
 * A `multipart/form-data` body (RFC 7578) of text fields and then one file, streamed. The fields stand first because
 * servers that read as bytes arrive must know them before the file.
 */
export function multipartBody(
  fields: readonly (readonly [name: string, value: string])[],
  file: MultipartFile,
  boundary: string = base62(32),
): MultipartBody {
  let head = '';
  for (const [name, value] of fields) {
    head += `--${boundary}\r\n${fieldOf(name)}${value}\r\n`;
  }
  head += `--${boundary}\r\ncontent-disposition: form-data; name="${escaped(file.name)}"; filename="${escaped(file.filename)}"\r\n`;
  head += `content-type: ${mediaType(file.contentType)}\r\n\r\n`;
  const first = Buffer.from(head);
  const last = Buffer.from(`\r\n--${boundary}--\r\n`);
  const end = () => {
    const late = file.bytes === null ? (file.late?.() ?? []) : [];
    const more = late.map(([name, value]) => `\r\n--${boundary}\r\n${fieldOf(name)}${value}`).join('');
    return more === '' ? last : Buffer.concat([Buffer.from(more), last]);
  };
  const stream = Readable.from(pieces(first, file, end), { objectMode: false });
  // A generator that never ran has no way to let go of its source.
  stream.once('close', () => file.stream.destroy());
  file.stream.once('error', (error) => stream.destroy(error));
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    stream,
    length: file.bytes === null ? null : first.length + file.bytes + last.length,
  };
}

const fieldOf = (name: string): string => `content-disposition: form-data; name="${escaped(name)}"\r\n\r\n`;

async function* pieces(first: Buffer, file: MultipartFile, end: () => Buffer): AsyncGenerator<Buffer> {
  yield first;
  let seen = 0;
  for await (const chunk of file.stream) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : (chunk as Buffer);
    seen += bytes.length;
    if (file.bytes !== null && seen > file.bytes) throw differs(file.bytes, 'more');
    yield bytes;
  }
  if (file.bytes !== null && seen < file.bytes) throw differs(file.bytes, `only ${seen}`);
  yield end();
}

function differs(expected: number, found: string): SluiceError {
  return new SluiceError('invalid_request', `The file was announced with ${expected} bytes and has ${found}.`, {
    param: 'file',
  });
}

/**
 * A quoted parameter as browsers write it: quotes and line breaks percent-encoded, all else as UTF-8. Other control
 * characters have no business in a name and are encoded too.
 */
function escaped(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: exactly these must not get into a header.
  return text.toWellFormed().replace(/[\u0000-\u001f"\u007f]/g, (c) => {
    return `%${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
  });
}

const MEDIA_TYPE = /^[\w!#$&^.+-]{1,127}\/[\w!#$&^.+-]{1,127}(?:; ?[\w!#$&^.+-]{1,64}=[\w!#$&^.+-]{1,128}){0,4}$/;

/** The type as given when it is one, else that of plain bytes. */
function mediaType(text: string): string {
  return MEDIA_TYPE.test(text) ? text : 'application/octet-stream';
}
