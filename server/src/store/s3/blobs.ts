import { Readable } from 'node:stream';
import type { ListMultipartUploadsCommandOutput, S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import type { BlobStat, Blobs, StoredBlob, TenantContext } from '../ports.ts';

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
  /** Null: the SDK looks for the identity of the machine, as on a container or instance with a role. */
  readonly credentials: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken: string | null;
  } | null;
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

type Sdk = typeof import('@aws-sdk/client-s3');
type UploadClass = typeof import('@aws-sdk/lib-storage').Upload;

function statusOf(error: unknown): number | null {
  if (typeof error !== 'object' || error === null || !('$metadata' in error)) return null;
  const { $metadata: metadata } = error as { $metadata?: { httpStatusCode?: number } };
  return metadata?.httpStatusCode ?? null;
}

/** The object is not there; a missing bucket is a wrong setting and no answer. */
function isMissing(error: unknown): boolean {
  return statusOf(error) === 404 && !(error instanceof Error && error.name === 'NoSuchBucket');
}

class S3Blobs implements Blobs {
  readonly #sdk: Sdk;
  readonly #upload: UploadClass;
  readonly #client: S3Client;
  readonly #options: S3BlobsOptions;

  constructor(sdk: Sdk, upload: UploadClass, client: S3Client, options: S3BlobsOptions) {
    this.#sdk = sdk;
    this.#upload = upload;
    this.#client = client;
    this.#options = options;
  }

