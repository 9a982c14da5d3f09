/**
 * The largest usage limits. Counters hold up to 2^52 micro-dollars, so every place that takes an amount refuses more than that, and
 * keeps the largest one as it was given. A new route that takes an amount is missing here until it has a row.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { limitSpec } from '../../src/limits/ledger/limit-spec.ts';
import { type AdminHarness, emptyTables, startAdmin } from '../support/admin.ts';

const LARGEST = { cost: 4_503_599_627, tokens: 1_000_000_000_000, requests: 1_000_000_000_000 };
type Type = keyof typeof LARGEST;
const SAYS = 'must be at most 4503599627 for type cost (US dollars), and 1000000000000 for other types';

interface Limit {
  readonly credit_limit: number;
  readonly type?: Type;
  readonly alert_threshold?: number;
}

/** Where a limit is sent: a way through its route, the body around the limit, and the path of the limit in it. */
interface Place {
  readonly path: () => string;
  readonly body: (limit: Limit) => object;
  readonly at: string;
  readonly types?: readonly Type[];
}

let admin: AdminHarness;
const made: Record<string, string> = {};
let count = 0;
const fresh = () => `largest-${count++}`;

const policy = (limit: Limit) => ({
  ...limit,
  conditions: [{ key: 'metadata._user', value: '*' }],
  group_by: [{ key: 'metadata._user' }],
});
const one = (more: () => object) => (limit: Limit) => ({ ...more(), usage_limits: limit });
const list = (more: () => object) => (limit: Limit) => ({ ...more(), usage_limits: [limit] });
const account = () => ({ name: fresh(), key: 'sk-x', note: 'x' });
const inWorkspace = () => ({ workspace_id: admin.a.workspace_id });
const range = () => {
  const now = Date.now();
  return { start_time: new Date(now - 3_600_000).toISOString(), end_time: new Date(now).toISOString() };
};
const workspaces: Pick<Place, 'body' | 'at'> = { body: list(() => ({ name: fresh() })), at: 'usage_limits[0].' };
const changedWorkspace: Place = { path: () => made.workspace ?? '', body: list(() => ({})), at: 'usage_limits[0].' };

/** Every operation whose body has a `credit_limit`. */
const PLACES: Readonly<Record<string, Place>> = {
  'post /v1/admin/workspaces': { path: () => '/v1/admin/workspaces', ...workspaces },
  'post /v2/workspaces': { path: () => '/v2/workspaces', ...workspaces },
  'put /v1/admin/workspaces/{workspaceId}': {
    ...changedWorkspace,
    path: () => `/v1/admin/workspaces/${made.workspace}`,
  },
  'put /v2/workspaces/{workspaceId}': { ...changedWorkspace, path: () => `/v2/workspaces/${made.workspace}` },
  'post /v1/api-keys/{type}/{subType}': {
    path: () => '/v1/api-keys/workspace/service',
    body: one(() => ({ name: fresh(), ...inWorkspace(), scopes: ['completions.write'] })),
    at: 'usage_limits.',
  },
  'put /v1/api-keys/{id}': { path: () => `/v1/api-keys/${made.key}`, body: one(() => ({})), at: 'usage_limits.' },
  'put /v1/integrations/{slug}/workspaces': {
    path: () => '/v1/integrations/largest/workspaces',
    body: (limit) => ({ workspaces: [{ id: admin.a.workspace_id, enabled: true, usage_limits: [limit] }] }),
    at: 'workspaces[0].usage_limits[0].',
  },
  'post /v1/policies/usage-limits': {
    path: () => '/v1/policies/usage-limits',
    body: (limit) => ({ ...policy(limit), ...inWorkspace() }),
    at: '',
    types: ['cost', 'tokens', 'requests'],
  },
  'put /v1/policies/usage-limits/{id}': {
    path: () => `/v1/policies/usage-limits/${made.policy}`,
    body: ({ type: _, ...limit }) => limit,
    at: '',
    types: ['cost'],
  },
  'post /v1/policies/usage-limits/simulate': {
    path: () => '/v1/policies/usage-limits/simulate',
    body: (limit) => ({ policy: policy(limit), ...inWorkspace(), ...range() }),
    at: 'policy.',
  },
  'post /v1/providers': {
    path: () => '/v1/providers',
    body: one(() => ({ name: fresh(), integration_id: 'largest', ...inWorkspace() })),
    at: 'usage_limits.',
  },
  'put /v1/providers/{slug}': {
    path: () => `/v1/providers/${made.provider}`,
    body: one(() => ({})),
    at: 'usage_limits.',
  },
  'post /v1/virtual-keys': {
    path: () => '/v1/virtual-keys',
    body: one(() => ({ ...account(), provider: 'openai', ...inWorkspace() })),
    at: 'usage_limits.',
  },
  'put /v1/virtual-keys/{slug}': {
    path: () => `/v1/virtual-keys/${made.virtualKey}`,
    body: one(() => ({})),
    at: 'usage_limits.',
  },
};

