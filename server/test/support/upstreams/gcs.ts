import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { relatedParts, type StrictRoute } from '../strict-upstream.ts';
import { type Received, sendJson } from '../upstream.ts';

interface StoredObject {
  readonly content: Buffer;
  readonly contentType: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly timeCreated: string;
}

export interface GcsState {
  /** Objects by bucket and name. A bucket that is not there answers 404. */
  readonly buckets: Map<string, Map<string, StoredObject>>;
  /** Objects on one page of a listing, whatever was asked for. */
  listPage: number;
  /** Bytes the next upload loses without a word. */
  lose: number;
}

const OBJECT_FIELDS = 'name,bucket,size,contentType,timeCreated,generation,metadata';
const generationOf = (object: StoredObject | undefined): string =>
  object === undefined ? '0' : String(Date.parse(object.timeCreated));
const BASE_MS = Date.UTC(2026, 0, 1);

export const googleError = (status: number, message: string, name = 'INVALID_ARGUMENT'): unknown => ({
  error: { code: status, message, status: name, details: [] },
});

/** The JSON API v1 of Cloud Storage for objects: multipart upload, metadata, content, listing, deletion. */
export function gcs(): { readonly state: GcsState; readonly routes: readonly StrictRoute[] } {
  const state: GcsState = { buckets: new Map(), listPage: 1000, lose: 0 };
  let serial = 0;
  const resource = (bucket: string, name: string, object: StoredObject): unknown => ({
    kind: 'storage#object',
    name,
    bucket,
    size: String(object.content.length),
    contentType: object.contentType,
    timeCreated: object.timeCreated,
    generation: generationOf(object),
    ...(Object.keys(object.metadata).length === 0 ? null : { metadata: object.metadata }),
  });
  const place = (
    request: Received,
  ): { readonly bucket: string; readonly name: string; readonly query: URLSearchParams } => {
    const { pathname, searchParams } = new URL(request.path, 'http://gcs');
    const [, bucket = '', name = ''] = /^\/(?:upload\/)?storage\/v1\/b\/([^/]+)\/o(?:\/(.*))?$/.exec(pathname) ?? [];
    return { bucket, name: decodeURIComponent(name), query: searchParams };
  };
  const found = (
    request: Received,
    response: ServerResponse,
    then: (bucket: string, name: string, object: StoredObject, query: URLSearchParams) => void,
  ): void => {
    const { bucket, name, query } = place(request);
    const object = state.buckets.get(bucket)?.get(name);
    if (object === undefined)
      sendJson(response, 404, googleError(404, `No such object: ${bucket}/${name}`, 'NOT_FOUND'));
    else then(bucket, name, object, query);
  };
  // The name is one segment, fully percent-encoded.
  const one = /^\/storage\/v1\/b\/[a-z0-9._-]+\/o\/[^/]+$/;
  const routes: StrictRoute[] = [
    {
      method: 'POST',
      path: /^\/upload\/storage\/v1\/b\/[a-z0-9._-]+\/o$/,
      query: ['uploadType', 'ifGenerationMatch', 'fields'],
      form: 'related',
      chunked: true,
      body: z.strictObject({
        metadata: z.strictObject({
          name: z.string().min(1),
          contentType: z.string().min(1),
          metadata: z.record(z.string(), z.string()).optional(),
        }),
        media: z.strictObject({ bytes: z.number(), type: z.string() }),
      }),
      answer(body, response, request) {
        const { bucket, query } = place(request);
        const about = body.metadata as { name: string; contentType: string; metadata?: Record<string, string> };
        const objects = state.buckets.get(bucket);
        if (query.get('uploadType') !== 'multipart') throw new Error('uploadType');
        if (query.get('fields') !== OBJECT_FIELDS) throw new Error('fields');
        if (objects === undefined) {
          sendJson(response, 404, googleError(404, 'The specified bucket does not exist.', 'NOT_FOUND'));
        } else if (query.get('ifGenerationMatch') !== generationOf(objects.get(about.name))) {
          sendJson(
            response,
            412,
            googleError(412, 'At least one of the pre-conditions did not hold.', 'conditionNotMet'),
          );
        } else {
          const content = relatedParts(request)[1]?.content ?? Buffer.alloc(0);
          const object = {
            content: content.subarray(0, content.length - state.lose),
            contentType: about.contentType,
            metadata: about.metadata ?? {},
            timeCreated: new Date(BASE_MS + 1000 * ++serial).toISOString(),
          };
          objects.set(about.name, object);
          sendJson(response, 200, resource(bucket, about.name, object));
        }
      },
    },
    {
      method: 'GET',
      path: one,
      query: ['alt', 'fields'],
      body: null,
      answer: (_, response, request) =>
        found(request, response, (bucket, name, object, query) => {
          if (query.get('alt') === 'media') {
            response.writeHead(200, { 'content-type': object.contentType, 'content-length': object.content.length });
            response.end(object.content);
          } else {
            if (query.get('fields') !== OBJECT_FIELDS) throw new Error('fields');
            sendJson(response, 200, resource(bucket, name, object));
          }
        }),
    },
    {
      method: 'DELETE',
      path: one,
      body: null,
      answer: (_, response, request) =>
        found(request, response, (bucket, name) => {
          state.buckets.get(bucket)?.delete(name);
          response.writeHead(204).end();
        }),
    },
    {
      method: 'GET',
      path: /^\/storage\/v1\/b\/[a-z0-9._-]+\/o$/,
      query: ['prefix', 'maxResults', 'pageToken', 'fields'],
      body: null,
      answer(_, response, request) {
        const { bucket, query } = place(request);
        const objects = state.buckets.get(bucket);
        if (query.get('fields') !== `items(${OBJECT_FIELDS}),nextPageToken`) throw new Error('fields');
        if (objects === undefined) {
          sendJson(response, 404, googleError(404, 'The specified bucket does not exist.', 'NOT_FOUND'));
          return;
        }
        const all = [...objects].filter(([name]) => name.startsWith(query.get('prefix') ?? '')).sort();
        const from = Number(query.get('pageToken')?.replace('token-', '') ?? 0);
        const to = from + Math.min(state.listPage, Number(query.get('maxResults') ?? 1000));
        const items = all.slice(from, to).map(([name, object]) => resource(bucket, name, object));
        sendJson(response, 200, {
          ...(items.length === 0 ? null : { items }),
          ...(to < all.length ? { nextPageToken: `token-${to}` } : null),
        });
      },
    },
  ];
  return { state, routes };
}
