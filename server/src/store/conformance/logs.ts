import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LogSink, type StoredLog, type TenantContext, unsafeTenant } from '../ports.ts';

export interface LogsUnderTest {
  readonly logs: LogSink;
  /** A second, independent opening of the same store. */
  another(): Promise<LogSink>;
  close(): Promise<void>;
}

const A = unsafeTenant('org-a', null);
const A1 = unsafeTenant('org-a', 'ws-a1');
const B = unsafeTenant('org-b', null);

const kind = (of: string) => expect.objectContaining({ name: 'SluiceError', kind: of });

/** A record with the fields of `telemetry/record.ts` that a sink looks at, and some it must only keep. */
export function logRecord(seq: number, more: Record<string, unknown> = {}): StoredLog {
  return {
    id: `id-${seq}`,
    node: 'node-1',
    seq,
    time: 1_000 + seq,
    organisation_id: 'org-a',
    workspace_id: 'ws-a1',
    trace_id: `trace-${seq}`,
    status: 200,
    metadata: { _user: 'é "quoted"' },
    attempts: [
      {
        target: 'a',
        provider: 'openai',
        status: 200,
        error: null,
        cause: { kind: 'status', code: null, message: 'é' },
        began_ms: 0.125,
        queued_ms: 0,
        duration_ms: 1.25,
      },
    ],
    source: 'llm',
    span_name: 'é "quoted"',
    mode: 'fallback',
    option: 'config.targets[1]',
    retries: 0,
    fallback: true,
    upstream_us: 1_250,
    gateway_us: 125,
    client: { sdk: 'openai-js', sdk_version: '6.1.0', address: 'loopback' },
    body_chunk: '01890000-0000-7000-8000-00000000000c',
    body_slot: 3,
    body_flags: 1,
    model_sent: 'm',
    guards: { input: ['pii'], output: [] },
    ...more,
  };
}

/** Texts of records as the shipper hands them over. */
export const joined = (...texts: string[]) => Buffer.from(texts.map((text) => `${text}\n`).join(''));
const lines = (...records: StoredLog[]) => joined(...records.map((record) => JSON.stringify(record)));
const none = joined();

