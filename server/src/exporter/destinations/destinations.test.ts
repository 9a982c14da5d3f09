import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LogReceiver, startLogReceiver } from '../../../test/support/log-receiver.ts';
import { logRecord } from '../../../test/support/log-record.ts';
import { createFetcher, type Fetcher } from '../../http/background-fetcher.ts';
import { createEgressGuard } from '../../http/egress-guard.ts';
import { operatorHttp } from '../../http/operator-http.ts';
import { systemClock, TestClock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { type LogFields, silentLog } from '../../kernel/log.ts';
import { type Journal, openJournal } from '../../store/disk/journal.ts';
import type { DestinationPlan, DestinationState, PastPage } from '../../telemetry/log-destination.ts';
import type { LogRecord } from '../../telemetry/record.ts';
import { type Feeds, startFeeds } from '../feeds.ts';

const MINUTE = 60_000;

let dir: string;
let clock: TestClock;
let journal: Journal;
let receiver: LogReceiver;
let other: LogReceiver;
let fetcher: Fetcher;
let feeds: Feeds;
let denied: string[];
let secrets: Uint8Array[];
let past: LogRecord[];
let seq = 0;
const lines: LogFields[] = [];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'sluice-destinations-'));
  clock = new TestClock();
  [receiver, other] = await Promise.all([startLogReceiver(), startLogReceiver()]);
  journal = await openJournal({ dir: join(dir, 'spool', 'journal'), clock: systemClock, log: silentLog });
  denied = [];
  secrets = [];
  past = [];
  lines.length = 0;
  await start();
});

afterEach(async () => {
  await feeds.finish();
  await fetcher.close();
  await journal.close();
  await Promise.all([receiver.close(), other.close()]);
  rmSync(dir, { recursive: true, force: true });
});

async function start(trusted = [receiver.host, other.host], maxBytes = 1 << 30): Promise<void> {
  const note = (message: string, fields?: LogFields) => void lines.push({ message, ...fields });
  const log = { debug: note, info: note, warn: note, error: note };
  const egress = createEgressGuard({ trustedHosts: trusted, ownListeners: () => [], clock: systemClock, log });
  fetcher = createFetcher({ egress, clock: systemClock });
  const settings = {
    spool: join(dir, 'spool'),
    dir: join(dir, 'spool', 'telemetry'),
    maxBytes,
    reserveBytes: 0,
    resource: {},
    version: '1',
    traces: null,
    metrics: null,
    destinations: { trustedHosts: trusted, keepMs: 0 },
  };
  const host = {
    terms: async () => ({ denied, secrets, origin: 'https://sluice.example' }),
    bodies: async () => ({ found: new Map(), pending: false }),
    past: async (_id: string, to: number): Promise<PastPage> => ({
      records: past.filter(({ time }) => time < to),
      next: null,
    }),
    settled: async () => undefined,
    parquet: async () => '',
    left: async () => null,
    leftSettled: async () => undefined,
  };
  feeds = await startFeeds(settings, {
    http: operatorHttp(),
    clock,
    log,
    tenants: { fetcher: async () => fetcher, host },
  });
}

const planTo = (url: string, more: Partial<DestinationPlan> = {}): DestinationPlan => ({
  id: `to-${new URL(url).port}`,
  organisationId: 'org-a',
  workspaceId: null,
  target: { kind: 'webhook', url, headers: {} },
  where: [],
  fields: ['id', 'ai_model'],
  bodies: false,
  sample: 1,
  startAt: 0,
  shared: false,
  version: '1',
  ...more,
});

const recordOf = (more: object = {}): LogRecord => {
  seq += 1;
  const id = uuidv7(systemClock);
  const times = { time: clock.now(), latency_ms: 1, path: '/v1/x', decision: undefined };
  const record = { ...logRecord(seq), ...times, model_requested: 'm', id, span_id: id, trace_id: id, ...more };
  return record as unknown as LogRecord;
};

