/**
 * What time does to API keys, done by one leader: secrets whose transition has ended are removed, user keys
 * get the cadence that is enforced by now, and keys whose rotation is due are rotated. Each key has its own
 * transaction, so a leader that is killed leaves it rotated or not.
 */
import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { rotateDueKey } from '../resources/api-keys/rotate.ts';
import { enforcedPolicy, policyColumns } from '../resources/api-keys/rotation.ts';
import { keySettings } from '../resources/api-keys/rules.ts';
import { secretsOf, UNCOLLECTED } from '../resources/api-keys/secrets.ts';
import { appendAudit, systemEntry } from '../resources/audit-logs/chain.ts';
import type { Query, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Macs } from '../store/vault.ts';
import { startLeader } from './leader.ts';
import { pause } from './pause.ts';

export interface KeyRotationOptions {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly log: Log;
  readonly node: string;
  /** Signs the audit log. */
  readonly macs: Macs;
  /** How long nothing may be looked at. A transition lasts 30 minutes at least, so its end is always seen ahead. */
  readonly everyMs?: number;
}

export interface TurnOptions extends Omit<KeyRotationOptions, 'node' | 'everyMs'> {
  readonly signal?: AbortSignal;
}

const EVERY_MS = 30_000;
/** How often keys are compared with what is enforced. */
const ENFORCE_MS = 10 * 60_000;
const PAGE = 200;

export function startKeyRotation(options: KeyRotationOptions): Closable {
  const { tables, clock, log, node, everyMs = EVERY_MS } = options;
  return startLeader({
    tables,
    clock,
    log,
    node,
    name: 'key-rotation',
    everyMs,
    lead: async (signal) => {
      let enforcedAt = Number.NEGATIVE_INFINITY;
      while (!signal.aborted) {
        if (clock.monotonic() - enforcedAt >= ENFORCE_MS) {
          await enforceRotation({ ...options, signal });
          enforcedAt = clock.monotonic();
        }
        await rotateDueKeys({ ...options, signal });
        const wait = (await nextDue(tables)) - (await tables.now());
        // A key that could not be rotated stays due: not before a moment is it tried again.
        await pause(clock, Math.min(everyMs, Math.max(wait, 1_000)), signal);
      }
    },
  });
}

/** Keys that a rotation can be due for: an expired one keeps its day until somebody brings it back. */
function rotating(now: number, due: NonNullable<Query<'api_keys'>['where']>['rotation_due_at']): Query<'api_keys'> {
  const where = { rotation_due_at: due, status: { in: ['active', 'exhausted'] as const } };
  return { where, anyOf: [{ expires_at: null }, { expires_at: { gt: now } }], orderBy: [['rotation_due_at', 'asc']] };
}

/** When the next secret ends or the next key is due; milliseconds by the store's clock, `Infinity` for never. */
async function nextDue(tables: Tables): Promise<number> {
  const now = await tables.now();
  return tables.systemRead(async (tx) => {
    const [secret] = await tx.list('api_key_secrets', {
      where: { expires_at: { gt: 0 } },
      orderBy: [['expires_at', 'asc']],
      limit: 1,
    });
    const [key] = await tx.list('api_keys', { ...rotating(now, { gt: 0 }), limit: 1 });
    return Math.min(secret?.expires_at ?? Infinity, key?.rotation_due_at ?? Infinity);
  });
}

/** One turn: removes what has ended, then rotates what is due. A key that fails is left for the next turn. */
export async function rotateDueKeys(options: TurnOptions): Promise<void> {
  const { tables, log, signal } = options;
  await removeEnded(options);
  const seen = new Set<string>();
  while (!signal?.aborted) {
    const now = await tables.now();
    const keys = await tables.systemRead((tx) => tx.list('api_keys', { ...rotating(now, { lte: now }), limit: PAGE }));
    const fresh = keys.filter((key) => !seen.has(key.id));
    for (const key of fresh) {
      if (signal?.aborted) return;
      seen.add(key.id);
      try {
        await rotateOne(options, key);
      } catch (error) {
        log.error('a key could not be rotated; it is tried again', { api_key_id: key.id, error: String(error) });
      }
    }
    if (fresh.length === 0) return;
  }
}

async function rotateOne(options: TurnOptions, key: Row<'api_keys'>): Promise<void> {
  const { tables, clock, log, macs } = options;
  const { id, organisation_id: organisationId, workspace_id: workspaceId } = key;
  const queue = { queue: organisationId };
  const outcome = await tables.write(
    systemTenant(organisationId),
    async (tx) => {
      const done = await rotateDueKey(tx, id);
      if (done?.kind !== 'rotated') return done;
      const deed = { organisationId, workspaceId, action: 'rotate', resource: 'api-keys', resourceId: id } as const;
      await appendAudit(tx, macs, systemEntry(clock, { ...deed, before: null, after: done.facts }));
      return done;
    },
    queue,
  );
  if (outcome?.kind !== 'rotated') return;
  log.info('a key was rotated; its new secret waits to be collected', {
    api_key_id: id,
    organisation_id: organisationId,
    transition_expires_at: outcome.facts.transition_expires_at,
  });
}

