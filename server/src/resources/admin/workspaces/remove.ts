/** The end of a workspace. */
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { archiveKeys } from '../../api-keys/archive.ts';
import { refuse } from '../../common.ts';
import { tellSharing } from '../../integrations/sharing.ts';
import type { Call } from '../../resource.ts';
import type { RemoveBody } from './schema.ts';

/** Names of what is in the way that an answer lists. */
const SHOWN = 5;

/**
 * Archives the workspace and revokes its keys, and with `force_delete` its resources too. Throws 400 for the default
 * workspace and for another name than its own, 409 while shared prompts or partials are in it.
 */
export async function removeWorkspace(call: Call<unknown, unknown, RemoveBody>, row: Row<'workspaces'>): Promise<void> {
  const { body, tx, clock } = call;
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
  const inTheWay = await call.references({ table: 'workspaces', id: row.id, slug: row.slug, workspaceId: row.id });
  if (inTheWay.length > 0) {
    const named = inTheWay.slice(0, SHOWN).map(({ kind, name }) => `${kind} ${name}`);
    const more = inTheWay.length > SHOWN ? ` and ${inTheWay.length - SHOWN} more` : '';
    throw new SluiceError(
      'conflict',
      `Others still use what is in this workspace: ${named.join(', ')}${more}. Stop sharing or delete them first.`,
    );
  }
  await archiveKeys(tx, clock, { workspace_id: row.id });
  // While its entries are there.
  await tellSharing(tx, row.id);
  if (body.force_delete === true) await removeResources(tx, row.id, clock.now());
  await tx.update('workspaces', { id: row.id }, { status: 'archived', last_updated_at: clock.now() });
  tx.changed({ workspaceId: row.id, topic: 'workspaces', entityId: row.id });
}

/**
 * Everything that lives in the workspace. What is named by a slug is archived, which frees the slug; what only says
 * something about the workspace goes. Contents of files follow their rows in the sweep of the blob store. Batches and
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
  await tx.remove('integration_workspaces', here);
  await tx.remove('guardrail_exclusions', here);
  await tx.remove('object_owners', here);
  await tx.remove('object_usage', here);
  await tx.remove('sandbox_objects', here);
  await tx.remove('files', here);
  await tx.remove('file_totals', here);
}