describe('the largest usage limit', () => {
  beforeAll(async () => {
    admin = await startAdmin(await emptyTables('sqlite'));
    const make = async (path: string, body: object) => {
      const answer = await admin.call('POST', path, { body });
      expect(answer.status, answer.text).toBe(200);
      return answer.body;
    };
    await make('/v1/integrations', { name: 'Largest', slug: 'largest', ai_provider_id: 'openai', key: 'sk-x' });
    made.workspace = (await make('/v1/admin/workspaces', { name: 'Changed' })).id;
    made.key = (await make('/v1/api-keys/workspace/service', { name: 'k', ...inWorkspace(), scopes: [] })).id;
    const limit: Limit = { type: 'cost', credit_limit: 1 };
    made.policy = (await make('/v1/policies/usage-limits', { ...policy(limit), ...inWorkspace() })).id;
    const provider = { name: 'p', slug: 'changed-p', integration_id: 'largest', ...inWorkspace() };
    made.provider = (await make('/v1/providers', provider)).slug;
    made.virtualKey = (await make('/v1/virtual-keys', { ...account(), provider: 'openai', ...inWorkspace() })).slug;
  });

  afterAll(async () => {
    await admin?.close();
    await admin?.tables.close();
  });

  const send = (name: string, place: Place, limit: Limit) =>
    admin.call(name.split(' ')[0]?.toUpperCase() ?? '', place.path(), { body: place.body(limit) });

  it('is known of every operation whose body has a credit_limit', () => {
    expect(Object.keys(PLACES).sort()).toEqual(takingAmounts());
  });

  describe.each(Object.entries(PLACES))('%s', (name, place) => {
    const types = place.types ?? ['cost', 'tokens'];

    it.each(types)('takes the largest limit of %s, and counts exactly as much', async (type) => {
      const limit = { credit_limit: LARGEST[type], type, alert_threshold: LARGEST[type] - 1 };
      const answer = await send(name, place, limit);
      // Records to simulate on are not there: that is asked after the policy was judged.
      expect([200, name.endsWith('simulate') ? 501 : 200], answer.text).toContain(answer.status);
      const owner = { kind: 'key', id: 'x', label: 'x', at: 0 } as const;
      if (type !== 'requests')
        expect(limitSpec(owner, { ...limit, type })?.limit).toBe(LARGEST[type] * (type === 'cost' ? 1_000_000 : 1));
    });

    it.each(types)('refuses more of %s with 400, which names the field and the largest', async (type) => {
      for (const above of [LARGEST[type] + 1, LARGEST[type] * 2, 2 ** 53]) {
        const limits: [string, Limit][] = [
          ['credit_limit', { credit_limit: above, type }],
          ['alert_threshold', { credit_limit: 2, type, alert_threshold: above }],
        ];
        for (const [field, limit] of limits) {
          const answer = await send(name, place, limit);
          expect([answer.status, answer.body.error?.param], answer.text).toEqual([400, place.at + field]);
          expect(answer.body.error.message).toContain(SAYS);
        }
      }
    });
  });

  it('holds for objects without a type too: they are of cost', async () => {
    const answer = await admin.call('PUT', `/v1/api-keys/${made.key}`, {
      body: { usage_limits: { credit_limit: LARGEST.cost + 1 } },
    });
    expect([answer.status, answer.body.error?.param]).toEqual([400, 'usage_limits.credit_limit']);
  });
});

type Node = { readonly [name: string]: unknown };
const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null;

/** `put /v1/…` of every operation of the OpenAPI document whose body has a field `credit_limit`, however deep. */
function takingAmounts(): string[] {
  const document: unknown = JSON.parse(readFileSync('docs/openapi.json', 'utf8'));
  if (!isNode(document)) throw new Error('No document.');
  const at = (path: string): unknown =>
    path.split('/').reduce<unknown>((node, name) => (isNode(node) ? node[name] : undefined), document);
  const has = (schema: unknown, seen: readonly string[]): boolean => {
    if (Array.isArray(schema)) return schema.some((part) => has(part, seen));
    if (!isNode(schema)) return false;
    const { $ref: reference, properties } = schema;
    if (typeof reference === 'string')
      return !seen.includes(reference) && has(at(reference.slice(2)), [...seen, reference]);
    return (
      (isNode(properties) && 'credit_limit' in properties) || Object.values(schema).some((part) => has(part, seen))
    );
  };
  const found: string[] = [];
  for (const [path, verbs] of Object.entries(isNode(document.paths) ? document.paths : {})) {
    for (const [verb, operation] of Object.entries(isNode(verbs) ? verbs : {})) {
      if (isNode(operation) && has(operation.requestBody, [])) found.push(`${verb} ${path}`);
    }
  }
  return found.sort();
}
