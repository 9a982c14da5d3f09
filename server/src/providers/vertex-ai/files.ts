/** Files of Vertex AI: objects of a Cloud Storage bucket. */
import { SluiceError } from '../../kernel/errors.ts';
import type { FileObject } from '../../operations/training.ts';
import {
  bucketOf,
  findObject,
  insideBucket,
  listObjects,
  type ObjectPlace,
  occupied,
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

/** Key of the object's metadata that tells files of Sluice from other objects. */
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

const NAME_HEADER = 'x-gateway-provider-file-name';

/** The name the upload is stored under: the caller's, else one nobody else has. */
function nameOf(context: AdapterContext): string {
  const given = context.header(NAME_HEADER);
  if (given === undefined) return `${context.uuid()}.jsonl`;
  const place = given === '' || given.endsWith('/') ? null : parseUri(`gs://${bucketOf(context)}/${given}`);
  if (place !== null) return place.name;
  throw new SluiceError('invalid_request', `${NAME_HEADER} must be the name of an object.`, { param: NAME_HEADER });
}

/**
 * The generation of an earlier upload under a name the caller chose, which a new one replaces; null when the name is
 * free. What did not come through Sluice is never overwritten.
 */
async function replaced(place: ObjectPlace, context: AdapterContext): Promise<string | null> {
  if (context.header(NAME_HEADER) === undefined) return null;
  const found = await findObject(context, place);
  if (found === null) return null;
  if (textOf(found.metadata[PURPOSE]) === null) throw occupied(place);
  return found.generation;
}

export const files: FilesAdapter = {
  purposes: new Set(['fine-tune', 'batch']),
  objectUris: true,
  async upload(file, context) {
    // A client may leave while the name is looked up, and an error nobody listens for ends the process.
    file.stream.on('error', () => {});
    const place = { bucket: bucketOf(context), name: nameOf(context) };
    const stored = await putObject(context, place, {
      stream: file.stream,
      bytes: file.bytes,
      contentType: /^[\x20-\x7e]+$/.test(file.contentType) ? file.contentType : 'application/octet-stream',
      metadata: { [PURPOSE]: file.purpose },
      replaces: await replaced(place, context),
    });
    return toFile(stored);
  },
  /** Without a name of the caller's own every upload gets a new one, which no object has yet. */
  plannedId: (_filename, context) => encodeURIComponent(uriOf({ bucket: bucketOf(context), name: nameOf(context) })),
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
