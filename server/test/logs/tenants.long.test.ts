/**
 * Whose requests answers are made of, on every route that reads them, with the real engine: an answer is the same, to the byte,
 * whether or not the store holds the requests of others.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Connection, type Engine, literal, openEngine, recordsIn, tableOf } from '../../src/keeper/engine.ts';
import { LogQueries, type PinnedFile } from '../../src/keeper/queries.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { CUSTOM_LOGS } from '../../src/resources/logs/insert.ts';
import { KEPT_LOGS } from '../../src/resources/logs/reach.ts';
import { Services } from '../../src/resources/services.ts';
import type { StoredLog } from '../../src/store/ports.ts';
import { ID, TABLE } from '../support/admin-routes.ts';
import { logRecord } from '../support/log-record.ts';
import { forgottenLogs } from '../support/log-rows.ts';
import { type Caller, type Organisation, startOrganisation } from '../support/organisation.ts';

const NOON = Date.UTC(2026, 4, 4, 12);
const RANGE = 'time_of_generation_min=2026-05-04T00:00:00Z&time_of_generation_max=2026-05-05T00:00:00Z';
const CANARY = 'theirs-7f3a';

let dir: string;
let engine: Engine;
let connection: Connection;
let on: Organisation;
let callers: Readonly<Record<string, Caller>>;
let users: { readonly member: string; readonly manager: string };
const kept: { files: PinnedFile[]; tails: string[]; made: number } = { files: [], tails: [], made: 0 };
/** Whether statements lack the condition that they are of one organisation. */
const open = { organisation: false };

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sluice-tenants-'));
  engine = await openEngine({ memory: '256MB', threads: 2, temporary: dir });
  connection = await engine.connect();
  const queries = new LogQueries({
    connect: async () => leaky(await engine.connect()),
    pin: async () => ({ files: kept.files, tails: kept.tails, completeTo: NOON, incomplete: [], release: () => {} }),
    damaged: async () => false,
    clock: systemClock,
    log: silentLog,
  });
  const services = new Services()
    .provide(KEPT_LOGS, { store: queries, days: 0, erased: async () => [] })
    .provide(CUSTOM_LOGS, forgottenLogs);
  on = await startOrganisation('sqlite', { admin: { services } });
  await addCallers();
}, 60_000);
afterAll(async () => {
  await on.admin.close();
  connection.closeSync();
  engine.closeSync();
  await rm(dir, { recursive: true });
});

function leaky(real: Connection): Connection {
  const given = (sql: string) => (open.organisation ? sql.replaceAll('"organisation_id" = $', "'' <> $") : sql);
  return {
    run: (sql, values) => real.run(given(sql), values),
    runAndReadAll: (sql, values) => real.runAndReadAll(given(sql), values),
    stream: (sql, values) => real.stream(given(sql), values),
    interrupt: () => real.interrupt(),
    closeSync: () => real.closeSync(),
  };
}

async function addCallers(): Promise<void> {
  const workspace = on.admin.a.workspace_id;
  const scopes = ['logs.view', 'logs.list', 'logs.export', 'analytics.view'];
  const person = async (role: 'owner' | 'admin' | 'member', within?: 'admin' | 'manager' | 'member') => {
    const id = await on.addUser(role, within === undefined ? {} : { [workspace]: within });
    const { key } = await on.makeKey('workspace/user', scopes, { user_id: id });
    return { id, session: await on.signIn(id), key: on.as(key) };
  };
  const [owner, admin] = [await person('owner'), await person('admin')];
  const [lead, manager] = [await person('member', 'admin'), await person('member', 'manager')];
  const member = await person('member', 'member');
  users = { member: member.id, manager: manager.id };
  const organisation = await on.makeKey('organisation/service', scopes);
  const service = await on.makeKey('workspace/service', scopes);
  callers = {
    'an owner': owner.session,
    'a key of an owner': owner.key,
    'an admin': admin.session,
    'a key of an admin': admin.key,
    'an admin of the workspace': lead.session,
    'a key of an admin of the workspace': lead.key,
    'a manager': manager.session,
    'a key of a manager': manager.key,
    'a member': member.session,
    'a key of a member': member.key,
    'a key of the organisation': on.as(organisation.key),
    'a key of the workspace': on.as(service.key),
  };
}

