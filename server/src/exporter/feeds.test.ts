import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { logRecord } from '../../test/support/log-record.ts';
import { type Collector, startCollector } from '../../test/support/otlp-collector.ts';
import { operatorHttp } from '../http/operator-http.ts';
import { systemClock, TestClock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import { type LogFields, silentLog } from '../kernel/log.ts';
import { type Journal, openJournal } from '../store/disk/journal.ts';
import { OUTGOING } from '../store/disk/journal-line.ts';
import { type Feeds, startFeeds } from './feeds.ts';
import type { TraceSettings } from './messages.ts';
import { removeOutgoing } from './spool.ts';

let dir: string;
let spool: string;
let clock: TestClock;
let collector: Collector;
let journal: Journal;
let feeds: Feeds | null = null;
let seq = 0;
const http = operatorHttp();
const lines: LogFields[] = [];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'sluice-exporter-'));
  spool = join(dir, 'spool');
  clock = new TestClock();
  collector = await startCollector();
  journal = await openJournal({
    dir: join(spool, 'journal'),
    clock: systemClock,
    log: silentLog,
    segmentBytes: 20_000,
  });
  lines.length = 0;
  free = 1e12;
});

afterEach(async () => {
  await feeds?.finish();
  feeds = null;
  await journal.close();
  await collector.close();
  rmSync(dir, { recursive: true, force: true });
});

let free = 0;

async function start(traces: Partial<TraceSettings> = {}, maxBytes = 1 << 30): Promise<Feeds> {
  const settings = {
    spool,
    dir,
    maxBytes,
    reserveBytes: 1_000_000,
    resource: { 'service.name': 'sluice' },
    version: '1',
    metrics: null,
    traces: {
      url: `${collector.url}/v1/traces`,
      headers: { authorization: 'Bearer collector-secret' },
      protocol: 'http/protobuf' as const,
      conventions: 'v1.41' as const,
      sampler: 'parentbased_always_on' as const,
      ratio: 1,
      ...traces,
    },
  };
  const note = (message: string, fields?: LogFields) => void lines.push({ message, ...fields });
  const log = { debug: note, info: note, warn: note, error: note };
  feeds = await startFeeds(settings, { http, clock, log, freeBytes: async () => free });
  return feeds;
}

/** Records with one attempt each; resolves when they are in the journal. */
async function write(count: number, more: object = {}): Promise<void> {
  const done = Array.from({ length: count }, () => {
    seq += 1;
    const id = uuidv7(systemClock);
    const record = { ...logRecord(seq, { outcome: 'ok', latency_ms: 1, ...more }), id, span_id: id, trace_id: id };
    return new Promise<void>((resolve) => journal.append(JSON.stringify(record), resolve));
  });
  await Promise.all(done);
}

const moment = () => new Promise<void>((resolve) => systemClock.after(5, resolve));

/** Time goes on, a second at a time, until it is so; each leaves real files and sockets a moment. */
async function until(holds: () => boolean): Promise<void> {
  for (let i = 0; i < 400 && !holds(); i++) {
    await clock.advance(1_000);
    await moment();
  }
  expect(holds()).toBe(true);
}

const servers = () => collector.spans().filter(({ kind }) => kind === 2);
const linked = () => readdirSync(join(spool, 'journal', OUTGOING)).filter((name) => name.endsWith('.journal'));

