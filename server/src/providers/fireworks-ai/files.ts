/** Files at Fireworks: datasets. */
import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { asObject } from '../../operations/convert/fields.ts';
import type { FileObject } from '../../operations/training.ts';
import { multipartBody } from '../multipart.ts';
import type { AdapterContext, FilesAdapter, UploadRequest } from '../training.ts';
import {
  bearerHeaders,
  epochOf,
  idSegment,
  integerOf,
  invalidAnswer,
  jsonRequest,
  sent,
  sentObject,
  textOf,
  urlOf,
} from '../training-calls.ts';
import { LARGEST_PAGE, listed } from './lists.ts';
import { controlPlane, failureIn, shortId } from './place.ts';

const COLLECTION = 'datasets';
/** Largest upload through the API itself; above it the content goes to a signed URL, which needs its exact size. */
const DIRECT_BYTES = 150 * 1024 * 1024;
const NEWLINE = 0x0a;

function toFile(raw: JsonObject, bytes = 0): FileObject {
  const name = textOf(raw.name);
  if (name === null) throw invalidAnswer('a dataset');
  const failure = failureIn(raw);
  return {
    id: shortId(name),
    object: 'file',
    // The dataset does not know its size.
    bytes,
    created_at: epochOf(raw.createTime) ?? 0,
    filename: textOf(raw.displayName) ?? shortId(name),
    purpose: BATCH_ID.test(name) ? 'batch' : 'fine-tune',
    status: failure !== null ? 'error' : raw.state === 'READY' ? 'processed' : 'uploaded',
    status_details: failure?.message ?? null,
  };
}

const datasetUrl = (context: AdapterContext, id: string, verb = ''): URL =>
  urlOf(controlPlane(context), `/${COLLECTION}/${idSegment(id)}${verb}`);

/** The purpose, which a dataset has no field for, shows in the ids made here. */
const BATCH_ID = /-batch-[0-9a-f]{8}$/;

/** An id from the name of the file: what upstream takes of it, and a tail that makes it the only one. */
function datasetId(filename: string, purpose: string, context: AdapterContext): string {
  const base = filename
    .toLowerCase()
    .replace(/\.jsonl?$/, '')
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 48)
    .replace(/-+$/, '');
  // The end of a UUID is its random part.
  const tail = `${purpose === 'batch' ? 'batch-' : ''}${context.uuid().slice(-8)}`;
  return `${base === '' ? 'file' : base}-${tail}`;
}

/** The content, cut off by an error beyond what the direct upload takes. */
async function* bounded(source: Readable, seen: { bytes: number }): AsyncGenerator<Buffer> {
  for await (const part of source as AsyncIterable<Buffer>) {
    seen.bytes += part.length;
    if (seen.bytes > DIRECT_BYTES) {
      throw new SluiceError(
        'invalid_request',
        `Files above ${DIRECT_BYTES} bytes need their exact size in x-gateway-file-upload-size here.`,
        { param: 'x-gateway-file-upload-size' },
      );
    }
    yield part;
  }
}

async function uploadDirectly(id: string, file: UploadRequest, context: AdapterContext): Promise<number> {
  const seen = { bytes: 0 };
  const stream = Readable.from(bounded(file.stream, seen), { objectMode: false });
  stream.once('close', () => file.stream.destroy());
  file.stream.once('error', (error) => stream.destroy(error));
  const { filename, contentType, bytes } = file;
  const form = multipartBody([], { name: 'file', filename, contentType, stream, bytes });
  const answer = await sent(context, {
    method: 'POST',
    url: datasetUrl(context, id, ':upload'),
    headers: [...bearerHeaders(context), 'accept', 'application/json', 'content-type', form.contentType],
    body: form.stream,
    ...(form.length === null ? null : { length: form.length }),
  });
  answer.stream.destroy();
  return seen.bytes;
}

/** The signed URLs of an answer, by file name. They are credentials: never logged, never answered. */
function signedUrls(body: JsonObject, context: AdapterContext): [string, URL][] {
  return Object.entries(asObject(body.filenameToSignedUrls)).map(([name, text]) => {
    const url = typeof text === 'string' ? URL.parse(text) : null;
    if (url === null || (url.protocol !== 'https:' && !context.customHost)) throw invalidAnswer('a signed URL');
    return [name, url];
  });
}

