/** Calls about guardrails of an organisation, as tests of the resource make them. */
import { type Accounts, ok, unique } from './accounts.ts';

export const NOBODY = '00000000-0000-7000-8000-00000000000b';
export const CONTAINS = { id: 'default.contains', parameters: { words: ['no'] } };

/** @param on an organisation on one of the stores */
export function guardrailCalls(on: Accounts) {
  const inWorkspace = (more: object = {}) => ({
    name: unique('Guard'),
    checks: [CONTAINS],
    workspace_id: on.api.a.workspace_id,
    ...more,
  });
  const ofOrganisation = (more: object = {}) => ({
    name: unique('Guard'),
    checks: [CONTAINS],
    organisation_id: on.api.a.organisation_id,
    ...more,
  });
  const make = async (body: object = inWorkspace(), key?: string) => ok(await on.post('/guardrails', body, key));
  const read = async (name: string, key?: string) => ok(await on.get(`/guardrails/${name}`, key));
  const ids = async (query: string, key?: string): Promise<string[]> =>
    ok(await on.get(`/guardrails?page_size=1000&${query}`, key)).data.map((one: { id: string }) => one.id);
  const keyWith = async (scopes: string[], kind: 'organisation' | 'workspace' = 'workspace') => {
    const place = kind === 'workspace' ? { workspace_id: on.api.a.workspace_id } : {};
    return ok(await on.post(`/api-keys/${kind}/service`, { name: unique('key'), scopes, ...place })).key as string;
  };
  return { inWorkspace, ofOrganisation, make, read, ids, keyWith };
}
