/** An organisation whose workspaces tests make and change. */
import { afterAll, beforeAll, expect } from 'vitest';
import { REFERENCES } from '../../src/resources/catalog.ts';
import type { ReferredTo } from '../../src/resources/references.ts';
import type { TenantTx } from '../../src/store/ports.ts';
import type { Answer } from './admin.ts';
import { type Organisation, startOrganisation } from './organisation.ts';

export const NOWHERE = '00000000-0000-7000-8000-000000000000';
export const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
export const PATH = '/v1/admin/workspaces';

export function ok(answer: Answer) {
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

export function refused(answer: Answer, status: number, code: string, param: string | null = null) {
  expect([answer.status, answer.body?.error?.code, answer.body?.error?.param], answer.text).toEqual([
    status,
    code,
    param,
  ]);
}
export let on: Organisation;
/** What the stand-in for prompts and partials answers. */
export const shared: { readonly to: ReferredTo['table']; readonly id: string; readonly name: string }[] = [];

export const call = (method: string, path: string, body?: unknown, key?: string) =>
  on.admin.call(method, path, { body, ...(key === undefined ? {} : { key }) });
export const create = async (body: Record<string, unknown>) => ok(await call('POST', PATH, body));
export const get = async (id: string, query = '') => ok(await call('GET', `${PATH}/${id}${query}`));
export const put = (id: string, body: unknown) => call('PUT', `${PATH}/${id}`, body);
export const organisation = (settings: Record<string, unknown>) =>
  on.admin.tables.systemWrite(async (tx) => {
    const found = await tx.find('organisations', { id: on.admin.a.organisation_id });
    const kept = { block_inline_config: found?.settings.block_inline_config !== false };
    await tx.update('organisations', { id: on.admin.a.organisation_id }, { settings: { ...kept, ...settings } });
  });

/** Starts the organisation on the engine. */
export function useWorkspaces(engine: 'sqlite' | 'postgres'): void {
  beforeAll(async () => {
    on = await startOrganisation(engine, {
      admin: {
        references: [
          ...REFERENCES.filter(({ to }) => to === 'configs'),
          ...(['workspaces', 'configs'] as const).map((table) => ({
            to: table,
            find: async (_tx: TenantTx, to: ReferredTo) =>
              shared
                .filter((one) => one.to === to.table && one.id === to.id)
                .map((one) => ({ kind: 'shared prompt', id: NOWHERE, name: one.name })),
          })),
        ],
      },
    });
  });

  afterAll(async () => {
    await on?.admin.close();
  });
}
