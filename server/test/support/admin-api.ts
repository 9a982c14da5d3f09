/** The administration API with an organisation whose keys and users tests make. */
import { afterAll, beforeAll, expect } from 'vitest';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from './admin.ts';

export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
export const NOWHERE = '00000000-0000-7000-8000-000000000000';
export let admin: AdminHarness;

export const fails = (answer: Answer, status: number, code: string, param: string | null = null) => {
  expect([answer.status, answer.body?.error?.code, answer.body?.error?.param], answer.text).toEqual([
    status,
    code,
    param,
  ]);
  expect(Object.keys(answer.body.error).sort()).toEqual(['code', 'message', 'param', 'type']);
  expect(answer.body.error.type).toBe(status < 500 ? 'client_error' : 'server_error');
  expect(answer.body.error.message).toMatch(/^.{10,}[.)!?]$/s);
  expect(answer.headers.get('x-gateway-request-id')).toMatch(UUID);
};

/** A key of organisation A, made through the API. */
export async function makeKey(
  scopes: string[],
  patch: Record<string, unknown> = {},
  type = 'workspace/service',
): Promise<{ id: string; key: string }> {
  const where = type.startsWith('workspace') ? { workspace_id: admin.a.workspace_slug } : {};
  const answer = await admin.call('POST', `/v1/api-keys/${type}`, {
    body: { name: 'made for a test', scopes, ...where, ...patch },
  });
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

export async function addUser(role: 'admin' | 'member', workspaceRole: 'admin' | 'manager' | 'member' | null) {
  const id = crypto.randomUUID();
  const stamps = {
    created_at: Date.UTC(2026, 1, 3, 4, 5, 6, 789),
    last_updated_at: Date.UTC(2026, 11, 31, 23, 59, 59),
  };
  const { organisation_id, workspace_id } = admin.a;
  const person = { email: `${id}@alpha.example`, first_name: 'Grace', last_name: 'Hopper' };
  await admin.tables.systemWrite(async (tx) => {
    await tx.insert('users', { id, organisation_id, ...person, role, status: 'active', ...stamps });
    if (workspaceRole === null) return;
    const member = { organisation_id, workspace_id, user_id: id, role: workspaceRole, status: 'active' as const };
    await tx.insert('workspace_members', { ...member, ...stamps });
  });
  return id;
}

/** Starts the administration on the engine. */
export function useAdminApi(engine: 'sqlite' | 'postgres'): void {
  beforeAll(async () => {
    admin = await startAdmin(await emptyTables(engine));
  });

  afterAll(async () => {
    await admin?.close();
  });
}