/** What every adapter of `LogSink` promises. `open` gives an empty store that is not migrated. */
export function logsConformance(name: string, open: () => Promise<LogsUnderTest>): void {
  describe(`logs: ${name}`, () => {
    let store: LogsUnderTest;
    let logs: LogSink;
    let other: LogSink;

    beforeAll(async () => {
      store = await open();
      logs = store.logs;
      other = await store.another();
      await Promise.all([logs.migrate(), other.migrate()]);
      await logs.migrate();
    });
    afterAll(() => store.close());

    it('has no position before the first batch, then that of the last one, by journal', async () => {
      expect(await logs.position('j')).toBeNull();
      await logs.insert('j', none, { segment: '0001', offset: 10 });
      await logs.insert('k', none, { segment: '0009', offset: 2 ** 40 });
      await logs.insert('j', none, { segment: '0002', offset: 0 });
      expect(await other.position('j')).toEqual({ segment: '0002', offset: 0 });
      expect(await other.position('k')).toEqual({ segment: '0009', offset: 2 ** 40 });
    });

    it('stores a record once, however often it arrives, and answers it whole', async () => {
      const records = [logRecord(1), logRecord(2), logRecord(3, { workspace_id: 'ws-a2' })];
      const at = { segment: '0002', offset: 50 };
      const before = await logs.count();
      await logs.insert('j', lines(...records), at);
      await logs.insert('j', lines(...records), at);
      await other.insert('other', lines(records[0] as StoredLog, records[0] as StoredLog, logRecord(4)), at);
      expect(await logs.count()).toBe(before + 4);
      expect(await logs.find(A, 'id-2')).toEqual(records[1]);
      await logs.insert('j', lines(logRecord(1, { node: 'node-2', id: 'id-n2' })), at);
      expect(await logs.count()).toBe(before + 5);
    });

    it('stores nothing of a batch with a line it cannot take, and does not move the position', async () => {
      const before = await logs.count();
      const at = await logs.position('j');
      for (const bad of ['{', '{"node":"n"}', JSON.stringify({ ...logRecord(90), time: null })]) {
        const insert = logs.insert('j', Buffer.concat([lines(logRecord(91)), joined(bad)]), {
          segment: '0009',
          offset: 1,
        });
        await expect(insert).rejects.toMatchObject({ name: 'SluiceError', kind: 'internal' });
      }
      expect(await logs.count()).toBe(before);
      expect(await logs.position('j')).toEqual(at);
    });

    it('takes any text that JSON can carry', async () => {
      const strange = 'nul \u0000 half \ud800 pair 🦥 path C:\\u0000dir';
      const record = logRecord(5, { id: 'strange', error_message: strange, metadata: { 'a\u0000b': '\\' } });
      await logs.insert('j', lines(record), { segment: '0003', offset: 0 });
      const found = await logs.find(A, 'strange');
      expect(found?.error_message).toContain('pair 🦥 path C:\\u0000dir');
    });

    it('stores more records at once than a statement has parameters', async () => {
      const many = Array.from({ length: 3_000 }, (_, i) =>
        logRecord(i, { node: 'bulk', id: `bulk-${i}`, organisation_id: 'org-bulk' }),
      );
      await logs.insert('bulk', lines(...many), { segment: '0001', offset: 1 });
      const found = await logs.list(unsafeTenant('org-bulk', null), { limit: 1 });
      expect(found.total).toBe(3_000);
      expect(found.rows).toEqual([many[2_999]]);
    });

    it('forgets the oldest of one organisation, step by step, and none of another', async () => {
      const old = (seq: number, organisation_id: string | null) =>
        logRecord(seq, { node: 'old', id: `old-${organisation_id}-${seq}`, time: seq, organisation_id });
      const records = [1, 2, 3].map((seq) => old(seq, 'zz-old'));
      await logs.insert('old', lines(...records, old(4, 'zz-older'), old(5, null)), { segment: '1', offset: 1 });
      const left = async (of: string) =>
        (await logs.list(unsafeTenant(of, null), { limit: 9 })).rows.map(({ seq }) => seq);
      expect(await logs.forget('zz-old', 3, 1)).toBe(1);
      expect(await left('zz-old')).toEqual([3, 2]);
      expect(await logs.forget('zz-old', 3, 9)).toBe(1);
      expect(await logs.forget('zz-old', 3, 9)).toBe(0);
      expect([await left('zz-old'), await left('zz-older')]).toEqual([[3], [4]]);
      expect(await logs.forget(null, 6, 9)).toBe(1);
      expect([await logs.organisationAfter('zz-old'), await logs.organisationAfter('zz-older')]).toEqual([
        'zz-older',
        null,
      ]);
    });

    describe('search', () => {
      beforeAll(async () => {
        const mine = { node: 'search', organisation_id: 'org-b' };
        await logs.insert(
          's',
          lines(
            logRecord(1, { ...mine, id: 's1', time: 100, workspace_id: 'ws-b1', trace_id: 't1' }),
            logRecord(2, { ...mine, id: 's2', time: 200, workspace_id: 'ws-b2', trace_id: 't2' }),
            logRecord(3, { ...mine, id: 's3', time: 200, workspace_id: 'ws-b1', trace_id: 't1' }),
            logRecord(4, { ...mine, id: 's4', time: 300, workspace_id: 'ws-b1', trace_id: 't3' }),
            logRecord(5, { ...mine, id: 's5', time: 300, organisation_id: null, workspace_id: null }),
          ),
          { segment: '1', offset: 1 },
        );
      });
      const ids = async (query: Partial<Parameters<LogSink['list']>[1]>, tenant = B) => {
        const { total, rows } = await logs.list(tenant, { limit: 10, ...query });
        return [total, ...rows.map((row) => row.id)];
      };

      it('answers newest first, with the whole number found, in pages', async () => {
        expect(await ids({})).toEqual([4, 's4', 's3', 's2', 's1']);
        expect(await ids({ limit: 2 })).toEqual([4, 's4', 's3']);
        expect(await ids({ limit: 2, offset: 2 })).toEqual([4, 's2', 's1']);
        expect(await ids({ limit: 2, offset: 9 })).toEqual([4]);
      });

      it('takes a time from which (included) to which (excluded), and a trace', async () => {
        expect(await ids({ from: 200 })).toEqual([3, 's4', 's3', 's2']);
        expect(await ids({ from: 200, to: 300 })).toEqual([2, 's3', 's2']);
        expect(await ids({ traceId: 't1' })).toEqual([2, 's3', 's1']);
        expect(await ids({ traceId: "t1' OR 1=1 --" })).toEqual([0]);
      });

      it('shows a tenant its own organisation, and a workspace itself, and nothing else', async () => {
        expect(await ids({}, unsafeTenant('org-b', 'ws-b1'))).toEqual([3, 's4', 's3', 's1']);
        expect(await ids({}, unsafeTenant('org-b', 'ws-a1'))).toEqual([0]);
        expect(await ids({ traceId: 't1' }, A)).toEqual([0]);
        expect(await logs.find(A, 's1')).toBeNull();
        expect(await logs.find(unsafeTenant('org-b', 'ws-b2'), 's1')).toBeNull();
        expect(await logs.find(unsafeTenant('', null), 's5')).toBeNull();
        expect((await logs.find(B, 's1'))?.id).toBe('s1');
      });
    });

    it('is walked from the oldest on, each record once, also those of one millisecond', async () => {
      const many = Array.from({ length: 25 }, (_, i) =>
        logRecord(i, {
          node: `walk-${i % 3}`,
          id: `w${i}`,
          time: 500 + Math.floor(i / 10),
          organisation_id: 'org-walk',
          workspace_id: i % 5 === 0 ? 'ws-other' : 'ws-walk',
          cache: { made_at: 400, saved_micros: 5, saved_ms: 12, similarity: null },
          limits: { usage_at: 500.001, estimate: { cost: 1, tokens: 2, bounded: true } },
          guardrails: [{ slug: 'pg-a', version: null, verdict: false, checks: [{ id: 'c', kinds: ['word 1'] }] }],
        }),
      );
      await logs.insert('walk', lines(...many), { segment: '1', offset: 1 });
      const walk = async (tenant: TenantContext, from: number, to: number, limit: number) => {
        const found: StoredLog[] = [];
        for (let after: StoredLog | null = null; ; ) {
          const page: StoredLog[] = await logs.walk(tenant, { from, to, after, limit });
          found.push(...page);
          after = page.at(-1) ?? null;
          if (page.length < limit || after === null) return found;
        }
      };
      const sorted = [...many].sort((a, b) => a.time - b.time || a.node.localeCompare(b.node) || a.seq - b.seq);
      const all = unsafeTenant('org-walk', null);
      for (const limit of [1, 4, 25, 100]) expect(await walk(all, 0, 10_000, limit)).toEqual(sorted);
      const own = sorted.filter((record) => record.workspace_id === 'ws-walk');
      expect(await walk(unsafeTenant('org-walk', 'ws-walk'), 0, 10_000, 3)).toEqual(own);
      expect(await walk(all, 501, 502, 3)).toEqual(sorted.filter(({ time }) => time === 501));
      expect(await walk(unsafeTenant('org-b', 'ws-walk'), 0, 10_000, 3)).toEqual([]);
    });

    it('two openers store batches at the same time and lose none', async () => {
      const before = await logs.count();
      await Promise.all(
        Array.from({ length: 10 }, (_, i) => {
          const on = i % 2 === 0 ? logs : other;
          const batch = Array.from({ length: 50 }, (_, j) =>
            logRecord(i * 50 + j, { node: 'both', id: `b-${i}-${j}` }),
          );
          return on.insert(`both-${i % 2}`, lines(...batch), { segment: '1', offset: i });
        }),
      );
      expect(await logs.count()).toBe(before + 500);
      expect((await logs.list(A1, { limit: 1 })).rows).toHaveLength(1);
    });

    it('is unavailable after close, and closes twice without harm', async () => {
      const closing = await store.another();
      await closing.ping();
      await closing.close();
      await closing.close();
      await expect(closing.ping()).rejects.toEqual(kind('unavailable'));
      await expect(closing.insert('j', none, { segment: '1', offset: 1 })).rejects.toEqual(kind('unavailable'));
    });
  });
}
