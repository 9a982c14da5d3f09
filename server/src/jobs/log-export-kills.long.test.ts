/** Exports whose process dies, is cancelled, or whose fields are denied between two parts. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../test/support/accounts.ts';
import { type ExportsUnderTest, exportsOf, fileOf, mortal, startExports } from '../../test/support/log-exports.ts';
import type { Blobs } from '../store/ports.ts';
import { EXPORT_FIELD_IDS, type LogExporter } from '../telemetry/log-export.ts';

describe.each(['sqlite', 'postgres'] as const)('an export of logs between two parts, on %s', (engine) => {
  let under: ExportsUnderTest;
  let mine: ReturnType<typeof exportsOf>;

  beforeAll(async () => {
    under = await startExports(engine);
    const { a } = under.on.admin;
    mine = exportsOf(under.on.as(a.admin_api_key), a.workspace_id);
    await under.write(18, (n) => ({ trace_id: `trace ${n}`, metadata: { n: String(n) } }));
  }, 60_000);
  afterAll(() => under.close());

  const bytesOf = async (id: string) => Buffer.from(await (await fileOf(under, await mine.link(id))).arrayBuffer());
  const settle = async (id: string) => {
    const scheduler = under.work();
    const ended = await mine.ended(id);
    await scheduler.close();
    return ended;
  };
  const deny = async (...deniedFields: string[]) => {
    const body = { export_settings: { deniedFields } };
    const answer = await under.on.admin.call('PUT', '/v1/admin/organisation/settings', { body });
    expect(answer.status, answer.text).toBe(200);
  };
  /** Does something after each part is written, before it is stored. */
  const afterPart = (act: (parts: number) => Promise<void> | void): LogExporter => {
    let parts = 0;
    return {
      part: async (...asked) => {
        const part = await under.exporter.part(...asked);
        await act(++parts);
        return part;
      },
      join: (streams) => under.exporter.join(streams),
    };
  };
  const afterPut = (act: (puts: number) => Promise<void> | void): Blobs => {
    let puts = 0;
    return {
      put: async (...asked) => {
        const stat = await under.blobs.put(...asked);
        await act(++puts);
        return stat;
      },
      get: (...asked) => under.blobs.get(...asked),
      stat: (...asked) => under.blobs.stat(...asked),
      delete: (...asked) => under.blobs.delete(...asked),
      all: () => under.blobs.all(),
      close: async () => undefined,
    };
  };

  describe.each(['jsonl', 'csv', 'parquet'])('%s', (format) => {
    const body = { requested_data: EXPORT_FIELD_IDS, format };
    let whole: Buffer;
    beforeAll(async () => {
      const id = await mine.made(body);
      await mine.start(id);
      await settle(id);
      whole = await bytesOf(id);
    });

    it.each(['written', 'stored', 'noted'])(
      'killed when each part is %s it goes on, to the same bytes',
      async (step) => {
        const id = await mine.made(body);
        await mine.start(id);
        let deaths = 0;
        for (; (await mine.read(id)).status === 'in_progress' && deaths < 12; ) {
          const life = mortal(under.on.admin.tables);
          const dead = Promise.withResolvers<void>();
          const die = () => {
            life.die();
            dead.resolve();
            throw new Error('killed');
          };
          const at = deaths % 2 === 0 ? 1 : 2;
          const scheduler = under.work({
            tables: life.tables,
            ...(step === 'written' ? { exporter: afterPart((parts) => (parts === at + 1 ? die() : undefined)) } : {}),
            ...(step === 'stored' ? { blobs: afterPut((puts) => (puts === at + 1 ? die() : undefined)) } : {}),
            ...(step === 'noted'
              ? {
                  exporter: {
                    part: (() => {
                      let parts = 0;
                      return async (...asked) => (parts++ === at ? die() : under.exporter.part(...asked));
                    })() as LogExporter['part'],
                    join: (streams) => under.exporter.join(streams),
                  },
                }
              : {}),
          });
          await Promise.race([dead.promise, mine.ended(id)]);
          await scheduler.close();
          deaths += 1;
        }
        expect(deaths).toBeGreaterThan(1);
        expect(await settle(id)).toMatchObject({ status: 'success', records: 18 });
        expect((await bytesOf(id)).equals(whole)).toBe(true);
      },
    );
  });

  it('fails, naming the field, when a field is denied meanwhile, and leaves no bytes', async () => {
    const id = await mine.made({ requested_data: ['id', 'cost'] });
    await mine.start(id);
    const scheduler = under.work({ exporter: afterPart((parts) => (parts === 2 ? deny('cost') : undefined)) });
    expect(await mine.ended(id)).toMatchObject({
      status: 'failed',
      error: { code: 'forbidden', message: expect.stringContaining('cost'), param: 'requested_data' },
    });
    await scheduler.idle();
    await scheduler.close();
    expect(await mine.read(id)).toMatchObject({ records: 0, bytes: 0 });
    expect((await under.kept()).filter((name) => name.includes(id))).toEqual([]);
    const { call } = under.on.admin;
    refused(await call('POST', mine.at(id, '/start')), 403, 'AB03', 'requested_data');
    refused(await mine.create({ requested_data: ['cost'] }), 403, 'AB03', 'requested_data');
    const draft = await mine.made();
    const changed = await call('PUT', mine.at(draft), { body: { filters: {}, requested_data: ['id', 'cost'] } });
    refused(changed, 403, 'AB03', 'requested_data');
    await deny();
    await mine.start(id);
    expect(await settle(id)).toMatchObject({ status: 'success', error: null });
    const link = await mine.link(id);
    await deny('cost');
    refused(await call('GET', mine.at(id, '/download')), 403, 'AB03', 'requested_data');
    expect((await fileOf(under, link)).status).toBe(403);
    await deny();
  });

  it('fails when its user leaves meanwhile', async () => {
    const { a } = under.on.admin;
    const user_id = await under.on.addUser('member', { [a.workspace_id]: 'member' });
    const own = exportsOf(await under.on.signIn(user_id), a.workspace_id);
    const id = await own.made();
    await own.start(id);
    const users = (status: 'active' | 'archived') =>
      under.on.admin.tables.systemWrite((tx) => tx.update('users', { id: user_id }, { status }));
    const scheduler = under.work({
      exporter: afterPart(async (parts) => {
        if (parts === 2) await users('archived');
      }),
    });
    const ended = await mine.ended(id);
    await scheduler.close();
    expect(ended).toMatchObject({
      status: 'failed',
      error: { code: 'forbidden', message: expect.stringContaining('user') },
    });
  });

  it('is cancelled: nothing of it stays, and it is started anew from the begin', async () => {
    const id = await mine.made();
    await mine.start(id);
    const scheduler = under.work({
      exporter: afterPart(async (parts) => {
        if (parts === 2) await under.on.admin.call('POST', mine.at(id, '/cancel'));
      }),
    });
    expect((await mine.ended(id)).status).toBe('stopped');
    await expect.poll(async () => (await under.kept()).filter((name) => name.includes(id))).toEqual([]);
    await scheduler.idle();
    await scheduler.close();
    await expect.poll(async () => (await under.on.admin.call('POST', mine.at(id, '/start'))).status).toBe(200);
    expect(await settle(id)).toMatchObject({ status: 'success', records: 18 });
  });

  it('one of an organisation is written at a time, and two of a process', async () => {
    const { a, b } = under.on.admin;
    await under.write(6, () => ({ organisation_id: b.organisation_id, workspace_id: b.workspace_id }));
    const other = exportsOf(under.on.as(b.admin_api_key), b.workspace_id);
    const ids = [await mine.made(), await mine.made(), await mine.made()];
    const foreign = await other.made();
    for (const id of ids) await mine.start(id);
    await other.start(foreign);
    const running = new Map<string, number>();
    let most = 0;
    const exporter: LogExporter = {
      ...afterPart(() => undefined),
      async part(selection, plan) {
        const { organisationId } = selection.scope;
        running.set(organisationId, (running.get(organisationId) ?? 0) + 1);
        expect(running.get(organisationId)).toBe(1);
        most = Math.max(most, running.size);
        const part = await under.exporter.part(selection, plan);
        // Long enough for another one to begin.
        await new Promise((resolve) => setTimeout(resolve, 30));
        running.delete(organisationId);
        return part;
      },
    };
    const scheduler = under.work({ exporter });
    for (const id of ids) expect((await mine.ended(id)).status).toBe('success');
    expect((await other.ended(foreign)).status).toBe('success');
    await scheduler.close();
    expect(most).toBe(2);
    expect(a.organisation_id).not.toBe(b.organisation_id);
  });
});
