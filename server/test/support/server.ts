import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compose, type Given, type Running } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import type { FirstRun } from '../../src/first-run.ts';
import { type Log, silentLog } from '../../src/kernel/log.ts';
import { type Row, TABLE } from '../../src/llm/pipeline.ts';
import { RequestBody } from '../../src/llm/state/body.ts';
import { deepFrozen } from './frozen.ts';
import { countRecords, workspaceRecords } from './stored-records.ts';

export interface TestServer {
  readonly url: string;
  readonly running: Running;
  readonly first: FirstRun;
  readonly dataDir: string;
  /** Calls an administration route with the organisation's key (or `key`) and parses the answer. */
  admin(
    method: string,
    path: string,
    body?: unknown,
    key?: string,
  ): Promise<{ status: number; body: Record<string, unknown> }>;
  /** Stores a credential for a base provider on a host of its own and answers its provider slug. */
  provider(options: {
    id: string;
    host: string;
    /** Null: stored without one. */
    key?: string | null;
    slug?: string;
    configurations?: Record<string, unknown>;
  }): Promise<string>;
  /** Calls a data-plane route with the workspace key. */
  call(path: string, body: unknown, headers?: Record<string, string>): Promise<Response>;
  /** Its records of the workspace, newest first: all that have been written so far, or about `most` of them. */
  records(most?: number): Promise<Record<string, unknown>[]>;
  /** The number of all records, also of those that belong to no workspace. */
  recordCount(): Promise<number>;
  stop(): Promise<void>;
}

/** What is known of a request is constant behind the head of the table: a later step that writes it fails. */
const freezeRequest: Row['step'] = ({ request }) => {
  Object.freeze(request);
  Object.freeze(request.body);
};

/** Longer bodies would keep a test waiting. */
const MAX_FROZEN = 64 * 1024;

/** All readers of a body share its values: one that changes them fails. */
function freezeValues(): void {
  const { value } = RequestBody.prototype;
  RequestBody.prototype.value = function (this: RequestBody) {
    const found = value.call(this);
    return this.bytes.length > MAX_FROZEN ? found : deepFrozen(found);
  };
}

function freezeOnce(): void {
  if (TABLE.head.some(({ step }) => step === freezeRequest)) return;
  (TABLE.head as Row[]).push({ step: freezeRequest, group: 'all', when: [] });
  freezeValues();
}

/** A whole server on a free loopback port with an embedded store of its own, as `npm start` would run it. */
export async function startServer(
  env: Record<string, string> = {},
  given: Given = {},
  log: Log = silentLog,
): Promise<TestServer> {
  const dataDir = await mkdtemp(join(tmpdir(), 'sluice-test-'));
  const config = loadConfig(
    [],
    {
      SLUICE_DATA_DIR: dataDir,
      SLUICE_PORT: '0',
      SLUICE_LOG_LEVEL: 'error',
      SLUICE_DRAIN_SECONDS: '1',
      SLUICE_ADMIN_REQUESTS_PER_MINUTE: '100000',
      ...env,
    },
    dataDir,
  );
  freezeOnce();
  const running = await compose(config, log, undefined, given);
  const first = JSON.parse(await readFile(join(dataDir, 'first-run.json'), 'utf8')) as FirstRun;
  const admin: TestServer['admin'] = async (method, path, body, key = first.admin_api_key) => {
    const answer = await fetch(`${running.url}${/^\/v\d\//.test(path) ? '' : '/v1'}${path}`, {
      method,
      headers: { 'x-gateway-api-key': key, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  return {
    url: running.url,
    running,
    first,
    dataDir,
    admin,
    async provider({ id, host, key = 'sk-stored-credential', slug = `${id}-test`, configurations = {} }) {
      const integration = await admin('POST', '/integrations', {
        name: slug,
        slug: `${slug}-integration`,
        ai_provider_id: id,
        ...(key === null ? {} : { key }),
        workspace_id: first.workspace_id,
        create_default_provider: false,
        configurations: { custom_host: host, ...configurations },
      });
      if (integration.status !== 200) throw new Error(`integration: ${JSON.stringify(integration)}`);
      const provider = await admin('POST', '/providers', {
        name: slug,
        slug,
        integration_id: `${slug}-integration`,
        workspace_id: first.workspace_id,
      });
      if (provider.status !== 200) throw new Error(`provider: ${JSON.stringify(provider)}`);
      return String(provider.body.slug);
    },
    call: (path, body, headers = {}) =>
      fetch(`${running.url}/v1${path}`, {
        method: 'POST',
        headers: { 'x-gateway-api-key': first.workspace_api_key, 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      }),
    records: (most) => workspaceRecords(dataDir, running.logs, first.organisation_id, first.workspace_id, most),
    recordCount: () => countRecords(dataDir, running.logs),
    async stop() {
      await running.stop({ noticeMs: 0, drainMs: 1000 });
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
