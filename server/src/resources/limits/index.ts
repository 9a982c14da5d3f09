/** `GET /limits`: what limits a caller, or a workspace, with what is used and left. */
import { z } from 'zod';
import type { Principal } from '../../auth/principal.ts';
import { type LimitSpec, limitSpec, shownAmount, workspaceLimitSpecs } from '../../limits/ledger/limit-spec.ts';
import type { PolicyFacts } from '../../limits/policies/conditions.ts';
import { addRateLimits, compileRatePolicies } from '../../limits/policies/rates.ts';
import { addUsageLimits, compileUsagePolicies } from '../../limits/policies/usage.ts';
import { type LimitedEntity, limitedEntity, rateKey, windowOf } from '../../limits/rate-limits.ts';
import type { Counters } from '../../store/ports.ts';
import type { PolicyCondition, PolicyGroup, RateLimit, Row } from '../../store/schema.ts';
import { toIso } from '../body-fields.ts';
import { requireWorkspace, unknownReference } from '../common.ts';
import type { Resource } from '../define.ts';
import { queryBoolean, tenantFields, uuid } from '../fields.ts';
import { seesAll } from '../logs/sight.ts';
import { notFound } from '../look-up.ts';
import { conditionsAnswer, groupByAnswer } from '../policies/policy-fields.ts';
import { action, type Call } from '../resource.ts';
import { afterCommit, Service } from '../services.ts';
import { usageForecast, usageForecastFields } from '../usage-forecast.ts';

/** Counters of rate limits, as requests count them. */
export const RATE_COUNTERS = new Service<Pick<Counters, 'get'>>('counters of rate limits');

/** Objects of one kind that are looked through; a workspace with more of them answers `complete: false`. */
const MOST = 500;

/** What is known before a request comes; all else depends on the request. */
const KNOWN: ReadonlySet<string> = new Set(['api_key', 'workspace_id', 'organisation_id']);

const query = z.object({
  ...tenantFields,
  api_key_id: uuid.optional().describe('What limits this key, in place of the caller.'),
  all: queryBoolean
    .optional()
    .describe(
      'Every limit of the workspace, of all its keys too. Members, and service keys that may not list keys, get their own keys only.',
    ),
});

const {
  credit_limit: limit,
  next_usage_reset_at: _reset,
  unpriced_requests: _unpriced,
  ...forecast
} = usageForecastFields;

const item = z.object({
  object: z.literal('limit'),
  kind: z.enum(['key', 'workspace', 'provider', 'virtual-key', 'integration', 'policy']),
  id: z.string().describe('Of the object that the limit belongs to.'),
  name: z.string(),
  slug: z.string().nullable(),
  counts: z.enum(['usage', 'rate']).describe('A budget over weeks or for good, or a rate of seconds up to a week.'),
  applies: z
    .enum(['always', 'sometimes'])
    .describe('`sometimes`: to requests that use this provider, or that the conditions select.'),
  conditions: conditionsAnswer,
  group_by: groupByAnswer.describe('Each value of these has its own counter.'),
  value_key: z.string().nullable().describe('Whose counter `used` is; null where each request chooses it.'),
  type: z.enum(['cost', 'tokens', 'requests']),
  period: z
    .string()
    .nullable()
    .describe('`monthly`, `weekly`, `days:30`, or `rpm` and the like; null: it never resets.'),
  limit: limit.describe('US dollars, tokens or requests.'),
  alert_threshold: z.number().nullable(),
  used: z.number().nullable().describe('Null where each request chooses its counter, or where you may not see it.'),
  remaining: forecast.remaining.nullable(),
  reserved: forecast.reserved.nullable(),
  burn_rate: forecast.burn_rate.nullable(),
  exhausts_at: forecast.exhausts_at,
  status: z.enum(['active', 'exhausted']).nullable(),
  resets_at: z.string().nullable().describe('When `used` begins at 0 again.'),
});

type Item = z.input<typeof item>;

const answer = z.object({
  object: z.literal('list'),
  total: z.int(),
  complete: z.boolean().describe('False when the workspace has more than are looked through.'),
  as_of: z.string(),
  data: z.array(item).describe('Tightest first: the largest part used, then what is counted for each request.'),
});

