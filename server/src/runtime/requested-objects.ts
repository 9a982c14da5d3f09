/** Which passed-through requests may go to an account that several workspaces share, by the path that is sent. */
import { pathOnly } from '../kernel/path-only.ts';

/** What a path below the account's base URL asks for. */
export type RequestedObjects =
  /** Nothing that is kept; objects that the body names have owners. */
  | { readonly kind: 'open' }
  /** One object, which must be the workspace's. */
  | { readonly kind: 'one'; readonly of: 'response' | 'model'; readonly id: string }
  /** Objects whose owners nobody knows, or a path that Sluice does not know. */
  | { readonly kind: 'closed' };

const OPEN: RequestedObjects = { kind: 'open' };
const CLOSED: RequestedObjects = { kind: 'closed' };

/** `*` is any one segment; a segment in front of `:` or after it is part of the name, as in Google's methods. */
const OPEN_PATHS: Readonly<Record<string, readonly string[]>> = {
  GET: ['models', 'models/*'],
  POST: [
    ...[
      'chat/completions',
      'completions',
      'embeddings',
      'images/generations',
      'images/edits',
      'images/variations',
      'audio/speech',
      'audio/transcriptions',
      'audio/translations',
    ].flatMap((path) => [path, `deployments/*/${path}`]),
    'messages',
    'messages/count_tokens',
    'moderations',
    'rerank',
    'responses',
    'responses/input_tokens',
    'fine_tuning/alpha/graders/run',
    'fine_tuning/alpha/graders/validate',
    'model/*/invoke',
    'model/*/invoke-with-response-stream',
    'model/*/converse',
    'model/*/converse-stream',
    'models/*:generatecontent',
    'models/*:streamgeneratecontent',
    'models/*:counttokens',
    'models/*:embedcontent',
    'models/*:batchembedcontents',
  ],
};

const ONE_PATHS: readonly (readonly [method: string, path: string, of: 'response' | 'model'])[] = [
  ['GET', 'responses/*', 'response'],
  ['DELETE', 'responses/*', 'response'],
  ['POST', 'responses/*/cancel', 'response'],
  ['GET', 'responses/*/input_items', 'response'],
  ['DELETE', 'models/*', 'model'],
  ['GET', 'fine_tuning/checkpoints/*/permissions', 'model'],
  ['POST', 'fine_tuning/checkpoints/*/permissions', 'model'],
  ['DELETE', 'fine_tuning/checkpoints/*/permissions/*', 'model'],
];

/** The one segment that stands for an object in the paths above. */
const ID_AT: Readonly<Record<string, number>> = { responses: 1, models: 1, fine_tuning: 2 };

const parts = (path: string): readonly string[] => path.split('/');
const OPEN_PARTS = new Map(Object.entries(OPEN_PATHS).map(([method, paths]) => [method, paths.map(parts)]));
const NONE: readonly string[] = [];
const ONE_PARTS = ONE_PATHS.map(([method, path, of]) => ({ method, of, wanted: parts(path) }));

/**
 * Segments of a path as the most lenient server reads it: decoded once, an encoded slash as a slash, empty segments left
 * out. Null where it cannot be decoded.
 */
function segmentsOf(path: string): readonly string[] | null {
  try {
    return decodeURIComponent(pathOnly(path))
      .split('/')
      .filter((part) => part !== '');
  } catch {
    return null;
  }
}

/**
 * Reads the path that is sent, below the account's base URL. Names are compared as servers do that ignore case.
 *
 * @param stateless the provider's own (`statelessPaths`)
 */
export function requestedObjects(method: string, path: string, stateless: readonly string[] = NONE): RequestedObjects {
  const segments = segmentsOf(path);
  if (segments === null) return CLOSED;
  const names = segments.map((segment) => segment.toLowerCase());
  if (OPEN_PARTS.get(method)?.some((wanted) => fits(names, wanted)) === true) return OPEN;
  if (stateless.some((own) => own.startsWith(`${method} `) && fits(names, parts(own.slice(method.length + 1)))))
    return OPEN;
  for (const { method: own, wanted, of } of ONE_PARTS) {
    if (own !== method || !fits(names, wanted)) continue;
    const id = segments[ID_AT[names[0] ?? ''] ?? -1];
    return id === undefined ? CLOSED : { kind: 'one', of, id };
  }
  return CLOSED;
}

/** What takes pictures and sound as a form, or as bare bytes. A header alone must not say that a body is none of JSON. */
const FORMS: ReadonlySet<string> = new Set([
  'images/edits',
  'images/variations',
  'audio/transcriptions',
  'audio/translations',
]);

/** Whether the path that is sent, below the account's base URL, takes a form. */
export function readsForms(path: string): boolean {
  return FORMS.has((segmentsOf(path) ?? []).slice(-2).join('/').toLowerCase());
}

function fits(names: readonly string[], wanted: readonly string[]): boolean {
  if (names.length !== wanted.length) return false;
  return wanted.every((part, i) => {
    const name = names[i] ?? '';
    if (part === '*') return true;
    return part.startsWith('*') ? name.length >= part.length && name.endsWith(part.slice(1)) : name === part;
  });
}

/** Paths by which objects come to be whose owner is noted: what their answer's `id` names. */
const MAKES: Readonly<
  Record<string, 'file' | 'batch' | 'job' | 'response' | 'conversation' | 'vector_store' | 'container'>
> = {
  files: 'file',
  batches: 'batch',
  'fine_tuning/jobs': 'job',
  responses: 'response',
  conversations: 'conversation',
  vector_stores: 'vector_store',
  containers: 'container',
};

/** What a passed-through request makes, or null. */
export function objectMadeBy(method: string, path: string): (typeof MAKES)[string] | null {
  if (method !== 'POST') return null;
  const name = (segmentsOf(path) ?? []).join('/').toLowerCase();
  return Object.hasOwn(MAKES, name) ? (MAKES[name] ?? null) : null;
}

const TRAINING =
  /^\/fine_tuning\/(?:alpha\/graders\/(?:run|validate)|checkpoints\/[^/]+\/permissions(?:\/[^/]+)?)(?:\?|$)/;

/** What is passed through below `/v1/fine_tuning`, where all other paths are named. */
export function isOfTraining(path: string): boolean {
  return TRAINING.test(path);
}
