/** Who may do what with an export, and which fields it may have. */
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx, Where } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { wantsBodies } from '../../../telemetry/log-export.ts';
import { isUuid } from '../../fields.ts';
import { notFound } from '../../look-up.ts';
import type { Call } from '../../resource.ts';
import { deniedExportFields } from '../../settings/settings.ts';
import { checkMetadataSeen, type Reach, reachOf } from '../reach.ts';

type Caller = Pick<Call, 'principal' | 'tenant' | 'tx' | 'clock' | 'service'>;

/**
 * The exports that a caller sees: those of the workspaces whose requests the caller may read. A user key sees those of
 * its user; so does a person from whom a setting keeps a part of the requests, which the exports of others may have.
 */
export async function seenExports(call: Caller): Promise<Where<'log_exports'>> {
  const { principal } = call;
  const { scope, sight } = await reachOf(call, 'logs.view');
  const ownOnly = principal.kind === 'workspace-user' || sight.ownOnly !== null || sight.noMetadata !== null;
  return {
    ...(scope.workspaceIds === null ? {} : { workspace_id: { in: [...scope.workspaceIds] } }),
    ...(ownOnly ? { user_id: principal.userId ?? '' } : {}),
  };
}

/** The export of a path. Throws `not_found` for one that the caller does not see. */
export async function findExport(call: Caller, given: string): Promise<Row<'log_exports'>> {
  const id = given.toLowerCase();
  const row = isUuid(id) ? await call.tx.find('log_exports', { ...(await seenExports(call)), id }) : undefined;
  if (row === undefined) throw notFound();
  return row;
}

/** Whether a caller sees bodies of requests, also of those that others have made. */
export const mayReadBodies = ({ principal }: Pick<Call, 'principal'>): boolean => principal.scopes.has('logs.view');

/** The fields that no export of the workspace may have, and whose setting says so. */
export async function restrictionsOf(tx: Pick<TenantTx, 'find' | 'organisation'>, workspaceId: string | null) {
  const workspace = workspaceId === null ? undefined : await tx.find('workspaces', { id: workspaceId });
  return deniedExportFields(await tx.organisation(), workspace ?? null);
}

/** Throws `forbidden` for a field that no export of the workspace may have, or that a setting keeps from the reader. */
export async function checkFields(
  tx: Pick<TenantTx, 'find' | 'organisation'>,
  { sight, seesBodies }: Pick<Reach, 'sight'> & { readonly seesBodies: boolean },
  workspaceId: string,
  fields: readonly string[],
): Promise<void> {
  const { deniedFields, source } = await restrictionsOf(tx, workspaceId);
  const denied = fields.filter((field) => deniedFields.includes(field));
  if (denied.length > 0) {
    throw new SluiceError(
      'forbidden',
      `Exports of this workspace may not have ${denied.join(', ')}: export_settings.deniedFields of the ${source} lists ${denied.length === 1 ? 'it' : 'them'}. Leave ${denied.length === 1 ? 'it' : 'them'} out.`,
      { param: 'requested_data' },
    );
  }
  if (!seesBodies && wantsBodies(fields)) {
    throw new SluiceError('forbidden', 'The fields request and response need the scope logs.view beside logs.export.', {
      param: 'requested_data',
    });
  }
  if (fields.includes('metadata')) checkMetadataSeen(sight, 'requested_data');
}
