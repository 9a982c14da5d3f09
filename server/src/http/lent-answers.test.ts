import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTls } from 'node:https';
import { afterEach, describe, expect, it } from 'vitest';
import { client, closeAll, LONG, serve } from '../../test/support/wire.ts';
import type { WireControl } from '../kernel/wire.ts';
import { isLent } from './buffer-pool.ts';

afterEach(closeAll);

const fixture = (name: string): Buffer => readFileSync(new URL(`./__fixtures__/${name}`, import.meta.url));
const MB = 1024 * 1024;
const BODY = randomBytes(12 * MB);
const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const sent = (_request: unknown, response: { end(body: Buffer): void }): void => response.end(BODY);
const servers = {
  'over TCP': () => serve(createServer(sent)),
  'over TLS': () => serve(createTls({ cert: fixture('test-server.pem'), key: fixture('test-server.key') }, sent)),
};

interface Part {
  readonly bytes: Buffer;
  readonly digest: string;
}

/** Takes the answer; `keeps` says whether its reader keeps a lent part, null: it takes no lent ones. */
async function taken(over: keyof typeof servers, keeps: ((part: number) => boolean) | null) {
  const { port } = await servers[over]();
  const upstream = client({ ca: fixture('test-ca.pem'), trusted: 'upstream.example.com,127.0.0.1' });
  const whole = createHash('sha256');
  const kept: Part[] = [];
  const memory = new Set<ArrayBufferLike>();
  let lent = 0;
  let parts = 0;
  let control: WireControl | null = null;
  const take = (chunk: Buffer) => {
    whole.update(chunk);
    parts += 1;
    if (parts % 7 !== 0) return;
    control?.pause();
    setImmediate(() => control?.resume());
  };
  await new Promise<void>((resolve, reject) => {
    upstream.dispatch(
      {
        method: 'GET',
        origin: `${over === 'over TLS' ? 'https' : 'http'}://127.0.0.1:${port}`,
        path: '/',
        headers: [],
        body: null,
        organisationId: 'o',
        storedCredential: false,
      },
      {
        onHead(_status, _headers, given) {
          control = given;
          given.cut?.(48 * 1024);
        },
        onData(chunk) {
          take(chunk);
          if (isLent(chunk)) lent += 1;
          kept.push({ bytes: chunk, digest: digest(chunk) });
        },
        ...(keeps === null
          ? null
          : {
              onLent(chunk: Buffer) {
                take(chunk);
                lent += 1;
                if (keeps(parts)) {
                  kept.push({ bytes: chunk, digest: digest(chunk) });
                  return false;
                }
                memory.add(chunk.buffer);
                return true;
              },
            }),
        onEnd: resolve,
        onError: reject,
      },
      LONG,
    );
  });
  return { whole: whole.digest('hex'), kept, memory, lent, parts };
}

describe.each(Object.keys(servers) as (keyof typeof servers)[])('a large answer %s', (over) => {
  it('comes whole in memory that is used again, but for what its reader keeps', async () => {
    const { whole, kept, lent } = await taken(over, (part) => part % 5 === 0);
    expect(whole).toBe(digest(BODY));
    expect(lent).toBeGreaterThan(50);
    expect(kept.length).toBeGreaterThan(20);
    for (const part of kept) expect(digest(part.bytes)).toBe(part.digest);
  });

  it('takes no more memory than its reader has in hand', async () => {
    const { whole, memory, lent } = await taken(over, () => false);
    expect(whole).toBe(digest(BODY));
    expect(lent).toBeGreaterThan(50);
    expect(memory.size).toBeLessThan(5);
  });

  it('belongs to a reader that knows nothing of lent memory', async () => {
    const { whole, kept, lent } = await taken(over, null);
    expect(whole).toBe(digest(BODY));
    expect(lent).toBe(0);
    for (const part of kept) expect(digest(part.bytes)).toBe(part.digest);
  });
});
