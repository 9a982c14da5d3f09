/**
 * The routes of the data plane that name files, batches and jobs, and the calls of the console, between four workspaces
 * of two organisations on a whole server: what another one has is as what nobody has, and stays
 * as it is. A route with a parameter that nothing here knows fails the first test.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { CONSOLE_ROUTES } from '../../src/admin/console.ts';
import { createLink } from '../../src/auth/console-session.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { OPERATIONS } from '../../src/operations/operation.ts';
import { createOrganisation } from '../../src/resources/organisations.ts';
import { userRow, workspaceRow } from '../../src/store/conformance/rows.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { authorize, registered, request } from '../support/oauth.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { signedInBrowser, signInCall } from '../support/sign-in-ways.ts';
import { workspaceRecords } from '../support/stored-records.ts';
import { each } from './harness.ts';
import { addUser } from './principals.ts';
import { MAKERS, newId, newTenant, picture, type Tenant } from './world.ts';

/** What a parameter, a field of a body or a cursor names. */
const NAMED = {
  file_id: 'file',
  batch_id: 'batch',
  fine_tuning_job_id: 'job',
  input_file_id: 'file',
  training_file: 'file',
  validation_file: 'file',
} as const;
type Object = (typeof NAMED)[keyof typeof NAMED];

/** Parameters that name nothing of ours: a model of the provider, an answer that the provider keeps for its account. */
const OF_PROVIDERS = new Set(['/models/:model', '/responses/:id', '/responses/:id/input_items']);

const ROUTES = Object.values(OPERATIONS).filter(({ path }) => /^\/(files|batches|fine_tuning)\b/.test(path));
/** Cannot be carried out on what Sluice or its sandbox keeps, whoever asks. */
const NEVER = new Set(['finetune_pause', 'finetune_resume', 'batch_output']);

interface Place extends Tenant {
  /** Of a key, or of a member who is signed in: nothing may differ. */
  readonly credential: Readonly<Record<string, string>>;
  /** Slug of its sandbox provider. */
  readonly sandbox: string;
  readonly kept: { readonly [M in Mode]: Readonly<Record<Object, string>> };
}
type Mode = 'sandbox' | 'gateway';

let server: TestServer;
let tables: Tables;
const places: Record<'a1' | 'a2' | 'b1' | 'b2', Place> = {} as never;

const headersOf = (place: Place, mode: Mode) => ({
  ...place.credential,
  'x-gateway-provider': mode === 'gateway' ? 'gateway' : `@${place.sandbox}`,
});

interface Told {
  readonly status: number;
  readonly text: string;
}

async function send(method: string, path: string, headers: Record<string, string>, body?: unknown): Promise<Told> {
  const form = body instanceof FormData;
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: { ...headers, ...(body === undefined || form ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: form ? body : JSON.stringify(body) }),
  });
  return { status: answer.status, text: await answer.text() };
}

async function made(told: Promise<Told>): Promise<Record<string, unknown>> {
  const { status, text } = await told;
  if (status !== 200) throw new Error(`${status} ${text}`);
  return JSON.parse(text) as Record<string, unknown>;
}

const job = (training_file: string) => ({
  model: 'echo',
  suffix: 'own',
  training_file,
  method: {
    type: 'supervised',
    supervised: { hyperparameters: { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 } },
  },
});

const lines = (place: Tenant, purpose: string) =>
  Array.from({ length: 12 }, (_, i) =>
    purpose === 'batch'
      ? {
          custom_id: `${place.canary}-${i}`,
          method: 'POST',
          url: '/v1/chat/completions',
          body: { model: 'echo', messages: [{ role: 'user', content: place.canary }] },
        }
      : {
          messages: [
            { role: 'user', content: `Question ${i} ${place.canary}` },
            { role: 'assistant', content: 'Answer' },
          ],
        },
  )
    .map((line) => JSON.stringify(line))
    .join('\n');

