/**
 * Files at Together. There are two ways to upload. The vendor's own libraries first ask, without the
 * file, where to put the bytes, and then send them to a signed address of the object store; the published definition has
 * a form with the file in it. The first is used where the size is known: a refusal costs no transfer, and should the
 * server not know the route, the untouched file still goes the second way. Of unknown size (the store wants it said
 * ahead) a file can only go the second way.
 */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import type { FileObject } from '../../operations/training.ts';
import { multipartBody } from '../multipart.ts';
import type { AdapterAnswer, AdapterContext, FilesAdapter, UploadRequest } from '../training.ts';
import {
  bearerHeaders,
  epochOf,
  failureOf,
  idSegment,
  integerOf,
  invalidAnswer,
  jsonRequest,
  sent,
  sentObject,
  textOf,
  urlOf,
} from '../training-calls.ts';

/** Ours to theirs. */
const PURPOSES: Readonly<Record<string, string>> = { 'fine-tune': 'fine-tune', batch: 'batch-api' };
/** Theirs to ours; files of other purposes (`eval…`) belong to products that are not offered here and are not shown. */
const BACK: Readonly<Record<string, string>> = {
  'fine-tune': 'fine-tune',
  'batch-api': 'batch',
  'batch-generated': 'batch_output',
};
const KINDS: ReadonlySet<string> = new Set(['jsonl', 'csv', 'parquet']);
/** Head of the answer once gigabytes have been sent. */
const UPLOAD_MS = 600_000;

function purposeOf(file: JsonObject): string | null {
  const { purpose } = file;
  return typeof purpose === 'string' && Object.hasOwn(BACK, purpose) ? (BACK[purpose] ?? null) : null;
}

/** Null: a file that is not shown. */
function fileOf(body: JsonObject): FileObject | null {
  const id = textOf(body.id);
  if (id === null) throw invalidAnswer('a file', body);
  const purpose = purposeOf(body);
  if (purpose === null) return null;
  return {
    id,
    object: 'file',
    bytes: integerOf(body.bytes) ?? 0,
    created_at: integerOf(body.created_at) ?? epochOf(body.created_at) ?? 0,
    filename: textOf(body.filename) ?? '',
    purpose,
    status: body.Processed === true ? 'processed' : 'uploaded',
  };
}

const unknownFile = (): SluiceError => new SluiceError('not_found', 'There is no file of this id.');

function upstreamPurpose(purpose: string): string {
  const known = Object.hasOwn(PURPOSES, purpose) ? PURPOSES[purpose] : undefined;
  if (known !== undefined) return known;
  throw new SluiceError(
    'unsupported_parameter',
    `together-ai cannot keep files for ${JSON.stringify(purpose)}; use "fine-tune" or "batch".`,
    { param: 'purpose' },
  );
}

/** By the ending of the name; JSON lines unless it says otherwise. */
function kindOf(filename: string): string {
  const ending = filename.slice(filename.lastIndexOf('.') + 1).toLowerCase();
  return KINDS.has(ending) ? ending : 'jsonl';
}

/**
 * Where a redirect leads. It is the store's own signed address, so it must be as safe as the account's: the same or a
 * better scheme, no password in it. The guard judges its host before anything is sent.
 */
function signedUrl(answer: AdapterAnswer, from: URL): URL {
  const location = answer.headers.location ?? '';
  const url = URL.canParse(location, from.href) ? new URL(location, from) : null;
  const safe = url !== null && (url.protocol === 'https:' || url.protocol === from.protocol);
  if (!safe || url.username !== '' || url.password !== '') {
    throw new SluiceError('upstream_invalid', 'The provider redirects to an address that cannot be used.');
  }
  return url;
}

const isRedirect = (answer: AdapterAnswer): boolean => answer.status >= 300 && answer.status < 400;

async function retrieve(id: string, context: AdapterContext): Promise<FileObject> {
  const url = urlOf(context.base, `/files/${idSegment(id)}`);
  const file = fileOf(await sentObject(context, jsonRequest('GET', url, bearerHeaders(context))));
  if (file === null) throw unknownFile();
  return file;
}

async function remove(id: string, context: AdapterContext): Promise<void> {
  const url = urlOf(context.base, `/files/${idSegment(id)}`);
  const body = await sentObject(context, jsonRequest('DELETE', url, bearerHeaders(context)));
  if (body.deleted === false) throw invalidAnswer('the deletion that was asked for');
}

