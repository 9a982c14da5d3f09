/**
 * Wherever a guardrail is attached × every operation that says something × what comes of it, of requests and of answers:
 * seen by the client, by the upstream and in the record. Whole matrix on SQLite; on PostgreSQL the operations of one
 * dialect, because what touches the store is the same for all.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Phase } from '../../src/guardrails/check.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { createOrganisation } from '../../src/resources/organisations.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { answerOf, BASES, type Line } from '../limits/calls.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { sampled } from '../support/sampled.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';
import { ask, give } from './ask.ts';
import { EMAIL as SECRET } from './probes.ts';
import { type Answer, isStream, plainAnswer, ROWS, saidBy } from './said.ts';

type Json = Record<string, unknown>;
interface Check {
  readonly id: string;
  readonly parameters: Json;
}

/** What a guardrail is made to do. */
interface Outcome {
  readonly check: 'finds' | 'redacts' | 'hangs' | 'crashes';
  readonly actions: Json;
  readonly comes: 'denied' | 'monitored' | 'passed' | 'redacted' | 'told softly';
}

const OUTCOMES: Readonly<Record<string, Outcome>> = {
  'denies what it finds': { check: 'finds', actions: { deny: true }, comes: 'denied' },
  'monitors what it finds': { check: 'finds', actions: {}, comes: 'monitored' },
  'denies softly': { check: 'finds', actions: { deny: true, soft_deny_200: true }, comes: 'told softly' },
  'redacts what it finds': { check: 'redacts', actions: { deny: true }, comes: 'redacted' },
  'runs beside': { check: 'finds', actions: { deny: true, async: true }, comes: 'passed' },
  'times out and denies': { check: 'hangs', actions: { deny: true }, comes: 'denied' },
  'times out and passes': {
    check: 'hangs',
    actions: { deny: true, on_error: 'allow' },
    comes: 'passed',
  },
  'times out and is told': {
    check: 'hangs',
    actions: { on_error: 'deny' },
    comes: 'monitored',
  },
  'meets a crash and denies': { check: 'crashes', actions: { deny: true }, comes: 'denied' },
  'meets a crash and passes': {
    check: 'crashes',
    actions: { deny: true, on_error: 'allow' },
    comes: 'passed',
  },
  'meets a crash and is told': {
    check: 'crashes',
    actions: { on_error: 'deny' },
    comes: 'monitored',
  },
};

const DENIES = OUTCOMES['denies what it finds'] as Outcome;

/** Operations of files, batches and jobs have tables of their own (`coverage.long.test.ts`, `batches.long.test.ts`). */
const says = (line: Line, phase: Phase) => {
  const { asks, answers } = saidBy(line);
  return line.operation.family !== 'job' && typeof (phase === 'input' ? asks : answers) !== 'string';
};
/** Whose answers are texts that a refusal can be told in. */
const TALKS = new Set(['chat', 'completions', 'messages', 'responses']);
const STREAMS = new Set([...TALKS, 'transcribe']);
const canBeJudged = (line: Line, phase: Phase) =>
  phase === 'input' || (isStream(line) ? STREAMS.has(line.operation.id) : line.operation.id !== 'speech');

/** What an action says must come out of either store; what follows from it is no matter of the store. */
const STORED = [
  'denies what it finds',
  'denies softly',
  'redacts what it finds',
  'runs beside',
  'times out and passes',
];
const ENGINES = [
  ['SQLite', ROWS, Object.keys(OUTCOMES)],
  ['PostgreSQL', ROWS.filter(({ operation }) => operation.id === 'chat'), STORED],
] as const;

