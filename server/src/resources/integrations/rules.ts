/** Who may see and change which integration, and the checks of an account before it is stored. */
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { accountKind, storableProviders } from '../../providers/accounts.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row, SecretMapping } from '../../store/schema.ts';
import { checkMappings, freeSlug, refuse, refuseIssues, slugTaken, workspaceOf } from '../common.ts';
import { Levels } from '../kinds/levels.ts';
import type { Call } from '../resource.ts';
import { isOpenTo } from '../runtime-rows.ts';
import { checkMappedAddresses, checkSettings, fieldNames, type StoredAccount } from './configurations.ts';

export type Integration = Row<'integrations'>;

export const LEVELS = new Levels({ organisation: 'organisation_integrations', workspace: 'workspace_integrations' });

/** Ids of the organisation's integrations that a workspace may use. */
async function openIntegrations(tx: TenantTx, workspaceId: string): Promise<string[]> {
  const rows = await tx.list('integrations', { where: { workspace_id: null, status: 'active' } });
  const access = await tx.list('integration_workspaces', { where: { workspace_id: workspaceId } });
  const own = new Map(access.map((row) => [row.integration_id, row]));
  return rows.filter((row) => isOpenTo(row, own.get(row.id) ?? null)).map((row) => row.id);
}

/** What the caller sees at all: in a workspace its own integrations and the organisation's that are open to it. */
export async function visible(call: Call) {
  const workspaceId = await workspaceOf(call);
  if (workspaceId === null) return {};
  const open = await openIntegrations(call.tx, workspaceId);
  return { anyOf: [{ workspace_id: workspaceId }, { workspace_id: null, id: { in: open } }] };
}

export interface AccountInput {
  readonly provider: string;
  readonly configurations: Readonly<Record<string, unknown>>;
  readonly mappings: readonly SecretMapping[] | null | undefined;
  readonly hasKey: boolean;
  /** What is stored already, for an update. */
  readonly stored?: StoredAccount;
}

/** Checks provider, settings, mappings and key of an account together. Throws 400, or 404 for unknown references. */
export async function checkAccount(call: Call, workspaceId: string | null, input: AccountInput) {
  checkProvider('ai_provider_id', input.provider);
  const fields = fieldNames(input.provider);
  const mapped = await checkMappings(call.tx, workspaceId, input.mappings, 'configurations', fields);
  const checked = checkSettings(input.provider, input.configurations, {
    checkHost: call.checkHost,
    mapped,
    ...(input.stored ? { stored: input.stored } : {}),
  });
  if (!checked.ok) throw refuseIssues('configurations', checked.issues);
  checkMappedAddresses(input.provider, mapped, input.hasKey || Object.keys(checked.secrets).length > 0);
  if (checked.needsKey && !input.hasKey && !mapped.has('key')) {
    throw refuse('key', 'is required with this provider and way of signing in');
  }
  return checked;
}

export function checkProvider(param: string, id: string): void {
  if (!accountKind(id)) throw refuse(param, `must be the id of a base provider: ${storableProviders().join(', ')}`);
}

/**
 * Makes a workspace's default provider of an integration. A slug that was asked for and is taken is 400;
 * without one the integration's own slug is used when it is free, else it with a random tail. Answers the slug.
 */
export async function createDefaultProvider(
  call: Call,
  integration: Pick<Integration, 'id' | 'slug' | 'name' | 'organisation_id'>,
  workspaceId: string,
  wanted: string | undefined,
  param: string,
): Promise<string> {
  if (wanted && (await slugTaken(call.tx, wanted))) {
    throw refuse(param, `is taken by another provider or virtual key: ${wanted}`);
  }
  const now = call.clock.now();
  const row: Row<'providers'> = {
    id: uuidv7(call.clock),
    organisation_id: integration.organisation_id,
    workspace_id: workspaceId,
    integration_id: integration.id,
    slug: wanted || (await freeSlug(call.tx, integration.slug)),
    name: integration.name,
    note: null,
    status: 'active',
    usage_limits: null,
    rate_limits: null,
    expires_at: null,
    tags: null,
    secret_mappings: null,
    last_reset_at: null,
    created_at: now,
    last_updated_at: now,
  };
  await call.tx.insert('providers', row);
  call.tx.changed({ workspaceId, topic: 'providers', entityId: row.id });
  return row.slug;
}

/** How many providers a refusal names. */
const NAMED = 10;

/** Refuses with 409 to delete an integration that providers use: their requests would fail from then on. */
export async function checkUnused(tx: TenantTx, integration: Integration): Promise<void> {
  const where = { integration_id: integration.id, status: { not: 'archived' } } as const;
  const total = await tx.count('providers', { where });
  if (total === 0) return;
  const users = await tx.list('providers', { where, orderBy: [['created_at', 'asc']], limit: NAMED });
  const places = await tx.list('workspaces', {
    where: { id: { in: [...new Set(users.map((one) => one.workspace_id))] } },
  });
  const slugs = new Map(places.map((row) => [row.id, row.slug]));
  const named = users.map((one) => `@${one.slug} in ${slugs.get(one.workspace_id) ?? one.workspace_id}`);
  const others = total > NAMED ? ` and ${total - NAMED} more` : '';
  throw new SluiceError(
    'conflict',
    `Integration ${integration.slug} is in use by ${named.join(', ')}${others}. Delete these providers first, or send ?force=true: their requests fail then.`,
  );
}