async function upload(place: Place, mode: Mode, purpose: 'batch' | 'fine-tune'): Promise<string> {
  const form = new FormData();
  form.set('purpose', purpose);
  form.set('file', new Blob([lines(place, purpose)]), `${place.canary}.jsonl`);
  const file = await made(send('POST', '/v1/files', headersOf(place, mode), form));
  await vi.waitFor(
    async () => {
      const now = await made(send('GET', `/v1/files/${String(file.id)}`, headersOf(place, mode)));
      if (now.status === 'uploaded') throw new Error('not checked yet');
    },
    { timeout: 20_000, interval: 20 },
  );
  return String(file.id);
}

/** A file, a batch and a job of the sandbox, and of those that Sluice keeps itself. */
async function furnish(place: Place): Promise<Place> {
  const headers = headersOf(place, 'sandbox');
  const input = await upload(place, 'sandbox', 'batch');
  const batch = await made(
    send('POST', '/v1/batches', headers, {
      input_file_id: input,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      metadata: { team: place.canary, sandbox_batch_ms: '3600000' },
    }),
  );
  const training = await upload(place, 'sandbox', 'fine-tune');
  const trained = await made(send('POST', '/v1/fine_tuning/jobs', headers, job(training)));
  const own = { ...place, objects: { ...place.objects, file: { id: await upload(place, 'gateway', 'fine-tune') } } };
  await tables.systemWrite(async (tx) => {
    for (const table of ['training_jobs', 'training_events', 'batches'] as const) {
      for (const row of MAKERS[table](own)) await tx.insert(table, row as never);
    }
  });
  return {
    ...own,
    kept: {
      sandbox: { file: training, batch: String(batch.id), job: String(trained.id) },
      gateway: { file: own.objects.file.id, batch: own.objects.batch.id, job: own.objects.job.id },
    },
  };
}

beforeAll(async () => {
  server = await startServer();
  tables = await openSqliteTables({ file: join(server.dataDir, 'control.db'), log: silentLog });
  const b = await tables.systemWrite((tx) =>
    createOrganisation(tx, {
      name: 'Beta',
      owner: { email: 'owner@beta.example', first_name: 'Ada', last_name: 'Beta' },
      blockInlineConfig: false,
      clock: systemClock,
    }),
  );
  const homes = {
    a1: [server.first.organisation_id, server.first.admin_api_key],
    a2: [server.first.organisation_id, server.first.admin_api_key],
    b1: [b.organisation_id, b.admin_api_key],
    b2: [b.organisation_id, b.admin_api_key],
  } as const;
  for (const [tag, [organisationId, admin]] of Object.entries(homes)) {
    const tenant = newTenant(tag, organisationId);
    const { workspaceId: id, workspaceSlug: slug } = tenant;
    await tables.systemWrite((tx) =>
      tx.insert('workspaces', workspaceRow(organisationId, id, { slug, name: tenant.canary })),
    );
    const provider = { name: 'Sandbox', slug: `sandbox-${tag}`, integration_id: 'sandbox', workspace_id: id };
    const stored = await server.admin('POST', '/providers', provider, admin);
    expect(stored.status, JSON.stringify(stored.body)).toBe(200);
    places[tag as keyof typeof places] = await furnish({
      ...tenant,
      credential: await credentialOf(tag, tenant, admin),
      sandbox: `sandbox-${tag}`,
      kept: {} as never,
    });
  }
}, 60_000);
afterAll(async () => {
  await tables?.close();
  await server?.stop();
});

async function credentialOf(tag: string, tenant: Tenant, admin: string): Promise<Record<string, string>> {
  const { organisationId, workspaceId } = tenant;
  if (tag === 'a1' || tag === 'b1') {
    const key = { name: tag, workspace_id: workspaceId, scopes: ['completions.write'] };
    return {
      'x-gateway-api-key': String((await server.admin('POST', '/api-keys/workspace/service', key, admin)).body.key),
    };
  }
  const user = await tables.systemWrite((tx) => addUser(tx, tenant, 'member', 'member'));
  const headers = { ...(await signedInBrowser({ tables, organisationId }, user)), origin: server.url };
  if (tag === 'b2') return headers;
  return { authorization: `Bearer ${(await signInCall(server.url, 'login', headers, {})).auth_token}` };
}

