import { quoted } from '../operations/convert/fields.ts';
import { isBucket } from '../providers/aws/s3-uri.ts';
import { isStorageBucket } from '../providers/google/storage.ts';
import { invalid } from './fields.ts';

/** Headers that name a bucket: what each cloud allows as a name, and how to say it. */
const BUCKETS = {
  'x-gateway-object-store-bucket': [isBucket, 'lower-case letters, digits, dots and hyphens'],
  'x-gateway-cloud-storage-bucket-name': [isStorageBucket, 'lower-case letters, digits, dots, hyphens and underscores'],
} as const;

/** 400 for a header that names what cannot be a bucket; `path` of the headers in the body, empty for those of a request. */
export function checkBuckets(header: (name: string) => string | undefined, path = ''): void {
  for (const [name, [allowed, characters]] of Object.entries(BUCKETS)) {
    const bucket = header(name);
    if (bucket === undefined || allowed(bucket)) continue;
    const param = `${path}${name}`;
    throw invalid(param, `${param} must be a bucket name, 3 to 63 ${characters}; got ${quoted(bucket)}.`);
  }
}
