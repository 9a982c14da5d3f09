/**
 * The authorization endpoint: a request of a client becomes a question to a signed-in user, and the user's answer a code
 * (RFC 6749 §4.1, RFC 7636, RFC 8707, RFC 9207). Faults before the redirect address is known to be the client's are a
 * page: nothing is ever sent to an address that is not.
 */
import type { ConsoleSession } from '../auth/console-session.ts';
import { digestOf, mintKey } from '../auth/key-format.ts';
import type { Principal } from '../auth/principal.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { base62 } from '../kernel/id.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Clients } from './clients.ts';
import { OAuthError } from './errors.ts';
import { isRegistered, withQuery } from './redirects.ts';
import { isResourcePath, resourcePath, SCOPES } from './resource-addresses.ts';

const REQUEST_TTL_MS = 10 * 60_000;
const CODE_TTL_MS = 60_000;
/** A used code is known for this long, so that its second use ends what the first gave. */
export const CODE_KEPT_MS = 24 * 3_600_000;
const MOST_STATE = 512;
/** S256: 32 bytes in base64url. */
const CHALLENGE = /^[A-Za-z0-9_-]{43}$/;
const REFUSED = { error: 'access_denied', error_description: 'The user refused.' };
const RESUME_STATE = /^[0-9A-Za-z]{43}$/;

export interface AuthorizationOptions {
  readonly tables: Pick<Tables, 'systemRead' | 'systemWrite'>;
  readonly clock: Clock;
  readonly clients: Clients;
  /** Without a slash at its end. It is the issuer. */
  readonly publicUrl: () => string;
}

/** Where a request for access goes: to the consent page, back to the client with a fault, or to a page that says why not. */
export type Begun = { readonly to: string } | { readonly fault: PageFault };

/** Texts of the page are ours alone: nothing that the request brought is in it. */
export type PageFault = 'client' | 'redirect' | 'repeated';

/** What the consent page shows. */
export interface Question {
  readonly client: {
    readonly name: string;
    readonly id: string;
    readonly uri: string | null;
    readonly document: boolean;
  };
  /** Host of the address that the answer goes to; a scheme for a program's own. */
  readonly redirect_host: string;
  readonly local: boolean;
  readonly scopes: readonly string[];
  readonly resource: string;
  readonly expires_at: number;
}

export interface Decision {
  readonly approved: boolean;
  readonly resume_state: string;
  readonly organisation_id: string;
  readonly workspace_id?: string | undefined;
}

/** Writes more in the transaction of a decision: its audit row. */
export type Decided = (tx: SystemTx, request: Row<'oauth_requests'>) => Promise<void>;

export class Authorization {
  readonly #options: AuthorizationOptions;

  constructor(options: AuthorizationOptions) {
    this.#options = options;
  }

  /**
   * Begins a request for access.
   *
   * @param query as it came
   * @param path the resource that the path of the endpoint names, as `/tools/mcp`; null where it names none
   * @param isUser whether the browser has a sign-in
   */
  async begin(query: URLSearchParams, path: string | null, isUser: () => Promise<boolean>): Promise<Begun> {
    const one = (name: string) => query.get(name) ?? '';
    if (['client_id', 'redirect_uri'].some((name) => query.getAll(name).length > 1)) return { fault: 'repeated' };
    const client = await this.#client(one('client_id'), isUser);
    if (client === undefined) return { fault: 'client' };
    const redirect = one('redirect_uri');
    if (!isRegistered(client.redirect_uris, redirect)) return { fault: 'redirect' };
    const state = query.getAll('state').length === 1 && one('state').length <= MOST_STATE ? one('state') : null;
    try {
      return { to: await this.#ask(client, redirect, query, path) };
    } catch (error) {
      if (!(error instanceof OAuthError)) throw error;
      return { to: this.#answer(redirect, state, { error: error.oauth, error_description: error.message }) };
    }
  }

  /** Undefined also for a document that cannot be used: the page says the same of both. */
  async #client(id: string, isUser: () => Promise<boolean>): Promise<Row<'oauth_clients'> | undefined> {
    try {
      return await this.#options.clients.find(id, isUser);
    } catch (error) {
      if (error instanceof OAuthError) return undefined;
      throw error;
    }
  }

  /** Keeps the request and answers where the user's browser goes. The fragment is never sent, so no log on the way holds it. */
  async #ask(
    client: Row<'oauth_clients'>,
    redirect_uri: string,
    query: URLSearchParams,
    path: string | null,
  ): Promise<string> {
    const { tables, clock, publicUrl } = this.#options;
    const asked = readAsked(query, client, publicUrl(), path);
    const now = clock.now();
    const resume = base62(43);
    await tables.systemWrite(async (tx) => {
      await tx.remove('oauth_requests', { expires_at: { lt: now } });
      await tx.insert('oauth_requests', {
        digest: digestOf(resume),
        session_digest: null,
        client_id: client.id,
        redirect_uri,
        ...asked,
        expires_at: now + REQUEST_TTL_MS,
        created_at: now,
      });
    });
    return `${publicUrl()}/console/authorize#${resume}`;
  }

