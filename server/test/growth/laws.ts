/** How the cost of each thing may grow with the store: the rows that `npm run bench:growth` measures. */
import { purgeIdempotencyKeys } from '../../src/admin/idempotency.ts';
import { ConsoleSessions } from '../../src/auth/console-session.ts';
import { systemTenant } from '../../src/auth/tenant.ts';
import { raiseAlerts } from '../../src/jobs/alerts/raise.ts';
import { dueRows, freeRows, nextDue } from '../../src/jobs/claim.ts';
import { enforceRotation, rotateDueKeys } from '../../src/jobs/key-rotation.ts';
import { forget, forgetOld } from '../../src/jobs/retention.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { sweepBuckets } from '../../src/limits/ledger/sweep.ts';
import { compilePolicies, type PolicyFacts, requestFacts } from '../../src/limits/policies/conditions.ts';
import { purgeVectors } from '../../src/llm/cache/semantic-cache.ts';
import { createRuntime, type Runtime } from '../../src/runtime/runtime.ts';
import { tenantRows } from '../../src/store/conformance/rows.ts';
import type { TableName } from '../../src/store/schema.ts';
import { linesWithResult } from '../../src/training/managed/batch-lines.ts';
import { addFile, bytesOf } from '../../src/training/managed/file-rows.ts';
import { type FileServices, ManagedFiles } from '../../src/training/managed/files.ts';
import { plainVault } from '../support/admin.ts';
import { alertTurn } from '../support/alert-turn.ts';
import { ratePolicyRow } from '../support/policies.ts';
import { loadWorkspace } from '../support/workspace-rows.ts';
import type { Size, Store } from './stores.ts';

export interface Law {
  readonly name: string;
  /** `linear`: with what it answers or looks at by its nature; `why` says so. */
  readonly law: 'constant' | 'linear';
  readonly why?: string;
  /** Does it once. What it sends to the store is counted. */
  readonly run: (store: Store) => Promise<unknown>;
}

/** Of what happens inside the process: how often it looks at a request. */
export interface InProcess {
  readonly name: string;
  readonly law: 'constant' | 'linear';
  readonly why?: string;
  readonly count: (size: Size) => number;
}

const get = (path: string) => async (store: Store) => {
  const { status, text } = await store.admin.call('GET', path.replace(':policy', store.policyId));
  if (status !== 200) throw new Error(`${path}: ${status} ${text} ${store.admin.logged.at(-1)}`);
};

const list = (name: string, path: string): Law => ({
  name: `page of ${name}`,
  law: 'constant',
  run: get(`/v1${path}${path.includes('?') ? '&' : '?'}page_size=10`),
});

const tenantOf = (store: Store) => systemTenant(store.admin.a.organisation_id);
const signal = () => new AbortController().signal;
const alerts = (store: Store) => ({
  tables: store.admin.tables,
  log: silentLog,
  clock: systemClock,
  macs: plainVault,
  publicUrl: () => '',
  open: async () => 'https://example.com',
  mailer: null,
  post: async () => 200,
});

/** A node that serves every workspace of the looked-at organisation. */
interface Node {
  readonly runtime: Runtime;
  readonly ids: readonly string[];
}

const nodes = new WeakMap<Store, Promise<Node>>();

function nodeOf(store: Store): Promise<Node> {
  const known = nodes.get(store) ?? startNode(store);
  nodes.set(store, known);
  return known;
}

async function startNode(store: Store): Promise<Node> {
  const { tables } = store.admin;
  const runtime = createRuntime({
    tables,
    vault: plainVault,
    clock: systemClock,
    log: silentLog,
    blockInlineConfig: false,
    caughtUp: async () => {},
  });
  const rows = await tables.read(tenantOf(store), (tx) => tx.list('workspaces', { where: { status: 'active' } }));
  const ids = rows.map(({ id }) => id);
  const node = { runtime, ids };
  await requestsOfAll(store, node);
  return node;
}

async function requestsOfAll(store: Store, { runtime, ids }: Node): Promise<void> {
  for (const id of ids) await runtime.workspace(tenantOf(store).organisationId, id);
}

/** What the next request of each workspace costs on a node that hears of a change. */
const afterChange = (topic: TableName, workspaceOf: (store: Store) => string | null) => async (store: Store) => {
  const node = await nodeOf(store);
  const { organisationId } = tenantOf(store);
  node.runtime.invalidate({ organisationId, workspaceId: workspaceOf(store), topic, entityId: 'x' });
  await requestsOfAll(store, node);
};
const ofOne = (store: Store) => store.admin.a.workspace_id;

