/**
 * What of the stored requests a caller may see, by the security settings of the place. Every answer that shows requests,
 * one or many, goes through here.
 */
import { roleSight, type Sight, WHOLE_SIGHT } from '../../auth/scopes.ts';
import { securityOf } from '../../auth/security-settings.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { hideMetadata } from '../../telemetry/hidden-metadata.ts';
import type { Call } from '../resource.ts';

type Caller = Pick<Call, 'principal' | 'tx'>;

/**
 * What the caller sees of the requests of a workspace, or of the whole organisation for null. People and their keys are
 * restricted by the role that they have now; service keys act for nobody.
 */
export async function sightOf({ principal, tx }: Caller, workspaceId: string | null): Promise<Sight> {
  const { role, userId } = principal;
  if (role === null || userId === null) return WHOLE_SIGHT;
  const workspace = workspaceId === null ? undefined : await tx.find('workspaces', { id: workspaceId });
  const joined =
    workspaceId === null
      ? undefined
      : await tx.find('workspace_members', { workspace_id: workspaceId, user_id: userId, status: 'active' });
  return roleSight(role, joined?.role ?? 'member', securityOf(await tx.organisation(), workspace ?? null));
}

/** Whether a request may be shown to the caller at all; for lists, the condition on `user_id`. */
export function isSeen(sight: Sight, userId: string | null, record: Readonly<Record<string, unknown>>): boolean {
  return sight.ownOnly === null || (userId !== null && record.user_id === userId);
}

/** The same as a condition on tables and queries with a column `user_id`; empty where all are seen. */
export function ownRequests(sight: Sight, userId: string | null): { readonly user_id?: string } {
  // Who is restricted is a user. Were it otherwise, the empty id would match nothing.
  return sight.ownOnly === null ? {} : { user_id: userId ?? '' };
}

/** The answer without the metadata of its request, where a setting hides it. */
export function withoutMetadata<T>(sight: Sight, record: Readonly<Record<string, unknown>>, answer: T): T {
  return sight.noMetadata === null ? answer : hideMetadata(record.metadata, answer);
}

/** The setting that keeps the requests of all callers, added up or one by one, from this one; null for none. */
async function keptBy(call: Caller, workspaceId: string): Promise<string | null> {
  const { ownOnly, noMetadata } = await sightOf(call, workspaceId);
  return ownOnly ?? noMetadata;
}

/** Whether the caller may read what adds up the requests of all callers. */
export async function seesAll(call: Caller, workspaceId: string): Promise<boolean> {
  return (await keptBy(call, workspaceId)) === null;
}

/** Refuses with 403 what adds up the requests of all callers, to those who may not see them. */
export async function checkSeesAll(call: Caller, workspaceId: string): Promise<void> {
  const setting = await keptBy(call, workspaceId);
  if (setting === null) return;
  throw new SluiceError(
    'forbidden',
    `This reads the requests of all callers, which the security setting ${setting} keeps from you. Ask an administrator.`,
  );
}