type Head = Pick<Item, 'kind' | 'id' | 'name' | 'slug' | 'applies' | 'conditions' | 'group_by' | 'value_key'>;
type Own = Pick<Item, 'kind' | 'id' | 'name' | 'slug' | 'applies'>;

const head = (own: Own): Head => ({ ...own, conditions: [], group_by: [], value_key: null });

/** A budget with its counter, and a rate with its window. */
interface Budget {
  readonly head: Head;
  readonly spec: LimitSpec;
  /** Whether its counter is known and may be shown. */
  readonly shown: boolean;
}
interface Rate {
  readonly head: Head;
  readonly rate: RateLimit;
  /** Null where the counter is not known or may not be shown. */
  readonly entity: LimitedEntity | null;
}

/** What was found of a workspace. */
class Found {
  readonly budgets: Budget[] = [];
  readonly rates: Rate[] = [];
  complete = true;

  add(own: Own, specs: readonly (LimitSpec | null)[], entity: LimitedEntity | null, shown: boolean): void {
    for (const spec of specs) if (spec !== null) this.budgets.push({ head: head(own), spec, shown });
    for (const rate of entity?.limits ?? []) {
      this.rates.push({ head: head(own), rate, entity: shown ? entity : null });
    }
  }

  /** What `list` answered with `limit: MOST + 1`. */
  bounded<T>(rows: T[]): T[] {
    if (rows.length > MOST) this.complete = false;
    return rows.slice(0, MOST);
  }
}

type Key = Pick<Row<'api_keys'>, 'id' | 'name' | 'usage_limits' | 'rate_limits' | 'last_updated_at'>;
type Keys = readonly Key[];
type ListCall = Call<unknown, z.output<typeof query>>;

async function list(call: ListCall) {
  const { tx, clock } = call;
  const workspaceId = requireWorkspace(call);
  const workspace = await tx.find('workspaces', { id: workspaceId });
  if (workspace === undefined) throw notFound();
  const everything = await seesAll(call, workspaceId);
  const found = new Found();
  const keys = await keysOf(call, workspaceId, found);
  for (const key of keys.shown) {
    const own = { kind: 'key', id: key.id, name: key.name, slug: null, applies: keys.applies } as const;
    const owner = { kind: 'key', id: key.id, label: key.name, at: key.last_updated_at } as const;
    found.add(own, [limitSpec(owner, key.usage_limits)], limitedEntity('key', key.id, key.name, key.rate_limits), true);
  }
  const { id, name, slug } = workspace;
  found.add(
    { kind: 'workspace', id, name, slug, applies: 'always' },
    workspaceLimitSpecs(workspace),
    limitedEntity('workspace', id, slug, workspace.rate_limits),
    everything,
  );
  await addAccounts(call, found, everything);
  await addPolicies(call, workspace, keys.caller, found, everything);
  const now = clock.now();
  const budgets = await withCounters(call, workspaceId, found.budgets, now);
  return afterCommit({ counters: RATE_COUNTERS }, async ({ counters }) => {
    const data = [...budgets, ...(await withWindows(counters, workspaceId, found.rates, now))].sort(byTightness);
    return { object: 'list' as const, total: data.length, complete: found.complete, as_of: toIso(now), data };
  });
}

