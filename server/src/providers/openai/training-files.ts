/** Files as OpenAI defines them (OpenAPI 2.3.0): streamed in one multipart body, or in parts when they are large. */

import { pipeline, Readable, Transform } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { IN_ITS_STEAD } from '../../operations/dialects/provider-error.ts';
import type { FileObject } from '../../operations/training.ts';
import { multipartBody } from '../multipart.ts';
import type { AdapterContext, AdapterRequest, FilesAdapter, UploadRequest } from '../training.ts';
import { integerOf, invalidAnswer, Refusals, sent, sentObject, textOf } from '../training-calls.ts';
import { bytes, idSegment, type ObjectApi, object, objectUrl } from './training-api.ts';

export interface FilesOptions {
  readonly api: ObjectApi;
  readonly purposes: ReadonlySet<string>;
  /** How a list is asked for: in pages by purpose, whole by purpose, or whole and unfiltered. */
  list(context: AdapterContext): 'pages' | 'purpose' | 'all';
  /** The `/uploads` family for files that one request may not hold; null where there is none. Bytes. */
  readonly parts: { readonly above: number; readonly size: number } | null;
}

/** 512 MB for one request, 64 MB for a part. Decimal: safe whichever kind of megabyte the provider counts. */
export const UPLOAD_PARTS = { above: 512_000_000, size: 64_000_000 } as const;
const LIST_PAGE = 10_000;
const MAX_PAGES = 100;
/** The provider may look through a whole file before it answers. */
const UPLOAD_TIMEOUT_MS = 300_000;

const STATUS: ReadonlyMap<unknown, FileObject['status']> = new Map<unknown, FileObject['status']>([
  ['uploaded', 'uploaded'],
  ['pending', 'uploaded'],
  ['running', 'uploaded'],
  ['processed', 'processed'],
  ['error', 'error'],
]);
const GONE: ReadonlySet<unknown> = new Set(['deleting', 'deleted']);

/** A file of the provider as callers see it; members it adds are passed on. */
export function toFile(raw: JsonObject): FileObject {
  const created = integerOf(raw.created_at);
  if (typeof raw.id !== 'string' || created === null) throw invalidAnswer('a file');
  return {
    ...raw,
    id: raw.id,
    object: 'file',
    bytes: integerOf(raw.bytes) ?? 0,
    created_at: created,
    filename: textOf(raw.filename) ?? '',
    purpose: textOf(raw.purpose) ?? '',
    status: STATUS.get(raw.status) ?? 'uploaded',
  };
}

export function openAiFiles(options: FilesOptions): FilesAdapter {
  const { api } = options;
  return {
    purposes: options.purposes,
    objectUris: false,
    takesFields: true,
    async upload(file, context) {
      try {
        if (!options.purposes.has(file.purpose)) {
          const known = [...options.purposes].join(', ');
          new Refusals(api.title, { dropParams: new Set() }).refuse('purpose', file.purpose, `use one of ${known}`);
        }
        const { parts } = options;
        const large = parts !== null && file.bytes !== null && file.bytes > parts.above;
        return toFile(large ? await inParts(api, file, parts.size, context) : await whole(options, file, context));
      } catch (error) {
        file.stream.destroy();
        throw error;
      }
    },
    async list(purpose, context) {
      const manner = options.list(context);
      const out: FileObject[] = [];
      let after: string | null = null;
      for (let walked = 0; walked < MAX_PAGES; walked++) {
        const query = manner === 'all' ? {} : manner === 'purpose' ? { purpose } : { purpose, limit: LIST_PAGE, after };
        const answer: JsonObject = await object(api, context, 'GET', '/files', { query });
        if (!Array.isArray(answer.data)) throw invalidAnswer('a list of files');
        const rows = answer.data.filter(isObject);
        for (const row of rows) {
          const wanted = purpose === null || row.purpose === purpose;
          if (wanted && !GONE.has(row.status)) out.push(toFile(row));
        }
        after = textOf(rows.at(-1)?.id);
        if (manner !== 'pages' || answer.has_more !== true || after === null) return newestFirst(out);
      }
      throw new SluiceError('upstream_invalid', 'The provider lists more files than can be read; ask for one purpose.');
    },
    async retrieve(id, context) {
      const raw = await object(api, context, 'GET', `/files/${idSegment(id)}`);
      if (GONE.has(raw.status)) {
        throw new SluiceError('provider_error', `No such file: ${id}`, { provider: IN_ITS_STEAD.missing });
      }
      return toFile(raw);
    },
    async remove(id, context) {
      const headers = [...(await api.headers(context)), 'accept', 'application/json'];
      const url = objectUrl(api, context, `/files/${idSegment(id)}`);
      const answer = await sent(context, { method: 'DELETE', url, headers, body: null }, api.error);
      // Older versions answer 204 without a body.
      const text = await answer.text();
      if (text === '') return;
      let body: unknown = null;
      try {
        body = parseJson(text);
      } catch {
        // Told below.
      }
      if (!isObject(body) || body.deleted !== true) throw invalidAnswer('the confirmation of a deletion');
    },
    async content(id, context) {
      const answer = await bytes(api, context, `/files/${idSegment(id)}/content`);
      return {
        contentType: answer.headers['content-type'] ?? 'application/octet-stream',
        bytes: integerOf(answer.headers['content-length']),
        stream: answer.stream,
      };
    },
  };
}

