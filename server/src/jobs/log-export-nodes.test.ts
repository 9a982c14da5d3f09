import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ExportsUnderTest, exportsOf, startExports } from '../../test/support/log-exports.ts';
import type { LogPageQuery, LogSelection, LogStore } from '../telemetry/log-query.ts';

let under: ExportsUnderTest;
beforeAll(async () => {
  under = await startExports('sqlite');
}, 60_000);
afterAll(() => under.close());

it('an export has the requests that another node gives to all a moment after it was started', async () => {
  const { a } = under.on.admin;
  const mine = exportsOf(under.on.as(a.admin_api_key), a.workspace_id);
  await under.write(2);
  const { store } = under.worker();
  let asked = 0;
  const late = new Proxy(store, {
    get: (target, name: keyof LogStore) => {
      if (name !== 'page') return target[name].bind(target as never);
      return async (selection: LogSelection, query: LogPageQuery) => {
        const page = await target.page(selection, query);
        if (++asked > 2) return page;
        if (asked === 2) await under.write(3);
        return { ...page, completeTo: page.completeTo - 5_000 };
      };
    },
  });
  under.work({ store: late });
  const { id } = await mine.run();
  expect((await mine.read(id)).total_records).toBe(5);
});
