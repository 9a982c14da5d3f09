/** Files of Bedrock: objects in a bucket of the account. */

import { SluiceError } from '../../kernel/errors.ts';
import { quoted } from '../../operations/convert/fields.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import { IN_ITS_STEAD } from '../../operations/dialects/provider-error.ts';
import type { FileObject } from '../../operations/training.ts';
import { eachAtOnce } from '../aws/at-once.ts';
import { s3List, s3Send, s3Sent } from '../aws/s3.ts';
import { s3Abort, s3OpenUploads, s3Upload } from '../aws/s3-upload.ts';
import { fileId, hasDotPart, isBucket, isPlainKey, parseFileId, type S3Place } from '../aws/s3-uri.ts';
import { textSetting } from '../settings.ts';
import type { AdapterAnswer, AdapterContext, FilesAdapter, UploadRequest } from '../training.ts';

import { jobs } from './jobs.ts';

const BUCKET = 'x-gateway-object-store-bucket';
const KEY = 'x-gateway-aws-s3-object-key';
const NAME = 'x-gateway-provider-file-name';
const ENCRYPTION = 'x-gateway-amz-server-side-encryption';
const KMS_KEY = 'x-gateway-amz-server-side-encryption-aws-kms-key-id';
const PURPOSE = 'x-amz-meta-gateway-purpose';

const MAX_LISTED = 1000;
const HEADS_AT_ONCE = 8;

function invalid(param: string, message: string): SluiceError {
  return new SluiceError('invalid_request', message, { param });
}

/** The bucket this request works in: the account's own, else the one the request names. Null: neither. */
function givenBucket(context: AdapterContext): string | null {
  const own = textSetting(context.credentials, 'aws_s3_bucket');
  const named = context.header(BUCKET);
  if (named !== undefined && !isBucket(named)) {
    throw invalid(
      BUCKET,
      `${BUCKET} ${quoted(named)} is no bucket name: 3 to 63 lower-case letters, digits, dots and hyphens, and no address.`,
    );
  }
  if (own !== undefined && named !== undefined && own !== named) throw otherBucket(named);
  return own ?? named ?? null;
}

function bucketOf(context: AdapterContext): string {
  const bucket = givenBucket(context);
  if (bucket === null) throw invalid(BUCKET, `Files of this provider lie in S3; name the bucket in ${BUCKET}.`);
  return bucket;
}

/** An object outside the configured bucket is not given out, although the credential could read it. */
function otherBucket(bucket: string): SluiceError {
  return new SluiceError(
    'provider_error',
    `The bucket ${bucket} is not the one this request may use; name it in ${BUCKET}.`,
    {
      provider: IN_ITS_STEAD.forbidden,
    },
  );
}

function placeOf(id: string, context: AdapterContext): S3Place {
  const place = parseFileId(id);
  if (place === null || place.key === '' || place.key.endsWith('/')) {
    throw new SluiceError(
      'not_found',
      `There is no file ${quoted(id)}; ids of this provider are percent-encoded s3:// URIs.`,
    );
  }
  if (place.bucket !== bucketOf(context)) throw otherBucket(place.bucket);
  return place;
}

/** The key that the request names for an upload, or null. */
function namedKey(context: AdapterContext): string | null {
  for (const header of [KEY, NAME]) {
    const key = context.header(header);
    if (key === undefined) continue;
    if (!isPlainKey(key) || key.endsWith('/') || key.length > 1000) {
      throw invalid(
        header,
        `${header} ${quoted(key)} cannot be used: Bedrock reads only keys whose parts hold letters, digits and - ! _ * ' ( ) .`,
      );
    }
    return key;
  }
  return null;
}

const newPlace = (context: AdapterContext): S3Place => ({
  bucket: bucketOf(context),
  key: namedKey(context) ?? `${context.uuid()}.jsonl`,
});

/** Encryption, content type and purpose of a new object. */
function objectHeaders(file: UploadRequest, context: AdapterContext): string[] {
  const type = /^[\x21-\x7e][\x20-\x7e]{0,254}$/.test(file.contentType) ? file.contentType : 'application/octet-stream';
  const headers = ['content-type', type, PURPOSE, file.purpose];
  const encryption = context.header(ENCRYPTION);
  const key = context.header(KMS_KEY);
  if (encryption !== undefined) {
    if (!['AES256', 'aws:kms', 'aws:kms:dsse'].includes(encryption)) {
      throw invalid(ENCRYPTION, `${ENCRYPTION} must be AES256, aws:kms or aws:kms:dsse.`);
    }
    headers.push('x-amz-server-side-encryption', encryption);
  }
  if (key !== undefined) {
    if (encryption === undefined || encryption === 'AES256') {
      throw invalid(KMS_KEY, `${KMS_KEY} also needs ${ENCRYPTION}: aws:kms.`);
    }
    if (!/^[A-Za-z0-9:/_-]{1,2048}$/.test(key)) throw invalid(KMS_KEY, `${KMS_KEY} is no key id or ARN.`);
    headers.push('x-amz-server-side-encryption-aws-kms-key-id', key);
  }
  return headers;
}

