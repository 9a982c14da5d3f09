/** Cloud Storage through its JSON API v1: objects of one bucket, uploads and contents streamed. */

import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import { IN_ITS_STEAD } from '../../operations/dialects/provider-error.ts';
import type { AdapterAnswer, AdapterContext, AdapterRequest } from '../training.ts';
import { epochOf, failureOf, integerOf, invalidAnswer, sent, sentJson, textOf, urlOf } from '../training-calls.ts';
import { googleHeaders } from './credentials.ts';

export interface ObjectPlace {
  readonly bucket: string;
  readonly name: string;
}

export interface StoredObject extends ObjectPlace {
  readonly bytes: number;
  readonly contentType: string;
  /** Unix seconds. */
  readonly createdAt: number;
  /** Changes with each overwriting. */
  readonly generation: string;
  readonly metadata: Readonly<Record<string, unknown>>;
}

const BUCKET_HEADER = 'x-gateway-cloud-storage-bucket-name';
const BUCKET = /^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$/;
const IP_FORM = /^\d{1,3}(\.\d{1,3}){3}$/;
const FIELDS = 'name,bucket,size,contentType,timeCreated,generation,metadata';
const PAGE = 1000;
/** Pages of one listing; a bucket that holds more is no bucket for files. */
const MAX_PAGES = 50;

/** 3 to 63 lower-case letters, digits, dots, hyphens and underscores, and no address. */
export const isStorageBucket = (name: string): boolean => BUCKET.test(name) && !IP_FORM.test(name);

/** With a custom host everything of the account goes there: a private endpoint or an emulator serves both APIs. */
function root(context: AdapterContext): string {
  return context.customHost ? new URL(context.base).origin : 'https://storage.googleapis.com';
}

function objectUrl(
  context: AdapterContext,
  place: ObjectPlace,
  query: Readonly<Record<string, string | number>> = {},
): URL {
  return urlOf(root(context), `/storage/v1/b/${place.bucket}/o/${encodeURIComponent(place.name)}`, query);
}

/** The bucket the request or its `gateway_options` name; null when they name none. */
function namedBucket(context: AdapterContext): string | null {
  const bucket = context.header(BUCKET_HEADER);
  if (bucket === undefined) return null;
  if (!isStorageBucket(bucket)) {
    throw new SluiceError(
      'invalid_request',
      `${BUCKET_HEADER} must be a bucket name: 3 to 63 lower-case letters, digits, dots, hyphens or underscores.`,
      { param: BUCKET_HEADER },
    );
  }
  return bucket;
}

/** The bucket of file operations; 400 when none is named. */
export function bucketOf(context: AdapterContext): string {
  const bucket = namedBucket(context);
  if (bucket !== null) return bucket;
  throw new SluiceError('invalid_request', `Files of this provider live in a bucket; name it in ${BUCKET_HEADER}.`, {
    param: BUCKET_HEADER,
  });
}

/** 403 for a place outside the named bucket: else a caller could read whatever the credential can read. */
export function insideBucket(context: AdapterContext, bucket: string, param: string | null): void {
  const named = namedBucket(context);
  if (named === null || named === bucket) return;
  throw new SluiceError('provider_error', `The object is not in the bucket that ${BUCKET_HEADER} names.`, {
    provider: IN_ITS_STEAD.forbidden,
    param,
  });
}

/** `gs://bucket/name` or its percent-encoded form taken apart; null for anything else. The name may be empty. */
export function parseUri(text: string): ObjectPlace | null {
  let uri = text;
  if (!uri.startsWith('gs://')) {
    try {
      uri = decodeURIComponent(text);
    } catch {
      return null;
    }
  }
  if (!uri.startsWith('gs://')) return null;
  const slash = uri.indexOf('/', 5);
  const bucket = slash < 0 ? uri.slice(5) : uri.slice(5, slash);
  const name = slash < 0 ? '' : uri.slice(slash + 1);
  if (!BUCKET.test(bucket) || IP_FORM.test(bucket)) return null;
  // `.` and `..` are no object names, and would leave the path of the call.
  const plain = name !== '.' && name !== '..' && Buffer.byteLength(name) <= 1024;
  const printable = [...name].every((char) => char >= ' ' && char !== '\u007f');
  return plain && printable ? { bucket, name } : null;
}

