/**
 * Pictures and files that a conversation names by their addresses, for providers that read none themselves: fetched like
 * every other outbound call, without any credential, and sent along.
 */
import type { Readable } from 'node:stream';
import type { FetchAnswer } from '../http/fetcher.ts';
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import type { Shape } from '../operations/operation.ts';
import type { Exchange } from './exchange.ts';
import { shape } from './shaping.ts';
import type { Target } from './target.ts';

const MAX_FILES = 20;
/** All of a request together: what providers take inside one. */
const MAX_BYTES = 20 * 1024 * 1024;
/** All of a request together; a silent server gets less. */
const MAX_MS = 30_000;
const SILENT_MS = 10_000;
const HTTP = Buffer.from('http');
const TYPES = /^(?:image|video|audio)\/[a-z0-9.+-]{1,60}$|^(?:application\/pdf|text\/(?:plain|csv|html|markdown))$/;
/** Shown by dry runs, which call nothing. */
const UNREAD = 'data:image/png;base64,AAAA';

/** What was fetched, as data URLs by address. */
export type Media = ReadonlyMap<string, string>;

/** Fetches what this target has to be sent and was not fetched yet; 400 when something is not there, or is too large. */
export function fetchMedia(x: Exchange, target: Target): Promise<void> | undefined {
  const { inlines } = target.bind(x.request.operation.id, target.sends(x.request.model)).binding;
  if (inlines === undefined || x.attempt.scan === null || x.attempt.body.indexOf(HTTP) === -1) return undefined;
  return fetchNamed(x, target, inlines);
}

async function fetchNamed(x: Exchange, target: Target, inlines: (url: string) => boolean): Promise<void> {
  const parsed = parseExact(x.attempt.body.toString('utf8'));
  if (!isObject(parsed)) return;
  const body = x.attempt.shaped || target.shaping === null ? parsed : shape(parsed, target.shaping);
  const wanted = new Set<string>();
  replaced(x.request.operation.shape, body, (url) => {
    if (inlines(url) && x.request.media?.has(url) !== true) wanted.add(url);
    return null;
  });
  if (wanted.size === 0) return;
  const media = new Map(x.request.media);
  if (media.size + wanted.size > MAX_FILES)
    throw refused(null, `more than ${MAX_FILES} pictures and files are named by their addresses`);
  if (x.request.dryRun) for (const url of wanted) media.set(url, UNREAD);
  else await fetchAll(x, wanted, media);
  x.request.media = media;
}

/** The body with what was fetched in place of its addresses. */
export function withMedia(
  kind: Shape,
  body: JsonObject,
  media: Media | null,
  inlines: (url: string) => boolean,
): JsonObject {
  if (media === null) return body;
  return replaced(kind, body, (url) => (inlines(url) ? (media.get(url) ?? null) : null));
}

async function fetchAll(x: Exchange, urls: ReadonlySet<string>, media: Map<string, string>): Promise<void> {
  const leaving = new AbortController();
  const { cancel } = x;
  x.cancel = (error) => leaving.abort(error);
  const late = x.services.clock.after(MAX_MS, () =>
    leaving.abort(refused(null, `the pictures and files named by addresses took longer than ${MAX_MS / 1000} s`)),
  );
  try {
    // One after the other: a caller must not make a crowd of calls of one request.
    for (const url of urls) media.set(url, await fetched(x, url, leaving.signal));
  } finally {
    late();
    x.cancel = cancel;
  }
}

