import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresDatabase } from '../../../test/support/postgres.ts';
import { silentLog } from '../../kernel/log.ts';
import type { Tables } from '../ports.ts';
import { openPostgresTables } from './tables.ts';

describe('a queue over two nodes on PostgreSQL', () => {
  let nodes: Tables[] = [];

  beforeAll(async () => {
    const url = await postgresDatabase();
    nodes = await Promise.all([0, 1].map(() => openPostgresTables({ url, log: silentLog })));
    await nodes[0]?.migrate();
    await nodes[1]?.migrate();
    await nodes[0]?.systemWrite((tx) => tx.insert('meta', { key: 'counter', value: '0' }));
  });

  afterAll(async () => {
    for (const node of nodes) await node.close();
  });

  const count = async (node: Tables, attempts: { n: number }, queue: string | readonly string[]) =>
    node.systemWrite(
      async (tx) => {
        attempts.n += 1;
        const row = await tx.find('meta', { key: 'counter' });
        await tx.update('meta', { key: 'counter' }, { value: String(Number(row?.value) + 1) });
      },
      { queue },
    );

  it('lets no transaction undo another: each of 60 writes of one row runs once', async () => {
    const attempts = { n: 0 };
    await Promise.all(Array.from({ length: 60 }, (_, i) => count(nodes[i % 2] as Tables, attempts, 'one')));
    expect(attempts.n).toBe(60);
    expect(await nodes[0]?.systemRead((tx) => tx.find('meta', { key: 'counter' }))).toMatchObject({ value: '60' });
  });

  it('a write of several queues is undone by none of them, whatever the order they are named in', async () => {
    const attempts = { n: 0 };
    const both = (i: number) => (i % 3 === 0 ? ['one', 'two'] : i % 3 === 1 ? ['two', 'one'] : ['two']);
    await Promise.all(Array.from({ length: 60 }, (_, i) => count(nodes[i % 2] as Tables, attempts, both(i))));
    expect(attempts.n).toBe(60);
  });

  it('runs the writes of a node in the order they came, and does not wait for another queue', async () => {
    const [node] = nodes as [Tables];
    const seen: string[] = [];
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const write = (name: string, queue: string, until?: Promise<void>) =>
      node.systemWrite(
        async () => {
          seen.push(`${name} begins`);
          await until;
          seen.push(`${name} ends`);
        },
        { queue },
      );
    const queued = [write('a', 'three', held), write('b', 'three'), write('c', 'three')];
    await write('other', 'four');
    release();
    await Promise.all(queued);
    expect(seen.filter((line) => !line.startsWith('other'))).toEqual([
      'a begins',
      'a ends',
      'b begins',
      'b ends',
      'c begins',
      'c ends',
    ]);
    expect(seen.indexOf('other ends')).toBeLessThan(seen.indexOf('a ends'));
  });

  it('goes on after a write that failed: its lock is given back', async () => {
    const counted = () => nodes[1]?.systemRead((tx) => tx.find('meta', { key: 'counter' }));
    const before = Number((await counted())?.value);
    const failing = nodes[0]?.systemWrite(() => Promise.reject(new Error('no')), { queue: 'two' });
    await expect(failing).rejects.toThrow('no');
    await count(nodes[1] as Tables, { n: 0 }, 'two');
    expect(await counted()).toMatchObject({ value: String(before + 1) });
  });
});