/** Secrets past their transition open nothing already; here they leave the store and every node's memory. */
async function removeEnded({ tables, log, signal }: TurnOptions): Promise<void> {
  while (!signal?.aborted) {
    const where = { expires_at: { lte: await tables.now() } };
    if ((await tables.systemRead((tx) => tx.count('api_key_secrets', { where }))) === 0) return;
    const uncollected = await tables.systemWrite(async (tx) => {
      const secrets = await tx.list('api_key_secrets', { where, orderBy: [['expires_at', 'asc']], limit: PAGE });
      await tx.remove('api_key_secrets', { ...where, id: { in: secrets.map(({ id }) => id) } });
      const ids = [...new Set(secrets.map((secret) => secret.api_key_id))];
      const keys = await tx.list('api_keys', { where: { id: { in: ids } } });
      for (const { id, organisation_id: organisationId, workspace_id: workspaceId } of keys) {
        tx.changed({ organisationId, workspaceId, topic: 'api_key_secrets', entityId: id });
      }
      const left = await secretsOf(tx, ids, await tx.now());
      return keys.filter((key) => key.status !== 'archived' && left(key.id).current?.digest === UNCOLLECTED);
    });
    for (const { id, organisation_id } of uncollected) {
      const fields = { api_key_id: id, organisation_id };
      log.warn('the old secret of a rotated key has ended, and nobody has collected the new one', fields);
    }
  }
}

/**
 * Gives user keys the cadence of `user_api_key_rotation_period` when it was set, or changed, after they were made: the
 * first rotation is a whole period away, unless the key had an earlier one planned.
 */
export async function enforceRotation(options: TurnOptions): Promise<void> {
  const { tables, signal } = options;
  for (let after = ''; ; ) {
    // One pair of reads for many organisations: nearly none of them enforce anything.
    const { organisations, workspaces } = await tables.systemRead(async (tx) => {
      const organisations = await tx.list('organisations', {
        where: { id: { gt: after } },
        orderBy: [['id', 'asc']],
        limit: PAGE,
      });
      const ids = organisations.filter(({ status }) => status === 'active').map(({ id }) => id);
      const where = { organisation_id: { in: ids }, status: 'active' as const };
      return { organisations, workspaces: ids.length === 0 ? [] : await tx.list('workspaces', { where }) };
    });
    const byId = new Map(organisations.map((organisation) => [organisation.id, organisation]));
    for (const workspace of workspaces) {
      if (signal?.aborted) return;
      const organisation = byId.get(workspace.organisation_id);
      const { rotationDays } =
        organisation === undefined ? { rotationDays: null } : keySettings(organisation, workspace);
      if (rotationDays !== null) await enforceIn(options, workspace, rotationDays);
    }
    const last = organisations.at(-1);
    if (last === undefined || organisations.length < PAGE) return;
    after = last.id;
  }
}

async function enforceIn(options: TurnOptions, workspace: Row<'workspaces'>, days: number): Promise<void> {
  const { tables, clock, macs } = options;
  const { organisation_id: organisationId, id: workspaceId } = workspace;
  const tenant = systemTenant(organisationId, workspaceId);
  const live = { type: 'workspace-user' as const, status: { in: ['active', 'exhausted'] as const } };
  let after = '';
  for (;;) {
    const found = await tables.read(tenant, (tx) =>
      tx.list('api_keys', { where: { ...live, id: { gt: after } }, orderBy: [['id', 'asc']], limit: PAGE }),
    );
    for (const { id } of found.filter(
      (key) => enforcedPolicy(key.rotation_policy, days, 0, 0) !== key.rotation_policy,
    )) {
      await tables.write(
        tenant,
        async (tx) => {
          const now = await tx.now();
          const key = await tx.find('api_keys', { ...live, id });
          if (key === undefined) return;
          const before = key.rotation_policy;
          const policy = enforcedPolicy(before, days, key.last_rotated_at ?? key.created_at, now);
          if (policy === before) return;
          await tx.update('api_keys', { id }, { ...policyColumns(policy), version: key.version + 1 });
          const deed = { organisationId, workspaceId, action: 'update', resource: 'api-keys', resourceId: id } as const;
          const change = { before: { rotation_policy: before }, after: { rotation_policy: policy } };
          await appendAudit(tx, macs, systemEntry(clock, { ...deed, ...change }));
        },
        { queue: organisationId },
      );
    }
    const last = found.at(-1);
    if (last === undefined || found.length < PAGE) return;
    after = last.id;
  }
}
