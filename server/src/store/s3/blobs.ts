import { Readable } from 'node:stream';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import { completedUpload, entriesOf, isCut, nextUploads } from '../../kernel/s3.ts';
import { S3Client, S3Error, type Send } from '../../kernel/s3-client.ts';
import { textOfChild, type XmlElement } from '../../kernel/xml.ts';
import type { BlobStat, Blobs, StoredBlob, TenantContext } from '../ports.ts';
import { machineIdentity } from './identity.ts';

/** Where the blobs lie; `config.ts` reads it from one URL and the standard AWS variables. */
export interface S3BlobsOptions {
  readonly bucket: string;
  /** Without slashes at its ends; may be empty. */
  readonly prefix: string;
  readonly region: string;
  /** For another service that speaks S3. Null: Amazon's, by region. */
  readonly endpoint: string | null;
  /** `endpoint/bucket/key` instead of `bucket.endpoint/key`. */
  readonly pathStyle: boolean;
  /** Null: the identity of the machine, as in a cluster, or on a container or instance with a role. */
  readonly credentials: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken: string | null;
  } | null;
  /** Environment variables and token files that name the identity of the machine. */
  readonly variable: (name: string) => string | undefined;
  readonly file: (path: string) => Promise<string>;
  /** The way to the service, and its end. */
  readonly http: { readonly send: Send; close(): Promise<void> };
  readonly clock: Clock;
  readonly log: Log;
}

const KEY = /^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$/;
const ORGANISATION = /^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$/;
/** Bytes of a part: 10,000 of them, the most there may be, hold 80 GB. Two are held in memory for each upload. */
const PART = 8 * 1024 * 1024;
const PARTS_UNDERWAY = 2;
/** Unfinished uploads older than this belong to nobody. */
const STALE_MS = 24 * 60 * 60_000;

/** The object is not there; a missing bucket is a wrong setting and no answer. */
function isMissing(error: unknown): boolean {
  return error instanceof S3Error && error.status === 404 && error.code !== 'NoSuchBucket';
}

/** The body in pieces of `PART` bytes, the last one shorter; one empty piece of an empty body. */
async function* partsOf(body: Readable): AsyncGenerator<Buffer> {
  let held: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Uint8Array | string>) {
    held.push(Buffer.from(chunk as Uint8Array));
    bytes += held.at(-1)?.length ?? 0;
    while (bytes > PART) {
      const all = Buffer.concat(held, bytes);
      yield all.subarray(0, PART);
      held = [all.subarray(PART)];
      bytes -= PART;
    }
  }
  yield Buffer.concat(held, bytes);
}

const timeOf = (text: string | null): number => Date.parse(text ?? '') || 0;

class S3Blobs implements Blobs {
  readonly #client: S3Client;
  readonly #options: S3BlobsOptions;

  constructor(client: S3Client, options: S3BlobsOptions) {
    this.#client = client;
    this.#options = options;
  }

  async put(tenant: TenantContext, key: string, body: Readable): Promise<BlobStat> {
    let place: string;
    try {
      place = this.#place(tenant, key);
    } catch (error) {
      body.destroy();
      throw error;
    }
    const parts = partsOf(body);
    try {
      const first = await parts.next();
      const second = await parts.next();
      // One request, or the last of several, makes the object visible: never a part of it.
      if (second.done) await this.#client.done({ method: 'PUT', key: place, body: first.value ?? Buffer.alloc(0) });
      else await this.#upload(place, [first.value ?? Buffer.alloc(0), second.value], parts);
    } catch (error) {
      body.destroy();
      throw body.errored ?? this.#failure(error);
    }
    const found = await this.stat(tenant, key);
    if (found === null) throw this.#failure(new Error('the object is not there after its upload'));
    return found;
  }

