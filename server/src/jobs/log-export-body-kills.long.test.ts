/** Exports with bodies whose worker and whose keeper are killed, and whose blob store is away meanwhile: the same bytes in the end. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type ExportsUnderTest, exportsOf, fileOf, mortal, startExports } from '../../test/support/log-exports.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Blobs } from '../store/ports.ts';

const FIELDS = ['id', 'trace_id', 'request', 'response'];
const RECORDS = 18;

let under: ExportsUnderTest;
let mine: ReturnType<typeof exportsOf>;

beforeAll(async () => {
  under = await startExports('sqlite');
  const { a } = under.on.admin;
  mine = exportsOf(under.on.as(a.admin_api_key), a.workspace_id);
  const said = (n: number) => ({
    request: JSON.stringify({ messages: [{ role: 'user', content: `question ${n} `.repeat(40) }] }),
    answer: JSON.stringify({ choices: [{ message: { role: 'assistant', content: `answer ${n}` } }] }),
  });
  await under.write(RECORDS, (n) => ({ trace_id: `trace ${n}`, said: said(n) }));
  await under.keeper.keeper.flush();
}, 60_000);
afterAll(() => under.close());

const bytesOf = async (id: string) => Buffer.from(await (await fileOf(under, await mine.link(id))).arrayBuffer());

async function settled(id: string) {
  const scheduler = under.work();
  const ended = await mine.ended(id);
  await scheduler.close();
  return ended;
}

it.each(['jsonl', 'csv', 'parquet'])(
  '%s is the same after kills between its parts and while bodies cannot be read',
  async (format) => {
    const body = { requested_data: FIELDS, format };
    const { keeper } = under.keeper;
    const answers = () =>
      keeper.flush().then(
        () => true,
        () => false,
      );
    await expect.poll(answers, { timeout: 60_000 }).toBe(true);
    const one = await mine.made(body);
    await mine.start(one);
    expect(await settled(one)).toMatchObject({ status: 'success', records: RECORDS });
    const whole = await bytesOf(one);
    expect(whole.includes('question 17')).toBe(format !== 'parquet');

    const id = await mine.made(body);
    await mine.start(id);
    let refused = 0;
    const get = under.blobs.get.bind(under.blobs);
    const away = vi.spyOn(under.blobs, 'get').mockImplementation(async (tenant, key) => {
      if (deaths === 0 || refused >= 2 || !key.startsWith('logs-')) return get(tenant, key);
      refused += 1;
      throw new SluiceError('unavailable', 'The store of files cannot be reached.');
    });
    let deaths = 0;
    for (; (await mine.read(id)).status === 'in_progress' && deaths < 6; deaths++) {
      const life = mortal(under.on.admin.tables);
      const dead = Promise.withResolvers<void>();
      let puts = 0;
      const blobs: Blobs = {
        put: async (...asked) => {
          const stat = await under.blobs.put(...asked);
          if (++puts <= 1) return stat;
          life.die();
          dead.resolve();
          throw new Error('killed');
        },
        get: (...asked) => under.blobs.get(...asked),
        stat: (...asked) => under.blobs.stat(...asked),
        delete: (...asked) => under.blobs.delete(...asked),
        all: () => under.blobs.all(),
        close: async () => undefined,
      };
      const scheduler = under.work({ tables: life.tables, blobs });
      await Promise.race([dead.promise, mine.ended(id)]);
      await scheduler.close();
      // A keeper that dies over and over is started again later each time.
      if (deaths > 0) continue;
      await under.keeper.kill();
      // What it reads again of the journal goes to chunks again.
      await expect.poll(answers, { timeout: 60_000 }).toBe(true);
    }
    expect(deaths).toBeGreaterThan(1);
    expect(await settled(id)).toMatchObject({ status: 'success', records: RECORDS });
    expect(refused).toBe(2);
    away.mockRestore();
    expect((await bytesOf(id)).equals(whole)).toBe(true);
  },
  180_000,
);