let seq = 0;
const uuid = (n: number) => `01900000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`;

/** A request that differs from those of others in all that can be grouped, counted or listed. */
function request(whose: string, more: Record<string, unknown>): StoredLog {
  seq += 1;
  return logRecord(seq, {
    id: uuid(seq),
    time: NOON + seq,
    operation: 'chat',
    method: 'POST',
    path: '/v1/chat/completions',
    provider: 'openai',
    provider_slug: `slug-${whose}`,
    config_slug: `config-${whose}`,
    prompt_slug: `prompt-${whose}`,
    model_requested: `model-${whose}`,
    model_sent: `model-${whose}`,
    model_answered: `model-${whose}`,
    trace_id: `trace-${whose}-${seq}`,
    span_id: uuid(seq),
    span_name: `span-${whose}`,
    metadata: { _user: `user-${whose}`, team: `team-${whose}` },
    stream: false,
    dry_run: false,
    usage_estimated: false,
    status: 500,
    outcome: 'failed',
    error_code: `code-${whose}`,
    error_message: `error of ${whose}`,
    usage: {
      input: 10 + seq,
      output: seq,
      cache_read: 0,
      cache_write: 0,
      reasoning: 0,
      audio_input: 0,
      audio_output: 0,
    },
    cost_micros: 1_000 + seq,
    latency_ms: 10 * seq,
    ttft_ms: null,
    cache_status: 'HIT',
    cache: { made_at: 1, saved_micros: 10 * seq, saved_ms: 1, similarity: null },
    retries: 1,
    bytes_in: 1,
    bytes_out: 1,
    upstream_bytes_in: 1,
    upstream_bytes_out: 1,
    body_chunk: null,
    body_slot: null,
    ...more,
  });
}

/** Stores records, half of them in a file of the same day as the others, half in the tail. */
async function store(records: readonly StoredLog[]): Promise<void> {
  const half = Math.ceil(records.length / 2);
  for (const [at, part] of [records.slice(0, half), records.slice(half)].entries()) {
    const name = `part_${++kept.made}`;
    const lines = join(dir, `${name}.ndjson`);
    await writeFile(lines, part.map((record) => `${JSON.stringify(record)}\n`).join(''));
    if (at === 0) {
      const path = join(dir, `${name}.parquet`);
      await connection.run(`COPY (${recordsIn(lines)}) TO ${literal(path)} (FORMAT parquet)`);
      const times = part.map(({ time }) => Number(time));
      kept.files.push({ path, rows: part.length, minTime: Math.min(...times), maxTime: Math.max(...times) });
    } else {
      await connection.run(tableOf(name));
      await connection.run(`INSERT INTO ${name} ${recordsIn(lines)}`);
      kept.tails.push(name);
    }
  }
}

const forget = () => {
  kept.files = [];
  kept.tails = [];
};

/** Of a user of organisation A; those of others are in every way alike. */
const of = (user: string | null, whose = 'ours') => {
  const { organisation_id, workspace_id } = on.admin.a;
  return Array.from({ length: 4 }, () => request(whose, { organisation_id, workspace_id, user_id: user }));
};
const theirs = () => {
  const { organisation_id, workspace_id } = on.admin.b;
  const place = { organisation_id, workspace_id };
  // Also under the workspace and the user of the others: an id alone proves nothing.
  return [
    ...Array.from({ length: 4 }, () => request(CANARY, place)),
    request(CANARY, { ...place, workspace_id: on.admin.a.workspace_id, user_id: users.member }),
    request(CANARY, { ...place, workspace_id: null }),
  ];
};

