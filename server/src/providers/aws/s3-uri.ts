import { SluiceError } from '../../kernel/errors.ts';
import { quoted } from '../../operations/convert/fields.ts';

/** An object in a bucket. */
export interface S3Place {
  readonly bucket: string;
  /** Without leading slash; ends with `/` for a folder; may be empty for a whole bucket. */
  readonly key: string;
}

/** 3 to 63 of lower-case letters, digits, dots and hyphens, and no address. */
export function isBucket(name: string): boolean {
  return (
    /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(name) && !name.includes('..') && !/^\d{1,3}(?:\.\d{1,3}){3}$/.test(name)
  );
}

/** Bedrock takes only these in the parts of a key: others are refused by it, so they are refused here first. */
export function isPlainKey(key: string): boolean {
  return /^[A-Za-z0-9\-!_*'().]+(?:\/[A-Za-z0-9\-!_*'().]+)*\/?$/.test(key) && !hasDotPart(key);
}

/** `.` and `..` as a part would be folded away by every URL parser: such an object cannot be named in a path. */
export function hasDotPart(key: string): boolean {
  return key.split('/').some((part) => part === '.' || part === '..');
}

export const s3Uri = (place: S3Place): string => `s3://${place.bucket}/${place.key}`;

/** Our id of an object. */
export const fileId = (place: S3Place): string => encodeURIComponent(s3Uri(place));

/**
 * Bucket and key of a file id: `s3://bucket/key`, or that percent-encoded once. Null when it is neither, so that the
 * caller says which field is wrong.
 */
export function parseFileId(id: string): S3Place | null {
  let uri = id;
  if (!uri.startsWith('s3://')) {
    try {
      uri = decodeURIComponent(id);
    } catch {
      return null;
    }
  }
  const found = /^s3:\/\/([^/]+)(?:\/(.*))?$/s.exec(uri);
  const bucket = found?.[1] ?? '';
  const key = found?.[2] ?? '';
  if (found === null || !isBucket(bucket) || key.length > 1024 || hasDotPart(key)) return null;
  return { bucket, key };
}

/** A field of a job or batch that names an object or folder Bedrock is to read or write. */
export function bedrockUri(param: string, id: string): S3Place {
  const place = parseFileId(id);
  if (place === null) {
    throw new SluiceError(
      'invalid_request',
      `${param} ${quoted(id)} is no object of S3; use the id of an uploaded file or a URI such as s3://my-bucket/path/train.jsonl.`,
      { param },
    );
  }
  if (place.key !== '' && !isPlainKey(place.key)) {
    throw new SluiceError(
      'invalid_request',
      `${param}: Bedrock takes only letters, digits and - ! _ * ' ( ) . in the parts of an object key; copy the object to such a key.`,
      { param },
    );
  }
  return place;
}
