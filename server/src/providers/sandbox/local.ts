import { createHash } from 'node:crypto';
import type { Clock } from '../../kernel/clock.ts';
import { digestInTurns, isLongDigest } from '../../kernel/digest.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import type { WireRequest } from '../../kernel/wire.ts';
import type { LocalHandler } from '../provider.ts';
import { type Answer, jsonAnswer } from './answer.ts';
import { speech, transcription } from './audio.ts';
import { Call } from './call.ts';
import { chat, type Input } from './chat.ts';
import { completions } from './completions.ts';
import { embeddings } from './embeddings.ts';
import { Faults } from './faults.ts';
import { type FormFile, readForm } from './form.ts';
import { images } from './images.ts';
import { countMessages, messages } from './messages.ts';
import { parseModelName } from './model.ts';
import { getModel, listModels } from './models.ts';
import { moderations } from './moderations.ts';
import { invalid, Problem, problemBody } from './problem.ts';
import { rerank } from './rerank.ts';
import { responses } from './responses.ts';

type JsonRoute = (input: Input) => Answer | Promise<Answer>;
type FormRoute = (input: Input, files: readonly FormFile[]) => Answer | Promise<Answer>;

const JSON_ROUTES: ReadonlyMap<string, JsonRoute> = new Map<string, JsonRoute>([
  ['/chat/completions', chat],
  ['/completions', completions],
  ['/embeddings', embeddings],
  ['/messages', messages],
  ['/messages/count_tokens', countMessages],
  ['/responses', responses],
  ['/moderations', moderations],
  ['/images/generations', (input) => images(input, 'generations', [])],
  ['/audio/speech', speech],
  ['/rerank', rerank],
]);

const FORM_ROUTES: ReadonlyMap<string, FormRoute> = new Map<string, FormRoute>([
  ['/images/edits', (input, files) => images(input, 'edits', files)],
  ['/images/variations', (input, files) => images(input, 'variations', files)],
  ['/audio/transcriptions', (input, files) => transcription(input, 'transcribe', files)],
  ['/audio/translations', (input, files) => transcription(input, 'translate', files)],
]);

/** Bytes of JSON that are read: half of the time of a turn. A provider is what reads more. */
const MAX_JSON = 1024 * 1024;

const lengthOf = ({ body }: WireRequest): number => (body ?? []).reduce((sum, part) => sum + part.length, 0);

async function hashOf(request: WireRequest): Promise<string> {
  const hash = createHash('sha256').update(`${request.method} ${request.path}\n`);
  const parts = request.body ?? [];
  if (isLongDigest(lengthOf(request))) return (await digestInTurns(hash, parts)).toString('hex');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
}

/** Path below the version prefix, without query. */
function routeOf(path: string): string {
  const query = path.indexOf('?');
  const bare = query === -1 ? path : path.slice(0, query);
  return bare.startsWith('/v1/') ? bare.slice('/v1'.length) : bare;
}

function headerOf(request: WireRequest, name: string): string {
  for (let i = 0; i < request.headers.length; i += 2)
    if (request.headers[i] === name) return request.headers[i + 1] ?? '';
  return '';
}

function noResponse(route: string): Problem {
  const id = route.slice('/responses/'.length).split('/')[0] ?? '';
  return new Problem(404, `Response with id '${id.slice(0, 100)}' not found: the sandbox stores no responses.`, {
    code: 'not_found',
  });
}

function bodyOf(request: WireRequest): Buffer {
  const parts = request.body ?? [];
  const [first] = parts;
  return parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
}

function tooLarge(): Problem {
  const message = `The sandbox reads JSON bodies of at most ${MAX_JSON} bytes. Send a shorter request, or ask a provider.`;
  return new Problem(413, message, { code: 'request_too_large' });
}

function parseBody(bytes: Buffer): JsonObject {
  let value: unknown;
  try {
    value = parseJson(bytes.toString('utf8'));
  } catch {
    throw invalid(
      'We could not parse the JSON body of your request. The body must be valid JSON and sent with the header content-type: application/json.',
      null,
    );
  }
  if (!isObject(value)) throw invalid('The body of your request must be a JSON object.', null);
  return value;
}

/** A handler with its own counters: `error?times=N` counts per handler. */
export function createLocal(): LocalHandler {
  const faults = new Faults();

  async function answer(request: WireRequest, route: string, hash: string, clock: Clock): Promise<Answer> {
    const created = Math.floor(clock.now() / 1000);
    if (request.method === 'GET' && route === '/models') return listModels();
    if (request.method === 'GET' && route.startsWith('/models/')) return getModel(route.slice('/models/'.length));
    if (route.startsWith('/responses/') && request.method !== 'POST') throw noResponse(route);
    const json = request.method === 'POST' ? JSON_ROUTES.get(route) : undefined;
    const form = request.method === 'POST' ? FORM_ROUTES.get(route) : undefined;
    const call = { request, hash, created };
    if (json !== undefined) {
      if (lengthOf(request) > MAX_JSON) throw tooLarge();
      return json(due(call, parseBody(bodyOf(request)), clock));
    }
    if (form !== undefined) {
      const { fields, files } = readForm(bodyOf(request), headerOf(request, 'content-type'));
      return form(due(call, fields, clock), files);
    }
    throw new Problem(
      404,
      `Unknown request URL: ${request.method} ${route.slice(0, 200)}. The sandbox does not answer it.`,
      {
        code: 'unknown_url',
      },
    );
  }

  /** The input of a route, unless its model is to fail now. */
  function due(
    { request, hash, created }: { request: WireRequest; hash: string; created: number },
    body: JsonObject,
    clock: Clock,
  ): Input {
    if (typeof body.model === 'string') {
      const problem = faults.due(parseModelName(body.model), request.organisationId, clock.now());
      if (problem !== null) throw problem;
    }
    return { body, hash, created };
  }

  return (request, handler, clock) => {
    const run = async (): Promise<Answer> => {
      const route = routeOf(request.path);
      const anthropic = route === '/messages' || route.startsWith('/messages/');
      const hash = await hashOf(request);
      const requestId = `req_${hash.slice(0, 32)}`;
      const ids = ['x-request-id', requestId, ...(anthropic ? ['request-id', requestId] : [])];
      try {
        const made = await answer(request, route, hash, clock);
        return { ...made, headers: [...made.headers, ...ids] };
      } catch (error) {
        const problem =
          error instanceof Problem
            ? error
            : new Problem(500, 'The sandbox failed to answer this request; this is a fault of Sluice.', {
                type: 'server_error',
              });
        if (problem.retryAfter !== null) ids.push('retry-after', String(problem.retryAfter));
        return jsonAnswer(problem.status, problemBody(problem, anthropic, requestId), ids);
      }
    };
    return new Call(handler, clock, run);
  };
}
