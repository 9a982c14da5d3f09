import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { crc32 } from 'node:zlib';
import { Fault, S3Error, unframed } from './aws-chunked.ts';
import { type AwsKeys, signatureFault } from './sigv4.ts';

export const S3_KEYS: AwsKeys = { accessKeyId: 'AKIDS3TEST', secretAccessKey: 's3-test-secret-key' };
export const S3_REGION = 'eu-central-1';

/** What one request asked for, as far as it was understood. */
export interface S3Request {
  readonly operation: S3Operation;
  readonly bucket: string;
  readonly key: string;
  readonly headers: IncomingMessage['headers'];
  readonly query: URLSearchParams;
  /** Bytes of the decoded body; known once it was read. */
  bytes: number;
  /** `path` or `host`: where the bucket was named. */
  readonly style: 'path' | 'host';
}

export type S3Operation =
  | 'PutObject'
  | 'GetObject'
  | 'HeadObject'
  | 'DeleteObject'
  | 'ListObjectsV2'
  | 'HeadBucket'
  | 'CreateMultipartUpload'
  | 'UploadPart'
  | 'CompleteMultipartUpload'
  | 'AbortMultipartUpload'
  | 'ListMultipartUploads'
  | 'ListParts';

/** A failure to answer with instead of doing what was asked. */
export interface S3Failure {
  /** 200 on `CompleteMultipartUpload` gives the error body that S3 sends after it began to answer. */
  readonly status: number;
  readonly code: string;
  readonly message?: string;
  /** The connection is cut before anything is answered. */
  readonly cut?: boolean;
  /** Bytes of the request body that are read before the failure. Default: all. */
  readonly after?: number;
}

interface Piece {
  readonly path: string;
  readonly size: number;
}

interface Stored {
  readonly pieces: readonly Piece[];
  readonly size: number;
  readonly etag: string;
  readonly modified: Date;
  readonly headers: Readonly<Record<string, string>>;
}

interface Upload {
  readonly id: string;
  readonly key: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly initiated: Date;
  readonly parts: Map<number, { readonly piece: Piece; readonly etag: string; readonly md5: Buffer }>;
}

interface Bucket {
  readonly objects: Map<string, Stored>;
  readonly uploads: Map<string, Upload>;
}

export interface S3Server {
  readonly port: number;
  /** `http://127.0.0.1:port` */
  readonly url: string;
  /** What did not fit the protocol; a test that leaves any has failed. */
  readonly faults: string[];
  readonly requests: S3Request[];
  /** Most entries of one page of a list. Default 1000 as in the real service. */
  pageSize: number;
  /** Decides on failures; the return value null lets the request through. */
  fail: (request: S3Request) => S3Failure | null;
  createBucket(name: string): void;
  keys(bucket: string): string[];
  /** The whole content of an object; null when there is none. */
  read(bucket: string, key: string): Promise<Buffer | null>;
  /** Headers an object was stored with, `x-amz-*` and content headers. */
  headersOf(bucket: string, key: string): Readonly<Record<string, string>> | null;
  put(bucket: string, key: string, body: Buffer | string, headers?: Record<string, string>): Promise<void>;
  /** Keys of multipart uploads that were neither completed nor aborted. */
  openUploads(bucket: string): string[];
  stop(): Promise<void>;
}

export interface S3ServerOptions {
  readonly buckets?: readonly string[];
  readonly keys?: readonly AwsKeys[];
  readonly region?: string;
  /** Clock that signatures and modification times are checked with; absent: signatures of any time. */
  readonly now?: () => number;
  /** Smallest part besides the last. Default 5 MiB as in the real service. */
  readonly minPart?: number;
}

const MIB = 1024 * 1024;
/** Request headers kept with an object and given back. */
const KEPT =
  /^(content-(?:type|encoding|language|disposition)|cache-control|x-amz-meta-.+|x-amz-server-side-encryption.*)$/;