/** Whose limits are asked for, and the key that policies see, where there is one. */
async function keysOf(
  call: ListCall,
  workspaceId: string,
  found: Found,
): Promise<{ readonly shown: Keys; readonly caller: string | null; readonly applies: Item['applies'] }> {
  const { tx, principal, query: asked } = call;
  if (asked.api_key_id !== undefined) {
    const key = await tx.find('api_keys', { id: asked.api_key_id });
    const here = key !== undefined && (key.workspace_id === null || key.workspace_id === workspaceId);
    const own = key !== undefined && (key.id === principal.keyId || ownedBy(key, principal.userId));
    if (key === undefined || !here || !(own || (await managesKeys(call, workspaceId)))) {
      throw unknownReference('api_key_id', 'API key of the workspace');
    }
    return { shown: [key], caller: key.id, applies: 'always' };
  }
  if (asked.all === true) {
    const rows = (await managesKeys(call, workspaceId))
      ? await tx.list('api_keys', { orderBy: [['created_at', 'desc']], limit: MOST + 1 })
      : await ownKeys(call);
    const open = found.bounded(rows).filter(isOpen);
    return { shown: [...organisationKey(principal), ...open], caller: null, applies: 'sometimes' };
  }
  if (principal.keyId !== null) {
    const key = await tx.find('api_keys', { id: principal.keyId });
    const shown = key === undefined ? organisationKey(principal) : [key];
    return { shown, caller: principal.keyId, applies: 'always' };
  }
  const rows = await ownKeys(call);
  return { shown: found.bounded(rows).filter(isOpen), caller: null, applies: 'sometimes' };
}

/** The caller where it is a key of the organisation: no workspace has its row. */
function organisationKey({ keyId, keyName, workspaceId, usageLimits, rateLimits, changedAt = 0 }: Principal): Keys {
  if (keyId === null || workspaceId !== null) return [];
  const [usage_limits = null] = [usageLimits].flat();
  return [
    { id: keyId, name: keyName ?? keyId, usage_limits, rate_limits: [...rateLimits], last_updated_at: changedAt },
  ];
}

/** Those of the user in the workspace, in no order: an index has them together and nothing sorted. */
const ownKeys = ({ tx, principal }: ListCall) => tx.list('api_keys', { where: { user_id: principal.userId ?? '' } });

const isOpen = ({ status }: Pick<Row<'api_keys'>, 'status'>): boolean => status !== 'archived';

const ownedBy = (key: Row<'api_keys'>, userId: string | null): boolean => userId !== null && key.user_id === userId;

/** Whether the limits of all keys of the workspace are for the caller. */
async function managesKeys({ tx, principal }: ListCall, workspaceId: string): Promise<boolean> {
  const { role, userId, scopes } = principal;
  if (role === 'owner' || role === 'admin') return true;
  if (userId === null) return scopes.has('workspace_service_api_keys.list');
  const joined = await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId, status: 'active' });
  return joined !== undefined && joined.role !== 'member';
}

async function addAccounts({ tx }: ListCall, found: Found, shown: boolean): Promise<void> {
  // As lists ask: what is not archived is in an index with this order.
  const here = { where: { status: { not: 'archived' } }, orderBy: [['created_at', 'desc']], limit: MOST + 1 } as const;
  const kinds = [
    ['provider', found.bounded(await tx.list('providers', here))],
    ['virtual-key', found.bounded(await tx.list('virtual_keys', here))],
  ] as const;
  for (const [kind, rows] of kinds) {
    for (const row of rows) {
      const { id, name, slug } = row;
      const spec = limitSpec({ kind, id, label: slug, at: row.last_updated_at }, row.usage_limits);
      const own = { kind, id, name, slug, applies: 'sometimes' } as const;
      found.add(own, [spec], limitedEntity(kind, id, slug, row.rate_limits), shown);
    }
  }
  const shared = await tx.list('integration_workspaces');
  const limited = shared.filter((row) => row.enabled && (row.usage_limits !== null || row.rate_limits !== null));
  if (limited.length === 0) return;
  const ids = limited.map((row) => row.integration_id);
  const accounts = new Map((await tx.list('integrations', { where: { id: { in: ids } } })).map((row) => [row.id, row]));
  for (const row of limited) {
    const account = accounts.get(row.integration_id);
    if (account === undefined || account.status === 'archived') continue;
    const { id, name, slug } = account;
    const owner = { kind: 'integration', id, label: slug, at: row.last_updated_at } as const;
    const own = { kind: 'integration', id, name, slug, applies: 'sometimes' } as const;
    const specs = [limitSpec(owner, row.usage_limits?.[0] ?? null)];
    found.add(own, specs, limitedEntity('integration', id, slug, row.rate_limits), shown);
  }
}

