/**
 * Every operation against every family of checks, of requests and of answers, generated from the table of operations: what
 * trips a guardrail is said in each place where the operation says something, and what then reaches the upstream, the
 * client and the record is looked at. What was seen is docs/guardrail-coverage.md; `npm run guardrail-coverage` writes it.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Phase } from '../../src/guardrails/check.ts';
import { CHECKS } from '../../src/guardrails/checks/index.ts';
import { OPERATIONS } from '../../src/operations/operation.ts';
import { answerOf, BASES, type Line } from '../limits/calls.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, startUpstream } from '../support/upstream.ts';
import { ask, give } from './ask.ts';
import { coverageText, type Seen, type SeenRow } from './document.ts';
import { COLUMNS, type Column, PICTURE, PREFIX, type Probe, serve } from './probes.ts';
import { type Answer, isStream, plainAnswer, ROWS, saidBy } from './said.ts';

const DOCUMENT = new URL('../../../docs/guardrail-coverage.md', import.meta.url);
/** Lists of models are not judged. */
const LISTS = new Set(['models', 'model']);
const HARMLESS = 'all is well';

let upstream: FakeUpstream;
let services: FakeUpstream;
let server: TestServer;
let count = 0;
const rows = new Map<string, SeenRow>();
/** Requests of the line by what their records must say of the guardrail. */
const judged = new Map<string, { readonly phase: Phase; readonly verdict: boolean; readonly text: string }>();