  async get(tenant: TenantContext, key: string, range?: { start: number; end?: number }): Promise<Readable | null> {
    const { start = 0, end } = range ?? {};
    for (const bound of [start, end ?? 0]) {
      if (!Number.isSafeInteger(bound) || bound < 0)
        throw new RangeError('a range bound must be a whole number from 0');
    }
    const place = this.#place(tenant, key);
    if (end !== undefined && end < start) return (await this.stat(tenant, key)) === null ? null : Readable.from([]);
    const headers: Record<string, string> = range === undefined ? {} : { range: `bytes=${start}-${end ?? ''}` };
    try {
      return (await this.#client.call({ method: 'GET', key: place, headers })).body;
    } catch (error) {
      if (isMissing(error)) return null;
      // The range begins past the end.
      if (error instanceof S3Error && error.status === 416) return Readable.from([]);
      throw this.#failure(error);
    }
  }

  async stat(tenant: TenantContext, key: string): Promise<BlobStat | null> {
    const place = this.#place(tenant, key);
    try {
      const { headers } = await this.#client.done({ method: 'HEAD', key: place });
      return { bytes: Number(headers['content-length'] ?? 0), createdAt: timeOf(String(headers['last-modified'])) };
    } catch (error) {
      if (isMissing(error)) return null;
      throw this.#failure(error);
    }
  }

  /** S3 does not say whether there was something to delete: two callers at the same time may both get yes. */
  async delete(tenant: TenantContext, key: string): Promise<boolean> {
    const place = this.#place(tenant, key);
    if ((await this.stat(tenant, key)) === null) return false;
    try {
      await this.#client.done({ method: 'DELETE', key: place });
      return true;
    } catch (error) {
      throw this.#failure(error);
    }
  }

  async *all(): AsyncGenerator<StoredBlob> {
    const prefix = this.#prefix();
    let token: string | null = null;
    do {
      const query = { 'list-type': '2', prefix, 'continuation-token': token };
      const page: XmlElement = await this.#client.read({ method: 'GET', key: null, query }).catch((error: unknown) => {
        throw this.#failure(error);
      });
      for (const object of entriesOf(page, 'Contents')) {
        const named = this.#named(textOfChild(object, 'Key') ?? '');
        if (named !== null) yield { ...named, createdAt: timeOf(textOfChild(object, 'LastModified')) };
      }
      token = isCut(page) ? textOfChild(page, 'NextContinuationToken') : null;
    } while (token !== null);
  }

  /** Ends the uploads a killed process left unfinished: their parts cost money and no list shows them. */
  async abandonStale(): Promise<void> {
    const { clock, log } = this.#options;
    try {
      let markers: Readonly<Record<string, string>> | null = {};
      while (markers !== null) {
        const query: Record<string, string> = { uploads: '', prefix: this.#prefix(), ...markers };
        const page: XmlElement = await this.#client.read({ method: 'GET', key: null, query });
        for (const upload of entriesOf(page, 'Upload')) {
          const key = textOfChild(upload, 'Key') ?? '';
          const uploadId = textOfChild(upload, 'UploadId');
          const initiated = timeOf(textOfChild(upload, 'Initiated'));
          // Others may use the bucket, too.
          if (this.#named(key) === null || uploadId === null || initiated > clock.now() - STALE_MS) continue;
          await this.#client.done({ method: 'DELETE', key, query: { uploadId } });
        }
        markers = nextUploads(page);
      }
    } catch (error) {
      log.warn('unfinished uploads in the blob store could not be looked for', { error: String(error) });
    }
  }

  close(): Promise<void> {
    return this.#options.http.close();
  }

  /** Several parts, a few at a time. An upload that fails leaves none of them behind: each costs money, and no list shows it. */
  async #upload(key: string, begun: readonly Buffer[], rest: AsyncGenerator<Buffer>): Promise<void> {
    const created = await this.#client.read({ method: 'POST', key, query: { uploads: '' } });
    const uploadId = textOfChild(created, 'UploadId') ?? '';
    const tags: string[] = [];
    const underway = new Set<Promise<void>>();
    let failed: { readonly error: unknown } | null = null;
    const start = (part: Buffer): void => {
      const query = { partNumber: String(tags.push('')), uploadId };
      const sending = this.#client
        .done({ method: 'PUT', key, query, body: part })
        .then(({ headers }) => {
          tags[Number(query.partNumber) - 1] = String(headers.etag);
        })
        .catch((error: unknown) => {
          failed ??= { error };
        })
        .finally(() => underway.delete(sending));
      underway.add(sending);
    };
    const check = (): void => {
      if (failed !== null) throw failed.error;
    };
    try {
      for (const part of begun) start(part);
      for (;;) {
        while (underway.size >= PARTS_UNDERWAY) await Promise.race(underway);
        check();
        const part = await rest.next();
        if (part.done) break;
        start(part.value);
      }
      await Promise.all(underway);
      check();
      const headers = { 'content-type': 'application/xml' };
      await this.#client.read({ method: 'POST', key, query: { uploadId }, headers, body: completedUpload(tags) });
    } catch (error) {
      // A part that arrives later would stay.
      await Promise.all(underway);
      await this.#client.done({ method: 'DELETE', key, query: { uploadId } }).catch(() => undefined);
      throw error;
    }
  }

  #prefix(): string {
    return this.#options.prefix === '' ? '' : `${this.#options.prefix}/`;
  }

  /** Whose blob an object of the bucket is; null for what this store did not write. */
  #named(object: string): { readonly organisationId: string; readonly key: string } | null {
    const [organisationId = '', key = '', ...more] = object.slice(this.#prefix().length).split('/');
    return more.length > 0 || !ORGANISATION.test(organisationId) || !KEY.test(key) ? null : { organisationId, key };
  }

  #place(tenant: TenantContext, key: string): string {
    if (!ORGANISATION.test(tenant.organisationId)) throw new RangeError('not an organisation id');
    if (!KEY.test(key)) throw new RangeError('a blob key has 1 to 200 letters, digits, dots, hyphens and underscores');
    return `${this.#prefix()}${tenant.organisationId}/${key}`;
  }

  #failure(error: unknown): Error {
    if (error instanceof SluiceError) return error;
    return new SluiceError('unavailable', 'The file store cannot be reached right now. Try again later.', {
      cause: error,
      detail: String(error),
    });
  }
}

/** Blobs as objects `prefix/<organisation>/<key>` of one bucket, which the operator's configuration alone names. */
export async function openS3Blobs(options: S3BlobsOptions): Promise<Blobs> {
  const { bucket, region, pathStyle, credentials, http, clock } = options;
  const { send } = http;
  const domain = region.startsWith('cn-') ? 'amazonaws.com.cn' : 'amazonaws.com';
  const endpoint = options.endpoint?.replace(/\/$/, '') ?? `https://s3.${region}.${domain}`;
  const { accessKeyId = '', secretAccessKey = '', sessionToken = null } = credentials ?? {};
  const given = { accessKeyId, secretAccessKey, ...(sessionToken === null ? {} : { sessionToken }) };
  const keys = credentials === null ? machineIdentity({ ...options, domain, send }) : async () => given;
  const blobs = new S3Blobs(new S3Client({ bucket, region, endpoint, pathStyle, keys, clock, send }), options);
  await blobs.abandonStale();
  return blobs;
}