/** Policies that can select a request of the caller; with their counter where no request chooses it. */
async function addPolicies(
  { tx }: ListCall,
  workspace: Row<'workspaces'>,
  caller: string | null,
  found: Found,
  everything: boolean,
): Promise<void> {
  const here = {
    where: { status: 'active' },
    orderBy: [['created_at', 'asc']],
    limit: MOST + 1,
  } as const;
  const place = {
    workspaceId: workspace.id,
    workspaceSlug: workspace.slug,
    organisationId: workspace.organisation_id,
  };
  const facts = factsOf(workspace, caller);
  for (const row of found.bounded(await tx.list('usage_policies', here))) {
    const specs: LimitSpec[] = [];
    const index = compileUsagePolicies([{ ...row, conditions: decided(row.conditions, caller) }], place);
    if (index !== null) addUsageLimits(index, facts, specs);
    for (const spec of specs) {
      const one = policyHead(row, caller, spec.valueKey);
      found.budgets.push({ head: one, spec, shown: one.value_key !== null && (everything || ofCaller(row, caller)) });
    }
  }
  for (const row of found.bounded(await tx.list('rate_policies', here))) {
    const entities: LimitedEntity[] = [];
    const policies = compileRatePolicies([{ ...row, conditions: decided(row.conditions, caller) }], place);
    const index = policies.llm ?? policies.mcpTools;
    if (index !== null) addRateLimits(index, facts, entities);
    for (const entity of entities) {
      const one = policyHead(row, caller, entity.policy?.valueKey ?? '');
      const shown = one.value_key !== null && (everything || ofCaller(row, caller));
      found.rates.push({ head: one, rate: row, entity: shown ? entity : null });
    }
  }
}

const factsOf = (workspace: Row<'workspaces'>, caller: string | null): PolicyFacts => ({
  workspace_id: workspace.id,
  organisation_id: workspace.organisation_id,
  api_key: caller,
  virtual_key: null,
  provider: null,
  config: null,
  prompt: null,
  model: null,
  endpoint_type: null,
  mcp_server: null,
  mcp_tool: null,
  metadata: null,
});

/** Whether a condition or group is decided before a request comes. */
const isKnown = (key: string, caller: string | null): boolean =>
  KNOWN.has(key) && (key !== 'api_key' || caller !== null);

const decided = (conditions: readonly PolicyCondition[], caller: string | null): PolicyCondition[] =>
  conditions.filter(({ key }) => isKnown(key, caller));

const isAny = ({ value, excludes }: PolicyCondition): boolean =>
  excludes === undefined && (value === '*' || (Array.isArray(value) && value.includes('*')));

/** A counter of the caller alone: its own use, which no setting keeps from it. */
const ofCaller = ({ group_by: groups }: { readonly group_by: readonly PolicyGroup[] }, caller: string | null) =>
  caller !== null && groups.some(({ key }) => key === 'api_key');

function policyHead(row: Row<'usage_policies'> | Row<'rate_policies'>, caller: string | null, valueKey: string): Head {
  const always = row.conditions.every((condition) => isKnown(condition.key, caller) || isAny(condition));
  return {
    kind: 'policy',
    id: row.id,
    name: row.name ?? row.id,
    slug: null,
    applies: always ? 'always' : 'sometimes',
    conditions: row.conditions,
    group_by: row.group_by,
    value_key: row.group_by.every(({ key }) => isKnown(key, caller)) ? valueKey : null,
  };
}