/** The definition's form. */
async function uploadForm(file: UploadRequest, purpose: string, context: AdapterContext): Promise<FileObject> {
  const { filename, contentType, stream, bytes } = file;
  const fields = [
    ['purpose', purpose],
    ['file_name', filename],
    ['file_type', kindOf(filename)],
  ] as const;
  const form = multipartBody(fields, { name: 'file', filename, contentType, stream, bytes });
  const body = await sentObject(context, {
    method: 'POST',
    url: urlOf(context.base, '/files/upload'),
    headers: [...bearerHeaders(context), 'accept', 'application/json', 'content-type', form.contentType],
    body: form.stream,
    ...(form.length === null ? null : { length: form.length }),
    timeoutMs: UPLOAD_MS,
  });
  const created = fileOf(body);
  if (created === null) throw invalidAnswer('the file that was sent', body);
  return created;
}

/** Sends the bytes to the signed address, without key and without headers of the account. */
async function put(file: UploadRequest, bytes: number, url: URL, context: AdapterContext): Promise<void> {
  const answer = await context.call({
    method: 'PUT',
    url,
    headers: ['content-type', 'application/octet-stream'],
    body: file.stream,
    length: bytes,
    accountHeaders: false,
    timeoutMs: UPLOAD_MS,
  });
  if (answer.status < 200 || answer.status >= 300) throw await failureOf(answer);
  await answer.text();
}

async function upload(file: UploadRequest, context: AdapterContext): Promise<FileObject> {
  const purpose = upstreamPurpose(file.purpose);
  const { bytes } = file;
  if (bytes === null) return uploadForm(file, purpose, context);
  const form = { file_name: file.filename, file_type: kindOf(file.filename), purpose };
  const url = urlOf(context.base, '/files', form);
  const answer = await context.call({
    method: 'POST',
    url,
    headers: [
      ...bearerHeaders(context),
      'accept',
      'application/json',
      'content-type',
      'application/x-www-form-urlencoded',
    ],
    // The vendor's libraries write the fields here, in the query, or in both; the definition has neither.
    body: Buffer.from(new URLSearchParams(form).toString()),
  });
  if (answer.status === 404 || answer.status === 405) {
    answer.stream.destroy();
    return uploadForm(file, purpose, context);
  }
  if (!isRedirect(answer)) {
    if (answer.status >= 400) throw await failureOf(answer);
    answer.stream.destroy();
    throw new SluiceError('upstream_invalid', 'The provider does not say where to put the file.');
  }
  const id = textOf(answer.headers['x-together-file-id']);
  const target = signedUrl(answer, url);
  answer.stream.destroy();
  if (id === null) throw new SluiceError('upstream_invalid', 'The provider does not say what the file is called.');
  try {
    await put(file, bytes, target, context);
  } catch (error) {
    // The file exists by name already; what failed is what the caller has to know.
    await remove(id, context).catch(() => undefined);
    throw error;
  }
  return retrieve(id, context);
}

async function rows(context: AdapterContext): Promise<JsonObject[]> {
  const { data } = await sentObject(context, jsonRequest('GET', urlOf(context.base, '/files'), bearerHeaders(context)));
  if (!Array.isArray(data)) throw invalidAnswer('a list');
  return data.filter((one: JsonValue) => isObject(one));
}

export const files: FilesAdapter = {
  purposes: new Set(Object.keys(PURPOSES)),
  objectUris: false,
  upload,
  retrieve,
  remove,
  async abandon(filename, context) {
    // A file is there by name from the moment its bytes were asked for.
    for (const row of await rows(context)) {
      const id = textOf(row.id);
      if (row.filename === filename && row.Processed !== true && id !== null) await remove(id, context);
    }
  },
  async list(purpose, context) {
    const shown = (await rows(context)).map(fileOf).filter((file) => file !== null);
    return shown
      .filter((file) => purpose === null || file.purpose === purpose)
      .sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? 1 : -1));
  },
  async content(id, context) {
    const url = urlOf(context.base, `/files/${idSegment(id)}/content`);
    let answer = await context.call({ method: 'GET', url, headers: bearerHeaders(context), body: null });
    if (isRedirect(answer)) {
      answer.stream.destroy();
      const from = signedUrl(answer, url);
      answer = await sent(context, { method: 'GET', url: from, headers: [], body: null, accountHeaders: false });
    } else if (answer.status >= 400) {
      throw await failureOf(answer);
    }
    return {
      contentType: answer.headers['content-type'] ?? 'application/octet-stream',
      bytes: integerOf(answer.headers['content-length']),
      stream: answer.stream,
    };
  },
};