describe.each(ENGINES)('on %s', (engine, rows, outcomes) => {
  let upstream: FakeUpstream;
  let hooks: FakeUpstream;
  let server: TestServer;
  let workspace: string;
  let otherKey: string;
  let foreign: { readonly slug: string };
  let elsewhere: { readonly slug: string; readonly id: string };
  let count = 0;

  beforeAll(async () => {
    upstream = await startUpstream(answerOf);
    hooks = await startUpstream((request, response) => {
      if (request.path === '/crashes') sendJson(response, 500, {});
    });
    const url = engine === 'PostgreSQL' ? await migratedDatabase() : null;
    server = await startServer({
      SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port},127.0.0.1:${hooks.port}`,
      ...(url === null ? {} : { SLUICE_DATABASE_URL: url }),
    });
    workspace = server.first.workspace_id;
    for (const base of BASES) await server.provider({ id: base, host: `${upstream.url}/v1`, slug: base });
    const tables =
      url === null
        ? await openSqliteTables({ file: join(server.dataDir, 'control.db'), log: silentLog })
        : await openPostgresTables({ url, log: silentLog });
    const other = await tables.systemWrite((tx) =>
      createOrganisation(tx, {
        clock: systemClock,
        name: 'Another organisation',
        owner: { email: 'owner@other.example', first_name: 'A', last_name: 'B' },
        blockInlineConfig: false,
      }),
    );
    await tables.close();
    const checks = [checkOf('finds')];
    foreign = (await done(
      'POST',
      '/guardrails',
      { name: 'F', checks, organisation_id: other.organisation_id },
      other.admin_api_key,
    )) as typeof foreign;
    const second = await done('POST', '/admin/workspaces', { name: 'Second' });
    const workspace_id = String(second.id);
    elsewhere = (await done('POST', '/guardrails', { name: 'E', checks, workspace_id })) as typeof elsewhere;
    const key = await done('POST', '/api-keys/workspace/service', {
      name: 'Second',
      workspace_id,
      scopes: ['completions.write'],
    });
    otherKey = String(key.key);
  }, 60_000);

  afterAll(async () => {
    await server?.stop();
    await Promise.all([upstream?.stop(), hooks?.stop()]);
  });

  async function done(method: string, path: string, body?: unknown, key?: string): Promise<Json> {
    const answer = await server.admin(method, path, body, key);
    if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  function checkOf(what: Outcome['check']): Check {
    if (what === 'finds' || what === 'redacts')
      return { id: 'gateway.pii', parameters: { categories: ['EMAIL_ADDRESS'], redact: what === 'redacts' } };
    const timeout = what === 'hangs' ? 10 : 3_000;
    return { id: 'default.webhook', parameters: { webhookURL: `${hooks.url}/${what}`, timeout } };
  }

  async function create({ check, actions }: Outcome, level: Json): Promise<string> {
    const all = { deny: false, async: false, on_success: {}, on_fail: {}, ...actions };
    const body = { name: `g ${++count}`, checks: [checkOf(check)], actions: all, ...level };
    return String((await done('POST', '/guardrails', body)).slug);
  }
  const ofWorkspace = (outcome: Outcome) => create(outcome, { workspace_id: workspace });
  const ofOrganisation = (outcome: Outcome) => create(outcome, { organisation_id: server.first.organisation_id });

  /** Guardrails of a phase that a request would meet. */
  async function met(phase: Phase, headers: Record<string, string>): Promise<readonly string[]> {
    const line = ROWS.find(({ title }) => title === 'chat') as Line;
    const more = { 'x-gateway-api-key': server.first.workspace_api_key, 'x-gateway-dry-run': 'true', ...headers };
    const answer = await ask(server.url, line, {}, { 'x-gateway-provider': '@openai', ...more });
    const { guardrails } = (await answer.json()) as { guardrails?: Record<Phase, string[]> };
    return guardrails?.[phase] ?? [];
  }
  const until = (phase: Phase, name: string, there: boolean, headers: Record<string, string>) =>
    vi.waitFor(async () => expect((await met(phase, headers)).includes(name)).toBe(there), {
      timeout: 10_000,
      interval: 5,
    });

  interface Attached {
    /** What answers and records call it. */
    readonly name: string;
    /** For a line that goes to this account. */
    headers(base: string): Record<string, string>;
    detach?(): Promise<unknown>;
  }
  type Place = (outcome: Outcome, phase: Phase) => Promise<Attached>;

  const inRequest = (name: string, config: (base: string) => Json): Attached => ({
    name,
    headers: (base) => ({ 'x-gateway-config': JSON.stringify(config(base)) }),
  });
  /** Configs that are saved, one for each account. */
  async function saved(name: string, phase: Phase, config: (base: string) => Json): Promise<Attached> {
    const slugs = new Map<string, string>();
    for (const base of BASES) {
      const made = await done('POST', '/configs', {
        name: `c ${++count}`,
        workspace_id: workspace,
        config: config(base),
      });
      slugs.set(base, String(made.slug));
    }
    const headers = (base: string) => ({ 'x-gateway-config': slugs.get(base) ?? '' });
    for (const base of BASES) await until(phase, name, true, headers(base));
    return { name, headers };
  }
  async function byDefault(
    phase: Phase,
    name: string,
    path: string,
    wrap: (list: string[]) => Json,
  ): Promise<Attached> {
    await done('PUT', path, wrap([name]));
    await until(phase, name, true, {});
    return {
      name,
      headers: (base) => ({ 'x-gateway-provider': `@${base}` }),
      async detach() {
        await done('PUT', path, wrap([]));
        await until(phase, name, false, {});
      },
    };
  }

  const PLACES: Readonly<Record<string, Place>> = {
    async 'a saved config'(outcome, phase) {
      const name = await ofWorkspace(outcome);
      return saved(name, phase, (base) => ({ provider: `@${base}`, [`${phase}_guardrails`]: [name] }));
    },
    async 'a target of a saved config'(outcome, phase) {
      const [name, above] = [await ofOrganisation(outcome), await ofWorkspace(DENIES)];
      return saved(name, phase, (base) => ({
        strategy: { mode: 'single' },
        // Lists of a target stand in place of those above it.
        [`${phase}_guardrails`]: [above],
        targets: [{ provider: `@${base}`, [`${phase}_guardrails`]: [name] }],
      }));
    },
    async 'one target of several'(outcome, phase) {
      const name = await ofWorkspace(outcome);
      const attached = inRequest(name, (base) => ({
        strategy: { mode: 'loadbalance' },
        targets: [
          { provider: `@${base}`, weight: 1, [`${phase}_guardrails`]: [name] },
          { provider: `@${base}`, weight: 0 },
        ],
      }));
      const alone = { 'x-gateway-config': JSON.stringify({ provider: '@openai', [`${phase}_guardrails`]: [name] }) };
      await until(phase, name, true, alone);
      return attached;
    },
    async 'the config of an API key'(outcome, phase) {
      const name = await ofWorkspace(outcome);
      const { headers } = await saved(name, phase, (base) => ({
        provider: `@${base}`,
        [`${phase}_guardrails`]: [name],
      }));
      const keys = new Map<string, string>();
      for (const base of BASES) {
        const made = await done('POST', '/api-keys/workspace/service', {
          name: `k ${++count}`,
          workspace_id: workspace,
          scopes: ['completions.write'],
          defaults: { config_id: headers(base)['x-gateway-config'], allow_config_override: false },
        });
        keys.set(base, String(made.key));
      }
      return { name, headers: (base) => ({ 'x-gateway-api-key': keys.get(base) ?? '' }) };
    },
    async 'a config in the request, by slug'(outcome, phase) {
      const name = await ofWorkspace(outcome);
      const attached = inRequest(name, (base) => ({ provider: `@${base}`, [`${phase}_guardrails`]: [name] }));
      await vi.waitFor(async () => expect(await met(phase, attached.headers('openai'))).toEqual([name]), {
        timeout: 15_000,
      });
      return attached;
    },
    async 'a config in the request, in itself'(outcome, phase) {
      const check = checkOf(outcome.check);
      const guardrail = { id: 'mine', ...outcome.actions, [check.id]: check.parameters };
      return inRequest('mine', (base) => ({ provider: `@${base}`, [`${phase}_guardrails`]: [guardrail] }));
    },
    async 'a raw hook'(outcome, phase) {
      const hook = { type: 'guardrail', id: 'raw', checks: [checkOf(outcome.check)], ...outcome.actions };
      const list = phase === 'input' ? 'before_request_hooks' : 'after_request_hooks';
      return inRequest('raw', (base) => ({ provider: `@${base}`, [list]: [hook] }));
    },
    async 'the defaults of the workspace'(outcome, phase) {
      const name = await ofWorkspace(outcome);
      const wrap = (list: string[]) => ({ defaults: { [`${phase}_guardrails`]: list } });
      return byDefault(phase, name, `/admin/workspaces/${workspace}`, wrap);
    },
    async 'the defaults of the organisation'(outcome, phase) {
      const name = await ofOrganisation(outcome);
      const wrap = (list: string[]) => ({ [`${phase}_guardrails`]: list });
      return byDefault(phase, name, '/admin/organisation/defaults', wrap);
    },
  };

  /** What is to be seen of one request. */
  interface Seen {
    readonly status: number;
    readonly shows: boolean;
    readonly calls: number;
    readonly result: Json | null;
  }

  function expected(outcome: Outcome, actions: Json, line: Line, phase: Phase, name: string): Seen {
    const { check, comes } = outcome;
    const [deny, async] = [actions.deny === true, actions.async === true];
    const error = check === 'hangs' ? 'TimeoutError' : check === 'crashes' ? 'CheckError' : null;
    const result = { slug: name, phase: async ? null : phase, deny, async, skipped: false, transformed: false };
    const checks = [expect.objectContaining({ id: checkOf(check).id, error })];
    if (!canBeJudged(line, phase)) {
      // Who denies or would change it refuses before anything is sent.
      const refuses = !async && (deny || check !== 'finds');
      return refuses
        ? { status: 400, shows: false, calls: 0, result: null }
        : { status: 200, shows: true, calls: 1, result: { ...result, verdict: true, skipped: true, checks: [] } };
    }
    const calls = phase === 'input' && (comes === 'denied' || comes === 'told softly') ? 0 : 1;
    const failed = { ...result, verdict: false, checks };
    const passed = { ...result, verdict: true, checks };
    if (comes === 'denied') return { status: 446, shows: false, calls, result: failed };
    if (comes === 'told softly')
      return { status: TALKS.has(line.operation.id) ? 200 : 446, shows: false, calls, result: failed };
    if (comes === 'redacted') return { status: 200, shows: false, calls, result: { ...passed, transformed: true } };
    if (comes === 'passed') return { status: 200, shows: true, calls, result: async ? failed : passed };
    // The head of a stream that is only watched has left long before its end was judged.
    const watched = phase === 'output' && isStream(line) && check === 'finds';
    return { status: watched ? 200 : 246, shows: true, calls, result: failed };
  }

  const cases = Object.keys(PLACES).flatMap((place) =>
    outcomes.flatMap((outcome) => (['input', 'output'] as const).map((phase) => [place, outcome, phase])),
  ) as [string, string, Phase][];

  it.each(cases)('a guardrail of %s that %s (%s)', async (where, what, phase) => {
    const outcome = OUTCOMES[what] as Outcome;
    const attached = await (PLACES[where] as Place)(outcome, phase);
    const { actions } = outcome;
    const wanted = new Map<string, { line: Line; result: Json | null; status: number }>();
    try {
      const talking = rows.filter((row) => says(row, phase));
      for (const line of sampled(talking, ({ title }) => `${where} ${what} ${phase} ${title}`)) {
        const { asks, answers } = saidBy(line);
        const id = `attach-${++count}`;
        const more = phase === 'input' ? (asks[0] as (text: string) => object)(SECRET) : {};
        const answer = phase === 'input' ? plainAnswer(line) : (answers[0] as Say)(SECRET, isStream(line));
        upstream.answer = answer === null ? answerOf : (_request, response) => give(answer, response);
        upstream.received.length = 0;
        const reply = await ask(server.url, line, more, {
          'x-gateway-api-key': server.first.workspace_api_key,
          'x-gateway-trace-id': id,
          ...attached.headers(line.base),
        });
        const text = await reply.text();
        const bodies = upstream.received.map(({ body }) => body.toString('latin1')).join();
        const seen = expected(outcome, actions, line, phase, attached.name);
        const { status, calls } = seen;
        expect([line.title, reply.status, upstream.received.length, text]).toEqual([
          line.title,
          status,
          calls,
          expect.anything(),
        ]);
        // Of a request the upstream is shown it, of an answer the client; the client never of a request.
        expect([line.title, (phase === 'input' ? bodies : shown(text)).includes(SECRET)]).toEqual([
          line.title,
          seen.shows,
        ]);
        if (phase === 'input') expect(text).not.toContain(SECRET);
        if (outcome.comes === 'redacted' && calls === 1)
          expect([line.title, phase === 'input' ? bodies : text]).toEqual([line.title, expect.stringContaining('{{')]);
        if (status === 446)
          expect([line.title, JSON.parse(text)]).toEqual([
            line.title,
            expect.objectContaining({ error: expect.objectContaining({ type: 'hooks_failed' }) }),
          ]);
        wanted.set(id, { line, result: seen.result, status });
      }
    } finally {
      await attached.detach?.();
    }
    const records = new Map(
      (await server.records(wanted.size + 50)).map((record) => [String(record.trace_id), record]),
    );
    for (const [id, { line, result, status }] of wanted) {
      const record = records.get(id);
      expect([line.title, record?.status, record?.guardrails ?? []]).toEqual([
        line.title,
        status,
        result === null ? [] : [expect.objectContaining(result)],
      ]);
      expect(JSON.stringify(record)).not.toContain(SECRET);
    }
  });

  /** What a client puts together of an answer: text of a stream comes in pieces. */
  function shown(text: string): string {
    if (!text.startsWith('data:') && !text.startsWith('event:')) return text;
    const pieces = [...text.matchAll(/"(?:content|text|delta|audio|revised_prompt)":"((?:[^"\\]|\\.)*)"/g)];
    return pieces.map(([, piece]) => piece).join('');
  }
  type Say = (text: string, stream: boolean) => Answer;

  describe('what is not there', () => {
    it('guardrails of another workspace or organisation are as unknown as none, wherever they are named', async () => {
      for (const name of [elsewhere.slug, elsewhere.id, foreign.slug, 'pg-none']) {
        for (const phase of ['input', 'output'] as const) {
          const list = { [`${phase}_guardrails`]: [name] };
          const line = ROWS.find(({ title }) => title === 'chat') as Line;
          upstream.received.length = 0;
          const answer = await ask(
            server.url,
            line,
            {},
            {
              'x-gateway-api-key': server.first.workspace_api_key,
              'x-gateway-config': JSON.stringify({ provider: '@openai', ...list }),
            },
          );
          expect([name, answer.status]).toEqual([name, 400]);
          expect(upstream.received).toEqual([]);
          const refusals = [
            await server.admin('POST', '/configs', { name: `c ${++count}`, workspace_id: workspace, config: list }),
            await server.admin('PUT', `/admin/workspaces/${workspace}`, { defaults: list }),
            await server.admin('PUT', '/admin/organisation/defaults', list),
          ];
          expect([name, ...refusals.map(({ status }) => status)]).toEqual([name, 400, 400, 400]);
        }
      }
    });

    it('defaults hold for the workspaces that they are of, and an exempt workspace has none of the organisation', async () => {
      const second = {
        'x-gateway-api-key': otherKey,
        'x-gateway-provider': 'openai',
        authorization: 'Bearer sk-mine',
      };
      for (const phase of ['input', 'output'] as const) {
        const path = `/workspace-exclusions/${phase}-guardrails`;
        const other = phase === 'input' ? 'output' : 'input';
        const ours = await PLACES['the defaults of the workspace']?.(DENIES, phase);
        const all = await PLACES['the defaults of the organisation']?.(DENIES, phase);
        const [mine, everyones] = [ours?.name ?? '', all?.name ?? ''];
        try {
          expect(await met(phase, {})).toEqual([everyones, mine]);
          await until(phase, everyones, true, second);
          expect(await met(phase, second)).toEqual([everyones]);
          expect(await met(other, second)).toEqual([]);
          await done('PUT', path, { workspaces: [{ workspace_id: workspace, excluded: true }] });
          await until(phase, everyones, false, {});
          expect(await met(phase, {})).toEqual([mine]);
          expect(await met(phase, second)).toEqual([everyones]);
        } finally {
          await done('PUT', path, { workspaces: [], override_existing: true });
          await until(phase, everyones, true, {});
          await ours?.detach?.();
          await all?.detach?.();
        }
      }
    });
  });
});