beforeAll(async () => {
  upstream = await startUpstream(answerOf);
  services = await startUpstream(serve);
  server = await startServer({
    SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port},127.0.0.1:${services.port}`,
  });
  for (const base of BASES) await server.provider({ id: base, host: `${upstream.url}/v1`, slug: base });
}, 60_000);

afterAll(async () => {
  await server?.stop();
  await Promise.all([upstream?.stop(), services?.stop()]);
});

interface Sent {
  readonly status: number;
  readonly text: string;
  readonly code: unknown;
  /** Bodies that the upstream received. */
  readonly received: readonly string[];
  readonly id: string;
}

/** One request under one guardrail. */
async function send(
  line: Line,
  phase: Phase,
  probe: Probe,
  parameters: object,
  more: Record<string, unknown>,
  answer: Answer | null,
): Promise<Sent> {
  const id = `row-${++count}`;
  const guardrail = { id: 'mine', deny: true, [probe.check]: parameters };
  const config = { provider: `@${line.base}`, [`${phase}_guardrails`]: [guardrail] };
  const given = answer ?? plainAnswer(line);
  upstream.answer = given === null ? answerOf : (_request, response) => give(given, response);
  upstream.received.length = 0;
  services.received.length = 0;
  const reply = await ask(server.url, line, more, {
    'x-gateway-api-key': server.first.workspace_api_key,
    'x-gateway-config': JSON.stringify(config),
    'x-gateway-trace-id': id,
    'x-gateway-metadata': '{"team":"search"}',
  });
  const text = await reply.text();
  // A job asks each minute for the batches and jobs that an earlier line has made.
  const received = upstream.received
    .filter(({ method, path }) => method !== 'GET' || !/^\/v1\/(?:batches|files|fine_tuning\/jobs)\/[^/]+/.test(path))
    .map(({ body }) => body.toString('latin1'));
  let code: unknown = null;
  if (reply.status === 400) code = (JSON.parse(text) as { error?: { code?: unknown } }).error?.code;
  return { status: reply.status, text, code, received, id };
}

const REFUSED = 'guardrail_not_enforced';

/** What came of it; throws for what must not be. */
function effectOf(line: Line, phase: Phase, { effect, text }: Probe, sent: Sent): Seen {
  const at = `${line.title}, ${phase}: ${sent.status} ${sent.text.slice(0, 300)}`;
  if (sent.code === REFUSED) {
    expect(sent.received, at).toEqual([]);
    return 'refused';
  }
  const shown = text !== '' && sent.text.includes(text);
  const told = sent.received.join('\n');
  if (effect === 'denies') {
    if (sent.status === 446 || sent.text.includes('"hooks_failed"')) {
      if (phase === 'input') expect(sent.received, at).toEqual([]);
      expect(shown, at).toBe(false);
      judged.set(sent.id, { phase, verdict: false, text });
      return 'enforced';
    }
    expect(sent.status, at).toBe(200);
    return 'passed';
  }
  expect(sent.status, at).toBe(200);
  if (effect === 'redacts') {
    const gone = phase === 'input' ? told !== '' && !told.includes(text) : !shown;
    const replaced = (phase === 'input' ? told : sent.text).includes('{{');
    if (gone && replaced) judged.set(sent.id, { phase, verdict: true, text });
    return gone && replaced ? 'enforced' : 'passed';
  }
  if (effect === 'prefixes') return told.includes(PREFIX) ? 'enforced' : 'passed';
  if (effect === 'inlines') return told.includes(PICTURE.toString('base64')) ? 'enforced' : 'passed';
  const log = services.received.map(({ body }) => body.toString('utf8')).join('');
  return log.includes(text) ? 'enforced' : 'passed';
}

/** What a column's guardrails do on a line: the same for each of them, in each place where the line says something. */
async function cell(line: Line, phase: Phase, column: Column): Promise<Seen> {
  const said = saidBy(line);
  const found = new Map<Seen, string>();
  const note = (seen: Seen, what: string) => found.set(seen, what);
  for (const probe of column.probes) {
    const parameters = probe.parameters(line, services.url);
    if (parameters === null) continue;
    const run = (more: object, answer: Answer | null) =>
      send(line, phase, probe, parameters, more as Record<string, unknown>, answer);
    if (!column.texts) {
      note(effectOf(line, phase, probe, await run({}, null)), probe.check);
      continue;
    }
    const places = phase === 'input' ? said.asks : said.answers;
    const answering = (text: string): Answer | null =>
      phase === 'output' && typeof places !== 'string' ? (said.answers[0] as Say)(text, isStream(line)) : null;
    if (probe.effect === 'inlines') {
      const more = said.picture?.(`${services.url}/picture.png`);
      if (line.fields !== null && more !== undefined)
        note(effectOf(line, phase, probe, await run(more, null)), probe.check);
      continue;
    }
    if (typeof places === 'string') {
      // A guardrail that denies lets it pass, and its record says that nothing was found.
      const sent = await run({}, null);
      // What was removed is gone.
      if (line.operation.id !== 'file_delete' || sent.status !== 404)
        expect([line.title, sent.status, sent.text]).toEqual([line.title, 200, expect.anything()]);
      continue;
    }
    const tried = probe.effect === 'prefixes' ? places.slice(0, 1) : places;
    for (const [at, say] of tried.entries()) {
      const sent =
        phase === 'input'
          ? await run((say as Ask)(probe.text), null)
          : await run({}, (say as Say)(probe.text, isStream(line)));
      note(effectOf(line, phase, probe, sent), `${probe.check} in place ${at}`);
    }
    if (probe.effect !== 'denies' || found.has('refused')) continue;
    // It is the text that is denied, not the operation.
    const ask = phase === 'input' ? (places[0] as Ask)(HARMLESS) : {};
    const harmless = await run(ask, answering(HARMLESS));
    expect([line.title, probe.check, harmless.status, harmless.text]).toEqual([
      line.title,
      probe.check,
      200,
      expect.anything(),
    ]);
    judged.set(harmless.id, { phase, verdict: true, text: probe.text });
  }
  expect([line.title, phase, column.title, [...found].length < 2 || [...found]]).toEqual([
    line.title,
    phase,
    column.title,
    true,
  ]);
  return [...found.keys()][0] ?? 'none';
}
/** Records say what each guardrail found, and never what was found. */
async function checkRecords(): Promise<void> {
  const byId = new Map((await server.records()).map((record) => [String(record.trace_id), record]));
  for (const [id, { phase, verdict, text }] of judged) {
    const record = byId.get(id);
    const found = expect.objectContaining({ slug: 'mine', phase, verdict });
    expect([id, record?.guardrails]).toEqual([id, [found]]);
    if (text !== '') expect(JSON.stringify(record)).not.toContain(text);
  }
  judged.clear();
}

type Ask = (text: string) => object;
type Say = (text: string, stream: boolean) => Answer;

describe('every operation', () => {
  it('has a line', () => {
    expect([...new Set(ROWS.map(({ operation }) => operation.id))].sort()).toEqual(Object.keys(OPERATIONS).sort());
    for (const { operation } of ROWS.filter(({ operation: one }) => one.streams))
      expect([operation.id, ROWS.some((row) => row.operation === operation && isStream(row))]).toEqual([
        operation.id,
        true,
      ]);
  });

  it('every check of the catalogue has a column', () => {
    expect(COLUMNS.flatMap(({ checks }) => checks).sort()).toEqual([...CHECKS.keys()].sort());
    for (const { phases, checks, probes } of COLUMNS)
      for (const id of [...checks, ...probes.map(({ check }) => check)])
        for (const phase of phases) if (phase === 'input') expect(CHECKS.has(id)).toBe(true);
  });

  it.each(ROWS.map((line) => [line.title, line] as const))(
    '%s',
    async (_, line) => {
      const cells: SeenRow['cells'] = { input: new Map(), output: new Map() };
      for (const column of COLUMNS)
        for (const phase of column.phases) cells[phase].set(column.title, await cell(line, phase, column));
      rows.set(line.title, { line, cells });
      await checkRecords();
      const { asks, answers } = saidBy(line);
      // What is said is judged, or refused; what is done, too.
      for (const { title, phases, texts, none } of COLUMNS)
        for (const phase of phases) {
          const says = !texts || typeof (phase === 'input' ? asks : answers) !== 'string';
          const allowed: Seen[] = ['enforced', 'refused'];
          if (!says || none !== undefined) allowed.push('none');
          if (!texts && LISTS.has(line.operation.id)) allowed.push('passed');
          const seen = cells[phase].get(title);
          expect([phase, title, seen, allowed.includes(seen ?? 'none')]).toEqual([phase, title, seen, true]);
        }
    },
    60_000,
  );
});

describe('docs/guardrail-coverage.md', () => {
  it('says what was seen here: `npm run guardrail-coverage` writes it', async () => {
    const text = coverageText([...rows.values()]);
    if (process.env.SLUICE_WRITE_GUARDRAIL_COVERAGE === '1') await writeFile(DOCUMENT, text);
    expect(await readFile(DOCUMENT, 'utf8')).toBe(text);
  });
});