/** Resolves with the ids when they are in the journal. */
async function write(count: number, more: object = {}): Promise<string[]> {
  const records = Array.from({ length: count }, () => recordOf(more));
  await Promise.all(
    records.map((record) => new Promise<void>((resolve) => journal.append(JSON.stringify(record), resolve))),
  );
  return records.map(({ id }) => id);
}

const moment = () => new Promise<void>((resolve) => systemClock.after(5, resolve));

async function until(holds: () => boolean, stepMs = 1_000): Promise<void> {
  for (let i = 0; i < 400 && !holds(); i++) {
    await clock.advance(stepMs);
    await moment();
  }
  expect(holds(), JSON.stringify(feeds.state)).toBe(true);
}

/** So many minutes go by, each second with a moment for files and sockets. */
async function pass(minutes: number): Promise<void> {
  for (let i = 0; i < minutes * 12; i++) {
    await clock.advance(5_000);
    await moment();
  }
}

const stateOf = (at = 0): DestinationState | undefined => feeds.state.destinations?.states[at];
const active = () => until(() => stateOf()?.backfilling === false);
const idsAt = (of: LogReceiver) => of.records().map(({ id }) => id);

describe('log destinations', () => {
  it('get each record once, of their organisation and workspace and of no other', async () => {
    await feeds.destinations([
      planTo(receiver.url, { workspaceId: 'ws-a1' }),
      planTo(other.url, { organisationId: 'org-b' }),
    ]);
    await active();
    const mine = await write(1_200);
    const theirs = await write(3, { organisation_id: 'org-b', workspace_id: 'ws-b1' });
    await write(3, { workspace_id: 'ws-a2' });
    await write(3, { organisation_id: null, workspace_id: null });
    await until(() => stateOf(0)?.delivered === 1_200 && stateOf(1)?.delivered === 3);
    expect(idsAt(receiver).sort()).toEqual(mine.sort());
    expect(idsAt(other).sort()).toEqual(theirs.sort());
    expect([...receiver.faults, ...other.faults]).toEqual([]);
  });

  it('that are away for ten minutes get every record in the end, and hold up no other', async () => {
    await feeds.destinations([planTo(receiver.url), planTo(other.url)]);
    await active();
    receiver.refuse = { status: 503 };
    const sent: string[] = [];
    for (let minute = 0; minute < 10; minute++) {
      sent.push(...(await write(20)));
      // A busy machine answers late, and ten seconds of this clock without an answer are another try: so each batch arrives
      // before the minute passes.
      await until(() => stateOf(1)?.delivered === sent.length, 100);
      await pass(1);
    }
    expect(idsAt(other).sort()).toEqual([...sent].sort());
    expect(stateOf(0)).toMatchObject({ delivered: 0, waiting: 200, error: 'The receiver answered 503.' });
    expect(stateOf(0)?.lagMs).toBeGreaterThan(9 * MINUTE);
    expect(stateOf(1)).toMatchObject({ delivered: 200, waiting: 0, lagMs: 0, error: null });
    // 1, 2, 4 … 300 seconds: an outage is no storm.
    expect(receiver.tries).toBeLessThan(15);
    receiver.refuse = null;
    await until(() => stateOf(0)?.delivered === 200);
    expect(idsAt(receiver).sort()).toEqual(sent.sort());
    expect(stateOf(0)).toMatchObject({ lost: 0, failed: 0, waiting: 0, lagMs: 0, error: null });
  });

  it('that ask for time are left alone for it', async () => {
    await feeds.destinations([planTo(receiver.url)]);
    await active();
    receiver.refuse = { status: 429, headers: { 'retry-after': '120' } };
    await write(1);
    await until(() => receiver.tries === 1);
    receiver.refuse = null;
    await clock.advance(110_000);
    await moment();
    expect(receiver.tries).toBe(1);
    await until(() => stateOf()?.delivered === 1);
  });

  it('get what waited after a kill, and at most the last batch twice', async () => {
    await feeds.destinations([planTo(receiver.url)]);
    await active();
    receiver.refuse = { status: 503 };
    const sent = await write(700);
    await until(() => receiver.tries > 1);
    // As a kill would leave it: nothing is finished, and the files are what they are.
    const killed = feeds;
    receiver.refuse = null;
    await start();
    await feeds.destinations([planTo(receiver.url)]);
    await until(() => new Set(idsAt(receiver)).size === 700);
    expect([...new Set(idsAt(receiver))].sort()).toEqual(sent.sort());
    receiver.refuse = { status: 503 };
    await killed.finish();
    receiver.refuse = null;
  });

  it('that refuse a batch lose it and no other, and one that is too large is sent in two', async () => {
    await feeds.destinations([planTo(receiver.url)]);
    await active();
    receiver.refuse = { status: 422 };
    await write(2);
    await until(() => stateOf()?.failed === 2);
    receiver.refuse = null;
    const [id] = await write(1);
    await until(() => stateOf()?.delivered === 1);
    expect(idsAt(receiver)).toEqual([id]);
    receiver.refuse = { status: 413 };
    const before = receiver.tries;
    await write(4);
    await until(() => stateOf()?.failed === 6);
    expect(receiver.tries - before).toBe(7);
  });

  it('that take a call and answer nothing are asked again after ten seconds, and hold up no other', async () => {
    await feeds.destinations([planTo(receiver.url), planTo(other.url)]);
    await active();
    receiver.hang = true;
    const sent = await write(3);
    await until(() => stateOf(0)?.error === 'No answer within 10 seconds.');
    expect(stateOf(1)).toMatchObject({ delivered: 3, waiting: 0 });
    receiver.hang = false;
    await until(() => stateOf(0)?.delivered === 3);
    expect(idsAt(receiver).sort()).toEqual(sent.sort());
  });

  it('that cut the connection in place of an answer get the same batch with the same id again', async () => {
    await feeds.destinations([planTo(receiver.url)]);
    await active();
    receiver.taken = () => {
      receiver.taken = null;
      return false;
    };
    const sent = await write(2);
    await until(() => stateOf()?.delivered === 2);
    expect(idsAt(receiver)).toEqual([...sent, ...sent]);
    const [first, again] = receiver.calls.map(({ headers }) => headers['webhook-id']);
    expect(again).toBe(first);
  });

  it('that are deleted while a call is on its way get nothing more, leave no file, and hold up no other', async () => {
    await feeds.destinations([planTo(receiver.url), planTo(other.url)]);
    await active();
    receiver.hang = true;
    await write(3);
    await until(() => receiver.tries === 1);
    const changed = feeds.destinations([planTo(other.url)]);
    const more = await write(2);
    await until(() => more.every((id) => idsAt(other).includes(id)));
    await Promise.all([changed, pass(1)]);
    receiver.hang = false;
    await pass(2);
    expect([receiver.tries, idsAt(receiver)]).toEqual([1, []]);
    expect(readdirSync(join(dir, 'spool', 'telemetry', 'destinations'))).not.toContain(planTo(receiver.url).id);
  });

  it('are signed with the secret of the time when a batch is sent, whatever it was when its requests came', async () => {
    const keyOf = (text: string) => Buffer.from(text.padEnd(24, '-'));
    await feeds.destinations([planTo(receiver.url)]);
    await active();
    secrets = [keyOf('old')];
    receiver.refuse = { status: 503 };
    await write(1);
    await until(() => receiver.tries > 0);
    secrets = [keyOf('new')];
    receiver.secret = `whsec_${keyOf('new').toString('base64')}`;
    receiver.refuse = null;
    await until(() => stateOf()?.delivered === 1);
    expect(receiver.faults).toEqual([]);
  });

  it('wait with their own room: what is too much of one is counted there, and takes nothing of another', async () => {
    await feeds.finish();
    await start(undefined, 9 << 20);
    await feeds.destinations([planTo(receiver.url), planTo(other.url)]);
    await active();
    receiver.refuse = { status: 500 };
    for (let i = 0; i < 12; i++) {
      await write(50, { span_name: 'x'.repeat(20_000) });
      await until(() => stateOf(1)?.delivered === 50 * (i + 1));
    }
    await until(() => (stateOf(0)?.lost ?? 0) > 0);
    expect(stateOf(1)).toMatchObject({ delivered: 600, lost: 0 });
    receiver.refuse = null;
    await until(() => (stateOf(0)?.delivered ?? 0) + (stateOf(0)?.lost ?? 0) === 600);
    expect(feeds.state.destinations?.waitingBytes).toBeLessThan(9 << 20);
  });

  it('that begin in the past get what is stored, and what comes meanwhile, each once', async () => {
    past = Array.from({ length: 3 }, (_, n) => recordOf({ time: clock.now() - 10 * MINUTE + n }));
    // Written before anybody asked: it is stored as well.
    const [early] = await write(1, { time: clock.now() - 2 * MINUTE });
    past.push(recordOf({ id: early, time: clock.now() - 2 * MINUTE }));
    await feeds.destinations([planTo(receiver.url)]);
    await active();
    const [late] = await write(1);
    await until(() => stateOf()?.delivered === 5);
    expect(idsAt(receiver).sort()).toEqual([...past.map(({ id }) => id), late].sort());
  });

  it('get no field that is denied when the batch is sent, whatever was denied when it came', async () => {
    await feeds.destinations([planTo(receiver.url, { fields: null })]);
    await active();
    receiver.refuse = { status: 503 };
    await write(1, { model_requested: 'canary-model', model_sent: undefined, cost_micros: 7_777_777 });
    await until(() => receiver.tries > 0);
    denied = ['ai_model', 'cost', 'metadata'];
    receiver.refuse = null;
    await until(() => stateOf()?.delivered === 1);
    const [record] = receiver.records();
    expect(record).toMatchObject({ ai_org: null, response_status_code: 200 });
    expect(['ai_model', 'cost', 'metadata'].filter((name) => name in (record ?? {}))).toEqual([]);
    expect(record).toMatchObject({ cost_micros: null, model_answered: null });
    expect(['canary-model', '7777777', 'quoted'].filter((text) => receiver.calls[0]?.text.includes(text))).toEqual([]);
  });

  it('on a private address get nothing', async () => {
    await feeds.finish();
    await start([other.host]);
    await feeds.destinations([planTo(receiver.url), planTo(other.url)]);
    await active();
    await write(1);
    await until(() => stateOf(1)?.delivered === 1 && stateOf(0)?.error !== null);
    expect(receiver.tries).toBe(0);
    expect(stateOf(0)?.error).toMatch(/loopback|private|reach|address/i);
  });

  it('that are gone leave nothing behind, and others go on', async () => {
    await feeds.destinations([planTo(receiver.url), planTo(other.url)]);
    await active();
    receiver.refuse = { status: 503 };
    await write(10);
    await until(() => receiver.tries > 0 && stateOf(1)?.delivered === 10);
    await feeds.destinations([planTo(other.url)]);
    const folders = () =>
      readdirSync(join(dir, 'spool', 'telemetry', 'destinations')).filter((name) => /^to-/.test(name));
    expect(folders()).toEqual([planTo(other.url).id]);
    await write(10);
    await until(() => stateOf(0)?.delivered === 20);
  });

  it('send all requests of a trace, or none, by the part that they ask for', async () => {
    await feeds.destinations([planTo(receiver.url, { sample: 0.3, fields: ['id', 'trace_id'] })]);
    await active();
    const traces = Array.from({ length: 400 }, () => uuidv7(systemClock));
    for (const trace_id of traces) await write(2, { trace_id });
    await until(() => stateOf()?.waiting === 0 && (stateOf()?.delivered ?? 0) > 0);
    await pass(0.2);
    const seen = Map.groupBy(receiver.records(), ({ trace_id }) => trace_id);
    expect([...seen.values()].every((of) => of.length === 2)).toBe(true);
    expect(seen.size).toBeGreaterThan(60);
    expect(seen.size).toBeLessThan(180);
  });
});