describe('telemetry', () => {
  it('brings every record to the collector, 512 spans a call, compressed, with its headers', async () => {
    await start();
    await write(1_000);
    await until(() => feeds?.state.traces?.sent === 1_000);
    expect(servers()).toHaveLength(1_000);
    expect(new Set(collector.spans().map(({ spanId }) => spanId)).size).toBe(2_000);
    expect(collector.calls.length).toBeLessThan(12);
    for (const { path, headers, message } of collector.calls) {
      expect(path).toBe('/v1/traces');
      expect(headers).toMatchObject({ authorization: 'Bearer collector-secret', 'content-encoding': 'gzip' });
      expect(JSON.stringify(message).match(/"spanId"/g)?.length).toBeLessThanOrEqual(512);
    }
    expect(collector.resource()).toEqual({ 'service.name': 'sluice' });
    expect(feeds?.state.traces).toMatchObject({ sent: 1_000, refused: 0, lost: 0, failure: null });
  });

  it('speaks JSON where the settings ask for it', async () => {
    await start({ protocol: 'http/json' });
    await write(2);
    await until(() => servers().length === 2);
    expect(collector.calls[0]?.headers['content-type']).toBe('application/json');
  });

  it('waits for a collector that is away for ten minutes: then all arrive, each span once', async () => {
    const { port } = collector;
    await start();
    await write(100);
    await until(() => feeds?.state.traces?.sent === 100);
    const before = collector.spans();
    await collector.close();
    await write(300);
    await until(() => (feeds?.state.traces?.failure ?? null) !== null);
    for (let i = 0; i < 10; i++) {
      await write(50);
      await clock.advance(60_000);
    }
    // The log store is through with the segments by now; their second names are left.
    collector = await startCollector(port);
    await until(() => feeds?.state.traces?.sent === 900);
    const ids = [...before, ...collector.spans()].map(({ spanId }) => spanId);
    expect(ids).toHaveLength(1_800);
    expect(new Set(ids).size).toBe(1_800);
    expect(feeds?.state.traces).toMatchObject({ sent: 900, lost: 0, failure: null });
  });

  it('does what a collector that answers 429 asks, and sends the same again; a refusal is counted and not repeated', async () => {
    await start();
    collector.refuse = { status: 429, headers: { 'retry-after': '20' } };
    await write(3);
    await until(() => collector.tries === 1);
    await clock.advance(15_000);
    expect(collector.tries).toBe(1);
    collector.refuse = { status: 400 };
    await until(() => feeds?.state.traces?.refused === 3);
    collector.refuse = null;
    await write(2);
    await until(() => feeds?.state.traces?.sent === 2);
    expect(feeds?.state.traces).toMatchObject({ sent: 2, refused: 3, failure: null });
    expect(JSON.stringify(lines)).not.toContain('collector-secret');
  });

  it('goes on where it was when its process was killed, and with what was written meanwhile', async () => {
    await start();
    await write(700);
    collector.refuse = null;
    await until(() => collector.calls.length >= 1);
    collector.refuse = { status: 503 };
    await until(() => (feeds?.state.traces?.failure ?? null) !== null);
    // A killed process writes nothing more: the next one reads the file as it is.
    const place = readFileSync(join(dir, 'traces.json'), 'utf8');
    await feeds?.finish();
    expect(readFileSync(join(dir, 'traces.json'), 'utf8')).toBe(place);
    await journal.close();
    journal = await openJournal({ dir: join(spool, 'journal'), clock: systemClock, log: silentLog });
    await write(10);
    collector.refuse = null;
    await start();
    await until(() => servers().length === 710);
    expect(new Set(collector.spans().map(({ spanId }) => spanId)).size).toBe(1_420);
  });

  it('keeps what waits when the log store removes segments, and removes it when it was sent', async () => {
    await start();
    collector.refuse = { status: 500 };
    await write(300);
    for (const { name, live } of journal.segments()) {
      if (!live) rmSync(join(spool, 'journal', name));
    }
    collector.refuse = null;
    await until(() => servers().length === 300);
    await until(() => linked().length === 1);
  });

  it('gives up the oldest above its bound, counts them, and sends the rest', async () => {
    await start({}, 60_000);
    collector.refuse = { status: 503 };
    await write(50);
    await until(() => (feeds?.state.traces?.failure ?? null) !== null);
    for (let i = 0; i < 10; i++) await write(30);
    await until(() => lines.some(({ message }) => String(message).includes('the oldest are given up')));
    collector.refuse = null;
    await until(() => (feeds?.state.traces?.lost ?? 0) > 0 && feeds?.state.traces?.failure === null);
    await until(() => servers().length + (feeds?.state.traces?.lost ?? 0) === 350);
    expect(servers().length).toBeGreaterThan(20);
  });

  it('gives up the oldest when the disk is nearly full, so that records of requests have room', async () => {
    await start();
    collector.refuse = { status: 503, headers: { 'retry-after': '300' } };
    for (let i = 0; i < 8; i++) await write(30);
    await until(() => (feeds?.state.traces?.failure ?? null) !== null);
    const before = linked().length;
    expect(before).toBeGreaterThan(4);
    free = 970_000;
    await until(() => linked().length < before - 1);
    free = 1e12;
    collector.refuse = null;
    await until(() => servers().length + (feeds?.state.traces?.lost ?? 0) === 240);
    expect(feeds?.state.traces?.lost).toBeGreaterThan(0);
    expect(servers().length).toBeGreaterThan(30);
  });

  it('is not sent any more: what waited takes no room', async () => {
    await start();
    await write(10);
    await feeds?.finish();
    await removeOutgoing(spool);
    expect(readdirSync(join(spool, 'journal'))).not.toContain(OUTGOING);
    for (let i = 0; i < 5; i++) await write(30);
    expect(journal.segments().length).toBeGreaterThan(2);
    expect(readdirSync(join(spool, 'journal'))).not.toContain(OUTGOING);
  });

  it('leaves out a record that is none, and sends those around it', async () => {
    await start();
    await write(1);
    await new Promise<void>((resolve) => journal.append('{"attempts":7}', resolve));
    await write(1);
    await until(() => feeds?.state.traces?.sent === 2);
    expect(feeds?.state.traces).toMatchObject({ sent: 2, refused: 1 });
  });
});
