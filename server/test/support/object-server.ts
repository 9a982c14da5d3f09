import { join } from 'node:path';
import OpenAI from 'openai';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { workspaceRow } from '../../src/store/conformance/rows.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { startServer, type TestServer } from './server.ts';

export interface Workspace {
  readonly id: string;
  readonly key: string;
  /** The official client with a stored provider; `headers` go over its own. */
  client(slug: string, headers?: Readonly<Record<string, string>>): OpenAI;
  /** Calls a route under `/v1` with the workspace's key. */
  send(method: string, path: string, headers?: Readonly<Record<string, string>>, body?: unknown): Promise<Answered>;
}

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Parsed, or null. */
  readonly body: Record<string, unknown> | null;
  /** The error object, or an empty one. */
  readonly error: {
    readonly code?: unknown;
    readonly param?: unknown;
    readonly message?: unknown;
    readonly type?: unknown;
  };
}

export interface ObjectServer extends TestServer {
  readonly first_: Workspace;
  /** Another workspace of the same organisation, which shares its accounts. */
  readonly second: Workspace;
  /** Stores an account that both workspaces use, under the same slug. */
  shared(options: {
    id: string;
    host: string;
    key?: string;
    configurations?: Record<string, unknown>;
  }): Promise<string>;
}

/** A server with two workspaces, for what must be kept apart between them. */
export async function startObjectServer(env: Record<string, string> = {}): Promise<ObjectServer> {
  const server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.1', ...env });
  const id = uuidv7(systemClock);
  const tables = await openSqliteTables({ file: join(server.dataDir, 'control.db'), log: silentLog });
  await tables.systemWrite((tx) =>
    tx.insert('workspaces', workspaceRow(server.first.organisation_id, id, { slug: 'ws-second', name: 'Second' })),
  );
  await tables.close();
  const made = await server.admin('POST', '/api-keys/workspace/service', {
    name: 'second',
    workspace_id: id,
    scopes: ['completions.write'],
  });
  if (made.status !== 200) throw new Error(JSON.stringify(made));
  const workspace = (workspaceId: string, key: string): Workspace => ({
    id: workspaceId,
    key,
    client: (slug, headers = {}) =>
      new OpenAI({
        apiKey: key,
        baseURL: `${server.url}/v1`,
        maxRetries: 0,
        defaultHeaders: { 'x-gateway-provider': `@${slug}`, ...headers },
      }),
    async send(method, path, headers = {}, body) {
      const json = body !== undefined && !(body instanceof FormData) && !(body instanceof Uint8Array);
      const answer = await fetch(`${server.url}/v1${path}`, {
        method,
        headers: { 'x-gateway-api-key': key, ...(json ? { 'content-type': 'application/json' } : {}), ...headers },
        ...(body === undefined
          ? {}
          : { body: json ? (typeof body === 'string' ? body : JSON.stringify(body)) : (body as FormData) }),
      });
      const text = await answer.text();
      let parsed: Record<string, unknown> | null = null;
      try {
        parsed = JSON.parse(text) as Record<string, unknown>;
      } catch {
        // Content, not JSON.
      }
      const error = (parsed?.error ?? {}) as Answered['error'];
      return { status: answer.status, headers: answer.headers, text, body: parsed, error };
    },
  });
  return Object.assign(server, {
    first_: workspace(server.first.workspace_id, server.first.workspace_api_key),
    second: workspace(id, String(made.body.key)),
    async shared({ id: provider, host, key = 'test-key', configurations = {} }) {
      const slug = `${provider}-shared`;
      const integration = await server.admin('POST', '/integrations', {
        name: slug,
        slug: `${slug}-integration`,
        ai_provider_id: provider,
        key,
        configurations: { custom_host: host, ...configurations },
      });
      if (integration.status !== 200) throw new Error(JSON.stringify(integration));
      for (const workspace_id of [server.first.workspace_id, id]) {
        const stored = await server.admin('POST', '/providers', {
          name: slug,
          slug: `${slug}-${workspace_id === id ? 'two' : 'one'}`,
          integration_id: `${slug}-integration`,
          workspace_id,
        });
        if (stored.status !== 200) throw new Error(JSON.stringify(stored));
      }
      return slug;
    },
  } satisfies Partial<ObjectServer>) as ObjectServer;
}
