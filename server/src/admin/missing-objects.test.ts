/** The 404 of every path that names an object: what to check, and where the right names are listed. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, emptyTables, startAdmin } from '../../test/support/admin.ts';
import { NaiveLogStore } from '../../test/support/naive-log-store.ts';
import { ACTIONS } from '../resources/catalog.ts';
import { KEPT_LOGS } from '../resources/logs/reach.ts';
import { Services } from '../resources/services.ts';
import { pathsOf } from './route.ts';

let admin: AdminHarness;
let served: ReadonlySet<string>;

beforeAll(async () => {
  const services = new Services().provide(KEPT_LOGS, { store: new NaiveLogStore(), days: 30, erased: async () => [] });
  admin = await startAdmin(await emptyTables('sqlite'), { admin: { services } });
  served = new Set(admin.routes.map(([method, path]) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`));
});
afterAll(() => admin.close());

/** Bodies and queries are judged before an object is looked for. */
const BODIES: Readonly<Record<string, object>> = {
  'POST /v1/api-keys/:id/rotate': {},
  'POST /v1/deployments/:id/verify-ping': { code: 'made' },
  'PUT /v2/batches/:id': { status: 'cancelled' },
  'PUT /v1/feedback/:feedbackId': { value: 1 },
  'PUT /v1/logs/exports/:exportId': { filters: {} },
  'POST /v1/guardrails/:guardrailId/invoke': { phase: 'input', text: 'Hello' },
  'PUT /v1/guardrails/:guardrailId/mcp-servers': { mcp_servers: {} },
  'PUT /v1/guardrails/:guardrailId/mcp-servers/:mcpServerId': {},
  'PUT /v1/integrations/:slug/models': { models: [] },
  'PUT /v1/integrations/:slug/workspaces': { workspaces: [] },
  'POST /v1/integrations/:slug/objects/adopt': { workspace: 'ws', kinds: ['file'], all: true },
  'POST /v1/integrations/:slug/test': {},
  'POST /v1/log-destinations/:destinationId/test': {},
  'PUT /v1/admin/users/:userId': { first_name: 'Ada' },
  'POST /v1/admin/workspaces/:workspaceId/users': { users: [{ id: randomUUID(), role: 'member' }] },
  'PUT /v1/admin/workspaces/:workspaceId/users/:userId': { role: 'member' },
};
const QUERIES: Readonly<Record<string, string>> = { 'DELETE /v1/integrations/:slug/models': '?slugs=a' };
/** No key of an organisation has their scopes. */
const OF_WORKSPACES: ReadonlySet<string> = new Set(['guardrails.invoke', 'feedback.update']);
/** What these name is a word, and no object. */
const WORDS = /:(?:type|groupBy|metadataKey)\b/;
/** Nothing lists what these name. */
const UNLISTED: ReadonlySet<string> = new Set(['GET /v1/organisations/:organisationId/members', 'PUT /v2/batches/:id']);

describe('a path that names no object', () => {
  // A key opens none of those for signed-in users; `server/test/oauth/client.test.ts` asks them for what is not there.
  const opened = ACTIONS.filter(({ auth }) => auth !== 'login');
  const named = opened.filter((row) => row.path.includes(':') && !WORDS.test(row.path));

  it('is tried for the whole catalogue', () => expect(named.length).toBeGreaterThan(50));

  it.each(named.map((row) => [`${row.method} ${pathsOf(row)[0]}`, row] as const))(
    '%s says which part to check, and a list that is served',
    async (route, row) => {
      const path = pathsOf(row)[0];
      const target = path.replace(/:\w+/g, () => randomUUID()) + (QUERIES[route] ?? '');
      const { status, body } = await admin.call(row.method, target, {
        key: OF_WORKSPACES.has(row.id) ? admin.a.workspace_api_key : admin.a.admin_api_key,
        ...(row.body === null ? {} : { body: BODIES[route] ?? { name: 'Other' } }),
      });
      const message = String(body?.error?.message);
      expect([status, body.error.code, body.error.param], message).toEqual([404, 'AB08', null]);
      for (const [, name] of path.matchAll(/:(\w+)/g)) expect(message).toContain(name);
      const lists = [...message.matchAll(/GET \/[^ ]+/g)].map(([list]) => list);
      for (const list of lists) expect(served).toContain(list);
      expect(lists.length > 0, message).toBe(!UNLISTED.has(route));
    },
  );
});
