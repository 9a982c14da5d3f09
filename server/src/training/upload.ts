/**
 * Uploads: `multipart/form-data` read as it arrives. The reader is Sluice's own for the same reason as
 * `kernel/multipart-scan.ts`, whose rules it shares: general parsers forgive preambles, repeated fields and missing
 * ends, and a file that was cut must fail instead of being stored.
 */
import { isUtf8 } from 'node:buffer';
import { Readable } from 'node:stream';
import { SluiceError } from '../kernel/errors.ts';
import { multipartBoundary, type PartHeaders, readPartHeaders } from '../kernel/multipart-scan.ts';
import { hasControls } from '../kernel/text.ts';
import { isTransferable, markTransferable } from '../kernel/transferable-stream.ts';
import { UPLOAD_PURPOSES } from '../operations/training.ts';
import type { FormField } from '../providers/training.ts';
import type { ObjectCall } from '../runtime/object-call.ts';
import type { Held } from '../store/ports.ts';
import { invalid } from './fields.ts';
import type { TrainingServices } from './services.ts';

const MAX_HEADER_BYTES = 16 * 1024;
const MAX_VALUE_BYTES = 64 * 1024;
const MAX_PARTS = 20;
const HEADER_END = Buffer.from('\r\n\r\n');
const EMPTY = Buffer.alloc(0);

function fail(message: string): SluiceError {
  return new SluiceError('malformed_call', `The multipart body cannot be read: ${message}`);
}

/** Reads a form part by part; a file's bytes are handed on as they come. */
class FormReader {
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #delimiter: Buffer;
  #rest: Buffer = EMPTY;
  #parts = 0;

  constructor(body: Readable, boundary: string) {
    this.#chunks = (body as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
  }