/** Routes that read no records, or do so apart from this suite. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  'logs.insert': 'writes',
  'logs.tail': 'does not end; `resources/logs/tail.test.ts`',
  'logs.exports.list': 'of the control store; `test/matrix`',
  'logs.exports.read': 'of the control store; `test/matrix`',
  'logs.exports.update': 'of the control store; `test/matrix`',
  'logs.exports.start': 'of the control store; `test/matrix`',
  'logs.exports.cancel': 'of the control store; `test/matrix`',
  'logs.exports.download': 'bytes of the file: `jobs/log-exports.test.ts`',
  'logs.exports.field-restrictions': 'of settings',
  'logs.delete': 'writes; `test/logs/erasure.long.test.ts`',
  'logs.erase': 'writes; `test/logs/erasure.long.test.ts`',
  'logs.erasures.list': 'of the control store; `test/matrix`',
  'logs.erasures.read': 'of the control store; `test/matrix`',
  'logs.decision': 'by another service; `logs.read` reads the same record',
};
/** Further questions of a route. */
const MORE: Readonly<Record<string, readonly string[]>> = {
  'logs.list': ['&limit=2', '&total=true', `&ai_model=model-${CANARY}`, '&outcome=failed'],
  'analytics.groups.by': ['&and=metadata.team', '&columns=cost,total_tokens&order_by=cost'],
};

type Answers = ReadonlyMap<string, string>;

/** What every route answers, by its question. */
async function answersTo(call: Caller, id: string): Promise<Answers> {
  const out = new Map<string, string>();
  const place = `workspace_id=${on.admin.a.workspace_id}`;
  const ask = async (name: string, method: string, path: string, body?: unknown) => {
    const answer = await call(method, `/v1${path}`, body);
    out.set(name, `${answer.status} ${answer.text.replace(/"request_id":"[^"]*"/g, '')}`);
  };
  for (const [operation, method, , path] of TABLE) {
    if (!/^(logs|analytics)\./.test(operation) || Object.hasOwn(ELSEWHERE, operation)) continue;
    if (operation === 'logs.read') {
      await ask(operation, method, `${path.replace(ID, id)}?${place}`);
    } else if (operation === 'logs.exports.create') {
      const body = { filters: { ...range() }, requested_data: ['id'], workspace_id: on.admin.a.workspace_id };
      const answer = await call(method, `/v1${path}`, body);
      out.set(operation, `${answer.status} ${answer.status === 200 ? answer.body.total : answer.text}`);
    } else if (method === 'POST') {
      const map = [`model-ours`, `model-${CANARY}`, 'model-other'].map((model) => ({
        from: `openai__${model}`,
        to: 'openai__gpt-4o-mini',
      }));
      await ask(operation, method, path, { ...range(), workspace_id: on.admin.a.workspace_id, map });
    } else {
      for (const more of ['', ...(MORE[operation] ?? [])]) {
        await ask(operation + more, method, `${path}?${place}&${RANGE}${more}`);
      }
    }
  }
  return out;
}

const range = () => ({
  time_of_generation_min: '2026-05-04T00:00:00Z',
  time_of_generation_max: '2026-05-05T00:00:00Z',
});

const shownOf = (answers: Answers) => [...answers].map(([name, text]) => `${name}: ${text}`);

async function withSetting(name: string, run: () => Promise<void>): Promise<void> {
  const set = async (value: boolean | null) => {
    const body = { security_settings: { [name]: value } };
    expect((await on.admin.call('PUT', '/v1/admin/organisation/settings', { body })).status).toBe(200);
  };
  await set(false);
  await run();
  await set(null);
}

