/** Files of Vertex AI: objects of a Cloud Storage bucket (providers §6.3). */
import { SluiceError } from '../../kernel/errors.ts';
import type { FileObject } from '../../operations/training.ts';
import {
  bucketOf,
  insideBucket,
  listObjects,
  type ObjectPlace,
  openObject,
  parseUri,
  putObject,
  readObject,
  removeObject,
  type StoredObject,
  uriOf,
} from '../google/storage.ts';
import type { AdapterContext, FilesAdapter } from '../training.ts';
import { textOf } from '../training-calls.ts';

/** Key of the object's metadata that tells files of Sluice from other objects (RULE 27). */
const PURPOSE = 'gateway_purpose';

function toFile(object: StoredObject): FileObject {
  return {
    id: encodeURIComponent(uriOf(object)),
    object: 'file',
    bytes: object.bytes,
    created_at: object.createdAt,
    filename: object.name.slice(object.name.lastIndexOf('/') + 1),
    purpose: textOf(object.metadata[PURPOSE]) ?? 'fine-tune',
    status: 'processed',
    status_details: null,
  };
}

function placeOfFile(id: string, context: AdapterContext): ObjectPlace {
  const place = parseUri(id);
  if (place === null || place.name === '') throw new SluiceError('not_found', 'There is no such file at the provider.');
  // Without a named bucket the id alone would open every bucket of the credential.
  bucketOf(context);
  insideBucket(context, place.bucket, null);
  return place;
}

/** The name the upload is stored under: the caller's, else one nobody else has. */
function nameOf(context: AdapterContext): string {
  const given = context.header('x-gateway-provider-file-name');
  if (given === undefined) return `${context.uuid()}.jsonl`;
  const place = given === '' || given.endsWith('/') ? null : parseUri(`gs://${bucketOf(context)}/${given}`);
  if (place !== null) return place.name;
  throw new SluiceError('invalid_request', 'x-gateway-provider-file-name must be the name of an object.', {
    param: 'x-gateway-provider-file-name',
  });
}

export const files: FilesAdapter = {
  purposes: new Set(['fine-tune', 'batch']),
  objectUris: true,
  async upload(file, context) {
    const place = { bucket: bucketOf(context), name: nameOf(context) };
    const stored = await putObject(context, place, {
      stream: file.stream,
      bytes: file.bytes,
      contentType: /^[\x20-\x7e]+$/.test(file.contentType) ? file.contentType : 'application/octet-stream',
      metadata: { [PURPOSE]: file.purpose },
    });
    return toFile(stored);
  },
  /** Without a name of the caller's own every upload gets a new one, which no object has yet. */
  plannedId: (_filename, context) =>
    encodeURIComponent(uriOf({ bucket: bucketOf(context), name: nameOf(context) })),
  /** What was uploaded through Sluice; other objects of the bucket are reached by their URI. */
  async list(purpose, context) {
    const out: FileObject[] = [];
    for await (const object of listObjects(context, bucketOf(context), '')) {
      if (textOf(object.metadata[PURPOSE]) === null) continue;
      const file = toFile(object);
      if (purpose === null || file.purpose === purpose) out.push(file);
    }
    return out.sort((a, b) => b.created_at - a.created_at);
  },
  async retrieve(id, context) {
    return toFile(await readObject(context, placeOfFile(id, context)));
  },
  async remove(id, context) {
    await removeObject(context, placeOfFile(id, context));
  },
  content(id, context) {
    return openObject(context, placeOfFile(id, context));
  },
};
