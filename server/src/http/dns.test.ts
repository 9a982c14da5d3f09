import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { createDns, type DnsRecord, type DnsResolver, parseHostsFile } from './dns.ts';

function scripted(clock: TestClock, script: (name: string) => Promise<readonly DnsRecord[]>) {
  let asked = 0;
  const resolver: DnsResolver = {
    resolve(name, family) {
      if (family === 6) return Promise.resolve([]);
      asked++;
      return script(name);
    },
  };
  return { dns: createDns({ clock, resolver, hostsFile: '/dev/null' }), asked: () => asked };
}

const at = (address: string, ttl = 60): DnsRecord => ({ address, ttl });
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('createDns', () => {
  it('lets one organisation resolve five names at once and sixty-four wait; others are not delayed', async () => {
    const clock = new TestClock();
    const { dns, asked } = scripted(clock, (name) =>
      name.startsWith('slow') ? new Promise(() => {}) : Promise.resolve([at('8.8.8.8')]),
    );
    const results = Array.from({ length: 70 }, (_, k) =>
      dns.lookup(`slow${k}.example.com`, 'a', false).then(
        () => 'ok',
        (error: { kind: string }) => error.kind,
      ),
    );
    await settle();
    expect(asked()).toBe(5);
    expect(await Promise.race(results)).toBe('rate_limit_exceeded');
    expect(await dns.lookup('quick.example.com', 'b', false)).toEqual(['8.8.8.8']);
    await clock.advance(2_000);
    await settle();
    expect(asked()).toBe(11);
    for (let k = 0; k < 14; k++) {
      await clock.advance(2_000);
      await settle();
    }
    const kinds = await Promise.all(results);
    expect(kinds.filter((kind) => kind === 'rate_limit_exceeded')).toHaveLength(1);
    expect(kinds.filter((kind) => kind === 'upstream_unreachable')).toHaveLength(69);
  });

  it('keeps an answer for its time to live, at least 5 s and at most 300 s, and asks once for many callers', async () => {
    const clock = new TestClock();
    for (const [ttl, kept] of [
      [0, 5_000],
      [30, 30_000],
      [86_400, 300_000],
    ] as const) {
      const { dns, asked } = scripted(clock, () => Promise.resolve([at('8.8.8.8', ttl)]));
      await Promise.all([dns.lookup('a.example.com', 'o', false), dns.lookup('a.example.com', 'o', false)]);
      expect(asked()).toBe(1);
      await clock.advance(kept - 1);
      await dns.lookup('a.example.com', 'p', false);
      expect(asked()).toBe(1);
      await clock.advance(2);
      await dns.lookup('a.example.com', 'o', false);
      expect(asked()).toBe(2);
    }
  });

  it('uses an old answer for an hour when the resolver fails, for hosts of the operator only', async () => {
    const clock = new TestClock();
    let broken = false;
    const { dns } = scripted(clock, () =>
      broken ? Promise.reject(new Error('SERVFAIL')) : Promise.resolve([at('8.8.8.8', 5)]),
    );
    await dns.lookup('a.example.com', 'o', true);
    broken = true;
    await clock.advance(3_500_000);
    expect(await dns.lookup('a.example.com', 'o', true)).toEqual(['8.8.8.8']);
    await expect(dns.lookup('a.example.com', 'o', false)).rejects.toMatchObject({ kind: 'upstream_unreachable' });
    await clock.advance(200_000);
    await expect(dns.lookup('a.example.com', 'o', true)).rejects.toMatchObject({ kind: 'upstream_unreachable' });
  });

  it('refuses an answer of more than sixty-four addresses', async () => {
    const clock = new TestClock();
    for (const [count, ok] of [
      [64, true],
      [65, false],
    ] as const) {
      const { dns } = scripted(clock, () => Promise.resolve(Array.from({ length: count }, (_, k) => at(`8.8.${k}.1`))));
      const result = dns.lookup('big.example.com', 'o', false);
      if (ok) expect(await result).toHaveLength(64);
      else await expect(result).rejects.toMatchObject({ kind: 'upstream_unreachable' });
    }
  });

  it('reads the hosts file for names of the operator only', async () => {
    const file = join(tmpdir(), `hosts-${process.pid}`);
    await writeFile(file, '# comment\n127.0.0.9\thost.docker.internal Other # x\n::1 six\nbad line\n10.0.0.1\n');
    const clock = new TestClock();
    const resolver: DnsResolver = { resolve: () => Promise.resolve([]) };
    const dns = createDns({ clock, resolver, hostsFile: file });
    expect(await dns.lookup('host.docker.internal', 'o', true)).toEqual(['127.0.0.9']);
    await expect(dns.lookup('host.docker.internal', 'o', false)).rejects.toMatchObject({
      kind: 'upstream_unreachable',
    });
    expect([...parseHostsFile('127.0.0.1 A a\n127.0.0.2 a').entries()]).toEqual([
      ['a', ['127.0.0.1', '127.0.0.1', '127.0.0.2']],
    ]);
  });
});

describe('a name that cannot be looked up', () => {
  const lookup = (answer: () => Promise<readonly DnsRecord[]>) => {
    const told: unknown[] = [];
    const resolver: DnsResolver = { resolve: answer };
    const notes = (kind: string, fields: unknown) => told.push([kind, fields]);
    const dns = createDns({ clock: new TestClock(), resolver, hostsFile: '/dev/null', notes });
    return { asked: dns.lookup('api.openai.com', 'org', false), told };
  };

  it.each([
    ['has no address', async () => [], 'DNS lookup for api.openai.com failed: it has no address'],
    [
      'has no server that answers',
      async () => {
        throw Object.assign(new Error('queryA ESERVFAIL api.openai.com'), { code: 'ESERVFAIL' });
      },
      'DNS lookup for api.openai.com failed: ESERVFAIL',
    ],
  ])('%s: the error says so, and so does the log', async (_title, answer, message) => {
    const { asked, told } = lookup(answer);
    await expect(asked).rejects.toThrow(message);
    const why = message.split(': ')[1];
    expect(told).toEqual([['dns', { host: 'api.openai.com', organisation_id: 'org', why }]]);
  });
});