describe('answers about requests', () => {
  it('are the same to the byte with and without those of another organisation, for every caller on every route', async () => {
    forget();
    const ours = [...of(users.member), ...of(null)];
    await store(ours);
    const id = String(ours[0]?.id);
    const without = new Map<string, Answers>();
    for (const [name, call] of Object.entries(callers)) without.set(name, await answersTo(call, id));
    const foreign = theirs();
    await store(foreign);
    for (const [name, call] of Object.entries(callers)) {
      const answers = await answersTo(call, id);
      expect(shownOf(answers), name).toEqual(shownOf(without.get(name) ?? new Map()));
      const good = [...answers].filter(([, text]) => text.startsWith('200'));
      expect(
        good.length,
        `${name}: ${shownOf(answers)
          .filter((one) => !/: 200/.test(one))
          .join('\n')}`,
      ).toBe(answers.size);
      for (const [question, text] of answers) {
        const asked = question.includes(CANARY) || question === 'analytics.what-if';
        if (!asked) expect(text.includes(CANARY), `${name} ${question}`).toBe(false);
      }
      for (const { id: other } of foreign) {
        const place = `workspace_id=${on.admin.a.workspace_id}`;
        expect((await call('GET', `/v1/logs/${other}?${place}`)).status, name).toBe(404);
      }
    }
  }, 240_000);

  it('are refused, and show nothing of the others, when the condition of the organisation is lost from each statement', async () => {
    forget();
    const ours = of(null);
    await store([...ours, ...theirs()]);
    const call = callers['a key of the organisation'];
    if (call === undefined) throw new Error('no key of the organisation');
    const place = `workspace_id=${on.admin.a.workspace_id}`;
    const whole = async () => {
      const out = new Map<string, string>();
      for (const [operation, method, , path] of TABLE) {
        if (method !== 'GET' || !/^(logs|analytics)\./.test(operation) || Object.hasOwn(ELSEWHERE, operation)) continue;
        if (operation === 'logs.read' || operation.startsWith('analytics.graphs.feedbacks')) continue;
        // Of the whole organisation, where no condition of a workspace stands behind.
        const all = ['logs.list', 'logs.histogram'].includes(operation) ? '' : '&all_workspaces=true';
        const answer = await call(method, `/v1${path}?${RANGE}${all}`);
        out.set(operation, `${answer.status} ${answer.text}`);
      }
      return out;
    };
    const closed = await whole();
    expect(shownOf(closed).filter((one) => !/: 200/.test(one))).toEqual([]);
    open.organisation = true;
    try {
      for (const [operation, text] of await whole()) {
        expect(text.slice(0, 3), `${operation} ${text}`).toBe('500');
        expect(text, operation).not.toContain(CANARY);
      }
      const id = String(ours[0]?.id);
      expect((await call('GET', `/v1/logs/${id}?${place}`)).status).toBe(200);
    } finally {
      open.organisation = false;
    }
  }, 120_000);

  it('of a cursor of another organisation are refused', async () => {
    forget();
    await store([...of(null), ...theirs()]);
    const other = on.as(on.admin.b.admin_api_key);
    const theirPage = await other('GET', `/v1/logs?${RANGE}&limit=1`);
    expect(theirPage.status, theirPage.text).toBe(200);
    const cursor = encodeURIComponent(String(theirPage.body.next_cursor));
    for (const [name, call] of Object.entries(callers)) {
      const place = `workspace_id=${on.admin.a.workspace_id}`;
      expect((await call('GET', `/v1/logs?${RANGE}&limit=1&${place}&cursor=${cursor}`)).status, name).toBe(400);
    }
  });
});

describe('a setting that leaves people their own requests', () => {
  it.each([
    ['membersViewAllData', 'member'],
    ['managersViewAllData', 'manager'],
  ] as const)(
    '%s off: each answer to a %s is as if there were no requests of others, on every route',
    async (setting, role) => {
      forget();
      const own = of(users[role]);
      await store(own);
      const id = String(own[0]?.id);
      const which = [`a ${role}`, `a key of a ${role}`].map((name) => [name, callers[name]] as const);
      await withSetting(setting, async () => {
        const alone = new Map<string, Answers>();
        for (const [name, call] of which) if (call !== undefined) alone.set(name, await answersTo(call, id));
        expect(alone.size).toBe(2);
        await store([...of(null, 'other'), ...of(on.admin.a.user_id, 'other')]);
        for (const [name, call] of which) {
          if (call === undefined) continue;
          const answers = await answersTo(call, id);
          expect(shownOf(answers), name).toEqual(shownOf(alone.get(name) ?? new Map()));
          expect([...answers].filter(([, text]) => text.startsWith('200')).length).toBeGreaterThan(25);
        }
      });
      const call = callers[`a ${role}`];
      if (call === undefined) throw new Error('no such caller');
      // The setting is what hides them.
      const all = await answersTo(call, id);
      expect(all.get('logs.histogram')).toContain('"total":12');
    },
    120_000,
  );
});

it('every route of logs and analytics is asked here, or says where', () => {
  const names = TABLE.map(([operation]) => operation);
  expect(Object.keys(ELSEWHERE).filter((name) => !names.includes(name))).toEqual([]);
});
