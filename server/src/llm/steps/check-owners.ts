/**
 * Whether a request may go to an account that several workspaces share, judged by what is sent: the path below the account's
 * base URL, whatever it was called by, and the objects that its body names. Accounts of one workspace, and callers with
 * their own provider token, are not asked anything.
 */

import { tenantOf } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { noSuch } from '../../runtime/owners.ts';
import {
  formReferences,
  type Reference,
  type References,
  referencesIn,
  unknownHeader,
} from '../../runtime/references.ts';
import { isOfTraining, objectMadeBy, readsForms, requestedObjects } from '../../runtime/requested-objects.ts';
import type { StoredProvider } from '../../runtime/snapshot.ts';
import type { Uses } from '../exchange.ts';
import { isLargeRead, referencesOnThread } from '../large/calls.ts';
import { Creation } from '../ownership/creation.ts';
import type { Prepared } from '../state/prepared.ts';

/**
 * Refuses a request about objects of others before anything is sent. Throws 403 for what the account does not do for one of
 * several workspaces, 404 for objects that are not the workspace's. Returns a promise only where owners have to be looked up.
 */
export function checkOwners(
  x: Uses<'attempt' | 'cancel' | 'clientGone' | 'request', 'large' | 'owners'>,
): void | Promise<void> {
  const target = x.attempt.requireTarget();
  const prepared = x.attempt.requirePrepared();
  const { stored, provider } = target;
  const proxied = x.request.operation.family === 'proxy';
  const { method } = prepared.request;
  const path = proxied ? prepared.request.path.slice(target.prefix.length) : '';
  if (proxied && isOfTraining(path) && (provider.training?.files?.takesFields !== true || !provider.training.jobs)) {
    throw new SluiceError(
      'unsupported_operation',
      `Provider ${provider.id} has no graders and no permissions of checkpoints; accounts of OpenAI's shape have.`,
    );
  }
  if (stored === null || provider.local !== undefined) return;
  const making = proxied ? objectMadeBy(method, path) : x.request.operation.creates;
  if (making !== null && prepared.bound.convert === null) x.attempt.creation = new Creation(making, stored.shared);
  if (!stored.shared) return;
  const { owned } = x.request.operation;
  if (owned === 'ledger' || owned === 'nothing') return;
  if (owned === 'response') return must(x, stored, [{ kind: 'response', id: x.request.params.id ?? '', param: '' }]);
  if (owned === 'model') return must(x, stored, [{ kind: 'model', id: x.request.params.model ?? '', param: '' }]);
  if (owned === 'path') {
    if (stored.passthrough) return;
    const asked = requestedObjects(method, path, provider.statelessPaths);
    if (asked.kind === 'closed') throw closed(x, stored, { path: `${method} ${shown(path)}` });
    if (asked.kind === 'one') return must(x, stored, [{ kind: asked.of, id: asked.id, param: '' }]);
  }
  const header = unknownHeader(prepared.request.headers);
  if (header !== null) throw closed(x, stored, { name: header });
  return checkBody(x, stored, prepared, target.prefix.length);
}

function checkBody(
  x: Uses<'attempt' | 'cancel' | 'clientGone' | 'request', 'large' | 'owners'>,
  stored: StoredProvider,
  { request, fanOut }: Prepared,
  prefix: number,
): void | Promise<void> {
  const parts = request.body;
  if (parts === null) return;
  if (x.attempt.body.scan === null) {
    const type = typeOf(request.headers);
    const path = x.request.operation.family === 'proxy' ? request.path.slice(prefix) : '';
    if (isForm(type) && (x.request.operation.body === 'multipart' || readsForms(path))) {
      if (!isMultipart(type)) return;
      const named = formReferences(Buffer.concat(parts), type);
      if (named === null) throw unread();
      return refuseForeign(x, stored, named);
    }
  }
  // Only what was scanned as JSON is known to be read by everybody as it is read here.
  if (x.request.operation.family === 'proxy' && x.attempt.body.scan === null) throw unread();
  const refuse = (found: References | null): Promise<void> | undefined => {
    if (found === null) throw unread();
    return refuseForeign(x, stored, found);
  };
  let pending: Promise<void> | undefined;
  for (const body of fanOut === null ? [parts] : parts.map((part) => [part])) {
    const large = isLargeRead(body.reduce((sum, part) => sum + part.length, 0));
    const check = () => (large ? referencesOnThread(x, body).then(refuse) : refuse(referencesIn(joined(body))));
    pending = pending === undefined ? check() : pending.then(check);
  }
  return pending;
}