/** One place of a route that names something. */
interface Channel {
  readonly operation: (typeof ROUTES)[number];
  readonly at: 'path' | 'body' | 'cursor';
  readonly field: string;
  readonly object: Object;
}

const CHANNELS: readonly Channel[] = ROUTES.flatMap((operation): Channel[] => {
  const path = [...operation.path.matchAll(/:(\w+)/g)].map(([, name = '']) => ({ at: 'path' as const, field: name }));
  const body =
    operation.id === 'batch_create'
      ? ['input_file_id']
      : operation.id === 'finetune_create'
        ? ['training_file', 'validation_file']
        : [];
  const lists: Partial<Record<string, Object>> = { files: 'file', batches: 'batch', finetune_jobs: 'job' };
  const listed = lists[operation.id];
  return [
    ...[...path, ...body.map((field) => ({ at: 'body' as const, field }))].map(({ at, field }) => ({
      operation,
      at,
      field,
      object: NAMED[field as keyof typeof NAMED],
    })),
    ...(listed ? [{ operation, at: 'cursor' as const, field: 'after', object: listed }] : []),
  ];
});

/** Carries out a route as a caller, with `value` in one place and the caller's own objects in the others. */
function call(caller: Place, mode: Mode, { operation, at, field }: Channel, value: string): Promise<Told> {
  const own = caller.kept[mode];
  const path = operation.path.replace(/:(\w+)/g, (_all, name: string) =>
    encodeURIComponent(at === 'path' && name === field ? value : own[NAMED[name as keyof typeof NAMED]]),
  );
  const cursor = at === 'cursor' ? `?after=${encodeURIComponent(value)}` : '';
  const bodies: Partial<Record<string, object>> = {
    batch_create: { input_file_id: own.file, endpoint: '/v1/chat/completions', completion_window: '24h' },
    finetune_create: job(own.file),
  };
  const body = bodies[operation.id];
  return send(
    operation.method,
    `/v1${path}${cursor}`,
    headersOf(caller, mode),
    body && (at === 'body' ? { ...body, [field]: value } : body),
  );
}

/** An id that nobody has, of the form of this one. */
const invent = (id: string) => id.replace(/[0-9a-f]{4,}$/, (tail) => newId().replaceAll('-', '').slice(-tail.length));

