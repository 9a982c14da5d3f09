import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { postgresDatabase } from '../../test/support/postgres.ts';
import { systemTenant } from '../auth/tenant.ts';
import { type Clock, systemClock, TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { Secret } from '../kernel/secret.ts';
import { organisationRow } from './conformance/rows.ts';
import { hasMasterKey, joinUnambiguously, openVault, type VaultOptions } from './envelope.ts';
import { loadKeyring } from './keyring.ts';
import type { Tables } from './ports.ts';
import { openPostgresTables } from './postgres/tables.ts';
import { openSqliteTables } from './sqlite/tables.ts';

const SEALER = fileURLToPath(new URL('../../test/support/children/seal-once.ts', import.meta.url));
const fresh = () => randomBytes(32).toString('base64');
const MASTER = fresh();
const place = { table: 'integrations', column: 'key', row: 'row-1' };
const unavailable = { name: 'SluiceError', kind: 'unavailable' };

interface Store {
  readonly location: string;
  open(): Promise<Tables>;
  close(): Promise<void>;
}

const ENGINES: Record<'sqlite' | 'postgres', () => Promise<Store>> = {
  async sqlite() {
    const dir = mkdtempSync(join(tmpdir(), 'sluice-vault-'));
    const file = join(dir, 'control.db');
    const close = async () => rmSync(dir, { recursive: true, force: true });
    return { location: file, open: () => openSqliteTables({ file, log: silentLog }), close };
  },
  async postgres() {
    const url = await postgresDatabase();
    return { location: url, open: () => openPostgresTables({ url, log: silentLog }), close: async () => undefined };
  },
};

describe.each(['sqlite', 'postgres'] as const)('vault on %s', (engine) => {
  let store: Store;
  let tables: Tables;
  let organisations = 0;
  beforeAll(async () => {
    store = await ENGINES[engine]();
    tables = await store.open();
    await tables.migrate();
  });
  afterAll(async () => {
    await tables?.close();
    await store?.close();
  });

  const vaultWith = async (masterKey: string, options: Partial<VaultOptions> = {}) => {
    const keyring = await loadKeyring({ masterKey, masterKeyFile: '', create: false });
    return { keyring, vault: openVault({ keyring, tables, clock: systemClock, ...options }) };
  };

  /** A new organisation in the store. */
  async function tenant() {
    const id = `org-${engine}-${++organisations}`;
    await tables.systemWrite((tx) => tx.insert('organisations', organisationRow(id)));
    return systemTenant(id);
  }

  const dataKeys = (organisationId: string) =>
    tables.systemRead((tx) => tx.list('data_keys', { where: { organisation_id: organisationId } }));

  it('opens what it sealed, whatever the text, also after a restart', async () => {
    const { vault } = await vaultWith(MASTER);
    const org = await tenant();
    const again = (await vaultWith(MASTER)).vault;
    for (const value of ['', 'sk-1', 'ü☃\0\n', 'x'.repeat(100_000)]) {
      const sealed = await vault.seal(org, place, new Secret(value));
      expect(sealed).toMatch(/^slc1(\.[\w-]+){2}\.[\w-]{16}\.[\w-]*\.[\w-]{22}$/);
      expect((await again.open(org, place, sealed)).reveal()).toBe(value);
    }
    expect(await dataKeys(org.organisationId)).toHaveLength(1);
  });

  it('uses one data key per organisation, and nothing of it or of a value stands in the store', async () => {
    const { vault } = await vaultWith(MASTER);
    const [a, b] = [await tenant(), await tenant()];
    const value = 'sk-very-secret-value';
    const sealed = [await vault.seal(a, place, new Secret(value)), await vault.seal(b, place, new Secret(value))];
    const ids = sealed.map((text) => text.split('.')[2]);
    expect(new Set(ids).size).toBe(2);
    const rows = JSON.stringify([await dataKeys(a.organisationId), await dataKeys(b.organisationId), sealed]);
    for (const form of ['utf8', 'base64', 'base64url', 'hex'] as const) {
      expect(rows).not.toContain(Buffer.from(value).toString(form).slice(4, 20));
    }
  });

  it('makes one data key however many calls and nodes need the first one at once', async () => {
    const org = await tenant();
    const other = await store.open();
    const nodes = [
      (await vaultWith(MASTER)).vault,
      (await vaultWith(MASTER)).vault,
      (await vaultWith(MASTER, { tables: other })).vault,
    ];
    const sealed = await Promise.all(
      Array.from({ length: 30 }, (_, i) => nodes[i % 3]?.seal(org, place, new Secret(`value ${i}`))),
    );
    expect(await dataKeys(org.organisationId)).toHaveLength(1);
    for (const [i, text] of sealed.entries()) {
      expect((await nodes[(i + 1) % 3]?.open(org, place, text ?? ''))?.reveal()).toBe(`value ${i}`);
    }
    await other.close();
  });

  it('makes one data key when several processes need the first one at once', async () => {
    const org = await tenant();
    const children = Array.from({ length: 3 }, () =>
      spawn(process.execPath, [SEALER, engine, store.location, MASTER, org.organisationId], {
        stdio: ['pipe', 'pipe', 'inherit'],
      }),
    );
    await Promise.all(children.map((child) => once(child.stdout, 'data')));
    const texts = children.map((child) => readText(child.stdout));
    for (const child of children) child.stdin.end('go\n');
    const { vault } = await vaultWith(MASTER);
    for (const sealed of await Promise.all(texts)) {
      expect((await vault.open(org, place, sealed)).reveal()).toBe('sk-shared');
    }
    expect(await dataKeys(org.organisationId)).toHaveLength(1);
  });

  it('seals inside a write transaction after ensureKey, without touching the store', async () => {
    const { vault } = await vaultWith(MASTER);
    const org = await tenant();
    await vault.ensureKey(org.organisationId);
    const sealed = await tables.write(org, async () => await vault.seal(org, place, new Secret('inside')));
    expect((await vault.open(org, place, sealed)).reveal()).toBe('inside');
  });

  it('never waits for ever inside a write transaction when ensureKey was forgotten, and the next attempt works', async () => {
    const { vault } = await vaultWith(MASTER, { patienceMs: 300 });
    const org = await tenant();
    const attempt = () => tables.write(org, async () => await vault.seal(org, place, new Secret('inside')));
    // PostgreSQL has several writers, so there the nested write goes through at once.
    if (engine === 'sqlite') await expect(attempt()).rejects.toMatchObject(unavailable);
    await expect
      .poll(
        () =>
          attempt().then(
            () => true,
            () => false,
          ),
        { timeout: 5_000 },
      )
      .toBe(true);
    expect(await dataKeys(org.organisationId)).toHaveLength(1);
  });

  it('makes a new data key after so many uses, and still opens what the former one sealed', async () => {
    const { vault } = await vaultWith(MASTER, { maxUses: 10 });
    const org = await tenant();
    const sealed: string[] = [];
    for (let i = 0; i < 25; i++) sealed.push(await vault.seal(org, place, new Secret(String(i))));
    expect(await dataKeys(org.organisationId)).toHaveLength(3);
    const uses = Object.values(Object.groupBy(sealed, (text) => text.split('.')[2] ?? '')).map((of) => of?.length);
    expect(uses).toEqual([10, 10, 5]);
    const { vault: later } = await vaultWith(MASTER);
    for (const [i, text] of sealed.entries()) {
      expect((await later.open(org, place, text)).reveal()).toBe(String(i));
    }
  });

  it('rotates the master key: both open meanwhile, and the old one can go when its count is 0', async () => {
    const [old, now] = [fresh(), fresh()];
    const before = await vaultWith(old);
    const orgs = [await tenant(), await tenant(), await tenant()];
    const sealed = await Promise.all(orgs.map((org) => before.vault.seal(org, place, new Secret(org.organisationId))));
    const both = await vaultWith(`${now}\n${old}`);
    const late = await tenant();
    const lateSealed = await both.vault.seal(late, place, new Secret('late'));
    const countOf = async (id: string) => (await both.vault.status()).find((use) => use.kekId === id)?.dataKeys;
    expect(await countOf(before.keyring.currentId)).toBe(3);
    expect(await countOf(both.keyring.currentId)).toBe(1);

    expect(await both.vault.rewrap(2)).toBe(2);
    for (const [i, org] of orgs.entries()) {
      expect((await both.vault.open(org, place, sealed[i] ?? '')).reveal()).toBe(org.organisationId);
    }
    expect(await both.vault.rewrap(100)).toBe(1);
    expect(await both.vault.rewrap(100)).toBe(0);
    expect(await countOf(before.keyring.currentId)).toBe(0);

    const after = await vaultWith(now);
    for (const [i, org] of orgs.entries()) {
      expect((await after.vault.open(org, place, sealed[i] ?? '')).reveal()).toBe(org.organisationId);
    }
    expect((await after.vault.open(late, place, lateSealed)).reveal()).toBe('late');
    const gone = await vaultWith(old);
    await expect(gone.vault.open(orgs[0] ?? late, place, sealed[0] ?? '')).rejects.toMatchObject(unavailable);
  });
});

describe('vault', () => {
  let store: Store;
  let tables: Tables;
  const a = systemTenant('org-a');
  const b = systemTenant('org-b');
  beforeAll(async () => {
    store = await ENGINES.sqlite();
    tables = await store.open();
    await tables.migrate();
    for (const id of ['org-a', 'org-b']) {
      await tables.systemWrite((tx) => tx.insert('organisations', organisationRow(id)));
    }
  });
  afterAll(async () => {
    await tables?.close();
    await store?.close();
  });
  const open = async (clock: Clock = systemClock, over: Tables = tables) =>
    openVault({
      keyring: await loadKeyring({ masterKey: MASTER, masterKeyFile: '', create: false }),
      tables: over,
      clock,
    });

  it('accepts a store without data keys at the start', async () => {
    const empty = await ENGINES.sqlite();
    const fresh = await empty.open();
    await fresh.migrate();
    await (await open(systemClock, fresh)).verify();
    await fresh.close();
    await empty.close();
  });

  it('stops the start of a node that lacks a master key of the store, before and after something was sealed', async () => {
    const other = await ENGINES.sqlite();
    onTestFinished(() => other.close());
    const tables = await other.open();
    onTestFinished(() => tables.close());
    await tables.migrate();
    await tables.systemWrite((tx) => tx.insert('organisations', organisationRow('org-a')));
    const node = async (masterKey: string) => {
      const keyring = await loadKeyring({ masterKey, masterKeyFile: '', create: false });
      return { keyring, vault: openVault({ keyring, tables, clock: systemClock }) };
    };
    const [first, second, mixed] = [fresh(), fresh(), fresh()];
    expect(await hasMasterKey(tables)).toBe(false);
    const one = await node(first);
    await one.vault.verify();
    expect(await hasMasterKey(tables)).toBe(true);
    const two = await node(second);
    const lacking = (needs: string, has: string) => ({
      ...unavailable,
      message: `The store was sealed with master key ${needs}, which this node does not have (it has ${has}). Nodes of one store share their master keys: put them into SLUICE_MASTER_KEY or SLUICE_MASTER_KEY_FILE.`,
    });
    await expect(two.vault.verify()).rejects.toMatchObject(lacking(one.keyring.currentId, two.keyring.currentId));
    await one.vault.seal(a, place, new Secret('x'));
    await expect(two.vault.verify()).rejects.toMatchObject(lacking(one.keyring.currentId, two.keyring.currentId));

    // A new key in front: nodes that have only the old one are refused from then on, and the old one is still needed.
    const both = await node(`${second},${first}`);
    await both.vault.verify();
    await expect(one.vault.verify()).rejects.toMatchObject(lacking(two.keyring.currentId, one.keyring.currentId));
    await expect(two.vault.verify()).rejects.toMatchObject(lacking(one.keyring.currentId, two.keyring.currentId));
    expect(await both.vault.rewrap(10)).toBe(1);
    await two.vault.verify();
    // One key that opens some is not enough.
    await tables.systemWrite((tx) => tx.insert('organisations', organisationRow('org-b')));
    const three = await node(mixed);
    await three.vault.seal(b, place, new Secret('y'));
    await expect(two.vault.verify()).rejects.toMatchObject(lacking(three.keyring.currentId, two.keyring.currentId));
  });

  it('refuses an envelope with any character changed, cut off or added', async () => {
    const vault = await open();
    const sealed = await vault.seal(a, place, new Secret('sk-0123456789'));
    for (let i = 0; i < sealed.length; i++) {
      for (const other of ['A', 'B', '.', '=', 'é']) {
        if (sealed[i] === other) continue;
        const changed = sealed.slice(0, i) + other + sealed.slice(i + 1);
        await expect(vault.open(a, place, changed), `${i} ${other}`).rejects.toMatchObject(unavailable);
      }
      // The neighbour in the alphabet differs in the spare bits of a last character.
      const neighbour = String.fromCharCode(sealed.charCodeAt(i) ^ 1);
      await expect(vault.open(a, place, sealed.slice(0, i) + neighbour + sealed.slice(i + 1))).rejects.toMatchObject(
        unavailable,
      );
      await expect(vault.open(a, place, sealed.slice(0, i))).rejects.toMatchObject(unavailable);
    }
    for (const changed of [`${sealed}A`, `${sealed}.`, `${sealed}.A`, ` ${sealed}`, `${sealed}\n`, 'sk-plain', '']) {
      await expect(vault.open(a, place, changed)).rejects.toMatchObject(unavailable);
    }
    expect((await vault.open(a, place, sealed)).reveal()).toBe('sk-0123456789');
  });

  it('refuses an envelope moved to another row, column, table or organisation, or with ids or parts of another', async () => {
    const vault = await open();
    const sealed = await vault.seal(a, place, new Secret('one'));
    const elsewhere = await vault.seal(b, place, new Secret('two'));
    const second = await vault.seal(a, place, new Secret('three'));
    const refused = (tenant: typeof a, at: typeof place, text: string) =>
      expect(vault.open(tenant, at, text)).rejects.toMatchObject(unavailable);
    await refused(a, { ...place, row: 'row-2' }, sealed);
    await refused(a, { ...place, column: 'secret_configurations' }, sealed);
    await refused(a, { ...place, table: 'virtual_keys' }, sealed);
    await refused(a, { table: 'integration', column: 'skey', row: 'row-1' }, sealed);
    await refused(b, place, sealed);
    await refused(a, place, elsewhere);
    const parts = [sealed, elsewhere, second].map((text) => text.split('.'));
    for (let i = 1; i < 6; i++) {
      for (const from of [parts[1], parts[2]]) {
        const mixed = [...(parts[0] ?? [])];
        if (mixed[i] === from?.[i]) continue;
        mixed[i] = from?.[i] ?? '';
        await refused(a, place, mixed.join('.'));
      }
    }
  });

  it('joins place and owner so that no two of them give the same bytes', () => {
    fc.assert(
      fc.property(fc.array(fc.string(), { maxLength: 5 }), fc.array(fc.string(), { maxLength: 5 }), (one, two) => {
        const same = one.length === two.length && one.every((part, i) => part === two[i]);
        expect(joinUnambiguously(one).equals(joinUnambiguously(two))).toBe(same);
      }),
    );
    expect(joinUnambiguously(['ab', 'c']).equals(joinUnambiguously(['a', 'bc']))).toBe(false);
  });

  it('repeats no IV over 100,000 values', async () => {
    const vault = await open();
    const ivs = new Set<string>();
    const secret = new Secret('x');
    for (let i = 0; i < 100_000; i++) ivs.add((await vault.seal(a, place, secret)).split('.')[3] ?? '');
    expect(ivs.size).toBe(100_000);
  });

  it('an unknown data key or master key is an outage of that object, never plain text', async () => {
    const vault = await open();
    const sealed = await vault.seal(b, place, new Secret('x'));
    await tables.systemWrite((tx) =>
      tx.update('data_keys', { organisation_id: 'org-b' }, { kek_id: '0123456789abcdef' }),
    );
    const later = await open();
    await expect(later.open(b, place, sealed)).rejects.toMatchObject(unavailable);
    await expect(later.seal(b, place, new Secret('y'))).rejects.toMatchObject(unavailable);
    const other = await later.seal(a, place, new Secret('of a'));
    expect((await later.open(a, place, other)).reveal()).toBe('of a');
    await tables.systemWrite((tx) => tx.remove('data_keys', { organisation_id: 'org-b' }));
    await expect(later.open(b, place, sealed)).rejects.toMatchObject(unavailable);
  });

  it('keeps an unwrapped data key for at most five minutes, then reads it again', async () => {
    const clock = new TestClock();
    let reads = 0;
    const counting: Tables = new Proxy(tables, {
      get(target, name) {
        if (name === 'systemRead') reads++;
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    const vault = await open(clock, counting);
    const sealed = await vault.seal(a, place, new Secret('x'));
    for (let i = 0; i < 5; i++) {
      await vault.open(a, place, sealed);
      await vault.seal(a, place, new Secret('y'));
    }
    expect(reads).toBe(1);
    await clock.advance(3 * 60_000 - 1);
    await vault.ensureKey('org-a');
    expect(reads).toBe(1);
    await clock.advance(2 * 60_000 + 1);
    expect((await vault.open(a, place, sealed)).reveal()).toBe('x');
    expect(reads).toBe(2);
    await clock.advance(4 * 60_000);
    await vault.ensureKey('org-a');
    // Two minutes from here the key must still be at hand without a read.
    const before = reads;
    await clock.advance(2 * 60_000 - 1);
    await vault.seal(a, place, new Secret('z'));
    expect(reads).toBe(before);
  });

  it('shows nothing of a value in the error of a failed opening', async () => {
    const vault = await open();
    const sealed = await vault.seal(a, place, new Secret('sk-very-secret'));
    const error = await vault.open(b, place, sealed).catch((reason: unknown) => reason);
    expect(JSON.stringify(error) + String(error)).not.toContain('sk-very');
    expect(String((error as Error).message)).not.toContain(sealed);
  });
});
