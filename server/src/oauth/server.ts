/** The OAuth server as a whole; loaded with the first call that needs it. */
import type { FastifyRequest } from 'fastify';
import { type ConsoleDeed, consoleEntry, type EntryDeps } from '../admin/audit.ts';
import type { AccessQuestions } from '../admin/console-actions.ts';
import type { ConsoleSession, ConsoleSessions } from '../auth/console-session.ts';
import { AUTH_TOKEN_TTL_MS, createPair } from '../auth/session-families.ts';
import { createSession, proofOf } from '../auth/session-rows.ts';
import { clientAddress } from '../http/client-address.ts';
import { appendAudit } from '../resources/audit-logs/chain.ts';
import type { Change, SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { AccessTokens } from './access-tokens.ts';
import { AddressLimit, type AddressLimitOptions } from './address-limit.ts';
import { Authorization, type Decision } from './authorization.ts';
import { presentClient } from './client-metadata.ts';
import { Clients, type ClientsOptions } from './clients.ts';
import { COMMAND_LINE, Devices } from './devices.ts';
import { OAuthError } from './errors.ts';
import { readFields, readObject } from './fields.ts';
import { Grants } from './grants.ts';
import { introspect } from './introspection.ts';

export interface OAuthOptions extends AddressLimitOptions, Pick<ClientsOptions, 'documents'> {
  readonly tables: Pick<Tables, 'systemRead' | 'systemWrite'>;
  /** Signs audit rows. */
  readonly vault: EntryDeps['vault'];
  readonly sessions: Pick<ConsoleSessions, 'find' | 'inWorkspace'>;
  /** Without a slash at its end. */
  readonly publicUrl: () => string;
}

const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';

export class OAuthServer implements AccessQuestions {
  readonly #options: OAuthOptions;
  readonly #limit: AddressLimit;
  readonly #clients: Clients;
  readonly #authorization: Authorization;
  readonly #grants: Grants;
  readonly #devices: Devices;
  /** Callers of routes that take access tokens. */
  readonly accessTokens: AccessTokens;

  constructor(options: OAuthOptions) {
    this.#options = options;
    this.#limit = new AddressLimit(options);
    this.#clients = new Clients(options);
    const parts = { ...options, clients: this.#clients, limit: this.#limit };
    this.#authorization = new Authorization(parts);
    this.#grants = new Grants(parts);
    this.#devices = new Devices(parts);
    this.accessTokens = new AccessTokens({ ...parts, grants: this.#grants });
  }

  invalidate(change: Pick<Change, 'topic'> | null): void {
    this.accessTokens.invalidate(change);
  }

  /** `POST /v2/oauth/register`. */
  async register(request: FastifyRequest) {
    await this.#limit.admitRegistration(clientAddress(request.raw));
    return presentClient(await this.#clients.register(await readObject(request.raw, this.#options.clock)));
  }

  /** `GET /v2/oauth/authorize`. `path`: the resource that the path names. */
  async authorize(request: FastifyRequest, path: string | null) {
    await this.#limit.admit('authorize', clientAddress(request.raw));
    const { url = '' } = request.raw;
    const at = url.indexOf('?');
    const isUser = async () => {
      try {
        return (await this.#options.sessions.find(request.headers.cookie)) !== null;
      } catch {
        return false;
      }
    };
    return this.#authorization.begin(new URLSearchParams(at < 0 ? '' : url.slice(at + 1)), path, isUser);
  }

  /** What the consent page shows to a session. */
  async question(resume: string, session: ConsoleSession) {
    return { question: await this.#authorization.look(resume, session) };
  }

  /** The user's answer; where the browser goes next. */
  decide(decision: Decision, session: ConsoleSession, request: FastifyRequest): Promise<string> {
    const { principal } = session;
    return this.#authorization.decide(
      decision,
      session,
      (id) => this.#options.sessions.inWorkspace(principal, id),
      async (tx, { client_id, scope, resource }) => {
        if (!decision.approved) return;
        const after = { client_id, scope, resource, workspace_id: decision.workspace_id ?? null };
        await this.#audit(tx, request, {
          organisationId: principal.organisationId,
          workspaceId: decision.workspace_id ?? null,
          userId: principal.userId,
          action: 'create',
          resourceId: client_id,
          change: { before: null, after },
        });
      },
    );
  }

  /** `POST /v2/oauth/token`. */
  async token(request: FastifyRequest): Promise<object> {
    const fields = await readFields(request.raw, this.#options.clock);
    const { grant_type, client_id, client_secret } = fields;
    if (request.headers.authorization !== undefined || client_secret !== undefined)
      throw new OAuthError('invalid_client', 'Clients of this server have no secret. Send client_id alone.');
    if (client_id === undefined) throw new OAuthError('invalid_request', 'Send client_id.');
    if (grant_type === DEVICE_GRANT) return this.#pollDevice(fields.device_code ?? '', client_id, request);
    if (grant_type !== 'authorization_code' && grant_type !== 'refresh_token')
      throw new OAuthError('unsupported_grant_type', 'Send grant_type authorization_code or refresh_token.');
    const client = await this.#clients.known(client_id);
    if (client === undefined) throw new OAuthError('invalid_client', 'There is no such client. Register again.');
    const reused = async (tx: SystemTx, family: Row<'oauth_families'>) => {
      const { organisation_id: organisationId, workspace_id: workspaceId, client_id: resourceId } = family;
      await this.#audit(tx, request, {
        organisationId,
        workspaceId,
        userId: null,
        resource: 'auth.refresh_reuse',
        action: 'delete',
        resourceId,
      });
    };
    const issued =
      grant_type === 'refresh_token'
        ? await this.#grants.refresh(fields, client, reused)
        : await this.#grants.exchange(fields, client, reused);
    return issued.answer;
  }

  /**
   * A pair of tokens of a new session. It does not end when the browser that approved it signs out, but it was proved by nothing else: it is
   * as old as the proof of that sign-in, and ends with its identity provider.
   */
  async #pollDevice(code: string, client: string, request: FastifyRequest): Promise<object> {
    if (client !== COMMAND_LINE) throw new OAuthError('unauthorized_client', `This flow is for ${COMMAND_LINE} only.`);
    const { clock } = this.#options;
    return this.#devices.poll(code, client, async (tx, { id: userId, organisation_id: organisationId }, approvedIn) => {
      const userAgent = request.headers['user-agent'] ?? COMMAND_LINE;
      const own = { organisationId, userId, userAgent, ...proofOf(approvedIn) };
      const { digest, expiresAt } = await createSession(tx, { clock }, own);
      const pair = await createPair(tx, clock, { organisationId, session: digest, expiresAt });
      const expires_in = Math.floor(Math.min(AUTH_TOKEN_TTL_MS, expiresAt - clock.now()) / 1000);
      return { access_token: pair.auth_token, token_type: 'Bearer', expires_in, refresh_token: pair.refresh_token };
    });
  }

  /** `POST /v2/oauth/revoke`: 200 whatever the token is (RFC 7009 §2.2). */
  async revoke(request: FastifyRequest): Promise<object> {
    const { token, client_id } = await readFields(request.raw, this.#options.clock);
    if (token === undefined) throw new OAuthError('invalid_request', 'Send token.');
    if ((await this.#grants.revoke(token, client_id)) !== undefined) this.accessTokens.invalidate(null);
    return {};
  }

  /** `POST /v2/oauth/introspect`. */
  async introspect(request: FastifyRequest): Promise<object> {
    await this.#limit.admit('introspect', clientAddress(request.raw));
    const { token } = await readFields(request.raw, this.#options.clock);
    if (token === undefined) throw new OAuthError('invalid_request', 'Send token.');
    return introspect(this.#grants, this.#options.tables, this.#options.publicUrl(), token);
  }

  /** `POST /v2/oauth/device_authorization`. */
  async device(request: FastifyRequest) {
    const address = clientAddress(request.raw);
    await this.#limit.admit('device', address);
    const { client_id } = await readFields(request.raw, this.#options.clock);
    return this.#devices.begin(client_id, address);
  }

  lookAtDevice(userCode: string, session: ConsoleSession) {
    return this.#devices.look(userCode, session);
  }

  decideDevice(userCode: string, approved: boolean, session: ConsoleSession, request: FastifyRequest): Promise<void> {
    const { organisationId, userId } = session.principal;
    return this.#devices.decide(userCode, approved, session, (tx) =>
      this.#audit(tx, request, { organisationId, userId, action: 'create', resourceId: COMMAND_LINE }),
    );
  }

  async #audit(
    tx: SystemTx,
    request: FastifyRequest,
    deed: Omit<ConsoleDeed, 'request' | 'resource'> & Partial<Pick<ConsoleDeed, 'resource'>>,
  ): Promise<void> {
    const { vault } = this.#options;
    await appendAudit(tx, vault, consoleEntry(this.#options, { request, resource: 'oauth-clients', ...deed }));
  }
}
