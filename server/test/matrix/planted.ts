/** Routes that break the rules on purpose, behind the store's back, to see that the matrix finds each kind of leak. */
import { z } from 'zod';
import type { AdminRow } from '../../src/admin/route.ts';
import { isUuid } from '../../src/resources/fields.ts';
import { notFound } from '../../src/resources/look-up.ts';
import { action, type Call } from '../../src/resources/resource.ts';
import type { SystemTx, Tables } from '../../src/store/ports.ts';
import type { Row } from '../../src/store/schema.ts';

type Found = Row<'configs'> | undefined;
type Leak = (call: Call, tx: SystemTx, found: Found, own: boolean) => Promise<Record<string, unknown>>;

/** What a route does wrong with a config of any tenant. */
const LEAKS: Readonly<Record<string, Leak>> = {
  'tells that a foreign object exists': async (_call, _tx, found, own) => {
    if (found && !own) throw new Error('this cannot be');
    throw notFound();
  },
  'shows a foreign object': async (_call, _tx, found) => {
    if (!found) throw notFound();
    return { name: found.name };
  },
  'counts foreign objects': async ({ tenant }, tx) => {
    const where = { organisation_id: tenant.organisationId };
    const data = await tx.list('configs', { where });
    return { total: await tx.count('configs'), data: data.map(({ id }) => id) };
  },
  'changes a foreign object and denies it': async (_call, tx, found, own) => {
    if (found && !own) await tx.update('configs', { id: found.id }, { status: 'archived' });
    throw notFound();
  },
};

export const LEAK_NAMES = Object.keys(LEAKS);
export const leakId = (name: string) => `planted.${LEAK_NAMES.indexOf(name)}`;

export function plantedRows(tables: Pick<Tables, 'systemWrite'>): AdminRow[] {
  return Object.entries(LEAKS).map(([name, leak]) =>
    action({
      id: leakId(name),
      method: 'GET',
      path: `/configs/:slug/${leakId(name)}`,
      prefixes: ['/v1'],
      summary: name,
      tag: 'Planted',
      auth: 'key_or_login',
      scopes: ['configs.read'],
      tenant: 'workspace_optional',
      params: z.strictObject({ slug: z.string() }),
      query: null,
      body: null,
      response: z.looseObject({}),
      writes: false,
      audit: null,
      run: async (call) => {
        const { slug } = call.params;
        let refused: unknown = null;
        const answer = await tables.systemWrite(async (tx) => {
          const found = await tx.find('configs', isUuid(slug) ? { id: slug } : { slug });
          // The error is thrown outside, so that what was written stays.
          return leak(call, tx, found, found?.organisation_id === call.tenant.organisationId).catch(
            (error: unknown) => {
              refused = error;
              return {};
            },
          );
        });
        if (refused !== null) throw refused;
        return answer;
      },
    }),
  );
}