  /** What a session is asked. The first session that sees it is the only one that may answer. Throws 404. */
  async look(resume: string, session: ConsoleSession): Promise<Question> {
    const { tables, clock, clients } = this.#options;
    const digest = digestOfResume(resume);
    const now = clock.now();
    const request = await tables.systemWrite(async (tx) => {
      const open = { digest, expires_at: { gt: now } };
      await tx.update('oauth_requests', { ...open, session_digest: null }, { session_digest: session.digest });
      return tx.find('oauth_requests', { ...open, session_digest: session.digest });
    });
    const client = request === undefined ? undefined : await clients.known(request.client_id);
    if (request === undefined || client === undefined) throw gone();
    const { protocol, host } = new URL(request.redirect_uri);
    return {
      client: { name: client.name, id: client.id, uri: client.client_uri, document: client.fresh_until !== null },
      redirect_host: protocol === 'https:' || protocol === 'http:' ? host : protocol,
      local: protocol !== 'https:',
      scopes: request.scope.split(' '),
      resource: request.resource,
      expires_at: request.expires_at,
    };
  }

  /**
   * Answers a request for access, once. Answers the address that the browser goes to next. Throws 404 for a request that is over or
   * another session's.
   *
   * @param inWorkspace the user in the workspace that was chosen; throws 404 where it is not one of the user's
   */
  async decide(
    { approved, resume_state, organisation_id, workspace_id }: Decision,
    session: ConsoleSession,
    inWorkspace: (workspaceId: string) => Promise<Principal>,
    decided: Decided,
  ): Promise<string> {
    const { tables, clock, clients } = this.#options;
    const { organisationId, userId } = session.principal;
    if (organisation_id !== organisationId || userId === null)
      throw new SluiceError('unknown_reference', 'You are not signed in to this organisation.', {
        param: 'organisation_id',
      });
    const place = approved ? await inWorkspace(workspaceOf(workspace_id)) : null;
    if (place !== null && !place.scopes.has('mcp.invoke') && !place.scopes.has('agents.invoke'))
      throw new SluiceError('forbidden', 'Your role in this workspace does not reach MCP servers or agents.');
    const digest = digestOfResume(resume_state);
    const now = clock.now();
    const code = mintKey('oac');
    const request = await tables.systemWrite(
      async (tx) => {
        const mine = { digest, session_digest: session.digest, expires_at: { gt: now } };
        const found = await tx.find('oauth_requests', mine);
        // Of two simultaneous answers one removes the row.
        if (found === undefined || (await tx.remove('oauth_requests', mine)) === 0) throw gone();
        if (place !== null) {
          const client = await tx.find('oauth_clients', { id: found.client_id });
          const own = await tx.find('console_sessions', { digest: session.digest, kind: 'session' });
          // The session may have ended since the request was let in.
          if (client === undefined || own === undefined) throw gone();
          const { client_id, redirect_uri, challenge, scope, resource } = found;
          await tx.remove('oauth_codes', { expires_at: { lt: now - CODE_KEPT_MS } });
          await tx.insert('oauth_codes', {
            digest: code.digest,
            organisation_id: organisationId,
            workspace_id: place.workspaceId ?? '',
            user_id: userId,
            ...{ client_id, redirect_uri, challenge, scope, resource },
            client_name: client.name,
            signed_in_at: own.auth_time ?? own.created_at,
            family_id: null,
            used_at: null,
            expires_at: now + CODE_TTL_MS,
            created_at: now,
          });
          await clients.used(tx, client_id);
        }
        await decided(tx, found);
        return found;
      },
      { queue: organisationId },
    );
    return this.#answer(request.redirect_uri, request.state, approved ? { code: code.key } : REFUSED);
  }