/** Counters of all budgets in one query. */
async function withCounters(
  { tx }: ListCall,
  workspaceId: string,
  budgets: readonly Budget[],
  now: number,
): Promise<Item[]> {
  const keys = [...new Set(budgets.filter(({ shown }) => shown).map(({ spec }) => spec.bucketKey))];
  const owners = [...new Set(budgets.filter(({ shown }) => shown).map(({ spec }) => spec.ownerId))];
  const rows =
    owners.length === 0
      ? []
      : await tx.list('usage_buckets', {
          where: { workspace_id: workspaceId, owner_id: { in: owners }, bucket_key: { in: keys } },
        });
  const nameOf = (kind: string, id: string, key: string) => `${kind} ${id} ${key}`;
  const known = new Map(rows.map((row) => [nameOf(row.owner_kind, row.owner_id, row.bucket_key), row]));
  return budgets.map(({ head: own, spec, shown }): Item => {
    const amounts = {
      type: spec.type,
      period: spec.period,
      limit: shownAmount(spec.type, spec.limit),
      alert_threshold: spec.alert === null ? null : shownAmount(spec.type, spec.alert),
    };
    const bucket = known.get(nameOf(spec.ownerKind, spec.ownerId, spec.bucketKey));
    if (!shown) return { object: 'limit', ...own, counts: 'usage', ...amounts, ...HIDDEN };
    if (bucket === undefined) {
      const counted = { used: 0, remaining: amounts.limit, reserved: 0, burn_rate: 0, exhausts_at: null };
      const status = spec.limit === 0 ? ('exhausted' as const) : ('active' as const);
      return { object: 'limit', ...own, counts: 'usage', ...amounts, ...counted, status, resets_at: null };
    }
    const { remaining, reserved, burn_rate, exhausts_at, next_usage_reset_at, credit_limit } = usageForecast(
      bucket,
      now,
    );
    const counted = { remaining, reserved, burn_rate, exhausts_at, resets_at: next_usage_reset_at };
    const used = shownAmount(bucket.type, bucket.used);
    return {
      object: 'limit',
      ...own,
      counts: 'usage',
      ...amounts,
      limit: credit_limit,
      used,
      ...counted,
      status: bucket.status,
    };
  });
}

const HIDDEN = {
  used: null,
  remaining: null,
  reserved: null,
  burn_rate: null,
  exhausts_at: null,
  status: null,
  resets_at: null,
} as const;

/** The windows of all rates in one call; shared counters that are away leave them unknown. */
async function withWindows(
  counters: Pick<Counters, 'get'>,
  workspaceId: string,
  rates: readonly Rate[],
  now: number,
): Promise<Item[]> {
  const windows = rates.map(({ rate, entity }) => {
    const { start, end } = windowOf(rate.unit, now);
    return { end, key: entity === null ? null : rateKey(workspaceId, entity, rate, start) };
  });
  const keys = [...new Set(windows.flatMap(({ key }) => (key === null ? [] : [key])))];
  const counts = keys.length === 0 ? [] : await counters.get(keys).catch(() => null);
  const used = new Map(keys.map((key, at) => [key, counts === null ? null : (counts[at] ?? 0)]));
  return rates.map(({ head: own, rate }, at): Item => {
    const window = windows[at];
    const count = window?.key == null ? null : (used.get(window.key) ?? null);
    const terms = { type: rate.type, period: rate.unit, limit: rate.value, alert_threshold: null };
    if (count === null || window === undefined) {
      return { object: 'limit', ...own, counts: 'rate', ...terms, ...HIDDEN };
    }
    return {
      object: 'limit',
      ...own,
      counts: 'rate',
      ...terms,
      used: count,
      remaining: Math.max(0, rate.value - count),
      reserved: 0,
      burn_rate: null,
      exhausts_at: null,
      status: count >= rate.value ? 'exhausted' : 'active',
      resets_at: toIso(window.end),
    };
  });
}

/** The part used; below 0 where it is not known. */
const part = ({ used, limit: most }: Item): number => (used === null ? -1 : most === 0 ? 1 : used / most);

const byTightness = (a: Item, b: Item): number =>
  part(b) - part(a) || a.counts.localeCompare(b.counts) * -1 || a.name.localeCompare(b.name);

export const boundBy: Resource = {
  actions: [
    action({
      id: 'limits.list',
      method: 'GET',
      path: '/limits',
      summary: 'List the limits of a caller or a workspace',
      description:
        'Every budget and rate limit that can refuse a request: of the key, the workspace, its providers and policies, with what is used, left, and when it resets.',
      tag: 'Policies',
      auth: 'key_or_login',
      scopes: ['policies.list', 'completions.write'],
      tenant: 'workspace',
      params: null,
      query,
      body: null,
      response: answer,
      writes: false,
      audit: null,
      run: list,
    }),
  ],
};