const escapeXml = (text: string): string =>
  text.replace(/[<>&"']/g, (c) => `&${{ '<': 'lt', '>': 'gt', '&': 'amp', '"': 'quot', "'": 'apos' }[c]};`);

/**
 * An S3-compatible server on loopback: path style and virtual-host style by `Host`, single and multipart uploads, ranges,
 * paged lists. Every signature is checked by a second implementation; content lies in a temporary folder, so that large
 * objects cost no memory.
 */
export async function startS3Server(options: S3ServerOptions = {}): Promise<S3Server> {
  const region = options.region ?? S3_REGION;
  const keys = options.keys ?? [S3_KEYS];
  const minPart = options.minPart ?? 5 * MIB;
  const dir = await mkdtemp(join(tmpdir(), 's3-'));
  const buckets = new Map<string, Bucket>();
  const faults: string[] = [];
  const requests: S3Request[] = [];
  let lastModified = 0;

  const createBucket = (name: string): void => {
    buckets.set(name, { objects: new Map(), uploads: new Map() });
  };
  for (const name of options.buckets ?? []) createBucket(name);
  const modifiedNow = (): Date => {
    lastModified = Math.max(lastModified, options.now?.() ?? Date.now());
    return new Date(lastModified);
  };
  const bucketOf = (name: string): Bucket => {
    const bucket = buckets.get(name);
    if (bucket === undefined) throw new S3Error(404, 'NoSuchBucket', 'The specified bucket does not exist');
    return bucket;
  };

  function operationOf(method: string, key: string, query: URLSearchParams): S3Operation | null {
    if (key === '') {
      if (method === 'HEAD') return 'HeadBucket';
      if (method !== 'GET') return null;
      if (query.has('uploads')) return 'ListMultipartUploads';
      return query.get('list-type') === '2' ? 'ListObjectsV2' : null;
    }
    const upload = query.has('uploadId');
    switch (method) {
      case 'PUT':
        return upload && query.has('partNumber') ? 'UploadPart' : upload ? null : 'PutObject';
      case 'POST':
        return query.has('uploads') ? 'CreateMultipartUpload' : upload ? 'CompleteMultipartUpload' : null;
      case 'GET':
        return upload ? 'ListParts' : 'GetObject';
      case 'HEAD':
        return 'HeadObject';
      case 'DELETE':
        return upload ? 'AbortMultipartUpload' : 'DeleteObject';
      default:
        return null;
    }
  }

  /** Bucket and key of a request: the bucket is the first label of the host, or the first part of the path. */
  function placeOf(request: IncomingMessage): { bucket: string; key: string; style: 'path' | 'host' } {
    const host = (request.headers.host ?? '').replace(/:\d+$/, '');
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    const virtual = /^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])\.(?:s3[.-][a-z0-9-]+\.amazonaws\.com|localhost)$/.exec(host);
    if (virtual !== null) return { bucket: virtual[1] ?? '', key: decodeURIComponent(path.slice(1)), style: 'host' };
    const [, bucket = '', ...rest] = path.split('/');
    return { bucket: decodeURIComponent(bucket), key: decodeURIComponent(rest.join('/')), style: 'path' };
  }

  /** Writes a request body to disk and checks length, hashes and checksums on the way. */
  async function receive(request: IncomingMessage, entry: S3Request, after?: number): Promise<[Piece, Buffer]> {
    const hash = createHash('sha256');
    const md5 = createHash('md5');
    const path = join(dir, randomUUID());
    let size = 0;
    let sum = 0;
    const payload = String(request.headers['x-amz-content-sha256']);
    const chunked = payload.startsWith('STREAMING-');
    if (request.headers['content-length'] === undefined && !chunked)
      throw new Fault(411, 'MissingContentLength', 'a body without content-length');
    const decoded = Number(request.headers['x-amz-decoded-content-length']);
    if (chunked && !Number.isSafeInteger(decoded)) throw new Fault(411, 'MissingContentLength', 'decoded length');
    const source: AsyncIterable<Buffer> = chunked ? unframed(request, decoded) : request;
    await pipeline(async function* () {
      for await (const chunk of source) {
        hash.update(chunk);
        md5.update(chunk);
        sum = crc32(chunk, sum);
        size += chunk.length;
        if (after !== undefined && size >= after) return;
        yield chunk;
      }
    }, createWriteStream(path));
    entry.bytes = size;
    if (after === undefined) {
      if (/^[0-9a-f]{64}$/.test(payload) && hash.digest('hex') !== payload)
        throw new Fault(400, 'XAmzContentSHA256Mismatch', 'the body does not fit x-amz-content-sha256');
      const wanted = request.headers['x-amz-checksum-crc32'];
      if (wanted !== undefined) {
        const bytes = Buffer.alloc(4);
        bytes.writeUInt32BE(sum >>> 0);
        if (bytes.toString('base64') !== wanted) throw new Fault(400, 'BadDigest', 'x-amz-checksum-crc32');
      }
    }
    return [{ path, size }, md5.digest()];
  }

  const keptHeaders = (request: IncomingMessage): Record<string, string> => {
    const out: Record<string, string> = {};
    for (const [name, value] of Object.entries(request.headers)) {
      if (!KEPT.test(name) || value === undefined) continue;
      const text = name === 'content-encoding' ? String(value).replace(/^aws-chunked,?\s*/, '') : String(value);
      if (text !== '') out[name] = text;
    }
    return out;
  };

  function xml(response: ServerResponse, body: string, status = 200): void {
    const bytes = Buffer.from(`<?xml version="1.0" encoding="UTF-8"?>\n${body}`);
    response.writeHead(status, { 'content-type': 'application/xml', 'content-length': bytes.length });
    response.end(bytes);
  }

  const errorXml = (code: string, message: string): string =>
    `<Error><Code>${escapeXml(code)}</Code><Message>${escapeXml(message)}</Message><RequestId>R1</RequestId><HostId>H1</HostId></Error>`;

  async function* contentOf(object: Stored, from: number, to: number): AsyncGenerator<Buffer> {
    let at = 0;
    for (const piece of object.pieces) {
      const start = Math.max(from - at, 0);
      const end = Math.min(to - at, piece.size - 1);
      at += piece.size;
      if (start > end) continue;
      yield* createReadStream(piece.path, { start, end }) as AsyncIterable<Buffer>;
    }
  }

  function describe(object: Stored): Record<string, string | number> {
    return {
      ...object.headers,
      'content-type': object.headers['content-type'] ?? 'binary/octet-stream',
      'content-length': object.size,
      etag: object.etag,
      'last-modified': object.modified.toUTCString(),
      'accept-ranges': 'bytes',
    };
  }

  const objectOf = (entry: S3Request): Stored => {
    const object = bucketOf(entry.bucket).objects.get(entry.key);
    if (object === undefined) throw new S3Error(404, 'NoSuchKey', 'The specified key does not exist.');
    return object;
  };

  const uploadOf = (entry: S3Request): Upload => {
    const upload = bucketOf(entry.bucket).uploads.get(entry.query.get('uploadId') ?? '');
    if (upload === undefined || upload.key !== entry.key)
      throw new S3Error(404, 'NoSuchUpload', 'The specified multipart upload does not exist.');
    return upload;
  };

  async function getObject(request: IncomingMessage, entry: S3Request, response: ServerResponse): Promise<void> {
    const object = objectOf(entry);
    const range = /^bytes=(\d*)-(\d*)$/.exec(request.headers.range ?? '');
    let from = 0;
    let to = object.size - 1;
    if (range !== null) {
      if (range[1] === '') from = Math.max(0, object.size - Number(range[2]));
      else {
        from = Number(range[1]);
        if (range[2] !== '') to = Math.min(to, Number(range[2]));
      }
      if (from > to) throw new S3Error(416, 'InvalidRange', 'The requested range is not satisfiable');
    }
    response.writeHead(range === null ? 200 : 206, {
      ...describe(object),
      'content-length': object.size === 0 ? 0 : to - from + 1,
      ...(range === null ? {} : { 'content-range': `bytes ${from}-${to}/${object.size}` }),
    });
    // A reader that goes away is its own business.
    await pipeline(Readable.from(contentOf(object, from, to)), response).catch(() => undefined);
  }

  function listObjects(entry: S3Request, response: ServerResponse): void {
    const { query } = entry;
    const known = [
      'list-type',
      'prefix',
      'max-keys',
      'continuation-token',
      'start-after',
      'encoding-type',
      'delimiter',
    ];
    for (const name of query.keys())
      if (!known.includes(name) && name !== 'fetch-owner' && name !== 'x-id')
        throw new Fault(400, 'InvalidArgument', name);
    const prefix = query.get('prefix') ?? '';
    const delimiter = query.get('delimiter') ?? '';
    const token = query.get('continuation-token');
    const start = token === null ? (query.get('start-after') ?? '') : Buffer.from(token, 'base64url').toString();
    const max = Math.min(Number(query.get('max-keys') ?? 1000), server.pageSize);
    const encode =
      query.get('encoding-type') === 'url' ? (s: string) => encodeURIComponent(s).replace(/%2F/g, '/') : escapeXml;
    const names = [...bucketOf(entry.bucket).objects.keys()].filter((key) => key.startsWith(prefix)).sort();
    const rows: string[] = [];
    const prefixes: string[] = [];
    let next: string | null = null;
    let last = start;
    for (const key of names) {
      const cut = delimiter === '' ? -1 : key.indexOf(delimiter, prefix.length);
      const common = cut < 0 ? null : key.slice(0, cut + delimiter.length);
      if (
        key <= start ||
        (common !== null && start.startsWith(common)) ||
        (common !== null && prefixes.includes(common))
      )
        continue;
      if (rows.length + prefixes.length >= max) {
        next = last;
        break;
      }
      last = common ?? key;
      if (common !== null) {
        prefixes.push(common);
        continue;
      }
      const object = bucketOf(entry.bucket).objects.get(key);
      if (object === undefined) continue;
      rows.push(
        `<Contents><Key>${encode(key)}</Key><LastModified>${object.modified.toISOString()}</LastModified><ETag>${escapeXml(object.etag)}</ETag><Size>${object.size}</Size><StorageClass>STANDARD</StorageClass></Contents>`,
      );
    }
    const more =
      next === null ? '' : `<NextContinuationToken>${Buffer.from(next).toString('base64url')}</NextContinuationToken>`;
    xml(
      response,
      `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>${entry.bucket}</Name><Prefix>${encode(prefix)}</Prefix><KeyCount>${rows.length + prefixes.length}</KeyCount><MaxKeys>${max}</MaxKeys><IsTruncated>${next !== null}</IsTruncated>${more}${rows.join('')}${prefixes.map((one) => `<CommonPrefixes><Prefix>${encode(one)}</Prefix></CommonPrefixes>`).join('')}</ListBucketResult>`,
    );
  }

  async function complete(
    request: IncomingMessage,
    entry: S3Request,
    response: ServerResponse,
    failure: S3Failure | null,
  ): Promise<void> {
    const [piece] = await receive(request, entry);
    const text = await readFile(piece.path, 'utf8');
    if (failure?.status === 200) {
      xml(response, errorXml(failure.code, failure.message ?? failure.code));
      return;
    }
    const upload = uploadOf(entry);
    const named = [...text.matchAll(/<Part>(.*?)<\/Part>/gs)].map(([, part = '']) => ({
      number: Number(/<PartNumber>(\d+)<\/PartNumber>/.exec(part)?.[1]),
      etag: (/<ETag>(.*?)<\/ETag>/.exec(part)?.[1] ?? '').replace(/&quot;|&#34;/g, '"'),
    }));
    if (named.length === 0) throw new Fault(400, 'MalformedXML', 'a completion without parts');
    const pieces: Piece[] = [];
    const digests: Buffer[] = [];
    let before = 0;
    for (const [index, { number, etag }] of named.entries()) {
      const part = upload.parts.get(number);
      if (part === undefined || part.etag !== etag) throw new Fault(400, 'InvalidPart', `part ${number} ${etag}`);
      if (number <= before) throw new Fault(400, 'InvalidPartOrder', `part ${number}`);
      if (index < named.length - 1 && part.piece.size < minPart)
        throw new Fault(400, 'EntityTooSmall', `part ${number} has ${part.piece.size} bytes`);
      before = number;
      pieces.push(part.piece);
      digests.push(part.md5);
    }
    const bucket = bucketOf(entry.bucket);
    const etag = `"${createHash('md5').update(Buffer.concat(digests)).digest('hex')}-${digests.length}"`;
    const size = pieces.reduce((sum, one) => sum + one.size, 0);
    bucket.uploads.delete(upload.id);
    bucket.objects.set(entry.key, { pieces, size, etag, modified: modifiedNow(), headers: upload.headers });
    xml(
      response,
      `<CompleteMultipartUploadResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Location>${escapeXml(url)}</Location><Bucket>${entry.bucket}</Bucket><Key>${escapeXml(entry.key)}</Key><ETag>${escapeXml(etag)}</ETag></CompleteMultipartUploadResult>`,
    );
  }

  async function perform(
    request: IncomingMessage,
    entry: S3Request,
    response: ServerResponse,
    failure: S3Failure | null,
  ): Promise<void> {
    const bucket = bucketOf(entry.bucket);
    switch (entry.operation) {
      case 'HeadBucket':
        response.writeHead(200).end();
        return;
      case 'PutObject': {
        const [piece, md5] = await receive(request, entry);
        const etag = `"${md5.toString('hex')}"`;
        if (request.headers['if-none-match'] === '*' && bucket.objects.has(entry.key))
          throw new S3Error(412, 'PreconditionFailed', 'At least one of the pre-conditions you specified did not hold');
        bucket.objects.set(entry.key, {
          pieces: [piece],
          size: piece.size,
          etag,
          modified: modifiedNow(),
          headers: keptHeaders(request),
        });
        response.writeHead(200, { etag, 'content-length': 0 }).end();
        return;
      }
      case 'GetObject':
        return getObject(request, entry, response);
      case 'HeadObject':
        response.writeHead(200, describe(objectOf(entry))).end();
        return;
      case 'DeleteObject':
        bucket.objects.delete(entry.key);
        response.writeHead(204).end();
        return;
      case 'ListObjectsV2':
        return listObjects(entry, response);
      case 'CreateMultipartUpload': {
        const id = randomUUID().replaceAll('-', '');
        bucket.uploads.set(id, {
          id,
          key: entry.key,
          headers: keptHeaders(request),
          initiated: modifiedNow(),
          parts: new Map(),
        });
        xml(
          response,
          `<InitiateMultipartUploadResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Bucket>${entry.bucket}</Bucket><Key>${escapeXml(entry.key)}</Key><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`,
        );
        return;
      }
      case 'UploadPart': {
        const upload = uploadOf(entry);
        const number = Number(entry.query.get('partNumber'));
        if (!Number.isInteger(number) || number < 1 || number > 10_000)
          throw new Fault(400, 'InvalidArgument', 'partNumber');
        for (const name of Object.keys(request.headers))
          if (name.startsWith('x-amz-server-side-encryption'))
            throw new Fault(400, 'InvalidArgument', `${name} on a part`);
        const [piece, md5] = await receive(request, entry);
        const etag = `"${md5.toString('hex')}"`;
        upload.parts.set(number, { piece, etag, md5 });
        response.writeHead(200, { etag, 'content-length': 0 }).end();
        return;
      }
      case 'CompleteMultipartUpload':
        return complete(request, entry, response, failure);
      case 'AbortMultipartUpload':
        uploadOf(entry);
        bucket.uploads.delete(entry.query.get('uploadId') ?? '');
        response.writeHead(204).end();
        return;
      case 'ListMultipartUploads': {
        const prefix = entry.query.get('prefix') ?? '';
        const marker = [entry.query.get('key-marker') ?? '', entry.query.get('upload-id-marker') ?? ''].join('\0');
        const at = (one: Upload): string => `${one.key}\0${one.id}`;
        // S3 orders uploads by key; markers that name one which is gone still say where to go on.
        const rest = [...bucket.uploads.values()]
          .filter((one) => one.key.startsWith(prefix) && (marker === '\0' || at(one) > marker))
          .sort((a, b) => (at(a) < at(b) ? -1 : 1));
        const page = rest.slice(0, server.pageSize);
        const last = rest.length > page.length ? page.at(-1) : undefined;
        const rows = page.map(
          (one) =>
            `<Upload><Key>${escapeXml(one.key)}</Key><UploadId>${one.id}</UploadId><Initiated>${one.initiated.toISOString()}</Initiated></Upload>`,
        );
        const next =
          last === undefined
            ? ''
            : `<NextKeyMarker>${escapeXml(last.key)}</NextKeyMarker><NextUploadIdMarker>${last.id}</NextUploadIdMarker>`;
        xml(
          response,
          `<ListMultipartUploadsResult><Bucket>${entry.bucket}</Bucket><IsTruncated>${last !== undefined}</IsTruncated>${next}${rows.join('')}</ListMultipartUploadsResult>`,
        );
        return;
      }
      case 'ListParts': {
        const rows = [...uploadOf(entry).parts].map(
          ([number, one]) =>
            `<Part><PartNumber>${number}</PartNumber><ETag>${escapeXml(one.etag)}</ETag><Size>${one.piece.size}</Size></Part>`,
        );
        xml(response, `<ListPartsResult><IsTruncated>false</IsTruncated>${rows.join('')}</ListPartsResult>`);
      }
    }
  }

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const method = request.method ?? '';
    const query = new URLSearchParams((request.url ?? '').split('?')[1] ?? '');
    const { bucket, key, style } = placeOf(request);
    const operation = operationOf(method, key, query);
    if (operation === null) throw new Fault(501, 'NotImplemented', `${method} ${request.url}`);
    const entry: S3Request = { operation, bucket, key, headers: request.headers, query, bytes: 0, style };
    requests.push(entry);
    const wrong = signatureFault(
      { method, path: request.url ?? '', headers: request.headers, body: null },
      { service: 's3', region, keys, ...(options.now === undefined ? {} : { now: options.now }) },
    );
    if (wrong !== null) throw new Fault(403, 'SignatureDoesNotMatch', wrong);
    const failure = server.fail(entry);
    if (failure !== null && failure.status !== 200) {
      if (method === 'PUT') await receive(request, entry, failure.after).catch(() => undefined);
      else request.resume();
      if (failure.cut) {
        request.socket.destroy();
        return;
      }
      throw new S3Error(failure.status, failure.code, failure.message);
    }
    await perform(request, entry, response, failure);
  }

  const http = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => {
      const known = error instanceof S3Error ? error : new Fault(500, 'InternalError', String(error));
      const aborted = request.destroyed && !request.complete;
      if (known instanceof Fault && !aborted) faults.push(`${request.method} ${request.url}: ${known.message}`);
      if (aborted || response.headersSent) {
        response.destroy();
        return;
      }
      request.resume();
      if (request.method === 'HEAD') response.writeHead(known.status).end();
      else xml(response, errorXml(known.code, known.message), known.status);
    });
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const address = http.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const url = `http://127.0.0.1:${port}`;

  const server: S3Server = {
    port,
    url,
    faults,
    requests,
    pageSize: 1000,
    fail: () => null,
    createBucket,
    keys: (bucket) => [...bucketOf(bucket).objects.keys()].sort(),
    async read(bucket, key) {
      const object = bucketOf(bucket).objects.get(key);
      if (object === undefined) return null;
      return Buffer.concat(await Promise.all(object.pieces.map((piece) => readFile(piece.path))));
    },
    headersOf: (bucket, key) => bucketOf(bucket).objects.get(key)?.headers ?? null,
    async put(bucket, key, body, headers = {}) {
      const bytes = Buffer.from(body);
      const path = join(dir, randomUUID());
      await writeFile(path, bytes);
      const etag = `"${createHash('md5').update(bytes).digest('hex')}"`;
      bucketOf(bucket).objects.set(key, {
        pieces: [{ path, size: bytes.length }],
        size: bytes.length,
        etag,
        modified: modifiedNow(),
        headers,
      });
    },
    openUploads: (bucket) => [...bucketOf(bucket).uploads.values()].map((one) => one.key),
    async stop() {
      http.closeAllConnections();
      await new Promise<void>((resolve) => http.close(() => resolve()));
      await rm(dir, { recursive: true, force: true });
    },
  };
  return server;
}
