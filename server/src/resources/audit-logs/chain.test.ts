import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { TestClock } from '../../kernel/clock.ts';
import { type Keyring, loadKeyring } from '../../store/keyring.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';
import { type AuditEntry, type AuditTx, appendAudit, systemEntry } from './chain.ts';
import { ChainCheck, type Finding } from './verify.ts';

type AuditRow = Row<'audit_log'>;
type Head = Row<'audit_heads'>;
type Log = { rows: AuditRow[]; head: Head | undefined };

const ORGANISATION = '00000000-0000-7000-8000-000000000001';
const FIRST_KEY = '3q2+7wABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhs=';
const SECOND_KEY = 'kB3xT0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4i5J6k7L8M=';

const ring = (...keys: string[]): Promise<Keyring> =>
  loadKeyring({ masterKey: keys.join(), masterKeyFile: '/nowhere', create: false });

let macs: Keyring;
let other: Keyring;

beforeAll(async () => {
  macs = await ring(FIRST_KEY);
  other = await ring(SECOND_KEY);
});

/** A transaction over a log in memory. */
function txOf(log: Log): AuditTx {
  const tx = {
    find: async () => log.head,
    insert: async (table: string, row: AuditRow | Head) => {
      if (table === 'audit_log') log.rows.push(row as AuditRow);
      else log.head = row as Head;
    },
    update: async (_table: string, _where: unknown, patch: Partial<Head>) => {
      if (log.head) log.head = { ...log.head, ...patch };
      return 1;
    },
  };
  return tx as unknown as AuditTx;
}

async function written(entries: readonly AuditEntry[], by: Macs = macs, log: Log = { rows: [], head: undefined }) {
  for (const entry of entries) await appendAudit(txOf(log), by, entry);
  return log;
}

function examine({ rows, head }: Log, by: Macs = macs): Finding | null {
  const check = new ChainCheck(by);
  for (const row of [...rows].sort((a, b) => (a.seq ?? 0) - (b.seq ?? 0))) {
    const finding = check.next(row);
    if (finding) return finding;
  }
  return check.end(head);
}

const maybe = fc.option(fc.string({ maxLength: 8 }), { nil: null });
const entry: fc.Arbitrary<AuditEntry> = fc.record({
  id: fc.uuid(),
  organisation_id: fc.constant(ORGANISATION),
  workspace_id: maybe,
  timestamp: fc.nat(),
  method: fc.constantFrom('POST', 'PUT', 'DELETE'),
  uri: fc.string({ maxLength: 8 }),
  request_id: fc.string({ maxLength: 8 }),
  request_body: maybe,
  query_params: maybe,
  user_id: maybe,
  user_type: fc.constantFrom('user' as const, 'api_key' as const, 'operator' as const, 'system' as const),
  response_status_code: fc.integer({ min: 100, max: 599 }),
  resource_type: fc.string({ maxLength: 8 }),
  resource_id: maybe,
  action: fc.constantFrom('create', 'update'),
  client_ip: maybe,
  country: maybe,
  request_headers: maybe,
  before: maybe,
  after: maybe,
});
const entries = fc.array(entry, { minLength: 2, maxLength: 6 });
const clone = (log: Log): Log => structuredClone(log);

/** Another value in the place of one, as near to it as can be. */
function nearby(value: unknown, at: number): unknown[] {
  if (typeof value === 'number') return [value + 1, value - 1];
  if (value === null) return ['', '0', 'null'];
  const text = String(value);
  const i = text === '' ? 0 : at % text.length;
  const code = text.charCodeAt(i) || 0;
  const flipped = text === '' ? [] : [text.slice(0, i) + String.fromCharCode(code ^ 1) + text.slice(i + 1)];
  return [
    null,
    `${text} `,
    `${text.slice(0, i)}x${text.slice(i)}`,
    ...flipped,
    text.slice(0, i) + text.slice(i + 1),
  ].filter((near) => near !== value && (typeof near !== 'string' || near.isWellFormed()));
}