async function uploadSigned(id: string, file: UploadRequest, bytes: number, context: AdapterContext): Promise<number> {
  const body = await sentObject(
    context,
    jsonRequest('POST', datasetUrl(context, id, ':getUploadEndpoint'), bearerHeaders(context), {
      filenameToSize: { [file.filename]: String(bytes) },
    }),
  );
  const [target] = signedUrls(body, context);
  if (target === undefined) throw invalidAnswer('a list of signed URLs');
  const stored = await sent(context, {
    method: 'PUT',
    url: target[1],
    headers: ['content-type', 'application/octet-stream', 'x-goog-content-length-range', `${bytes},${bytes}`],
    body: file.stream,
    length: bytes,
    accountHeaders: false,
  });
  stored.stream.destroy();
  const validated = await sent(
    context,
    jsonRequest('POST', datasetUrl(context, id, ':validateUpload'), bearerHeaders(context), {}),
  );
  validated.stream.destroy();
  return bytes;
}

async function remove(id: string, context: AdapterContext, cleanup: boolean): Promise<void> {
  const request = jsonRequest('DELETE', datasetUrl(context, id), bearerHeaders(context));
  const answer = await sent(context, cleanup ? { ...request, cleanup } : request);
  answer.stream.destroy();
}

async function fetched(id: string, context: AdapterContext, bytes?: number): Promise<FileObject> {
  return toFile(await sentObject(context, jsonRequest('GET', datasetUrl(context, id), bearerHeaders(context))), bytes);
}

/** Where the files of a dataset can be read, by name. */
async function downloads(id: string, context: AdapterContext): Promise<[string, URL][]> {
  const url = datasetUrl(context, id, ':getDownloadEndpoint');
  const body = await sentObject(context, jsonRequest('GET', url, bearerHeaders(context)));
  return signedUrls(body, context).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
}

async function opened(
  url: URL,
  context: AdapterContext,
): Promise<{ readonly stream: Readable; readonly bytes: number | null }> {
  const answer = await sent(context, { method: 'GET', url, headers: [], body: null, accountHeaders: false });
  return { stream: answer.stream, bytes: integerOf(answer.headers['content-length']) };
}

/** Files one after the other, each on separate lines. */
async function* joined(urls: readonly URL[], context: AdapterContext): AsyncGenerator<Buffer> {
  let last = NEWLINE;
  for (const url of urls) {
    if (last !== NEWLINE) yield Buffer.from('\n');
    last = NEWLINE;
    for await (const part of (await opened(url, context)).stream as AsyncIterable<Buffer>) {
      last = part.at(-1) ?? last;
      yield part;
    }
  }
}

/** The files of a dataset, each opened when it is its turn. */
export async function datasetFiles(id: string, context: AdapterContext): Promise<(() => Promise<Readable>)[]> {
  return (await downloads(id, context)).map(
    ([, url]) =>
      async () =>
        (await opened(url, context)).stream,
  );
}

export const files: FilesAdapter = {
  purposes: new Set(['fine-tune', 'batch']),
  objectUris: false,
  // Above the direct limit the size has to be sent before the content.
  needsBytes: true,
  async upload(file, context) {
    // A client may leave before the content is asked for, and an error nobody listens for ends the process.
    file.stream.on('error', () => {});
    const id = datasetId(context.header('x-gateway-provider-file-name') ?? file.filename, file.purpose, context);
    const created = await sent(
      context,
      jsonRequest('POST', urlOf(controlPlane(context), `/${COLLECTION}`), bearerHeaders(context), {
        datasetId: id,
        dataset: { displayName: file.filename, userUploaded: {}, format: 'CHAT' },
      }),
    );
    created.stream.destroy();
    try {
      const bytes =
        file.bytes !== null && file.bytes > DIRECT_BYTES
          ? await uploadSigned(id, file, file.bytes, context)
          : await uploadDirectly(id, file, context);
      return await fetched(id, context, bytes);
    } catch (error) {
      file.stream.destroy();
      // A dataset without content would stay in the account for ever; why the upload failed matters more.
      await remove(id, context, true).catch(() => {});
      throw error;
    }
  },
  async list(purpose, context) {
    const out: FileObject[] = [];
    for await (const { raw } of listed(COLLECTION, LARGEST_PAGE, context)) out.push(toFile(raw));
    return purpose === null ? out : out.filter((file) => file.purpose === purpose);
  },
  retrieve: (id, context) => fetched(id, context),
  remove: (id, context) => remove(id, context, false),
  async content(id, context) {
    const urls = (await downloads(id, context)).map(([, url]) => url);
    const [only, ...more] = urls;
    const contentType = 'application/octet-stream';
    if (only !== undefined && more.length === 0) return { contentType, ...(await opened(only, context)) };
    return { contentType, bytes: null, stream: Readable.from(joined(urls, context), { objectMode: false }) };
  },
  /** Datasets of this name into which nothing was ever uploaded. */
  async abandon(filename, context) {
    for await (const { id, raw } of listed(COLLECTION, LARGEST_PAGE, context)) {
      if (raw.state === 'UPLOADING' && raw.displayName === filename) await remove(id, context, true);
    }
  },
};
