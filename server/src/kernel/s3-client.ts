/** The calls of S3 that blobs and log destinations need, signed, and repeated where the service fails for a moment. */
import type { Readable } from 'node:stream';
import { text as readAll } from 'node:stream/consumers';
import type { Clock } from './clock.ts';
import { type S3Bucket, s3ErrorIn, s3Url } from './s3.ts';
import { type AwsKeys, awsSigned } from './sigv4.ts';
import { parseXml, type XmlElement } from './xml.ts';

export interface SendRequest {
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE';
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
  /** Milliseconds until the head of the answer; absent: a minute. */
  readonly timeoutMs?: number;
}

export interface SendAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body: Readable;
}

/** Sends one request to a server of the operator's; rejects when there is no answer. */
export type Send = (request: SendRequest) => Promise<SendAnswer>;

export interface S3Call {
  readonly method: SendRequest['method'];
  /** Null: the bucket itself. */
  readonly key: string | null;
  readonly query?: Readonly<Record<string, string | null>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer;
}

/** An answer that is no success. `code` is S3's name for what is wrong; empty where there was no body to say it. */
export class S3Error extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(`${status} ${code}${message === '' ? '' : `: ${message}`}`);
    this.status = status;
    this.code = code;
  }
}

export interface S3ClientOptions extends S3Bucket {
  readonly region: string;
  readonly keys: () => Promise<AwsKeys>;
  readonly clock: Clock;
  readonly send: Send;
}

const ATTEMPTS = 4;
const FIRST_WAIT_MS = 100;
/** Of an error or of a result in XML: a page of a list has a thousand entries of at most two kilobytes. */
const ERROR_BYTES = 65_536;

/** The service asks for patience, or failed on its side: the same request may succeed. */
const passes = (status: number): boolean => status === 429 || status >= 500;

export class S3Client {
  readonly #options: S3ClientOptions;

  constructor(options: S3ClientOptions) {
    this.#options = options;
  }

  /** The answer of a call that succeeded, its body unread. Throws S3Error, or the error of the connection. */
  async call({ method, key, query, headers = {}, body = Buffer.alloc(0) }: S3Call): Promise<SendAnswer> {
    const { region, clock, send, keys } = this.#options;
    const url = s3Url(this.#options, key ?? '', query);
    for (let attempt = 1; ; attempt++) {
      const signed = await awsSigned(
        { method, url, headers, body },
        await keys(),
        { service: 's3', region },
        clock.now(),
      );
      const sent = body.length > 0 || method === 'PUT' || method === 'POST' ? body : null;
      const answer = await send({ method, url, headers: signed, body: sent }).catch((error: unknown) => {
        if (attempt === ATTEMPTS) throw error;
        return null;
      });
      if (answer !== null && answer.status < 300) return answer;
      if (answer !== null && (attempt === ATTEMPTS || !passes(answer.status))) throw await failureOf(answer);
      answer?.body.destroy();
      await new Promise<void>((resolve) => clock.after(FIRST_WAIT_MS * 2 ** attempt, resolve));
    }
  }

  /** The result in XML of a call that succeeded. */
  async read(call: S3Call): Promise<XmlElement> {
    const { status, body } = await this.call(call);
    const result = parseXml(await readAll(body));
    // S3 may begin with 200 and fail while it puts an object together.
    if (result.name === 'Error') throw errorOf(status, result);
    return result;
  }

  /** The same of a call whose result says nothing. */
  async done(call: S3Call): Promise<SendAnswer> {
    const answer = await this.call(call);
    await readAll(answer.body);
    return answer;
  }
}

function errorOf(status: number, root: XmlElement): S3Error {
  const { code = '', message } = s3ErrorIn(root) ?? {};
  return new S3Error(status, code, message ?? '');
}

async function failureOf({ status, body }: SendAnswer): Promise<S3Error> {
  try {
    const parts: Buffer[] = [];
    let bytes = 0;
    for await (const part of body as AsyncIterable<Buffer>) {
      parts.push(part);
      bytes += part.length;
      if (bytes > ERROR_BYTES) break;
    }
    return errorOf(status, parseXml(Buffer.concat(parts).toString()));
  } catch {
    // A HEAD has no body, and what stands before the service may answer with a page.
    return new S3Error(status, '', '');
  }
}