const seconds = (ms: number): number => Math.floor(ms / 1000);

function fileOf(place: S3Place, answer: AdapterAnswer): FileObject {
  const bytes = Number(answer.headers['content-length']);
  const modified = Date.parse(answer.headers['last-modified'] ?? '');
  if (!Number.isSafeInteger(bytes) || Number.isNaN(modified)) {
    throw new SluiceError('upstream_invalid', 'S3 describes the object without its length or time.');
  }
  return fileObject(place, bytes, seconds(modified), answer.headers[PURPOSE] ?? 'fine-tune');
}

/**
 * Refuses a name the caller chose when it is that of an object which did not come through Sluice: a caller that may upload
 * could else write over anything the credential can reach. An account that may not look is trusted to know.
 */
async function mustBeOurs(place: S3Place, context: AdapterContext): Promise<void> {
  const answer = await s3Send(context, { method: 'HEAD', place });
  answer.stream.destroy();
  if (answer.status !== 200 || answer.headers[PURPOSE] !== undefined) return;
  throw new SluiceError('provider_error', `The bucket holds an object ${quoted(place.key)} already.`, {
    provider: IN_ITS_STEAD.conflict,
    param: context.header(KEY) === undefined ? NAME : KEY,
  });
}

function fileObject(place: S3Place, bytes: number, created: number, purpose: string): FileObject {
  return {
    id: fileId(place),
    object: 'file',
    bytes,
    created_at: created,
    filename: place.key.slice(place.key.lastIndexOf('/') + 1),
    purpose,
    status: 'processed',
  };
}

async function head(place: S3Place, context: AdapterContext): Promise<FileObject> {
  const answer = await s3Sent(context, { method: 'HEAD', place });
  answer.stream.destroy();
  return fileOf(place, answer);
}

export const files: FilesAdapter = {
  purposes: new Set(['batch', 'fine-tune']),
  objectUris: true,

  /** Some models know rows of prompt and completion beside those of a chat: the caller says which it has. */
  rowFormat: (model, context) =>
    context.header('x-gateway-model-type') === 'text'
      ? 'bedrock-text'
      : jobs.rowFormat({ upstreamModel: model, method: 'supervised' }),

  plannedId: (_filename, context) => fileId(newPlace(context)),

  async upload(file, context) {
    // A client may leave while the name is looked up, and an error nobody listens for ends the process.
    file.stream.on('error', () => {});
    const place = newPlace(context);
    if (namedKey(context) !== null) await mustBeOurs(place, context);
    const bytes = await s3Upload(context, {
      place,
      stream: file.stream,
      bytes: file.bytes,
      headers: objectHeaders(file, context),
    });
    // An account may be allowed to write but not to read; the object is stored all the same.
    return head(place, context).catch(() => fileObject(place, bytes, seconds(context.now()), file.purpose));
  },

  /** Purposes are metadata of each object, so every listed object is asked for. */
  async list(purpose, context) {
    const bucket = bucketOf(context);
    const prefix = context.header(KEY) ?? '';
    if (hasDotPart(prefix)) throw invalid(KEY, `${KEY} must not have "." or ".." as a part.`);
    const rows = (await s3List(context, { bucket, key: prefix }, MAX_LISTED)).filter(
      ({ key }) => !key.endsWith('/') && !hasDotPart(key),
    );
    const all = await eachAtOnce(rows, HEADS_AT_ONCE, async ({ key }) =>
      // Deleted since the list was made.
      head({ bucket, key }, context).catch((error: unknown) => {
        if (error instanceof SluiceError && errorStatus(error) === 404) return null;
        throw error;
      }),
    );
    return all
      .filter((file) => file !== null)
      .filter((file) => purpose === null || file.purpose === purpose)
      .sort((a, b) => b.created_at - a.created_at);
  },

  retrieve: async (id, context) => head(placeOf(id, context), context),

  async remove(id, context) {
    const answer = await s3Sent(context, { method: 'DELETE', place: placeOf(id, context) });
    answer.stream.destroy();
  },

  async content(id, context) {
    const answer = await s3Sent(context, { method: 'GET', place: placeOf(id, context) });
    const bytes = Number(answer.headers['content-length'] ?? Number.NaN);
    return {
      contentType: answer.headers['content-type'] ?? 'application/octet-stream',
      bytes: Number.isSafeInteger(bytes) ? bytes : null,
      stream: answer.stream,
    };
  },

  async abandon(_filename, context) {
    const bucket = givenBucket(context);
    const key = namedKey(context);
    // Without a chosen name each upload has another key, and none can be distinguished from those of other callers.
    if (bucket === null || key === null) return;
    for (const id of await s3OpenUploads(context, { bucket, key })) await s3Abort(context, { bucket, key }, id);
  },
};
