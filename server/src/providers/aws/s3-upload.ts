/**
 * A streamed upload to S3. Every piece lies in memory for a moment, because S3 wants its length before its bytes and a
 * failed piece must be sent again; so each is signed with its own hash, and no payload goes out unsigned. Short bodies
 * are one `PutObject`, longer ones a multipart upload that is aborted on any failure.
 */
import type { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { completedUpload, entriesOf, nextUploads } from '../../kernel/s3.ts';
import { textOfChild } from '../../kernel/xml.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import type { AdapterContext } from '../training.ts';
import { awsErrorName } from './errors.ts';
import { type S3Call, s3Failure, s3Send, s3Sent, s3Xml } from './s3.ts';
import type { S3Place } from './s3-uri.ts';

const MIB = 1024 * 1024;
/** Above the 5 MiB that S3 wants of every part but the last. */
const PART = 8 * MIB;
/** Parts after which the size doubles, so that 10 000 parts hold the 5 TiB of the largest object. */
const DOUBLE_EVERY = 1000;
const MAX_PARTS = 10_000;
const IN_FLIGHT = 2;
const ATTEMPTS = 3;

export interface S3Upload {
  readonly place: S3Place;
  readonly stream: Readable;
  /** Exact size when known: another one aborts. */
  readonly bytes: number | null;
  /** Of the object: content type, encryption, metadata. */
  readonly headers: readonly string[];
  /** Size of the first parts; for tests. */
  readonly partSize?: number;
}

/** Whether sending the same bytes again may help: S3 asks for it with 500 and 503. */
const again = (status: number): boolean => status === 500 || status === 502 || status === 503 || status === 504;

async function patient(context: AdapterContext, call: S3Call): ReturnType<typeof s3Sent> {
  for (let attempt = 1; ; attempt++) {
    try {
      const answer = await s3Send(context, call);
      if (answer.status >= 200 && answer.status < 300) return answer;
      if (attempt >= ATTEMPTS || !again(answer.status)) throw await s3Failure(answer, call.place);
      answer.stream.destroy();
    } catch (error) {
      const lost = error instanceof SluiceError && error.kind === 'upstream_unreachable';
      if (attempt >= ATTEMPTS || !lost) throw error;
    }
  }
}

/** Buffers of parts that were sent, to be filled again: a long upload needs no more than are on their way at once. */
class Buffers {
  readonly #free: Buffer[] = [];

  take(size: number): Buffer {
    const buffer = this.#free.pop();
    return buffer?.length === size ? buffer : Buffer.allocUnsafe(size);
  }

  give(buffer: Buffer): void {
    if (this.#free.length <= IN_FLIGHT) this.#free.push(buffer);
  }
}

/** Cuts a stream into pieces of `size()` bytes, all but the last full. A piece belongs to the receiver. */
async function* pieces(stream: Readable, buffers: Buffers, size: () => number): AsyncGenerator<Buffer> {
  let piece = buffers.take(size());
  let filled = 0;
  for await (const given of stream as AsyncIterable<Buffer | string>) {
    const chunk = typeof given === 'string' ? Buffer.from(given) : given;
    let from = 0;
    while (from < chunk.length) {
      const copied = chunk.copy(piece, filled, from);
      from += copied;
      filled += copied;
      if (filled === piece.length) {
        yield piece;
        piece = buffers.take(size());
        filled = 0;
      }
    }
  }
  yield piece.subarray(0, filled);
}

/** Stores what the stream gives and answers its length. The stream is destroyed when the upload fails. */
export async function s3Upload(context: AdapterContext, upload: S3Upload): Promise<number> {
  try {
    return await stored(context, upload);
  } catch (error) {
    upload.stream.destroy();
    throw error;
  }
}

async function stored(context: AdapterContext, upload: S3Upload): Promise<number> {
  const first = upload.partSize ?? PART;
  let made = 0;
  const buffers = new Buffers();
  const cut = pieces(upload.stream, buffers, () => first * 2 ** Math.floor(made / DOUBLE_EVERY));
  const head = await cut.next();
  const body = head.done ? Buffer.alloc(0) : head.value;
  if (body.length < first) {
    expectSize(upload, body.length);
    const answer = await patient(context, { method: 'PUT', place: upload.place, headers: upload.headers, body });
    answer.stream.destroy();
    return body.length;
  }
  const started = await s3Sent(context, {
    method: 'POST',
    place: upload.place,
    query: { uploads: '' },
    headers: upload.headers,
  });
  const id = textOfChild(await s3Xml(started, 'InitiateMultipartUploadResult'), 'UploadId');
  if (!id) throw new SluiceError('upstream_invalid', 'S3 began a multipart upload without an id.');
  try {
    return await sendParts(context, upload, id, body, cut, {
      began: () => {
        made++;
      },
      done: (piece) => buffers.give(piece),
    });
  } catch (error) {
    throw await aborted(context, upload.place, id, error);
  }
}

async function sendParts(
  context: AdapterContext,
  upload: S3Upload,
  id: string,
  head: Buffer,
  rest: AsyncGenerator<Buffer>,
  part: { began(): void; done(body: Buffer): void },
): Promise<number> {
  const etags: string[] = [];
  const running = new Set<Promise<void>>();
  const failures: unknown[] = [];
  let total = 0;
  const send = async (body: Buffer, number: number): Promise<void> => {
    const answer = await patient(context, {
      method: 'PUT',
      place: upload.place,
      query: { partNumber: String(number), uploadId: id },
      body,
      timeoutMs: 300_000,
    });
    answer.stream.destroy();
    const { etag } = answer.headers;
    if (!etag) throw new SluiceError('upstream_invalid', `S3 took part ${number} without an ETag.`);
    etags[number - 1] = etag;
  };
  let number = 0;
  let next: IteratorResult<Buffer> = { done: false, value: head };
  try {
    while (!next.done) {
      const body: Buffer = next.value;
      if (failures.length > 0) break;
      if (body.length > 0) {
        number++;
        part.began();
        if (number > MAX_PARTS) {
          throw new SluiceError('file_too_large', 'The file is larger than the largest object S3 holds.', {
            param: 'file',
          });
        }
        total += body.length;
        const sending: Promise<void> = send(body, number).then(
          () => {
            running.delete(sending);
            part.done(body);
          },
          (error: unknown) => {
            running.delete(sending);
            failures.push(error);
          },
        );
        running.add(sending);
        if (running.size >= IN_FLIGHT) await Promise.race(running);
      }
      next = await rest.next();
    }
  } finally {
    // A part that is still on its way would be stored after the abort and billed.
    await Promise.all(running);
  }
  if (failures.length > 0) throw failures[0];
  expectSize(upload, total);
  const answer = await patient(context, {
    method: 'POST',
    place: upload.place,
    query: { uploadId: id },
    headers: ['content-type', 'application/xml'],
    body: completedUpload(etags),
    // S3 answers at once and keeps the connection with white space while it joins the parts.
    timeoutMs: 300_000,
  });
  await s3Xml(answer, 'CompleteMultipartUploadResult');
  return total;
}

function expectSize(upload: S3Upload, bytes: number): void {
  if (upload.bytes === null || upload.bytes === bytes) return;
  throw new SluiceError('invalid_request', `The file ended after ${bytes} of ${upload.bytes} bytes; send it again.`, {
    param: 'file',
  });
}

/** Aborts and gives the error to throw: parts of an upload that stays open are billed, so its id goes to the log. */
async function aborted(context: AdapterContext, place: S3Place, id: string, error: unknown): Promise<unknown> {
  try {
    await s3Abort(context, place, id);
    return error;
  } catch (problem) {
    const base = error instanceof SluiceError ? error : null;
    return (base ?? new SluiceError('upstream_invalid', 'The upload to S3 failed.')).reworded(
      base?.message ?? 'The upload to S3 failed.',
      {
        cause: error,
        detail: { openUpload: id, bucket: place.bucket, key: place.key, abort: String(problem), before: base?.detail },
      },
    );
  }
}

/** Takes back a multipart upload; one that is gone already counts as done. */
export async function s3Abort(context: AdapterContext, place: S3Place, id: string): Promise<void> {
  try {
    const answer = await patient(context, { method: 'DELETE', place, query: { uploadId: id }, cleanup: true });
    answer.stream.destroy();
  } catch (error) {
    if (awsErrorName(error) !== 'NoSuchUpload' && !(error instanceof SluiceError && errorStatus(error) === 404))
      throw error;
  }
}

/** Ids of the multipart uploads of exactly this key that were neither completed nor aborted. */
export async function s3OpenUploads(context: AdapterContext, place: S3Place): Promise<readonly string[]> {
  const ids: string[] = [];
  let marker: Readonly<Record<string, string>> | null = {};
  do {
    const answer = await s3Sent(context, {
      method: 'GET',
      place: { bucket: place.bucket, key: '' },
      query: { uploads: '', prefix: place.key, ...marker },
    });
    const page = await s3Xml(answer, 'ListMultipartUploadsResult');
    for (const row of entriesOf(page, 'Upload')) {
      const id = textOfChild(row, 'Key') === place.key ? textOfChild(row, 'UploadId') : null;
      if (id) ids.push(id);
    }
    marker = nextUploads(page);
  } while (marker !== null);
  return ids;
}