  async put(tenant: TenantContext, key: string, body: Readable): Promise<BlobStat> {
    let place: { Bucket: string; Key: string };
    try {
      place = this.#place(tenant, key);
    } catch (error) {
      body.destroy();
      throw error;
    }
    // One request, or the last of several, makes the object visible: never a part of it.
    const upload = new this.#upload({
      client: this.#client,
      params: { ...place, Body: body },
      partSize: PART,
      queueSize: PARTS_UNDERWAY,
    });
    try {
      // A failing body ends it, and it removes its parts before it says so. `abort()` would not wait for that.
      await upload.done();
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
    const wanted = range === undefined ? {} : { Range: `bytes=${start}-${end ?? ''}` };
    try {
      const { Body } = await this.#client.send(new this.#sdk.GetObjectCommand({ ...place, ...wanted }));
      if (!(Body instanceof Readable)) throw new Error('the answer has no body');
      return Body;
    } catch (error) {
      if (isMissing(error)) return null;
      // The range begins past the end.
      if (statusOf(error) === 416) return Readable.from([]);
      throw this.#failure(error);
    }
  }

  async stat(tenant: TenantContext, key: string): Promise<BlobStat | null> {
    const place = this.#place(tenant, key);
    try {
      const found = await this.#client.send(new this.#sdk.HeadObjectCommand(place));
      return { bytes: found.ContentLength ?? 0, createdAt: found.LastModified?.getTime() ?? 0 };
    } catch (error) {
      if (isMissing(error)) return null;
      throw this.#failure(error);
    }
  }

  /** S3 does not say whether there was something to delete: two callers at the same time may both be told so. */
  async delete(tenant: TenantContext, key: string): Promise<boolean> {
    const place = this.#place(tenant, key);
    if ((await this.stat(tenant, key)) === null) return false;
    try {
      await this.#client.send(new this.#sdk.DeleteObjectCommand(place));
      return true;
    } catch (error) {
      throw this.#failure(error);
    }
  }

  async *all(): AsyncGenerator<StoredBlob> {
    const prefix = this.#prefix();
    let token: string | undefined;
    do {
      const page = await this.#client
        .send(
          new this.#sdk.ListObjectsV2Command({
            Bucket: this.#options.bucket,
            Prefix: prefix,
            ...(token === undefined ? {} : { ContinuationToken: token }),
          }),
        )
        .catch((error: unknown) => {
          throw this.#failure(error);
        });
      for (const { Key, LastModified } of page.Contents ?? []) {
        const named = this.#named(Key ?? '');
        if (named !== null) yield { ...named, createdAt: LastModified?.getTime() ?? 0 };
      }
      token = page.IsTruncated ? page.NextContinuationToken : undefined;
    } while (token !== undefined);
  }

  /** Ends the uploads a killed process left unfinished: their parts cost money and no list shows them. */
  async abandonStale(): Promise<void> {
    const { bucket, clock, log } = this.#options;
    try {
      let markers: { readonly KeyMarker?: string; readonly UploadIdMarker?: string } | null = {};
      while (markers !== null) {
        const page: ListMultipartUploadsCommandOutput = await this.#client.send(
          new this.#sdk.ListMultipartUploadsCommand({ Bucket: bucket, Prefix: this.#prefix(), ...markers }),
        );
        for (const { Key, UploadId, Initiated } of page.Uploads ?? []) {
          if (Key === undefined || UploadId === undefined || Initiated === undefined) continue;
          // Others may use the bucket, too.
          if (this.#named(Key) === null || Initiated.getTime() > clock.now() - STALE_MS) continue;
          await this.#client.send(new this.#sdk.AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId }));
        }
        const { NextKeyMarker: KeyMarker, NextUploadIdMarker: UploadIdMarker } = page;
        const more = page.IsTruncated === true && KeyMarker !== undefined && UploadIdMarker !== undefined;
        markers = more ? { KeyMarker, UploadIdMarker } : null;
      }
    } catch (error) {
      log.warn('unfinished uploads in the blob store could not be looked for', { error: String(error) });
    }
  }

  async close(): Promise<void> {
    this.#client.destroy();
  }

  #prefix(): string {
    return this.#options.prefix === '' ? '' : `${this.#options.prefix}/`;
  }

  /** Whose blob an object of the bucket is; null for what this store did not write. */
  #named(object: string): { readonly organisationId: string; readonly key: string } | null {
    const [organisationId = '', key = '', ...more] = object.slice(this.#prefix().length).split('/');
    return more.length > 0 || !ORGANISATION.test(organisationId) || !KEY.test(key) ? null : { organisationId, key };
  }

  #place(tenant: TenantContext, key: string): { Bucket: string; Key: string } {
    if (!ORGANISATION.test(tenant.organisationId)) throw new RangeError('not an organisation id');
    if (!KEY.test(key)) throw new RangeError('a blob key has 1 to 200 letters, digits, dots, hyphens and underscores');
    return { Bucket: this.#options.bucket, Key: `${this.#prefix()}${tenant.organisationId}/${key}` };
  }

  #failure(error: unknown): Error {
    if (error instanceof SluiceError) return error;
    return new SluiceError('unavailable', 'The file store cannot be reached right now. Try again later.', {
      cause: error,
      detail: String(error),
    });
  }
}

/**
 * Blobs as objects `prefix/<organisation>/<key>` of one bucket. The SDK opens its own connections: bucket and endpoint
 * come from the operator's configuration alone, never from a request, and are trusted by it.
 */
export async function openS3Blobs(options: S3BlobsOptions): Promise<Blobs> {
  // Some 10 MB of code that only this store needs.
  const [sdk, { Upload }] = await Promise.all([import('@aws-sdk/client-s3'), import('@aws-sdk/lib-storage')]);
  const { region, endpoint, pathStyle, credentials } = options;
  const client = new sdk.S3Client({
    region,
    forcePathStyle: pathStyle,
    ...(endpoint === null ? {} : { endpoint }),
    ...(credentials === null
      ? {}
      : {
          credentials: {
            accessKeyId: credentials.accessKeyId,
            secretAccessKey: credentials.secretAccessKey,
            ...(credentials.sessionToken === null ? {} : { sessionToken: credentials.sessionToken }),
          },
        }),
    // Other services that speak S3 often lack the newer checksums.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    followRegionRedirects: false,
  });
  const blobs = new S3Blobs(sdk, Upload, client, options);
  await blobs.abandonStale();
  return blobs;
}