/** Whether jobs read the URI as a pattern, which may mean objects of anybody. */
export const isPattern = (place: ObjectPlace): boolean => /[*?[]/.test(place.name);
export const PATTERN = 'Name one object: a URI with *, ? or [ is read as a pattern here.';

export const uriOf = (place: ObjectPlace): string => `gs://${place.bucket}/${place.name}`;

function toObject(value: unknown): StoredObject {
  const row: JsonObject = isObject(value) ? value : {};
  const bucket = textOf(row.bucket);
  const name = textOf(row.name);
  if (bucket === null || name === null) throw invalidAnswer('an object of the bucket');
  return {
    bucket,
    name,
    bytes: integerOf(row.size) ?? 0,
    contentType: textOf(row.contentType) ?? 'application/octet-stream',
    createdAt: epochOf(row.timeCreated) ?? 0,
    generation: textOf(row.generation) ?? '',
    metadata: isObject(row.metadata) ? row.metadata : {},
  };
}

async function send(context: AdapterContext, request: Omit<AdapterRequest, 'headers'>): Promise<AdapterAnswer> {
  return sent(context, { ...request, headers: [...(await googleHeaders(context)), 'accept', 'application/json'] });
}

/** The bucket holds something else under the name. */
export function occupied(place: ObjectPlace): SluiceError {
  return new SluiceError('provider_error', `The bucket holds an object ${JSON.stringify(place.name)} already.`, {
    provider: IN_ITS_STEAD.conflict,
    param: 'x-gateway-provider-file-name',
  });
}

/**
 * Stores a stream as one object, its metadata in front of it in the same request: either the whole object is there
 * afterwards or nothing of it, so a client that leaves leaves nothing behind. `replaces` is the generation of the object
 * that may be overwritten, null when there is none: whatever else has the name by then stays (409).
 */
export async function putObject(
  context: AdapterContext,
  place: ObjectPlace,
  content: {
    readonly stream: Readable;
    readonly bytes: number | null;
    readonly contentType: string;
    readonly metadata: Readonly<Record<string, string>>;
    readonly replaces: string | null;
  },
): Promise<StoredObject> {
  // From here on: a client may leave while the token is fetched, and an error nobody listens for ends the process.
  content.stream.on('error', () => {});
  const authorization = await googleHeaders(context);
  const boundary = `sluice-${context.uuid()}`;
  const about = JSON.stringify({ name: place.name, contentType: content.contentType, metadata: content.metadata });
  const head = Buffer.from(
    `--${boundary}\r\ncontent-type: application/json; charset=UTF-8\r\n\r\n${about}\r\n` +
      `--${boundary}\r\ncontent-type: ${content.contentType}\r\n\r\n`,
  );
  const tail = Buffer.from(`\r\n--${boundary}--\r\n`);
  let seen = 0;
  const parts = async function* (): AsyncGenerator<Buffer> {
    yield head;
    for await (const part of content.stream as AsyncIterable<Buffer>) {
      seen += part.length;
      yield part;
    }
    yield tail;
  };
  const body = Readable.from(parts(), { objectMode: false });
  // A generator that never ran has no way to let go of its source.
  body.once('close', () => content.stream.destroy());
  const answer = await context.call({
    method: 'POST',
    url: urlOf(root(context), `/upload/storage/v1/b/${place.bucket}/o`, {
      uploadType: 'multipart',
      ifGenerationMatch: content.replaces ?? '0',
      fields: FIELDS,
    }),
    headers: [
      ...authorization,
      'accept',
      'application/json',
      'content-type',
      `multipart/related; boundary=${boundary}`,
    ],
    body,
    ...(content.bytes === null ? null : { length: head.length + content.bytes + tail.length }),
  });
  if (answer.status === 412) {
    answer.stream.destroy();
    throw occupied(place);
  }
  if (answer.status !== 200) throw await failureOf(answer);
  const stored = toObject(await answer.json());
  if (stored.bytes !== seen) {
    await removeObject(context, place);
    throw invalidAnswer(`an object of ${seen} bytes`, { stored: stored.bytes });
  }
  return stored;
}

export async function readObject(context: AdapterContext, place: ObjectPlace): Promise<StoredObject> {
  const answer = await send(context, { method: 'GET', url: objectUrl(context, place, { fields: FIELDS }), body: null });
  return toObject(await answer.json());
}

/** The object, or null when there is none. */
export async function findObject(context: AdapterContext, place: ObjectPlace): Promise<StoredObject | null> {
  try {
    return await readObject(context, place);
  } catch (error) {
    if (error instanceof SluiceError && errorStatus(error) === 404) return null;
    throw error;
  }
}

export async function removeObject(context: AdapterContext, place: ObjectPlace): Promise<void> {
  const answer = await send(context, { method: 'DELETE', url: objectUrl(context, place), body: null });
  answer.stream.destroy();
}

/** The bytes of an object as they arrive. */
export async function openObject(
  context: AdapterContext,
  place: ObjectPlace,
): Promise<{ readonly stream: Readable; readonly contentType: string; readonly bytes: number | null }> {
  const answer = await sent(context, {
    method: 'GET',
    url: objectUrl(context, place, { alt: 'media' }),
    headers: await googleHeaders(context),
    body: null,
  });
  return {
    stream: answer.stream,
    contentType: answer.headers['content-type'] ?? 'application/octet-stream',
    bytes: integerOf(answer.headers['content-length']),
  };
}

/** Every object below `prefix`, in the bucket's order (by name). */
export async function* listObjects(
  context: AdapterContext,
  bucket: string,
  prefix: string,
): AsyncGenerator<StoredObject> {
  let token: string | null = null;
  for (let page = 0; page < MAX_PAGES; page++) {
    const body: unknown = await sentJson(context, {
      method: 'GET',
      url: urlOf(root(context), `/storage/v1/b/${bucket}/o`, {
        prefix: prefix === '' ? null : prefix,
        maxResults: PAGE,
        pageToken: token,
        fields: `items(${FIELDS}),nextPageToken`,
      }),
      headers: [...(await googleHeaders(context)), 'accept', 'application/json'],
      body: null,
    });
    if (!isObject(body)) throw invalidAnswer('a list of objects');
    // An empty bucket answers without `items`.
    for (const item of Array.isArray(body.items) ? body.items : []) yield toObject(item);
    token = textOf(body.nextPageToken);
    if (token === null) return;
  }
  throw new SluiceError(
    'invalid_request',
    `The bucket holds more than ${MAX_PAGES * PAGE} objects. Keep files in a separate bucket.`,
    { param: BUCKET_HEADER },
  );
}
