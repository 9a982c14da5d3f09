/**
 * Pictures and files that a conversation names by their addresses, for providers that read none themselves: fetched like
 * every other outbound call, without any credential, and sent along.
 */

import type { Readable } from 'node:stream';
import type { FetchAnswer } from '../../http/background-fetcher.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { contextOf } from '../call-context.ts';
import type { Uses } from '../exchange.ts';
import { isLargeRead, namedMediaOnThread, SharedPieces } from '../large/calls.ts';
import { namedMedia } from '../media-names.ts';
import type { Target } from '../target.ts';

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

/**
 * Fetches pictures and files that the request names and this target does not fetch itself. Throws 400 when something is not
 * there, or is too large.
 */
export function fetchMedia(
  x: Uses<
    'attempt' | 'bodyHeld' | 'cancel' | 'clientGone' | 'request',
    'bodies' | 'clock' | 'fetcher' | 'egress' | 'large'
  >,
): void | Promise<void> {
  const target = x.attempt.requireTarget();
  const { inlines } = target.bind(x.request.operation.id, target.sends(x.request.model)).binding;
  if (inlines === undefined || x.attempt.body.scan === null || x.attempt.body.bytes.indexOf(HTTP) === -1) return;
  return fetchNamed(x, target, inlines);
}

async function fetchNamed(
  x: Uses<
    'attempt' | 'bodyHeld' | 'cancel' | 'clientGone' | 'request',
    'bodies' | 'clock' | 'fetcher' | 'egress' | 'large'
  >,
  target: Target,
  inlines: (url: string) => boolean,
): Promise<void> {
  const named = isLargeRead(x.attempt.body.bytes.length)
    ? await namedMediaOnThread(x, target, contextOf(x, target), x.attempt.shaping)
    : namedMedia(x.request.operation.wire.conversations, x.attempt.value(), inlines);
  const wanted = new Set(named.filter((url) => x.attempt.media?.has(url) !== true));
  if (wanted.size === 0) return;
  const media = new Map(x.attempt.media);
  if (media.size + wanted.size > MAX_FILES)
    throw refused(null, `more than ${MAX_FILES} pictures and files are named by their addresses`);
  if (x.request.dryRun) for (const url of wanted) media.set(url, UNREAD);
  else await fetchAll(x, wanted, media);
  x.attempt.media = media;
}

async function fetchAll(
  x: Uses<'attempt' | 'bodyHeld' | 'cancel' | 'request', 'bodies' | 'clock' | 'fetcher' | 'egress'>,
  urls: ReadonlySet<string>,
  media: Map<string, string | readonly Uint8Array[]>,
): Promise<void> {
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

async function fetched(
  x: Uses<'attempt' | 'bodyHeld' | 'request', 'bodies' | 'fetcher' | 'egress'>,
  url: string,
  signal: AbortSignal,
): Promise<string | readonly Uint8Array[]> {
  const { trusted } = x.services.egress.check(url, {
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
  const text = new Base64(`data:${type};base64,`);
  const { bodies } = x.services;
  for await (const part of whole(stream, url)) {
    const held = x.bodyHeld + Math.ceil((part.length * 4) / 3);
    x.attempt.mediaBytes += part.length;
    const tooMuch = x.attempt.mediaBytes > MAX_BYTES;
    if (tooMuch || !bodies.grow(x.request.organisationId, x.bodyHeld, held)) {
      stream.destroy();
      if (tooMuch) throw refused(url, `together they are larger than ${MAX_BYTES / 1024 / 1024} MB`);
      const message =
        'Too many large requests of your organisation are under way; try again when some of them have ended.';
      throw new SluiceError('out_of_service', message, { retryAfter: 1 });
    }
    x.bodyHeld = held;
    text.add(part);
  }
  return text.end();
}

/** A data URL as its bytes come: 20 MB at their end would hold the event loop up. */
class Base64 {
  readonly #pieces = new SharedPieces();
  #length = 0;
  #rest: Buffer = Buffer.alloc(0);

  constructor(head: string) {
    this.#add(head);
  }

  add(part: Buffer): void {
    const bytes = this.#rest.length === 0 ? part : Buffer.concat([this.#rest, part]);
    const whole = bytes.length - (bytes.length % 3);
    this.#add(bytes.toString('base64', 0, whole));
    this.#rest = Buffer.from(bytes.subarray(whole));
  }

  end(): string | readonly Uint8Array[] {
    this.#add(this.#rest.toString('base64'));
    const pieces = this.#pieces.pieces();
    return isLargeRead(this.#length) ? pieces : Buffer.concat(pieces).toString('latin1');
  }

  #add(text: string): void {
    this.#length += text.length;
    this.#pieces.add(Buffer.from(text, 'latin1'));
  }
}

async function answered(x: Uses<'request', 'fetcher'>, url: string, signal: AbortSignal): Promise<FetchAnswer> {
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
