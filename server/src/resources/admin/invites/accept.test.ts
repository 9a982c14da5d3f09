/** What the transaction of an acceptance decides by itself, whatever was looked at before it. */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryTables } from '../../../../test/support/tables.ts';
import { scopesOf } from '../../../auth/scopes.ts';
import { systemTenant } from '../../../auth/tenant.ts';
import { systemClock } from '../../../kernel/clock.ts';
import { base62, uuidv7 } from '../../../kernel/id.ts';
import { apiKeyRow, userRow } from '../../../store/conformance/rows.ts';
import type { Tables } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { type CreatedOrganisation, createOrganisation } from '../../organisations.ts';
import { mayStillInvite } from '../give.ts';
import { rankOfKey } from '../rank.ts';
import { acceptInvite } from './accept.ts';

const INVITE = 'organisation_users.create';

let tables: Tables;
let org: CreatedOrganisation;

beforeAll(async () => {
  tables = await temporaryTables();
  const owner = { email: 'owner@x.example', first_name: 'First', last_name: 'Owner' };
  org = await tables.systemWrite((tx) =>
    createOrganisation(tx, { name: 'Org', owner, blockInlineConfig: true, clock: systemClock }),
  );
});
afterAll(() => tables.close());

const id = () => uuidv7(systemClock);
const user = async (more: Partial<Row<'users'>>): Promise<string> => {
  const row = userRow(org.organisation_id, id(), { email: `${id()}@x.example`, ...more });
  await tables.systemWrite((tx) => tx.insert('users', row));
  return row.id;
};
const key = async (more: Partial<Row<'api_keys'>>): Promise<string> => {
  const type = 'organisation-service' as const;
  const every = [...scopesOf(type)];
  const unbound = { type, workspace_id: null, user_id: null, scopes: every, status: 'active' as const };
  const row = apiKeyRow(org.organisation_id, id(), { ...unbound, created_by: null, ...more });
  await tables.systemWrite((tx) => tx.insert('api_keys', row));
  return row.id;
};

/** Accepts an invite that is stored with these fields. */
async function accept(more: Partial<Row<'invites'>>) {
  const token = base62(43);
  const now = systemClock.now();
  const row: Row<'invites'> = {
    id: id(),
    organisation_id: org.organisation_id,
    email: `${id()}@x.example`,
    role: 'member',
    workspaces: [],
    api_key_details: null,
    status: 'pending',
    token_digest: createHash('sha256').update(token).digest('hex'),
    expires_at: now + 60_000,
    accepted_at: null,
    invited_by: org.user_id,
    created_at: now,
    last_updated_at: now,
    ...more,
  };
  await tables.systemWrite((tx) => tx.insert('invites', row));
  return tables.write(systemTenant(org.organisation_id), (tx) =>
    acceptInvite(tx, systemClock, { token, firstName: 'Ada', lastName: 'Lovelace' }),
  );
}

describe('accepting an invite', () => {
  it('makes the user', async () => {
    expect(await accept({ role: 'admin' })).toMatchObject({ user: { role: 'admin', status: 'active' }, keys: [] });
  });

  it('is refused when it was used, cancelled or has expired meanwhile', async () => {
    await expect(accept({ status: 'accepted' })).rejects.toThrow('has been accepted');
    await expect(accept({ status: 'cancelled' })).rejects.toThrow('was cancelled');
    await expect(accept({ expires_at: systemClock.now() })).rejects.toThrow('has expired');
  });

  it('is refused when its sender was removed or demoted meanwhile', async () => {
    for (const more of [{ role: 'member' }, { role: 'admin', status: 'archived' }] as const) {
      await expect(accept({ invited_by: await user(more) })).rejects.toThrow('may no longer invite');
    }
  });

  it('is refused when the organisation was suspended meanwhile', async () => {
    const status = (to: 'active' | 'suspended') =>
      tables.systemWrite((tx) => tx.update('organisations', { id: org.organisation_id }, { status: to }));
    await status('suspended');
    await expect(accept({})).rejects.toThrow('is suspended');
    await status('active');
  });
});

describe('an invite stands as long as whoever sent it could send it', () => {
  const may = (invited_by: string, role: 'admin' | 'member') =>
    tables.systemRead((tx) =>
      mayStillInvite(tx, { settings: { block_inline_config: false } }, { invited_by, role, workspaces: [] }),
    );

  it.each<[string, () => Promise<string>, boolean, boolean]>([
    ['an admin', () => user({ role: 'admin' }), true, true],
    ['a member', () => user({ role: 'member' }), false, false],
    ['an owner who was removed', () => user({ role: 'owner', status: 'archived' }), false, false],
    ['nobody', async () => id(), false, false],
    ['a key', () => key({}), true, true],
    ['a key with no scope but that of inviting', () => key({ scopes: [INVITE] }), false, true],
    ['a key that has expired', () => key({ status: 'expired' }), true, true],
    ['a key that was revoked', () => key({ status: 'archived' }), false, false],
    ['a key without the scope', () => key({ scopes: [] }), false, false],
    [
      'a key of an owner who was removed',
      async () => key({ created_by: await user({ role: 'owner', status: 'archived' }) }),
      true,
      true,
    ],
    ['a key of an admin who was demoted', async () => key({ created_by: await user({ role: 'member' }) }), false, true],
    [
      'a key of a key of such an admin',
      async () => key({ created_by: await key({ created_by: await user({}) }) }),
      false,
      true,
    ],
  ])('%s', async (_who, make, admins, members) => {
    const inviter = await make();
    expect([await may(inviter, 'admin'), await may(inviter, 'member')]).toEqual([admins, members]);
  });

  it('falls when the sender’s key has lost a scope of a workspace’s role', async () => {
    const given = {
      role: 'member' as const,
      workspaces: [{ workspace_id: org.workspace_id, role: 'manager' as const }],
    };
    const stands = async (scopes: string[]) => {
      const invited_by = await key({ scopes });
      return tables.systemRead((tx) =>
        mayStillInvite(tx, { settings: { block_inline_config: false } }, { ...given, invited_by }),
      );
    };
    const every = [...scopesOf('organisation-service')];
    expect(await stands(every)).toBe(true);
    expect(await stands(every.filter((scope) => scope !== 'policies.delete'))).toBe(false);
  });

  it('the key of an owner who was removed outranks other admins no more', async () => {
    const orphan = await key({ created_by: await user({ role: 'owner', status: 'archived' }) });
    const living = await key({ created_by: org.user_id });
    const rank = (keyId: string) => tables.systemRead((tx) => rankOfKey(tx, keyId));
    expect([await rank(orphan), await rank(living)]).toEqual(['admin', 'owner']);
  });
});
