/** The few calls of S3 that files and batches need, each signed with the hash of its body. */

import { SluiceError } from '../../kernel/errors.ts';
import { entriesOf, isCut, s3Url } from '../../kernel/s3.ts';
import { parseXml, textOfChild, type XmlElement } from '../../kernel/xml.ts';
import { textSetting } from '../settings.ts';
import type { AdapterAnswer, AdapterContext, AdapterRequest } from '../training.ts';
import { awsKeys } from './credentials.ts';
import { awsError, awsFailure } from './errors.ts';
import type { S3Place } from './s3-uri.ts';
import { awsRegion, endpointOf } from './settings.ts';
import { sha256Hex, signed } from './sign.ts';

export interface S3Call {
  readonly method: AdapterRequest['method'];
  readonly place: S3Place;
  readonly query?: Readonly<Record<string, string | null>>;
  /** Flat, lower-case names. */
  readonly headers?: readonly string[];
  readonly body?: Buffer;
  readonly timeoutMs?: number;
  readonly cleanup?: boolean;
}

/** Where an object is reached: the bucket is part of the host as AWS wants it, but of the path at an endpoint of one's own. */
function urlOfPlace(context: AdapterContext, { bucket, key }: S3Place, query: S3Call['query']): URL {
  const pathStyle = context.customHost || textSetting(context.credentials, 'aws_s3_endpoint') !== undefined;
  return s3Url({ endpoint: endpointOf('s3', context), bucket, pathStyle }, key, query);
}

/** One call, whatever its status. */
export async function s3Send(context: AdapterContext, call: S3Call): Promise<AdapterAnswer> {
  const url = urlOfPlace(context, call.place, call.query);
  const keys = await awsKeys(context, url.origin);
  const region = awsRegion(context);
  const body = call.body ?? null;
  const request = await signed(
    {
      method: call.method,
      url,
      headers: ['x-amz-content-sha256', sha256Hex(body ?? ''), ...(call.headers ?? [])],
      body,
      // The operator's own headers are meant for the account's host and would go out unsigned.
      accountHeaders: false,
      ...(body === null ? null : { length: body.length }),
      ...(call.timeoutMs === undefined ? null : { timeoutMs: call.timeoutMs }),
      ...(call.cleanup ? { cleanup: true } : null),
    },
    keys,
    { service: 's3', region },
    context.now(),
  );
  return context.call(request);
}

/** What a status of S3 means when there is no body to say it (HEAD) or nobody follows it (redirects). */
export async function s3Failure(answer: AdapterAnswer, place: S3Place): Promise<SluiceError> {
  const elsewhere = answer.headers['x-amz-bucket-region'];
  if (answer.status >= 300 && answer.status < 400) {
    answer.stream.destroy();
    return new SluiceError(
      'invalid_request',
      `The bucket ${place.bucket} lies in ${elsewhere ?? 'another region'}; use an account of that region, or send x-gateway-aws-region.`,
      { param: 'x-gateway-aws-region' },
    );
  }
  const failure = await awsFailure(answer);
  if (failure.awsName !== '') return failure;
  const error = (text: string): SluiceError => awsError(answer.status, JSON.stringify({ message: text }));
  if (answer.status === 404) return error(`There is no object ${place.key} in the bucket ${place.bucket}.`);
  if (answer.status === 403) {
    return error(
      `S3 does not give the object ${place.key} of the bucket ${place.bucket}: it is missing, or this account may not read it.`,
    );
  }
  return failure;
}

/** One call that must succeed; the body is still unread. */
export async function s3Sent(context: AdapterContext, call: S3Call): Promise<AdapterAnswer> {
  const answer = await s3Send(context, call);
  if (answer.status >= 200 && answer.status < 300) return answer;
  throw await s3Failure(answer, call.place);
}

/** Reads an answer that is XML; an error document in a 200 is that error. */
export async function s3Xml(answer: AdapterAnswer, name: string, limit?: number): Promise<XmlElement> {
  const text = await answer.text(limit);
  const root = parseXml(text.trimStart());
  if (root.name === 'Error') throw awsError(500, text.trimStart());
  if (root.name !== name) throw new SluiceError('upstream_invalid', `The answer of S3 is no ${name}.`);
  return root;
}

export interface S3Listed {
  readonly key: string;
  readonly size: number;
  /** Milliseconds since the epoch. */
  readonly modified: number;
}

/** Every object below a prefix, in the order of S3. Refuses more than `max`. */
export async function s3List(context: AdapterContext, place: S3Place, max: number): Promise<readonly S3Listed[]> {
  const found: S3Listed[] = [];
  let token: string | null = null;
  do {
    const answer = await s3Sent(context, {
      method: 'GET',
      place: { bucket: place.bucket, key: '' },
      query: {
        'list-type': '2',
        'encoding-type': 'url',
        prefix: place.key === '' ? null : place.key,
        'max-keys': String(Math.min(1000, max + 1)),
        'continuation-token': token,
      },
    });
    const page = await s3Xml(answer, 'ListBucketResult');
    for (const row of entriesOf(page, 'Contents')) {
      const key = textOfChild(row, 'Key');
      const modified = Date.parse(textOfChild(row, 'LastModified') ?? '');
      const size = Number(textOfChild(row, 'Size'));
      if (key === null || Number.isNaN(modified) || !Number.isSafeInteger(size)) {
        throw new SluiceError('upstream_invalid', 'The list of S3 holds an entry without key, size or time.');
      }
      found.push({ key: decodeURIComponent(key.replaceAll('+', ' ')), size, modified });
    }
    const next = textOfChild(page, 'NextContinuationToken');
    const more = isCut(page);
    if (found.length > max || (more && found.length === max)) {
      throw new SluiceError(
        'invalid_request',
        `The bucket ${place.bucket} holds more than ${max} objects there; name a folder in x-gateway-aws-s3-object-key, such as training/.`,
        { param: 'x-gateway-aws-s3-object-key' },
      );
    }
    if (more && (next === null || next === token)) {
      throw new SluiceError(
        'upstream_invalid',
        'The list of S3 says that it continues, and gives no token to continue with.',
      );
    }
    token = more ? next : null;
  } while (token !== null);
  return found;
}
