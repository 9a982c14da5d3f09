/** The end of a workspace. */
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { archiveKeys } from '../../api-keys/archive.ts';
import { refuse } from '../../common.ts';
import { tellSharing } from '../../integrations/sharing.ts';
import type { Reference } from '../../references.ts';
import type { Call } from '../../resource.ts';
import type { RemoveBody } from './schema.ts';

/** Names of what is in the way that an answer lists. */
const SHOWN = 5;

/** Throws 400 for the default workspace and for another name than its own. */
export function checkRemovable(body: RemoveBody, row: Row<'workspaces'>): void {
  if (row.is_default) {
    throw new SluiceError(
      'validation',
      'The default workspace of an organisation cannot be deleted; rename it, or delete what is in it.',
    );
  }
  if (body.name !== undefined && body.name !== row.name) {
    const name = JSON.stringify(row.name);
    throw refuse(
      'name',
      `is another one. The name of the workspace in the path is ${name}. Send it, or correct the path`,
    );
  }
}

/** While what is in the workspace is shared with others. */
export function stillUsed(_first: Reference, all: readonly Reference[]): string {
  const named = all.slice(0, SHOWN).map(({ kind, name }) => `${kind} ${name}`);
  const more = all.length > SHOWN ? ` and ${all.length - SHOWN} more` : '';
  return `Others still use what is in this workspace: ${named.join(', ')}${more}. Stop sharing or delete them first.`;
}

/** Revokes the keys of a workspace that is about to be archived, and with `resources` all that is in it. */
export async function emptyWorkspace(
  { tx, clock }: Pick<Call, 'tx' | 'clock'>,
  row: Row<'workspaces'>,
  resources: boolean,
): Promise<void> {
  await archiveKeys(tx, clock, { workspace_id: row.id });
  await tx.remove('alert_watches', { id: row.id });
  // While its entries are there.
  await tellSharing(tx, row.id);
  if (resources) await removeResources(tx, row.id, clock.now());
}

/**
 * Everything that lives in the workspace. Objects with a slug are archived, which frees the slug; rows that only say
 * something about the workspace go. Contents of files follow their rows in the sweep of the blob store. Batches and
 * jobs end by themselves: their keys are revoked.
 */
async function removeResources(tx: TenantTx, workspaceId: string, now: number): Promise<void> {
  const here = { workspace_id: workspaceId } as const;
  const living = { ...here, status: { not: 'archived' } } as const;
  const gone = { status: 'archived', last_updated_at: now } as const;
  await tx.update('configs', living, gone);
  await tx.update('providers', living, gone);
  await tx.update('virtual_keys', living, gone);
  await tx.update('integrations', living, gone);
  await tx.update('rate_policies', living, gone);
  await tx.update('usage_policies', living, gone);
  await tx.update('workspace_members', living, gone);
  await tx.remove('membership_sources', here);
  await tx.remove('integration_workspaces', here);
  await tx.remove('guardrail_exclusions', here);
  await tx.remove('object_owners', here);
  await tx.remove('object_usage', here);
  await tx.remove('sandbox_objects', here);
  await tx.remove('files', here);
  await tx.remove('file_totals', here);
  await tx.remove('feedback', here);
  // The sweep of exports removes them with their files.
  const stopped = { status: 'stopped', cancel_requested: true, due_at: 0, last_updated_at: now } as const;
  await tx.update('log_exports', { ...here, status: 'in_progress' }, stopped);
  await tx.update('log_exports', here, { expires_at: 0 });
}