describe('files, batches and jobs', () => {
  it('every parameter of the data plane is known', () => {
    const unknown = Object.values(OPERATIONS)
      .filter(({ path }) => path.includes(':') && !OF_PROVIDERS.has(path))
      .flatMap(({ path }) => [...path.matchAll(/:(\w+)/g)].map(([, name = '']) => name))
      .filter((name) => !(name in NAMED));
    expect(unknown).toEqual([]);
    expect(CHANNELS.length).toBeGreaterThan(12);
  });

  it.each(['sandbox', 'gateway'] as const)(
    'of the %s: foreign and missing are one answer, nothing foreign is read or changed',
    async (mode) => {
      const all = Object.values(places);
      const found: string[] = [];
      const before = await pictures();
      for (const caller of all) {
        const others = all.filter((place) => place !== caller);
        await each(CHANNELS, async (channel) => {
          const like = caller.kept[mode][channel.object];
          const unknown = invent(like);
          const blank = ({ status, text }: Told, value: string) => `${status} ${text.replaceAll(value, '<named>')}`;
          const missing = blank(await call(caller, mode, channel, unknown), unknown);
          const where = `${caller.tag}: ${channel.operation.id} ${channel.field}`;
          for (const other of others) {
            const value = other.kept[mode][channel.object];
            const told = await call(caller, mode, channel, value);
            if (blank(told, value) !== missing) found.push(`${where} of ${other.tag}: ${told.text} ≠ ${missing}`);
            if (told.status === 200 || (told.status >= 500 && told.status !== 501))
              found.push(`${where} of ${other.tag}: ${told.status} ${told.text}`);
            for (const one of others) if (told.text.includes(one.canary)) found.push(`${where}: ${told.text}`);
          }
        });
        for (const path of ['/v1/files', '/v1/batches', '/v1/fine_tuning/jobs']) {
          const { text } = await send('GET', `${path}?limit=100`, headersOf(caller, mode));
          const seen = (JSON.parse(text) as { data: { id: string }[] }).data.map(({ id }) => id);
          for (const one of others) {
            if (text.includes(one.canary)) found.push(`${caller.tag} ${path}: ${text}`);
            for (const id of Object.values(one.kept[mode])) if (seen.includes(id)) found.push(`${path} lists ${id}`);
          }
          if (seen.length === 0) found.push(`${caller.tag} ${path} is empty`);
        }
      }
      expect(found.slice(0, 8).join('\n')).toBe('');
      expect(await pictures()).toEqual(before);
    },
    60_000,
  );

  it.each(['sandbox', 'gateway'] as const)('of the %s are all there for their own workspace', async (mode) => {
    const { b2 } = places;
    const failed: string[] = [];
    const order = (channel: Channel) =>
      channel.operation.method === 'DELETE' ? 2 : channel.operation.method === 'POST' ? 1 : 0;
    // What ends an object comes after what reads it.
    for (const channel of [...CHANNELS].sort((a, b) => order(a) - order(b))) {
      if (NEVER.has(channel.operation.id) || channel.field === 'validation_file') continue;
      // The rows of the gateway's own jobs and batches are here without a worker that would make or end one.
      if (mode === 'gateway' && /^finetune_cancel$|_create$/.test(channel.operation.id)) continue;
      const told = await call(b2, mode, channel, b2.kept[mode][channel.object]);
      // 400 is of who may see the object: a file that is no batch, and a job of the sandbox that has ended meanwhile.
      const mayRefuse = ['batch_create', 'finetune_cancel'].includes(channel.operation.id);
      const good = told.status === 200 || (mayRefuse && told.status === 400);
      if (!good) failed.push(`${channel.operation.id} ${channel.field}: ${told.status} ${told.text}`);
    }
    expect(failed.join('\n')).toBe('');
  });

  /** What is kept for each workspace: of files, batches and jobs, and of who owns them. */
  async function pictures(): Promise<Record<string, string[]>> {
    const kept = ['files', 'batches', 'training_jobs', 'training_events', 'sandbox_objects', 'object_owners'];
    const out: Record<string, string[]> = {};
    for (const organisationId of new Set(Object.values(places).map((place) => place.organisationId))) {
      const all = await picture(tables, organisationId);
      for (const table of kept) out[`${organisationId} ${table}`] = (all.get(table) ?? []).sort();
    }
    return out;
  }
});