function joined(parts: readonly Buffer[]): Buffer {
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}

function unread(): SluiceError {
  return new SluiceError(
    'malformed_call',
    'Send one JSON object with content-type: application/json; the account is shared, and the objects that a body names are checked.',
  );
}

function typeOf(headers: readonly string[]): string {
  for (let i = 0; i < headers.length; i += 2) if (headers[i] === 'content-type') return headers[i + 1] ?? '';
  return '';
}

const isMultipart = (type: string): boolean => /^\s*multipart\/form-data/i.test(type);
const isForm = (type: string): boolean => isMultipart(type) || /^\s*audio\//i.test(type);

/** Throws 403 for what has no known owner; looks up owners only where something is named. */
function refuseForeign(
  x: Uses<'request', 'owners'>,
  stored: StoredProvider,
  found: References,
): Promise<void> | undefined {
  if (found.unknown !== null) throw closed(x, stored, { name: found.unknown });
  return found.objects.length > 0 || found.uris.length > 0 ? mustAll(x, stored, found) : undefined;
}

async function mustAll(
  x: Uses<'request', 'owners'>,
  stored: StoredProvider,
  { objects, uris }: References,
): Promise<void> {
  if (objects.length > 0) await must(x, stored, objects);
  const {
    request: { principal },
    services,
  } = x;
  if (principal === null || uris.length === 0) return;
  const all = uris.map(({ uri }) => uri);
  const foreign = await services.owners.foreign(tenantOf(principal), stored.accountId, all);
  if (foreign !== null) throw notFound('file', uris.find(({ uri }) => uri === foreign)?.param ?? '');
}

async function must(x: Uses<'request', 'owners'>, stored: StoredProvider, wanted: readonly Reference[]): Promise<void> {
  const {
    request: { principal },
    services,
  } = x;
  if (principal === null) return;
  const missing = await services.owners.missing(tenantOf(principal), stored.accountId, wanted);
  if (missing === null) return;
  const { param, kind } = wanted.find(({ kind, id }) => kind === missing.kind && id === missing.id) ?? {
    param: '',
    ...missing,
  };
  throw notFound(kind, param);
}

/** The same for what never was and for what is another workspace's. */
function notFound(kind: Reference['kind'], param: string): SluiceError {
  const message = noSuch(kind);
  return param === ''
    ? new SluiceError('not_found', message)
    : new SluiceError('unknown_reference', message, { param });
}

/**
 * The refusal of a path, or of the field or header that names something, and what helps the request that was sent. Passthrough
 * opens only what is passed through.
 */
function closed(
  { request: { operation } }: Uses<'request'>,
  { slug }: StoredProvider,
  refused: { readonly path: string } | { readonly name: string },
): SluiceError {
  const named = 'name' in refused;
  const what = named ? `a request with ${refused.name}` : refused.path;
  const passthrough = operation.owned === 'path' ? ', or for this workspace in passthrough of the integration' : '';
  return new SluiceError(
    'forbidden',
    `Provider @${slug} is an account that several workspaces share, and ${what} may reach what belongs to another one. ${named ? `Leave ${refused.name} out, or ask` : 'Ask'} an administrator for an integration that only this workspace uses${passthrough}. You may also send your own provider token.`,
  );
}

/** A path as an error names it. */
function shown(path: string): string {
  const at = path.indexOf('?');
  return JSON.stringify((at === -1 ? path : path.slice(0, at)).slice(0, 200));
}
