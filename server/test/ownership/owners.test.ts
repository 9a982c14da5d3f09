import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import { createOwners, type Named, type Owners, purgeOwners } from '../../src/runtime/owners.ts';
import { ENGINES, type JobStore, jobStore } from '../support/job-store.ts';

const DAY = 24 * 60 * 60_000;

describe.each(ENGINES)('owners of objects on %s', (engine) => {
  let store: JobStore;
  let owners: Owners;
  const clock = new TestClock(systemClock.now() - 40 * DAY);

  beforeAll(async () => {
    store = await jobStore(engine, clock);
    owners = createOwners({ tables: store.tables, clock });
  });
  afterAll(async () => {
    await owners?.close();
    await store?.close();
  });

  const tenant = (workspace: string) => systemTenant('o1', workspace);
  const note = (workspace: string, ...objects: Named[]) =>
    owners.note({ tenant: tenant(workspace), account: 'a1', provider: 'openai', createdBy: null, objects });
  const response = (id: string): Named => ({ kind: 'response', id });

  it('notes that come together are all in the store when they resolve, and an object keeps its first owner', async () => {
    const ids = Array.from({ length: 50 }, (_, i) => response(`r${i}`));
    await Promise.all([...ids.map((one) => note('w1', one)), note('w2', response('r0')), note('w1', response('r1'))]);
    expect(await owners.missing(tenant('w1'), 'a1', ids)).toBe(null);
    expect(await owners.missing(tenant('w2'), 'a1', [response('r0')])).toEqual(response('r0'));
    expect(await owners.missing(tenant('w1'), 'a2', [response('r0')])).toEqual(response('r0'));
    expect(await owners.missing(tenant('w1'), 'a1', [{ kind: 'file', id: 'r0' }])).toEqual({ kind: 'file', id: 'r0' });
  });

  it('an address is another workspace’s as it is, encoded, below a folder and within a pattern', async () => {
    const file = (id: string): Named => ({ kind: 'file', id });
    await note('w2', file('s3://bucket/theirs/a.jsonl'), file(encodeURIComponent('gs://bucket/coded/b.jsonl')));
    const foreign = (uri: string) => owners.foreign(tenant('w1'), 'a1', [uri]);
    for (const uri of [
      's3://bucket/theirs/a.jsonl',
      's3://bucket/theirs/',
      's3://bucket/theirs',
      's3://bucket/th*/a.jsonl',
      's3://bucket/theirs/a.json?',
      'gs://bucket/coded/b.jsonl',
      'gs://bucket/coded/',
    ]) {
      expect([uri, await foreign(uri)]).toEqual([uri, uri]);
    }
    for (const uri of ['s3://bucket/their', 's3://bucket/mine/*', 'gs://bucket/coded/b.json']) {
      expect([uri, await foreign(uri)]).toEqual([uri, null]);
    }
    expect(await owners.foreign(tenant('w2'), 'a1', ['s3://bucket/theirs/'])).toBe(null);
  });

  it('responses and their items are forgotten after a month, everything else stays', async () => {
    const [old, item, file] = [response('old'), { kind: 'item', id: 'i' }, { kind: 'file', id: 'f' }] as const;
    await note('w1', old, item, file);
    clock.jump(40 * DAY);
    await note('w1', response('young'));
    await purgeOwners(store.tables);
    const missing = async (one: Named) => (await owners.missing(tenant('w1'), 'a1', [one])) !== null;
    expect([await missing(old), await missing(item), await missing(file), await missing(response('young'))]).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });
});