  /** Every answer says whose it is (RFC 9207): a client that talks to several servers can tell them apart. */
  #answer(
    redirect: string,
    state: string | null,
    said: { readonly code: string } | { readonly error: string; readonly error_description: string },
  ): string {
    return withQuery(redirect, { ...said, state, iss: this.#options.publicUrl() });
  }
}

/** What a request asks for. Throws an `OAuthError`, which goes back to the client. */
function readAsked(
  query: URLSearchParams,
  client: Row<'oauth_clients'>,
  publicUrl: string,
  path: string | null,
): Pick<Row<'oauth_requests'>, 'state' | 'scope' | 'resource' | 'challenge'> {
  for (const name of new Set(query.keys())) {
    if (query.getAll(name).length === 1) continue;
    if (name === 'resource') throw new OAuthError('invalid_target', 'Name one resource.');
    throw new OAuthError('invalid_request', 'Send each parameter once.');
  }
  const one = (name: string) => query.get(name) ?? '';
  if (one('state').length > MOST_STATE)
    throw new OAuthError('invalid_request', `state has at most ${MOST_STATE} characters.`);
  if (query.has('request') || query.has('request_uri'))
    throw new OAuthError('invalid_request', 'Request objects are not supported. Send the parameters themselves.');
  if (one('response_type') !== 'code') throw new OAuthError('unsupported_response_type', 'Send response_type=code.');
  if (one('code_challenge_method') !== 'S256' || !CHALLENGE.test(one('code_challenge')))
    throw new OAuthError('invalid_request', 'Send a code_challenge with code_challenge_method=S256 (PKCE).');
  return {
    state: query.has('state') ? one('state') : null,
    scope: scopeOf(one('scope'), client.scopes),
    resource: resourceOf(query.get('resource'), publicUrl, path),
    challenge: one('code_challenge'),
  };
}

function scopeOf(text: string, allowed: readonly string[]): string {
  const named = text.split(' ').filter((one) => one !== '');
  if (named.length === 0) return (allowed.includes('mcp') ? ['mcp'] : allowed).join(' ');
  const unknown = named.some((one) => !SCOPES.some((scope) => scope === one) || !allowed.includes(one));
  if (unknown) throw new OAuthError('invalid_scope', `This client may ask for: ${allowed.join(' ')}.`);
  return [...new Set(named)].join(' ');
}

/** A token is for one server: without a resource there is nothing that it could be for. */
function resourceOf(named: string | null, publicUrl: string, path: string | null): string {
  const own = path !== null && isResourcePath(path) ? `${publicUrl}${path}` : null;
  const wrong = path !== null && own === null;
  if (named === null && own !== null) return own;
  if (named === null || wrong || resourcePath(publicUrl, named) === null || (own !== null && own !== named))
    throw new OAuthError(
      'invalid_target',
      `Send resource: the address of an MCP server or an agent below ${publicUrl}.`,
    );
  return named;
}

function workspaceOf(id: string | undefined): string {
  if (id !== undefined) return id;
  throw new SluiceError('validation', 'Name the workspace that the client may use.', { param: 'workspace_id' });
}

function digestOfResume(text: string): string {
  if (!RESUME_STATE.test(text)) throw gone();
  return digestOf(text);
}

const gone = () =>
  new SluiceError(
    'not_found',
    'This request for access is over: it was answered, is older than 10 minutes, or was opened in another sign-in. Start again in the program.',
  );