describe('the chain of an audit log', () => {
  it('is whole after any writes, and has places from 1 without gaps', async () => {
    await fc.assert(
      fc.asyncProperty(entries, async (list) => {
        const log = await written(list);
        expect(log.rows.map(({ seq }) => seq)).toEqual(list.map((_, i) => i + 1));
        expect(examine(log)).toBeNull();
      }),
    );
    expect(examine({ rows: [], head: undefined })).toBeNull();
  });

  it('shows a change of any one value of any row, and of the head', async () => {
    await fc.assert(
      fc.asyncProperty(entries, fc.nat(), fc.nat(), async (list, pick, at) => {
        const log = await written(list);
        const row = log.rows[pick % log.rows.length];
        if (!row || !log.head) throw new Error('nothing was written');
        for (const name of Object.keys(row) as (keyof AuditRow)[]) {
          for (const near of nearby(row[name], at)) {
            const changed = clone(log);
            Object.assign(changed.rows[pick % log.rows.length] ?? {}, { [name]: near });
            expect(examine(changed), `${name} ${JSON.stringify(row[name])} → ${JSON.stringify(near)}`).not.toBeNull();
          }
        }
        for (const name of ['seq', 'hash', 'organisation_id'] as const) {
          for (const near of nearby(log.head[name], at).filter((value) => value !== null)) {
            expect(examine({ ...log, head: { ...log.head, [name]: near } as Head }), name).not.toBeNull();
          }
        }
      }),
      { numRuns: 40 },
    );
  });

  it('shows rows that were removed, from wherever, and says which', async () => {
    await fc.assert(
      fc.asyncProperty(entries, fc.nat(), fc.integer({ min: 1, max: 6 }), async (list, from, many) => {
        const log = await written(list);
        const start = from % log.rows.length;
        const rows = log.rows.filter((_, i) => i < start || i >= start + many);
        const end = Math.min(start + many, log.rows.length);
        const kind = end === log.rows.length ? 'tail' : 'gap';
        expect(examine({ ...log, rows })).toEqual({ kind, from: start + 1, to: end });
      }),
    );
  });

  it('shows rows that changed places, were inserted, or were taken from another organisation or installation', async () => {
    await fc.assert(
      fc.asyncProperty(entries, entry, fc.nat(), fc.nat(), async (list, extra, a, b) => {
        const log = await written(list);
        const n = log.rows.length;
        const [i, j] = [a % n, b % n];
        const [left, right] = [log.rows[i], log.rows[j]];
        if (!left || !right) throw new Error('no rows');
        if (i !== j) {
          const swapped = clone(log);
          swapped.rows[i] = { ...right, seq: left.seq };
          swapped.rows[j] = { ...left, seq: right.seq };
          expect(examine(swapped)).toMatchObject({ kind: 'altered', seq: Math.min(i, j) + 1 });
        }
        const inserted = clone(log);
        inserted.rows = inserted.rows.map((row) =>
          (row.seq ?? 0) > i + 1 ? { ...row, seq: (row.seq ?? 0) + 1 } : row,
        );
        inserted.rows.push({ ...extra, seq: i + 2, hash: left.hash });
        expect(examine(inserted)).toMatchObject({ kind: 'altered', seq: i + 2 });
        const appended = clone(log);
        appended.rows.push({ ...extra, seq: n + 1, hash: right.hash });
        expect(examine(appended)).toMatchObject({ kind: 'altered', seq: n + 1 });
        const foreign = await written(list, other);
        expect(examine({ rows: [...log.rows.slice(0, -1), ...foreign.rows.slice(-1)], head: log.head })).not.toBeNull();
      }),
    );
  });

  it('cannot be shortened by whoever has no key: every head but the last one is refused', async () => {
    await fc.assert(
      fc.asyncProperty(entries, fc.nat(), async (list, cut) => {
        const log = await written(list);
        const kept = log.rows.slice(0, cut % log.rows.length);
        const last = kept.at(-1);
        const proof = log.head?.hash.split('.').at(-1) ?? '';
        const forged = { organisation_id: ORGANISATION, seq: kept.length, hash: `${last?.hash}.${proof}` };
        expect(examine({ rows: kept, head: forged })).not.toBeNull();
        expect(examine({ rows: kept, head: kept.length === 0 ? log.head : undefined })).not.toBeNull();
      }),
    );
  });

  it('is not made good again by the next write after the head was changed', async () => {
    await fc.assert(
      fc.asyncProperty(entries, entry, async (list, next) => {
        const log = await written(list);
        const kept = log.rows.slice(0, -1);
        const proof = log.head?.hash.split('.').at(-1) ?? '';
        const head = { organisation_id: ORGANISATION, seq: kept.length, hash: `${kept.at(-1)?.hash}.${proof}` };
        const after = await written([next], macs, { rows: [...kept], head });
        expect(examine(after)).toMatchObject({ kind: 'altered', seq: kept.length + 1 });
      }),
    );
  });

  it('survives a new master key, and says which key it misses when the old one is gone', async () => {
    const clock = new TestClock();
    const deed = { workspaceId: null, action: 'rotate', resource: 'api-keys', resourceId: 'x', before: null } as const;
    const one = () => systemEntry(clock, { organisationId: ORGANISATION, ...deed, after: { rotation_mode: 'auto' } });
    const both = await ring(SECOND_KEY, FIRST_KEY);
    const log = await written([one(), one()]);
    await written([one()], both, log);
    expect(log.rows[2]?.hash?.split('.')).toEqual([both.currentId, expect.stringMatching(/^[0-9a-f]{64}$/)]);
    expect(examine(log, both)).toBeNull();
    expect(examine(log, other)).toEqual({ kind: 'unknown_key', seq: 1, keyId: macs.currentId });
    expect(examine(log, macs)).toEqual({ kind: 'unknown_key', seq: 3, keyId: other.currentId });
  });
});