async function fetched(x: Exchange, url: string, signal: AbortSignal): Promise<string> {
  const { trusted } = x.services.guard.check(url, {
    storedCredential: false,
    kind: 'invalid_request',
    param: 'messages',
  });
  // Trusted hosts are trusted to serve accounts: who may name no host for a call may not look into them this way.
  if (trusted && x.request.snapshot?.blockInlineConfig !== false)
    throw refused(url, 'this organisation allows saved hosts only, and the host is one of the installation');
  const { stream, status, headers } = await answered(x, url, signal);
  const type = (headers['content-type'] ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
  const coding = headers['content-encoding'] ?? 'identity';
  const fault =
    status !== 200
      ? `the answer has status ${status}${status >= 300 && status < 400 ? ', and redirects are not followed' : ''}`
      : coding !== 'identity'
        ? 'the answer is compressed although nobody asked for that'
        : TYPES.test(type)
          ? null
          : 'the answer is no picture, sound, video, PDF or text by its content-type';
  if (fault !== null) {
    stream.destroy();
    throw refused(url, fault);
  }
  const parts: Buffer[] = [];
  const { bodies } = x.services;
  for await (const part of whole(stream, url)) {
    const held = x.bodyHeld + Math.ceil((part.length * 4) / 3);
    x.request.mediaBytes += part.length;
    const tooMuch = x.request.mediaBytes > MAX_BYTES;
    if (tooMuch || !bodies.grow(x.request.organisationId, x.bodyHeld, held)) {
      stream.destroy();
      if (tooMuch) throw refused(url, `together they are larger than ${MAX_BYTES / 1024 / 1024} MB`);
      const message =
        'Too many large requests of your organisation are under way; try again when some of them have ended.';
      throw new SluiceError('gateway_unavailable', message, { retryAfter: 1 });
    }
    x.bodyHeld = held;
    parts.push(part);
  }
  return `data:${type};base64,${Buffer.concat(parts).toString('base64')}`;
}

async function answered(x: Exchange, url: string, signal: AbortSignal): Promise<FetchAnswer> {
  try {
    return await x.services.fetcher.send({
      method: 'GET',
      url: new URL(url),
      headers: ['accept', 'image/*, video/*, audio/*, application/pdf, text/*', 'accept-encoding', 'identity'],
      body: null,
      organisationId: x.request.principal?.organisationId ?? '',
      storedCredential: false,
      headersTimeoutMs: SILENT_MS,
      idleMs: SILENT_MS,
      signal,
    });
  } catch (error) {
    const silent = error instanceof SluiceError && (error.kind === 'upstream_unreachable' || error.kind === 'timeout');
    throw silent ? refused(url, 'the server could not be reached, or did not answer in time') : error;
  }
}

async function* whole(stream: Readable, url: string): AsyncGenerator<Buffer> {
  try {
    yield* stream as AsyncIterable<Buffer>;
  } catch (error) {
    throw error instanceof SluiceError ? error : refused(url, 'the answer was cut');
  }
}

/** The host says enough to find the address; the rest of it may be a secret. */
function refused(url: string | null, why: string): SluiceError {
  const what =
    url === null ? 'The media of this request cannot be sent' : `The file at ${new URL(url).host} cannot be sent`;
  return new SluiceError('invalid_request', `${what}: ${why}. Send it as a data URL.`, { param: 'messages' });
}

type Replace = (url: string) => string | null;

/** The conversation with its addresses replaced; only where media stand, so that arguments and results stay as they are. */
function replaced(kind: Shape, body: JsonObject, replace: Replace): JsonObject {
  const name = kind === 'responses' ? 'input' : 'messages';
  const list = body[name];
  if (!Array.isArray(list)) return body;
  const next = list.map((message) => withParts(message, replace));
  return next.every((message, i) => message === list[i]) ? body : { ...body, [name]: next };
}

/** A message, a result of a tool, or an item: its parts stand in `content` or, in results of Responses, in `output`. */
function withParts(holder: JsonValue, replace: Replace): JsonValue {
  if (!isObject(holder)) return holder;
  let next = holder;
  for (const name of ['content', 'output'] as const) {
    const parts = holder[name];
    if (!Array.isArray(parts)) continue;
    const made = parts.map((part) => partWith(part, replace));
    if (made.some((part, i) => part !== parts[i])) next = { ...next, [name]: made };
  }
  return next;
}

function partWith(part: JsonValue, replace: Replace): JsonValue {
  if (!isObject(part)) return part;
  const { type } = part;
  if (type === 'image_url' || type === 'video_url') {
    const given = part[type];
    const data = urlWith(isObject(given) ? given.url : given, replace);
    if (data === null) return part;
    return { ...part, [type]: isObject(given) ? { ...given, url: data } : data };
  }
  if (type === 'input_image') {
    const data = urlWith(part.image_url, replace);
    return data === null ? part : { ...part, image_url: data };
  }
  if (type === 'input_file') {
    const data = urlWith(part.file_url, replace);
    const { file_url: _url, ...rest } = part;
    return data === null ? part : { ...rest, file_data: data };
  }
  if (type === 'tool_result') return withParts(part, replace);
  const { source } = part;
  if ((type !== 'image' && type !== 'document') || !isObject(source) || source.type !== 'url') return part;
  const data = urlWith(source.url, replace);
  if (data === null) return part;
  const [head = '', content = ''] = data.slice('data:'.length).split(';base64,', 2);
  return { ...part, source: { type: 'base64', media_type: head, data: content } };
}

const urlWith = (url: JsonValue | undefined, replace: Replace): string | null =>
  typeof url === 'string' ? replace(url) : null;
