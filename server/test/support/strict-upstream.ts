import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type FakeUpstream, type Received, sendJson, startUpstream } from './upstream.ts';

/** One operation a strict upstream knows; everything else is refused and noted. */
export interface StrictRoute {
  readonly method: string;
  readonly path: RegExp;
  /** Absent: no query allowed. */
  readonly query?: readonly string[];
  /**
   * Null: no body allowed. `form`: fields of a multipart body, files as their length; or of an url-encoded one.
   * `related`: `metadata` and `media` of a multipart/related body, the media as its length and type.
   */
  readonly body: z.ZodType | null;
  readonly form?: boolean | 'urlencoded' | 'related';
  /** The body may come without a length said ahead. */
  readonly chunked?: boolean;
  answer(body: Record<string, unknown>, response: ServerResponse, request: Received): void;
}

export interface StrictUpstream extends FakeUpstream {
  /** What did not fit the published definition; a test that leaves any has failed. */
  readonly faults: string[];
  /** The last body that was accepted, parsed. */
  readonly last: Record<string, unknown>;
}

/** Headers a gateway may send whatever the provider; more are named by the server at hand. */
const HEADERS = new Set(['host', 'connection', 'accept', 'accept-encoding', 'content-type', 'content-length']);

/** Fields of a multipart body; a file is `{ bytes }`. Repeated names become lists. */
async function readForm(request: Received): Promise<Record<string, unknown>> {
  const form = await new Response(new Uint8Array(request.body), {
    headers: { 'content-type': String(request.headers['content-type']) },
  }).formData();
  const out: Record<string, unknown> = {};
  for (const [name, value] of form) out[name] = typeof value === 'string' ? value : { bytes: value.size };
  return out;
}

/** Both parts of a multipart/related body, taken apart by the boundary and nothing else. */
export function relatedParts(request: Received): { readonly head: string; readonly content: Buffer }[] {
  const boundary = String(request.headers['content-type']).split('boundary=')[1] ?? '';
  const text = request.body.toString('latin1');
  if (!text.endsWith(`\r\n--${boundary}--\r\n`)) throw new Error('the last boundary is missing');
  const parts = text.slice(0, -`\r\n--${boundary}--\r\n`.length).split(`--${boundary}\r\n`);
  return parts.slice(1).map((part, at, all) => {
    const end = part.indexOf('\r\n\r\n');
    const content = part.slice(end + 4);
    return {
      head: part.slice(0, end).toLowerCase(),
      content: Buffer.from(at === all.length - 1 ? content : content.slice(0, -2), 'latin1'),
    };
  });
}

function readRelated(request: Received): Record<string, unknown> {
  const [about, media, ...more] = relatedParts(request);
  if (about === undefined || media === undefined || more.length > 0) throw new Error('there must be two parts');
  if (!about.head.startsWith('content-type: application/json')) throw new Error(`the metadata is ${about.head}`);
  const type = media.head.replace('content-type: ', '');
  return { metadata: JSON.parse(about.content.toString('utf8')), media: { bytes: media.content.length, type } };
}

const contentType = (form: StrictRoute['form']): string => {
  if (form === 'related') return 'multipart/related; boundary=';
  if (form === 'urlencoded') return 'application/x-www-form-urlencoded';
  return form ? 'multipart/form-data; boundary=' : 'application/json';
};

/** Trusted hosts, as these are, are told of the trace; any HTTP server takes that. */
export const isTrace = (name: string, value: unknown): boolean =>
  name === 'traceparent' && /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$/.test(String(value));

/** A provider that checks method, path, query, headers and body against its published field lists. */
export async function startStrictUpstream(options: {
  readonly routes: readonly StrictRoute[];
  /** Header → what its value must match; those not listed as optional must be there. */
  readonly headers: Readonly<Record<string, RegExp>>;
  readonly optional: readonly string[];
  readonly error: (status: number, message: string) => unknown;
}): Promise<StrictUpstream> {
  const faults: string[] = [];
  let last: Record<string, unknown> = {};
  const check = async (request: Received, response: ServerResponse): Promise<string | null> => {
    const url = new URL(request.path, 'http://upstream');
    const route = options.routes.find((one) => one.method === request.method && one.path.test(url.pathname));
    if (route === undefined) return 'no such operation';
    for (const name of url.searchParams.keys()) if (!route.query?.includes(name)) return `unknown query ${name}`;
    for (const [name, value] of Object.entries(request.headers)) {
      const wanted = options.headers[name];
      if (isTrace(name, value)) continue;
      if (name === 'transfer-encoding' && route.chunked === true) continue;
      if (wanted === undefined && !HEADERS.has(name) && !options.optional.includes(name))
        return `unknown header ${name}: ${value}`;
      if (wanted !== undefined && !wanted.test(String(value))) return `wrong header ${name}: ${value}`;
    }
    for (const name of Object.keys(options.headers))
      if (request.headers[name] === undefined && !options.optional.includes(name)) return `missing header ${name}`;
    if (route.body === null) {
      if (request.body.length > 0) return 'a body where none belongs';
      route.answer({}, response, request);
      return null;
    }
    const type = String(request.headers['content-type'] ?? '');
    if (!type.startsWith(contentType(route.form))) return `content type ${type}`;
    const chunked = route.chunked === true && request.headers['transfer-encoding'] === 'chunked';
    if (!chunked && Number(request.headers['content-length']) !== request.body.length) return 'content-length';
    const value =
      route.form === 'related'
        ? readRelated(request)
        : route.form
          ? await readForm(request)
          : JSON.parse(request.body.toString('utf8'));
    const parsed = route.body.safeParse(value);
    if (!parsed.success) return `${z.prettifyError(parsed.error)}\n${JSON.stringify(value)}`;
    last = value as Record<string, unknown>;
    route.answer(last, response, request);
    return null;
  };
  const upstream = await startUpstream(async (request, response) => {
    const fault = await check(request, response).catch((error: unknown) => String(error));
    if (fault === null) return;
    faults.push(`${request.method} ${request.path}: ${fault}`);
    if (!response.headersSent) sendJson(response, 400, options.error(400, fault));
  });
  return Object.defineProperties(upstream, {
    faults: { value: faults },
    last: { get: () => last },
  }) as StrictUpstream;
}

/** Sends pieces of a stream, each in a packet of its own, then ends; `cut` breaks the connection instead. */
export function sendStream(response: ServerResponse, pieces: readonly string[], cut = false): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  let at = 0;
  const next = (): void => {
    const piece = pieces[at++];
    if (piece !== undefined) {
      response.write(piece);
      setImmediate(next);
    } else if (cut) response.destroy();
    else response.end();
  };
  next();
}