describe('the console', () => {
  /** Calls with a session, and where they can name something; each of them is tried below. */
  const TRIED = new Set(['POST /console/api/try', 'GET /console/api/records/:traceId', 'POST /v2/oauth/authorize']);
  /** Name nothing but the session itself, or a file of the console. */
  const NAMELESS = new Set([
    // A link of the user who is signed in, or 403 (address-change.test.ts).
    'POST /console/api/email',
    'GET /console/api/session',
    'DELETE /console/api/session',
    'GET /console/assets/:file',
    // By a state or a code that only the browser of the user has (oauth/attacks.test.ts, oauth/client.test.ts).
    'POST /console/api/access',
    'POST /console/api/device',
    'POST /console/api/device/decision',
  ]);

  it('every call with a session or a parameter is known', () => {
    const calls = CONSOLE_ROUTES.filter(([, path, session]) => session || path.includes(':'));
    const unknown = calls
      .map(([method, path]) => `${method} ${path}`)
      .filter((one) => !TRIED.has(one) && !NAMELESS.has(one));
    expect(unknown).toEqual([]);
  });

  async function signIn(place: Place, role: 'owner' | 'member'): Promise<Record<string, string>> {
    const id = newId();
    await tables.systemWrite(async (tx) => {
      await tx.insert('users', userRow(place.organisationId, id, { role, email: `${id}@example.com` }));
      await tx.insert('workspace_members', {
        organisation_id: place.organisationId,
        workspace_id: place.workspaceId,
        user_id: id,
        role: 'member',
        status: 'active',
        created_at: 1,
        last_updated_at: 1,
      });
    });
    const { token } = await createLink(tables, systemClock, { id, organisation_id: place.organisationId });
    const answer = await fetch(`${server.url}/console/api/session`, {
      method: 'POST',
      headers: { origin: server.url, 'content-type': 'application/json' },
      body: JSON.stringify({ token }),
    });
    const { csrf_token } = (await answer.json()) as { csrf_token: string };
    const cookie = answer.headers.get('set-cookie')?.split(';', 1)[0] ?? '';
    return { cookie, origin: server.url, 'x-csrf-token': csrf_token };
  }

  const chat = (place: Place) => ({ model: `@${place.sandbox}/echo`, messages: [{ role: 'user', content: 'Hello' }] });

  it('a request is tried in the workspaces of the signed-in user only, and others are as missing ones', async () => {
    const { a1, a2, b1, b2 } = places;
    for (const [role, hidden] of [
      ['owner', [b1, b2]],
      ['member', [a2, b1, b2]],
    ] as const) {
      const headers = await signIn(a1, role);
      const attempt = (workspace_id: string) =>
        send('POST', '/console/api/try', headers, { workspace_id, request: chat(a1) });
      expect((await attempt(a1.workspaceId)).status).toBe(200);
      const missing = await attempt(newId());
      expect(missing.status).toBe(404);
      for (const other of hidden) expect(await attempt(other.workspaceId)).toEqual(missing);
    }
  });

  it('no program is let into a workspace or an organisation of others', async () => {
    const { a1, a2, b1 } = places;
    const headers = await signIn(a1, 'member');
    const clientId = await registered(server);
    const { location } = await authorize(server, request(server, clientId).query);
    const resume_state = new URL(location ?? '').hash.slice(1);
    expect((await send('POST', '/console/api/access', headers, { resume_state })).status).toBe(200);
    const attempt = (organisation_id: string, workspace_id: string) =>
      send('POST', '/v2/oauth/authorize', headers, { approved: true, resume_state, organisation_id, workspace_id });
    const missing = await attempt(a1.organisationId, newId());
    expect(missing.status).toBe(404);
    for (const { workspaceId } of [a2, b1]) expect(await attempt(a1.organisationId, workspaceId)).toEqual(missing);
    const elsewhere = await attempt(newId(), a1.workspaceId);
    expect(await attempt(b1.organisationId, b1.workspaceId)).toEqual(elsewhere);
    expect((await attempt(a1.organisationId, a1.workspaceId)).status).toBe(200);
  });

  it('records of other people and organisations are as missing ones', async () => {
    const { a1, b1 } = places;
    const headers = await signIn(a1, 'owner');
    const traces = { own: `trace-${newId()}`, theirs: `trace-${newId()}` };
    const send1 = (place: Place, trace: string) =>
      send(
        'POST',
        '/v1/chat/completions',
        { ...headersOf(place, 'sandbox'), 'x-gateway-trace-id': trace },
        chat(place),
      );
    expect((await send1(a1, traces.own)).status).toBe(200);
    expect((await send1(b1, traces.theirs)).status).toBe(200);
    await vi.waitFor(
      async () => {
        for (const place of [a1, b1]) {
          const { dataDir, running } = server;
          const rows = await workspaceRecords(dataDir, running.logs, place.organisationId, place.workspaceId);
          if (!rows.some(({ trace_id }) => Object.values(traces).includes(String(trace_id))))
            throw new Error('not yet');
        }
      },
      { timeout: 15_000 },
    );
    const missing = await send('GET', `/console/api/records/trace-${newId()}`, headers);
    for (const trace of Object.values(traces)) {
      expect(await send('GET', `/console/api/records/${trace}`, headers)).toEqual(missing);
    }
    expect(JSON.parse(missing.text)).toEqual({ object: 'console_record', record: null });
  });
});
