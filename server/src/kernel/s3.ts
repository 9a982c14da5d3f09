/** What every caller of S3 writes and reads alike: addresses, pages of lists, and the list of parts that ends an upload. */
import { awsUrl, encodeStrictly } from './aws-url.ts';
import { child, escapeXml, textOfChild, type XmlElement } from './xml.ts';

export interface S3Bucket {
  /** Where the service is, without a slash at its end. */
  readonly endpoint: string;
  readonly bucket: string;
  /** `endpoint/bucket/key` instead of `bucket.endpoint/key`. */
  readonly pathStyle: boolean;
}

/** The address of an object, or with an empty key of the bucket itself, in the encoding that is signed. */
export function s3Url(
  { endpoint, bucket, pathStyle }: S3Bucket,
  key: string,
  query?: Readonly<Record<string, string | null>>,
): URL {
  // The certificate of AWS does not cover a bucket with dots.
  const named = !pathStyle && !(bucket.includes('.') && endpoint.startsWith('https:'));
  const path = `/${key.split('/').map(encodeStrictly).join('/')}`;
  return named
    ? awsUrl(endpoint.replace('://', `://${bucket}.`), path, query)
    : awsUrl(endpoint, `/${bucket}${path}`, query);
}

/** The error that an answer is or holds; null for any other answer. */
export function s3ErrorIn(root: XmlElement): { readonly code: string; readonly message: string | null } | null {
  const error = root.name === 'Error' ? root : child(root, 'Error');
  return error === null ? null : { code: textOfChild(error, 'Code') ?? '', message: textOfChild(error, 'Message') };
}

/** Children of this name, in their order: the entries of a page. */
export const entriesOf = (page: XmlElement, name: string): readonly XmlElement[] =>
  page.children.filter((one) => one.name === name);

/** Whether a list goes on behind this page. */
export const isCut = (page: XmlElement): boolean => textOfChild(page, 'IsTruncated') === 'true';

/** The query that asks for the page of unfinished uploads behind this one; null where there is none. */
export function nextUploads(page: XmlElement): Readonly<Record<string, string>> | null {
  const key = textOfChild(page, 'NextKeyMarker');
  const id = textOfChild(page, 'NextUploadIdMarker');
  return isCut(page) && key && id ? { 'key-marker': key, 'upload-id-marker': id } : null;
}

/** What puts the parts of an upload together, by their tags in order. */
export function completedUpload(etags: readonly string[]): Buffer {
  const parts = etags.map((tag, i) => `<Part><PartNumber>${i + 1}</PartNumber><ETag>${escapeXml(tag)}</ETag></Part>`);
  return Buffer.from(
    `<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${parts.join('')}</CompleteMultipartUpload>`,
  );
}