  /** False at the end of the body. */
  async #more(): Promise<boolean> {
    const { value, done } = await this.#chunks.next();
    if (done === true) return false;
    this.#rest = this.#rest.length === 0 ? value : Buffer.concat([this.#rest, value]);
    return true;
  }

  async #need(bytes: number): Promise<void> {
    while (this.#rest.length < bytes) if (!(await this.#more())) throw fail('it ends before its last boundary');
  }

  /** Headers of the next part, or null after the last one, when the body has ended as well. */
  async next(): Promise<PartHeaders | null> {
    if (this.#parts === 0) {
      const first = this.#delimiter.subarray(2);
      await this.#need(first.length);
      if (!this.#rest.subarray(0, first.length).equals(first)) throw fail('it does not start with the boundary');
      this.#rest = this.#rest.subarray(first.length);
    }
    await this.#need(2);
    const mark = this.#rest.toString('latin1', 0, 2);
    if (mark === '--') {
      this.#rest = this.#rest.subarray(2);
      while (this.#rest.length <= 2 && (await this.#more()));
      if (this.#rest.length !== 0 && this.#rest.toString('latin1') !== '\r\n') {
        throw fail('it has data after the last boundary');
      }
      return null;
    }
    if (mark !== '\r\n') throw fail('a boundary is not followed by a line end');
    this.#parts += 1;
    if (this.#parts > MAX_PARTS) throw fail(`it has more than ${MAX_PARTS} parts`);
    this.#rest = this.#rest.subarray(2);
    let end = this.#rest.indexOf(HEADER_END);
    while (end < 0) {
      if (this.#rest.length > MAX_HEADER_BYTES) throw fail('the headers of a part do not end');
      if (!(await this.#more())) throw fail('it ends before its last boundary');
      end = this.#rest.indexOf(HEADER_END);
    }
    if (end > MAX_HEADER_BYTES) throw fail('the headers of a part do not end');
    const head = this.#rest.subarray(0, end);
    // The line end stays: an empty part may be followed by its delimiter at once.
    this.#rest = this.#rest.subarray(end + 2);
    if (!isUtf8(head)) throw fail('the headers of a part are not UTF-8');
    return readPartHeaders(head.toString('utf8'));
  }

  /** Bytes of the part whose headers were read, in the pieces they came in. */
  async *content(): AsyncGenerator<Buffer> {
    const delimiter = this.#delimiter;
    // Two bytes of the headers' own end are still in front.
    let skip = 2;
    for (;;) {
      const at = this.#rest.indexOf(delimiter);
      if (at >= 0) {
        const piece = this.#rest.subarray(Math.min(skip, at), at);
        this.#rest = this.#rest.subarray(at + delimiter.length);
        if (piece.length > 0) yield piece;
        return;
      }
      // A delimiter starts with a line end: what comes before the last possible one can go.
      const from = Math.max(0, this.#rest.length - delimiter.length + 1);
      const start = this.#rest.indexOf(13, from);
      const keep = start < 0 ? this.#rest.length : start;
      if (keep > skip) {
        const piece = this.#rest.subarray(skip, keep);
        skip = 0;
        this.#rest = this.#rest.subarray(keep);
        yield piece;
      }
      if (!(await this.#more())) throw fail('it ends before its last boundary');
    }
  }

  async text(name: string): Promise<string> {
    const parts: Buffer[] = [];
    let size = 0;
    for await (const piece of this.content()) {
      size += piece.length;
      if (size > MAX_VALUE_BYTES) throw fail(`the field ${JSON.stringify(name.slice(0, 100))} is too long`);
      parts.push(piece);
    }
    const value = Buffer.concat(parts, size);
    if (!isUtf8(value)) throw fail(`the field ${JSON.stringify(name.slice(0, 100))} is not valid UTF-8`);
    return value.toString('utf8');
  }
}

export interface UploadLimits {
  /** Largest file, bytes, and largest one with the purpose `batch`. */
  readonly maxUploadBytes: number;
  readonly maxBatchBytes: number;
  /** Fields besides file and purpose are kept for the provider; absent: they are refused by name. */
  readonly takesFields?: boolean;
}

/** The file of a form, up to its first byte. */
export interface OpenedUpload {
  readonly filename: string;
  readonly contentType: string;
  /** Fields besides file and purpose; it grows until the form was read to its end. */
  readonly fields: readonly FormField[];
  /** Null while it is not known: it may come after the file. */
  readonly purpose: () => string | null;
  /**
   * The file's bytes. It ends only when the whole form was read and is in order, so whatever consumed it to its end has
   * a complete file; else it fails with a SluiceError.
   */
  readonly stream: Readable;
  /** What went wrong while reading, however it reached the caller. */
  readonly failed: () => SluiceError | null;
  /** Whether the form was read to its end. */
  readonly complete: () => boolean;
}

/** Reads a form up to its file. `purpose`, `declared`: what headers already say of it and of its size. */
export async function openUpload(
  body: Readable,
  contentType: string,
  limits: UploadLimits,
  purpose: string | null,
  declared: number | null = null,
): Promise<OpenedUpload> {
  const form = new FormReader(body, multipartBoundary(contentType));
  let named = purpose === null ? null : checkPurpose(purpose);
  const seen = new Set<string>();
  const fields: FormField[] = [];
  let begun = false;

  async function field({ name }: PartHeaders): Promise<void> {
    if (seen.has(name)) throw fail(`the field ${JSON.stringify(name.slice(0, 100))} is given twice`);
    seen.add(name);
    if (name !== 'purpose' && limits.takesFields === true) {
      if (begun && declared !== null) {
        const shown = JSON.stringify(name.slice(0, 100));
        throw invalid(
          name.slice(0, 100),
          `Send the form field ${shown} before the file, or leave x-gateway-file-upload-size out.`,
        );
      }
      fields.push({ name, value: await form.text(name) });
      return;
    }
    if (name !== 'purpose') {
      throw invalid(
        name.slice(0, 100),
        `The form field ${JSON.stringify(name.slice(0, 100))} is not known; send file and purpose.`,
      );
    }
    const value = checkPurpose(await form.text(name));
    if (named !== null && named !== value) {
      throw invalid('purpose', 'The form and x-gateway-file-purpose name different purposes; send one of them.');
    }
    named = value;
  }

  let head: PartHeaders | null;
  for (;;) {
    head = await form.next();
    if (head === null) throw invalid('file', 'file is required: one part with a file name.');
    if (head.file) break;
    if (head.name === 'file') throw invalid('file', 'file must be a file: the part needs a file name.');
    await field(head);
  }
  if (head.name !== 'file') throw invalid(head.name.slice(0, 100), 'The file must be in the form field "file".');
  const filename = fileName(head.filename ?? '');

  begun = true;

  let failed: SluiceError | null = null;
  let complete = false;
  async function* read(): AsyncGenerator<Buffer> {
    try {
      let size = 0;
      for await (const piece of form.content()) {
        size += piece.length;
        checkSize(size, named, limits);
        if (declared !== null && size > declared) throw wrongSize(declared, 'more');
        yield piece;
      }
      if (declared !== null && size !== declared) throw wrongSize(declared, String(size));
      for (let next = await form.next(); next !== null; next = await form.next()) {
        if (next.file) throw invalid('file', 'Send one file only.');
        await field(next);
      }
      if (named === null) throw invalid('purpose', `purpose is required: one of ${[...UPLOAD_PURPOSES].join(', ')}.`);
      checkSize(size, named, limits);
      complete = true;
    } catch (error) {
      failed =
        error instanceof SluiceError
          ? error
          : new SluiceError('malformed_call', 'The upload could not be read.', { cause: error });
      throw failed;
    }
  }
  const stream = Readable.from(read(), { objectMode: false, highWaterMark: 64 * 1024 });
  if (isTransferable(body)) markTransferable(stream);
  stream.on('close', () => body.destroy());
  return {
    filename,
    contentType: partType(head.contentType),
    fields,
    purpose: () => named,
    stream,
    failed: () => failed,
    complete: () => complete,
  };
}

function checkPurpose(value: string): string {
  if (UPLOAD_PURPOSES.has(value)) return value;
  throw invalid(
    'purpose',
    `purpose must be one of ${[...UPLOAD_PURPOSES].join(', ')}; got ${JSON.stringify(value.slice(0, 100))}.`,
  );
}

function checkSize(size: number, purpose: string | null, limits: UploadLimits): void {
  const limit = purpose === 'batch' ? Math.min(limits.maxBatchBytes, limits.maxUploadBytes) : limits.maxUploadBytes;
  if (size <= limit) return;
  const what = purpose === 'batch' ? 'A file for a batch' : 'A file';
  throw new SluiceError('file_too_large', `${what} may have at most ${limit} bytes.`, { param: 'file' });
}

/** The last segment of what the client called the file; nothing that could be read as a path or a header line. */
function fileName(given: string): string {
  const name = given.slice(Math.max(given.lastIndexOf('/'), given.lastIndexOf('\\')) + 1);
  if (name === '' || name === '.' || name === '..' || hasControls(name) || !name.isWellFormed()) {
    throw invalid('file', 'The file needs a name without control characters.');
  }
  if (Buffer.byteLength(name) > 255) throw invalid('file', 'The name of the file must have at most 255 bytes.');
  return name;
}

function partType(given: string | null): string {
  return given !== null && /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+(?:\s*;[\x20-\x7e]*)?$/.test(given)
    ? given.slice(0, 200)
    : 'application/octet-stream';
}

/** An upload whose purpose is known, ready to be passed on or stored. */
export interface Upload {
  readonly filename: string;
  readonly contentType: string;
  readonly purpose: string;
  /** As in `OpenedUpload`. */
  readonly fields: readonly FormField[];
  readonly stream: Readable;
  /** Exact size when known before the end. */
  readonly bytes: number | null;
  /** The reason the upload itself failed, else null: it says more than what a reader of the stream makes of it. */
  readonly failed: () => SluiceError | null;
  readonly complete: () => boolean;
  close(): Promise<void>;
}

/**
 * The upload of a call. A form may name its purpose after the file; nothing is known then until the file was read, so it
 * goes to disk first, as it does for a provider that must know the size (`needsBytes`).
 */
export async function readUpload(
  call: ObjectCall,
  services: Pick<TrainingServices, 'scratch' | 'maxUploadBytes' | 'maxBatchBytes'>,
  needsBytes: boolean,
  takesFields = false,
): Promise<Upload> {
  if (call.upload === null) throw new SluiceError('malformed_call', 'Send the file as multipart/form-data.');
  const declared = sizeAhead(call, services);
  const opened = await openUpload(
    call.upload,
    call.header('content-type') ?? '',
    { maxUploadBytes: services.maxUploadBytes, maxBatchBytes: services.maxBatchBytes, takesFields },
    call.header('x-gateway-file-purpose') ?? null,
    declared,
  );
  const { filename, contentType, fields, failed, complete } = opened;
  const purpose = opened.purpose();
  if (purpose !== null && !(needsBytes && declared === null)) {
    return {
      filename,
      contentType,
      fields,
      purpose,
      stream: opened.stream,
      bytes: declared,
      failed,
      complete,
      async close() {
        opened.stream.destroy();
      },
    };
  }
  let held: Held;
  try {
    held = await services.scratch.hold(opened.stream);
  } catch (error) {
    throw failed() ?? error;
  }
  const stream = held.read();
  return {
    filename,
    contentType,
    fields,
    purpose: opened.purpose() ?? '',
    stream,
    bytes: held.bytes,
    failed: () => null,
    complete: () => true,
    async close() {
      if (!stream.closed) {
        await new Promise<void>((resolve) => {
          stream.once('close', resolve);
          stream.destroy();
        });
      }
      await held.close();
    },
  };
}

/**
 * The exact size of the file where `x-gateway-file-upload-size` says it. What cannot fit is refused before it is read, so
 * that nobody sends half a gigabyte for a 413.
 */
export function sizeAhead(call: Pick<ObjectCall, 'header'>, limits: UploadLimits): number | null {
  const text = call.header('x-gateway-file-upload-size');
  if (text !== undefined && !/^\d{1,15}$/.test(text)) {
    throw invalid('x-gateway-file-upload-size', 'x-gateway-file-upload-size must be the size of the file in bytes.');
  }
  const declared = text === undefined ? null : Number(text);
  if (declared !== null) checkSize(declared, call.header('x-gateway-file-purpose') ?? null, limits);
  // A form around a file is small.
  const length = Number(call.header('content-length') ?? 0);
  if (length > limits.maxUploadBytes + 1024 * 1024) checkSize(length, null, limits);
  return declared;
}

function wrongSize(declared: number, size: string): SluiceError {
  return invalid(
    'x-gateway-file-upload-size',
    `x-gateway-file-upload-size says ${declared} bytes, the file has ${size}.`,
  );
}