function newestFirst(files: FileObject[]): FileObject[] {
  return files.sort((a, b) => b.created_at - a.created_at);
}

/** A multipart call; its stream is consumed or destroyed whatever happens. */
async function multipartCall(
  api: ObjectApi,
  context: AdapterContext,
  path: string,
  fields: readonly (readonly [string, string])[],
  file: Parameters<typeof multipartBody>[1],
): Promise<JsonObject> {
  const signedIn = await api.headers(context);
  const body = multipartBody(fields, file);
  const request: AdapterRequest = {
    method: 'POST',
    url: objectUrl(api, context, path),
    headers: [...signedIn, 'accept', 'application/json', 'content-type', body.contentType],
    body: body.stream,
    timeoutMs: UPLOAD_TIMEOUT_MS,
    ...(body.length === null ? null : { length: body.length }),
  };
  try {
    return await sentObject(context, request, api.error);
  } finally {
    body.stream.destroy();
  }
}

function whole(options: FilesOptions, file: UploadRequest, context: AdapterContext): Promise<JsonObject> {
  const { filename, contentType, bytes: size } = file;
  const { parts } = options;
  const stream = size === null && parts !== null ? bounded(file.stream, parts.above) : file.stream;
  const known = pairsOf(file);
  return multipartCall(options.api, context, '/files', [['purpose', file.purpose], ...known], {
    name: 'file',
    filename,
    contentType,
    stream,
    bytes: size,
    late: () => pairsOf(file).slice(known.length),
  });
}

const pairsOf = ({ fields = [] }: UploadRequest) => fields.map(({ name, value }) => [name, value] as const);

/**
 * The fields as members of a JSON body: `expires_after[seconds]` is a member of `expires_after`. A form has no numbers, and
 * where this API asks for one, no text of digits would do.
 */
function membersOf({ fields = [] }: UploadRequest): JsonObject {
  const out: { [name: string]: JsonValue } = {};
  for (const { name, value } of fields) {
    const read = /^\d{1,15}$/.test(value) ? Number(value) : value;
    const [, outer, inner] = /^([^[\]]+)\[([^[\]]+)\]$/.exec(name) ?? [];
    if (outer === undefined || inner === undefined) out[name] = read;
    else out[outer] = { ...(isObject(out[outer]) ? out[outer] : {}), [inner]: read };
  }
  return out;
}