export const LAWS: readonly Law[] = [
  { name: 'edit of a provider, all asked', law: 'constant', run: afterChange('providers', ofOne) },
  { name: 'edit of a policy, all asked', law: 'constant', run: afterChange('usage_policies', ofOne) },
  { name: 'unused integration, all asked', law: 'constant', run: afterChange('integrations', () => null) },
  { name: 'key of a request', law: 'constant', run: ({ admin, secretId }) => admin.tables.findKey(secretId) },
  {
    name: 'compile of one workspace',
    law: 'constant',
    run: (store) =>
      store.admin.tables.read(tenantOf(store), (tx) => loadWorkspace(tx, plainVault, store.admin.a.workspace_id)),
  },
  {
    name: 'config by its slug',
    law: 'constant',
    run: (store) => get(`/v1/configs/${store.configSlug}?workspace_id=${store.admin.a.workspace_id}`)(store),
  },
  list('keys', '/api-keys'),
  list('users', '/admin/users'),
  list('workspaces', '/admin/workspaces'),
  list('configs', '/configs'),
  list('usage policies', '/policies/usage-limits'),
  list('values of a policy', '/policies/usage-limits/:policy/entities'),
  list('the audit log', '/audit-logs?start_time=2020-01-01T00:00:00Z&end_time=2030-01-01T00:00:00Z'),
  {
    name: 'rename of a usage policy',
    law: 'constant',
    run: async ({ admin, policyId }) => {
      const answer = await admin.call('PUT', `/v1/policies/usage-limits/${policyId}`, { body: { name: 'Another' } });
      if (answer.status !== 200) throw new Error(answer.text);
    },
  },
  {
    name: 'a file is added',
    law: 'constant',
    run: (store) =>
      store.admin.tables.write(tenantOf(store), async (tx) => {
        const { organisation_id, workspace_id } = store.admin.a;
        const id = `gw_file_${Math.random()}`;
        await addFile(tx, { ...tenantRows(organisation_id, workspace_id).files, id });
      }),
  },
  {
    name: 'bytes that files take',
    law: 'linear',
    why: 'a row of each workspace with files, at each upload',
    run: (store) => store.admin.tables.read(tenantOf(store), (tx) => bytesOf(tx, store.admin.a.organisation_id)),
  },
  {
    name: 'turn of a batch',
    law: 'constant',
    run: ({ admin: { tables, a }, batchId }) => linesWithResult(tables, { ...a, id: batchId }, 40, 60, [7, 9]),
  },
  {
    name: 'look for due work',
    law: 'constant',
    run: async ({ admin: { tables } }) => {
      for (const table of ['batches', 'training_jobs', 'object_usage'] as const) {
        await dueRows(tables, table, Date.now(), 10);
        await nextDue(tables, table, Date.now());
        await freeRows(tables, table, () => false);
      }
    },
  },
  {
    name: 'feed of changes',
    law: 'constant',
    run: async ({ admin: { tables } }) => tables.changesAfter((await tables.lastChange()) - 10, 100),
  },
  {
    name: 'sweep of usage limits',
    law: 'constant',
    run: ({ admin: { tables } }) => sweepBuckets({ tables, clock: systemClock }),
  },
  { name: 'sweep of counters and feed', law: 'constant', run: ({ admin: { tables } }) => forget({ tables }) },
  {
    name: 'sweep of old logs and audit',
    law: 'linear',
    why: 'asks every organisation, now and then on one node',
    run: ({ admin: { tables } }) =>
      forgetOld({ tables, macs: plainVault, log: silentLog, logDays: 10_000, auditDays: 10_000 }),
  },
  { name: 'sweep of idempotency keys', law: 'constant', run: ({ admin: { tables } }) => purgeIdempotencyKeys(tables) },
  { name: 'sweep of answer vectors', law: 'constant', run: ({ admin: { tables } }) => purgeVectors(tables) },
  {
    name: 'sweep of files',
    law: 'constant',
    run: ({ admin: { tables } }) => {
      const blobs = { async *all() {}, delete: async () => true };
      const services = { tables, blobs, clock: systemClock, log: silentLog } as unknown as FileServices;
      return new ManagedFiles(services).sweep(signal());
    },
  },
  {
    name: 'sweep of alerts',
    law: 'constant',
    run: async (store) => {
      await raiseAlerts(alerts(store));
      // Removes old deliveries, too.
      await alertTurn(alerts(store));
    },
  },
  {
    name: 'rotation of due keys',
    law: 'constant',
    run: (store) => rotateDueKeys(alerts(store)),
  },
  {
    name: 'rules of rotation',
    law: 'linear',
    why: 'reads every workspace, 200 organisations at a time, each ten minutes on one node',
    run: (store) => enforceRotation(alerts(store)),
  },
  {
    name: 'console session',
    law: 'linear',
    why: 'names every workspace that an owner may enter',
    run: (store) =>
      new ConsoleSessions({ tables: store.admin.tables, clock: systemClock, publicUrl: () => '' }).describe({
        kind: 'user',
        organisationId: store.admin.a.organisation_id,
        userId: null,
        role: 'owner',
      } as never),
  },
  {
    name: 'number of keys',
    law: 'linear',
    why: 'the total of a list is counted in its index',
    run: get('/v1/api-keys?page_size=10'),
  },
];

/** How often the index of a workspace with this many policies looks at one request. */
function looks(size: Size, conditionOf: (i: number) => string): number {
  const place = { workspaceId: 'ws', workspaceSlug: 'ws', organisationId: 'org' };
  const rows = Array.from({ length: size.indexed }, (_, i) =>
    ratePolicyRow({ organisation_id: 'org', workspace_id: 'ws' }, `policy-${i}`, [
      { key: 'api_key', value: conditionOf(i) },
      { key: 'metadata._team', value: 'blue' },
    ]),
  );
  let count = 0;
  const counted = <T extends object>(of: T): T =>
    new Proxy(of, {
      get: (target, name) => {
        count += 1;
        return Reflect.get(target, name);
      },
    });
  const facts = requestFacts({
    ...place,
    keyId: 'key-3',
    provider: 'openai',
    slug: 'openai',
    config: null,
    model: 'gpt-5',
    requestType: 'chatComplete',
    metadata: counted({ _team: 'blue' }),
  });
  compilePolicies(rows, place)?.match(counted<PolicyFacts>(facts));
  return count;
}

export const IN_PROCESS: readonly InProcess[] = [
  {
    name: 'policies of other keys',
    law: 'constant',
    count: (size) => looks(size, (i) => `key-${i}`),
  },
  {
    name: 'policies that apply',
    law: 'linear',
    why: 'each is a separate limit; at most 200 may apply to one request',
    count: (size) => looks({ ...size, indexed: Math.min(size.indexed, 200) }, () => 'key-3'),
  },
];
