/** Who sees which log destination, who may send what of requests elsewhere, and how a stored one is fed. */
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantContext, TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Vault } from '../../store/vault.ts';
import type { DestinationField } from '../../telemetry/destination-fields.ts';
import type { DestinationPlan } from '../../telemetry/log-destination.ts';
import { REAL } from '../analytics/filters.ts';
import { workspaceOf } from '../common.ts';
import { Levels, type LevelVerb } from '../kinds/levels.ts';
import { recordConditions } from '../logs/exports/filters.ts';
import { restrictionsOf } from '../logs/exports/rights.ts';
import { namesMetadata, reachOf } from '../logs/reach.ts';
import type { Call } from '../resource.ts';
import { type Destination, openTarget } from './secrets.ts';

export const LEVELS = new Levels({ workspace: 'log_destinations', organisation: 'organisation_log_destinations' });

/** Of one kind, in an organisation. */
const MOST_OF_KIND = 5;
export const SAMPLE_PARTS = 1_000_000;

/** In a workspace its own and nothing else; without one all of the organisation. */
export async function visible(call: Call, verb: LevelVerb) {
  const workspaceId = await workspaceOf(call);
  if (workspaceId !== null) {
    if (verb === 'list') LEVELS.require(call, 'workspace', verb);
    return { where: { workspace_id: workspaceId } };
  }
  return verb === 'list' ? { where: LEVELS.held(call, verb) } : {};
}

/** Throws 409 where the organisation has as many of the kind as it may. */
export async function checkRoom(tx: TenantTx, kind: Destination['kind']): Promise<void> {
  if ((await tx.count('log_destinations', { where: { kind } })) < MOST_OF_KIND) return;
  throw new SluiceError(
    'conflict',
    `The organisation has ${MOST_OF_KIND} log destinations of the kind ${kind}, which is the most. Delete one of them first.`,
    { param: 'kind' },
  );
}

export type Choices = Pick<Destination, 'workspace_id' | 'filters' | 'fields' | 'bodies'>;

/**
 * What a destination sends, whoever has made it may read: throws `forbidden` for requests, metadata or fields that settings keep
 * from the caller or from all.
 */
export async function checkChoices(call: Call, { workspace_id, filters, fields, bodies }: Choices): Promise<void> {
  const reach = await reachOf({ ...call, tenant: { ...call.tenant, workspaceId: workspace_id } }, 'logs.view');
  const { ownOnly, noMetadata } = reach.sight;
  const partly = ownOnly ?? (workspace_id === null && reach.scope.workspaceIds !== null ? 'a security setting' : null);
  if (partly !== null) {
    throw new SluiceError('forbidden', `A log destination sends requests of others, which ${partly} keeps from you.`);
  }
  const metadata = bodies || fields === null || fields.includes('metadata') || namesMetadata(recordConditions(filters));
  if (noMetadata !== null && metadata) {
    throw new SluiceError(
      'forbidden',
      `This sends the metadata of requests, which the security setting ${noMetadata} keeps from you. Name other fields, without bodies.`,
      { param: 'fields' },
    );
  }
  const { deniedFields, source } = await restrictionsOf(call.tx, workspace_id);
  const denied = (fields ?? []).filter((field) => deniedFields.includes(field));
  if (denied.length > 0) {
    throw new SluiceError(
      'forbidden',
      `Log destinations may not have ${denied.join(', ')}: export_settings.deniedFields of the ${source} lists ${denied.length === 1 ? 'it' : 'them'}. Leave ${denied.length === 1 ? 'it' : 'them'} out.`,
      { param: 'fields' },
    );
  }
}

/** A stored destination as it is fed. Throws SluiceError('unavailable') when its secrets do not open. */
export async function planOf(
  vault: Pick<Vault, 'open'>,
  tenant: TenantContext,
  row: Destination,
): Promise<DestinationPlan> {
  return {
    id: row.id,
    organisationId: row.organisation_id,
    workspaceId: row.workspace_id,
    target: row.enabled ? await openTarget(vault, tenant, row) : null,
    where: [REAL, ...recordConditions(row.filters)],
    fields: row.fields as DestinationField[] | null,
    bodies: row.bodies,
    sample: row.sample / SAMPLE_PARTS,
    startAt: row.start_at,
    shared: false,
    version: `${row.last_updated_at} ${row.secrets}`,
  };
}

type FeedRow = Row<'log_destination_feeds'>;

/** What the nodes say of it, in one. */
export function stateOf(row: Destination, feeds: readonly FeedRow[]) {
  const sum = (name: 'delivered' | 'failed' | 'lost' | 'waiting') => feeds.reduce((all, feed) => all + feed[name], 0);
  const failing = feeds.find(({ error }) => error !== null);
  const deliveries = feeds.map(({ delivered_at }) => delivered_at).filter((time) => time !== null);
  const status = feeds.length === 0 ? 'starting' : failing === undefined ? 'ok' : 'failing';
  return {
    status: row.enabled ? (status as 'starting' | 'ok' | 'failing') : ('off' as const),
    last_delivery_at: deliveries.length === 0 ? null : new Date(Math.max(...deliveries)).toISOString(),
    lag_seconds: Math.max(0, ...feeds.map(({ lag_ms }) => lag_ms)) / 1_000,
    delivered: sum('delivered'),
    failed: sum('failed'),
    lost: sum('lost'),
    waiting: sum('waiting'),
    backfilling: feeds.some(({ backfilling }) => backfilling),
    last_error: failing?.error ?? null,
    nodes: feeds.length,
  };
}