/** Passes bytes up to what one request may hold. */
function bounded(source: Readable, limit: number): Transform {
  let seen = 0;
  const out = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      seen += chunk.length;
      if (seen <= limit) return done(null, chunk);
      return done(
        new SluiceError(
          'invalid_request',
          `Files above ${Math.floor(limit / 1_000_000)} MB need their size beforehand: send x-gateway-file-upload-size in bytes.`,
          { param: 'x-gateway-file-upload-size' },
        ),
      );
    },
  });
  // Whatever ends one of them early ends the other; the reader of `out` gets the error.
  pipeline(source, out, () => {});
  return out;
}

/** Cuts a stream of known size into streams of a given size, read one after the other and never kept. */
class Parts {
  readonly #source: AsyncIterator<Buffer>;
  #left: number;
  #rest: Buffer | null = null;

  constructor(stream: Readable, total: number) {
    this.#source = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    this.#left = total;
  }

  get left(): number {
    return this.#left;
  }

  async *take(wanted: number): AsyncGenerator<Buffer> {
    let open = wanted;
    while (open > 0) {
      const chunk = this.#rest ?? (await this.#next());
      if (chunk === null) throw wrongSize();
      this.#rest = chunk.length > open ? chunk.subarray(open) : null;
      const piece = chunk.length > open ? chunk.subarray(0, open) : chunk;
      open -= piece.length;
      this.#left -= piece.length;
      yield piece;
    }
  }

  /** Throws when the stream goes on after its announced end. */
  async end(): Promise<void> {
    if (this.#rest !== null || (await this.#next()) !== null) throw wrongSize();
  }

  async #next(): Promise<Buffer | null> {
    for (;;) {
      const { done, value } = await this.#source.next();
      if (done) return null;
      if (value.length > 0) return value;
    }
  }
}

const wrongSize = (): SluiceError =>
  new SluiceError('invalid_request', 'The file does not have the size it was announced with.', { param: 'file' });

/** Types the provider accepts for rows of JSON, when the caller's own type says nothing. */
function mimeType(file: UploadRequest): string {
  if (file.contentType !== '' && !file.contentType.startsWith('application/octet-stream')) return file.contentType;
  return file.purpose === 'fine-tune' || file.purpose === 'batch' ? 'text/jsonl' : 'application/octet-stream';
}

async function inParts(
  api: ObjectApi,
  file: UploadRequest,
  most: number,
  context: AdapterContext,
): Promise<JsonObject> {
  const total = file.bytes ?? 0;
  const { filename, purpose } = file;
  const body = { ...membersOf(file), filename, purpose, bytes: total, mime_type: mimeType(file) };
  const upload = await object(api, context, 'POST', '/uploads', { body });
  if (typeof upload.id !== 'string') throw invalidAnswer('an upload');
  const path = `/uploads/${idSegment(upload.id)}`;
  try {
    const parts = new Parts(file.stream, total);
    const ids: string[] = [];
    while (parts.left > 0) {
      const size = Math.min(most, parts.left);
      const part = await multipartCall(api, context, `${path}/parts`, [], {
        name: 'data',
        filename,
        contentType: 'application/octet-stream',
        stream: Readable.from(parts.take(size), { objectMode: false }),
        bytes: size,
      });
      if (typeof part.id !== 'string') throw invalidAnswer('a part of an upload');
      ids.push(part.id);
    }
    await parts.end();
    const done = await object(api, context, 'POST', `${path}/complete`, {
      body: { part_ids: ids },
      timeoutMs: UPLOAD_TIMEOUT_MS,
    });
    if (!isObject(done.file)) throw invalidAnswer('a completed upload with its file');
    return done.file;
  } catch (error) {
    await cancelUpload(api, context, path);
    throw error;
  }
}

/** Takes an upload back; one that stays open ends by itself after an hour. */
async function cancelUpload(api: ObjectApi, context: AdapterContext, path: string): Promise<void> {
  try {
    const headers = [...(await api.headers(context)), 'accept', 'application/json'];
    const url = objectUrl(api, context, `${path}/cancel`);
    const answer = await context.call({ method: 'POST', url, headers, body: null, cleanup: true });
    answer.stream.destroy();
  } catch {
    // The first failure is the one to tell.
  }
}
