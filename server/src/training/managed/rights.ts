import { type HeldCaller, nameOfCaller, rightsOfCaller } from '../../auth/held-caller.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TrainingServices } from '../services.ts';

/**
 * Refuses to begin anything at a provider for a key, token or user that may not call any more: revoked, expired, removed, without the
 * scope, or of a suspended organisation; and where a default guardrail has come that must judge what the provider would be sent. What
 * runs there already is watched to its end, which costs nobody anything.
 *
 * @param held who asked for it, where no key did
 * @param answers whether what a model answers there is given to the caller
 */
export async function mayStillBegin(
  services: Pick<TrainingServices, 'tables' | 'clock' | 'runtime'>,
  row: { readonly organisation_id: string; readonly workspace_id: string; readonly created_by: string | null },
  held: HeldCaller,
  answers = false,
): Promise<void> {
  const { organisation_id: organisationId, workspace_id: workspaceId, created_by: keyId } = row;
  const { guardrails } = await services.runtime.workspace(organisationId, workspaceId);
  const judge = (answers ? [...guardrails.input, ...guardrails.output] : guardrails.input).find(
    ({ actions, checks }) => !actions.async && (actions.deny || checks.some(({ redacts }) => redacts)),
  );
  if (judge !== undefined) {
    throw new SluiceError(
      'invalid_request',
      `The guardrail ${judge.slug} became a default after this was requested, and the provider would not run it. Send the request again.`,
      { reason: 'guardrail_not_enforced' },
    );
  }
  const work = { ...held, keyId, organisationId, workspaceId };
  const rights = await rightsOfCaller(services.tables, services.clock, work);
  // Rows from before it was noted.
  if (rights === null) return;
  const { principal, refusal } = rights;
  const what = nameOfCaller(work);
  const reason =
    refusal?.message ??
    (principal.scopes.has('completions.write') ? null : `The ${what} has lost the scope completions.write.`);
  if (reason === null) return;
  throw new SluiceError('forbidden', `The ${what} that asked for it may not call any more: ${reason}`, {
    reason: 'invalid_api_key',
  });
}
