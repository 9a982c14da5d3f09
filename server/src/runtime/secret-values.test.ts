import { expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { silentLog } from '../kernel/log.ts';
import { Secret } from '../kernel/secret.ts';
import type { MappedField, OpenedAccount } from '../resources/runtime-rows.ts';
import type { SecretContent, SecretPlace } from '../resources/secret-references/manager.ts';
import { MappedAccount } from './mapped-account.ts';
import { SecretValues } from './secret-values.ts';

const MINUTE = 60_000;
const REFERENCE = {
  id: 'r1',
  slug: 'openai-key',
  manager_type: 'hashicorp_vault',
  secret_path: 'secret/data/openai',
  auth_config: {},
  secret_auth_config: null,
} as unknown as NonNullable<MappedField['reference']>;

/** A manager that can be away, and what two nodes know of a secret in it. */
function world() {
  const clock = new TestClock();
  const state = { asked: 0, away: null as SluiceError | null, value: 'sk-first', logged: [] as string[] };
  const managers = {
    read: async (): Promise<SecretContent> => {
      state.asked += 1;
      if (state.away !== null) throw state.away;
      return { text: new Secret(state.value) };
    },
  };
  const log = { ...silentLog, warn: (message: string) => void state.logged.push(message) };
  const node = (more: Partial<MappedField> = {}) => {
    const values = new SecretValues(managers, clock, log);
    const mapped = [
      {
        field: 'key',
        name: 'openai-key',
        reference: REFERENCE,
        open: true,
        key: null,
        format: 'string' as const,
        ...more,
      },
    ];
    const open = async (): Promise<OpenedAccount> => ({ key: null, settings: {}, customHost: null, customHeaders: {} });
    const openPlace = async () => ({}) as SecretPlace;
    const parts = { providerId: 'openai', mapped, open, openPlace, values };
    return new MappedAccount(parts, clock, silentLog, { integration: 'i1' });
  };
  return { clock, state, node };
}
const away = (retryAfter: number | null = null) =>
  new SluiceError('out_of_service', 'The secret reference openai-key cannot be read.', { retryAfter });
const keyOf = async (account: MappedAccount) => (await account.get()).key?.reveal();
const turns = async () => {
  for (let i = 0; i < 20; i++) await null;
};

it('is given without waiting and without a read once it is there', async () => {
  const { state, node } = world();
  const account = node();
  expect(await keyOf(account)).toBe('sk-first');
  expect(account.get()).not.toBeInstanceOf(Promise);
  expect(state.asked).toBe(1);
});

it('two nodes see a rotation within five minutes, and no request waits for it', async () => {
  const { clock, state, node } = world();
  const nodes = [node(), node()];
  await Promise.all(nodes.map(keyOf));
  state.value = 'sk-rotated';
  clock.jump(4 * MINUTE);
  for (const one of nodes) expect(one.get()).not.toBeInstanceOf(Promise);
  await turns();
  expect(await Promise.all(nodes.map(keyOf))).toEqual(['sk-rotated', 'sk-rotated']);
  expect(state.asked).toBe(4);
});

it('its last good value is used for 15 minutes more while the manager is away, and not longer', async () => {
  const { clock, state, node } = world();
  const account = node();
  await keyOf(account);
  state.away = away();
  for (let minute = 1; minute < 20; minute++) {
    clock.jump(MINUTE);
    expect(await keyOf(account), `minute ${minute}`).toBe('sk-first');
    await turns();
  }
  clock.jump(MINUTE);
  await expect(account.get()).rejects.toMatchObject({ kind: 'out_of_service' });
  expect(state.logged.length).toBeGreaterThan(0);
  state.away = null;
  clock.jump(MINUTE);
  expect(await keyOf(account)).toBe('sk-first');
});

it('a manager that is away is asked less and less often, and as late as it asks for', async () => {
  const { clock, state, node } = world();
  const account = node();
  state.away = away();
  const asked: number[] = [];
  for (let second = 0; second < 180; second++) {
    const before = state.asked;
    await expect(account.get()).rejects.toThrow('cannot be read');
    if (state.asked > before) asked.push(second);
    clock.jump(1000);
  }
  expect(asked).toEqual([0, 5, 15, 35, 75, 135]);
  state.away = away(200);
  clock.jump(MINUTE);
  await expect(account.get()).rejects.toMatchObject({ retryAfter: 200 });
  const before = state.asked;
  clock.jump(199_000);
  await expect(account.get()).rejects.toThrow();
  expect(state.asked).toBe(before);
  clock.jump(1000);
  state.away = null;
  expect(await keyOf(account)).toBe('sk-first');
});

it.each([
  ['of a workspace that may not use it', { open: false }, /closed to this workspace/],
  ['that does not exist', { reference: null, open: false }, /does not exist/],
  ['whose secret does not fit the field', { field: 'custom_headers' }, /does not fit the field custom_headers/],
  ['that is said to be JSON and is none', { format: 'json' as const }, /no JSON/],
  ['that is asked for a member and is a text', { key: 'api_key' }, /no JSON object/],
])('a reference %s gives no account, and the message holds no secret', async (_title, more, said) => {
  const error = await Promise.resolve(world().node(more).get()).catch((failed: unknown) => failed);
  expect(error).toMatchObject({ kind: 'out_of_service', message: expect.stringMatching(said) });
  expect(String(error)).not.toContain('sk-first');
});
