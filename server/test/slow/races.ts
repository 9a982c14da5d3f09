/**
 * Requests that meet: `npm run test:races -- [--rounds 1000] [--store sqlite|postgres|both] [--seed 1] [--only name]`.
 *
 * Each round makes an organisation of its own and sends two or more administration calls at the same moment that cannot
 * all be right. Before and after every step of every transaction the store waits for a random moment, so that the calls
 * meet at ever different places. Then the answers must be those of some order of the calls one after another, the loser's
 * a 4xx and nobody's a 5xx, and what the store holds must keep the rule that the race is about.
 */

import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { Invitations } from '../../src/admin/invitations.ts';
import { createAuthenticator } from '../../src/auth/authenticator.ts';
import { ConsoleSessions } from '../../src/auth/console-session.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { errorStatus } from '../../src/operations/dialects/errors.ts';
import { type CreatedOrganisation, createOrganisation } from '../../src/resources/organisations.ts';
import { workspaceRow } from '../../src/store/conformance/rows.ts';
import type { SystemTx, Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import type { Row, TableName } from '../../src/store/schema.ts';
import { addSession, addUser, PUBLIC_URL } from '../matrix/principals.ts';
import { newId } from '../matrix/world.ts';
import { type AdminHarness, type Answer, plainVault, startAdmin } from '../support/admin.ts';
import { temporaryTables } from '../support/tables.ts';
import { watchdog, within } from '../support/watchdog.ts';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '1000' },
    store: { type: 'string', default: 'both' },
    seed: { type: 'string' },
    only: { type: 'string' },
    /** Rounds under way at the same time. */
    width: { type: 'string', default: '4' },
  },
});
const rounds = Number(options.rounds);
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);
if (!(Number.isInteger(rounds) && rounds > 0 && Number.isInteger(seed))) {
  process.stderr.write('--rounds must be a whole number above 0 and --seed a whole number\n');
  process.exit(2);
}

/** Longer than any round takes on a slow machine. */
const ROUND_MS = 60_000;
let under = '';
const watch = watchdog('races', () => under);

/** A small seeded generator. It chooses the delays; which call takes which of them is the scheduler's, so a seed alone does not replay a race. */
let state = seed >>> 0;
function next(): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return state / 2 ** 32;
}

/** Mostly nothing or a turn of the event loop, now and then some milliseconds. */
function pause(): Promise<void> {
  const x = next();
  if (x < 0.5) return Promise.resolve();
  if (x < 0.85) return new Promise((resolve) => setImmediate(resolve));
  return new Promise((resolve) => setTimeout(resolve, x < 0.97 ? 1 : 1 + Math.floor(next() * 6)));
}

/** The same store with a pause around each transaction and around every step in it. */
function delayed(tables: Tables): Tables {
  const slow = <T extends object>(tx: T): T =>
    new Proxy(tx, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        if (name === 'changed') return value.bind(target);
        return async (...args: unknown[]) => {
          await pause();
          const answer: unknown = await value.apply(target, args);
          await pause();
          return answer;
        };
      },
    });
  return new Proxy(tables, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      if (!['read', 'write', 'systemRead', 'systemWrite'].includes(String(name))) return value.bind(target);
      return async (...args: unknown[]) => {
        await pause();
        const slowed = args.map((arg) =>
          typeof arg === 'function' ? (tx: object) => (arg as (tx: object) => unknown)(slow(tx)) : arg,
        );
        return value.apply(target, slowed);
      };
    },
  });
}

/** What a race works with: an organisation of its own. */
interface Round {
  readonly n: number;
  readonly org: CreatedOrganisation;
  /** A second workspace, which is not the default one. */
  readonly workspace: { readonly id: string; readonly slug: string };
  /** Calls with the organisation's key, or as `as` says. */
  call(method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Answer>;
  /** The same for what must succeed. */
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape
  done(method: string, path: string, body?: unknown): Promise<any>;
  /** A user with a signed-in browser. */
  user(role: Row<'users'>['role'], inWorkspace: Row<'workspace_members'>['role'] | null): Promise<Person>;
  rows<N extends TableName>(table: N): Promise<Row<N>[]>;
  readonly tables: Tables;
  readonly invitations: Invitations;
}

interface Person {
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
}

interface Race {
  readonly name: string;
  /** Prepares, sends the calls at once, and checks what came of them; an assertion tells what is wrong. */
  run(round: Round): Promise<void>;
}

const statuses = (answers: readonly Answer[]) => answers.map(({ status }) => status);
const texts = (answers: readonly Answer[]) => answers.map(({ status, text }) => `${status} ${text}`).join('\n');

function noFault(answers: readonly Answer[]): void {
  for (const { status } of answers) assert.ok(status < 500, texts(answers));
}

/** Exactly one call succeeded, and the others were refused as the caller's fault. Answers the winner's place. */
function oneWinner(answers: readonly Answer[], loser: readonly number[]): number {
  noFault(answers);
  const winners = statuses(answers).filter((status) => status === 200);
  assert.equal(winners.length, 1, texts(answers));
  for (const { status } of answers) assert.ok(status === 200 || loser.includes(status), texts(answers));
  return statuses(answers).indexOf(200);
}

const active = (row: { readonly status: string }) => row.status !== 'archived';

/** The owner of the round's organisation, with a signed-in browser. An organisation has one owner. */
async function onlyOwner(round: Round): Promise<Person> {
  await round.tables.systemWrite((tx) => tx.update('users', { id: round.org.user_id }, { role: 'admin' }));
  return round.user('owner', null);
}

const ownersOf = async (round: Round): Promise<readonly string[]> =>
  (await round.rows('users')).filter((user) => user.role === 'owner' && active(user)).map(({ id }) => id);

/** Order in which audited calls took effect, by what they were sent to. */
async function order(round: Round, paths: readonly string[]): Promise<number[]> {
  const rows = await round.rows('audit_log');
  return paths.map(
    (path) => rows.find(({ uri, response_status_code }) => uri === path && response_status_code === 200)?.seq ?? 0,
  );
}

const RACES: readonly Race[] = [
  {
    name: 'the organisation is handed over to two admins at once',
    async run(round) {
      const owner = await onlyOwner(round);
      const admins = [await round.user('admin', null), await round.user('admin', null)];
      const answers = await Promise.all(
        admins.map(({ id }) => round.call('POST', `/admin/users/${id}/ownership`, {}, owner.headers)),
      );
      const winner = oneWinner(answers, [401, 403, 409]);
      assert.deepEqual(await ownersOf(round), [admins[winner]?.id], texts(answers));
    },
  },
  {
    name: 'the owner is removed while the organisation is handed over',
    async run(round) {
      const owner = await onlyOwner(round);
      const admin = await round.user('admin', null);
      const answers = await Promise.all([
        round.call('POST', `/admin/users/${admin.id}/ownership`, {}, owner.headers),
        round.call('DELETE', `/admin/users/${owner.id}`, undefined, admin.headers),
        round.call('DELETE', `/admin/users/${admin.id}`, undefined, owner.headers),
      ]);
      noFault(answers);
      const owners = await ownersOf(round);
      assert.equal(owners.length, 1, texts(answers));
      assert.equal(owners[0], answers[0]?.status === 200 ? admin.id : owner.id, texts(answers));
    },
  },
  {
    name: 'one key is rotated twice',
    async run(round) {
      const made = await round.done('POST', '/api-keys/workspace/service', key(round));
      const answers = await Promise.all([0, 1].map(() => round.call('POST', `/api-keys/${made.id}/rotate`, {})));
      const winner = oneWinner(answers, [409]);
      const secrets = (await round.rows('api_key_secrets')).filter(({ api_key_id }) => api_key_id === made.id);
      assert.equal(secrets.length, 2);
      assert.equal(secrets.filter(({ expires_at }) => expires_at === null).length, 1);
      for (const text of [made.key, answers[winner]?.body.key]) {
        assert.equal((await round.call('GET', '/configs', undefined, { 'x-gateway-api-key': text })).status, 200);
      }
    },
  },
  {
    name: 'a key is rotated and deleted',
    async run(round) {
      const made = await round.done('POST', '/api-keys/workspace/service', key(round));
      const [rotated, removed] = await Promise.all([
        round.call('POST', `/api-keys/${made.id}/rotate`, {}),
        round.call('DELETE', `/api-keys/${made.id}`),
      ]);
      noFault([rotated, removed]);
      assert.equal(removed.status, 200, removed.text);
      assert.ok([200, 404, 409].includes(rotated.status), rotated.text);
      for (const text of [made.key, rotated.body.key]) {
        if (typeof text !== 'string') continue;
        assert.equal((await round.call('GET', '/configs', undefined, { 'x-gateway-api-key': text })).status, 401);
      }
    },
  },
  {
    name: 'the scopes of auto-created keys change while one is made',
    async run(round) {
      const wide = ['completions.write', 'configs.read', 'models.list'];
      const narrow = ['models.list'];
      const settings = '/admin/organisation/settings';
      await round.done('PUT', settings, { user_api_key_auto_create: true, user_api_key_auto_create_scopes: wide });
      const person = await round.user('member', null);
      const members = `/admin/workspaces/${round.workspace.id}/users`;
      const answers = await Promise.all([
        round.call('PUT', settings, { user_api_key_auto_create_scopes: narrow }),
        round.call('POST', members, { users: [{ id: person.id, role: 'member' }] }),
      ]);
      assert.deepEqual(statuses(answers), [200, 200], texts(answers));
      const made = (await round.rows('api_keys')).filter(({ user_id }) => user_id === person.id);
      assert.equal(made.length, 1);
      const rows = (await round.rows('audit_log')).filter(({ uri }) => uri === `/v1${settings}`);
      const changed = Math.max(...rows.map(({ seq }) => seq ?? 0));
      const [joined = 0] = await order(round, [`/v1${members}`]);
      assert.deepEqual([...(made[0]?.scopes ?? [])].sort(), joined < changed ? wide : narrow);
    },
  },
  {
    name: 'a user gets a key while the most allowed is one',
    async run(round) {
      await round.done('PUT', '/admin/organisation/settings', { user_api_key_count: 1 });
      const person = await round.user('member', 'member');
      const answers = await Promise.all(
        [0, 1, 2].map(() => round.call('POST', '/api-keys/workspace/user', { ...key(round), user_id: person.id })),
      );
      oneWinner(answers, [409]);
      const made = (await round.rows('api_keys')).filter((row) => row.user_id === person.id && active(row));
      assert.equal(made.length, 1);
    },
  },
  ...(
    [
      ['integrations', 'integrations', () => ({ ai_provider_id: 'openai', key: 'sk-made' })],
      ['virtual-keys', 'virtual_keys', () => ({ provider: 'openai', key: 'sk-made' })],
      ['providers', 'providers', () => ({ integration_id: 'sandbox' })],
      ['admin/workspaces', 'workspaces', () => ({})],
    ] as const
  ).map(
    ([path, table, body]): Race => ({
      name: `the same slug twice: ${path}`,
      async run(round) {
        const slug = `same-${round.n}`;
        const place = path === 'admin/workspaces' ? {} : { workspace_id: round.org.workspace_id };
        const answers = await Promise.all(
          [0, 1].map(() => round.call('POST', `/${path}`, { name: slug, slug, ...place, ...body() })),
        );
        oneWinner(answers, [409]);
        const rows: readonly { slug: string; status: string }[] = await round.rows(table);
        assert.equal(rows.filter((row) => row.slug === slug && active(row)).length, 1);
      },
    }),
  ),
  {
    name: 'the same slug for a provider and a virtual key',
    async run(round) {
      const slug = `same-${round.n}`;
      const place = { name: slug, slug, workspace_id: round.org.workspace_id };
      const answers = await Promise.all([
        round.call('POST', '/providers', { ...place, integration_id: 'sandbox' }),
        round.call('POST', '/virtual-keys', { ...place, provider: 'openai', key: 'sk-made' }),
      ]);
      oneWinner(answers, [409]);
      const all = [...(await round.rows('providers')), ...(await round.rows('virtual_keys'))];
      assert.equal(all.filter((row) => row.slug === slug && active(row)).length, 1);
    },
  },
  {
    name: 'one address is invited twice',
    async run(round) {
      const answers = await Promise.all([0, 1].map(() => round.call('POST', '/admin/users/invites', invite(round))));
      oneWinner(answers, [409]);
      assert.equal((await round.rows('invites')).length, 1);
    },
  },
  {
    name: 'one invite is accepted twice',
    async run(round) {
      const made = await round.done('POST', '/admin/users/invites', invite(round));
      const answers = await Promise.all([0, 1].map(() => accept(round, made.invite_link)));
      oneWinner(answers, [401, 409]);
      assert.equal((await round.rows('users')).filter(({ email }) => email === invite(round).email).length, 1);
      const keys = (await round.rows('api_keys')).filter((row) => row.user_id !== null && active(row));
      assert.equal(keys.length, 1);
      assert.equal((await round.rows('invites'))[0]?.status, 'accepted');
    },
  },
  {
    name: 'an invite is accepted and cancelled',
    async run(round) {
      const made = await round.done('POST', '/admin/users/invites', invite(round));
      const answers = await Promise.all([
        accept(round, made.invite_link),
        round.call('DELETE', `/admin/users/invites/${made.id}`),
      ]);
      noFault(answers);
      const [accepted] = answers;
      const users = (await round.rows('users')).filter(({ email }) => email === invite(round).email);
      assert.equal(users.length, accepted?.status === 200 ? 1 : 0, texts(answers));
      const status = (await round.rows('invites'))[0]?.status;
      assert.equal(status, accepted?.status === 200 ? 'accepted' : 'cancelled', texts(answers));
    },
  },
  {
    name: 'one user joins a workspace twice',
    async run(round) {
      await round.done('PUT', '/admin/organisation/settings', { user_api_key_auto_create: true });
      const person = await round.user('member', null);
      const body = { users: [{ id: person.id, role: 'member' }] };
      const answers = await Promise.all(
        [0, 1].map(() => round.call('POST', `/admin/workspaces/${round.workspace.id}/users`, body)),
      );
      noFault(answers);
      assert.ok(statuses(answers).includes(200), texts(answers));
      assert.equal((await round.rows('workspace_members')).filter(({ user_id }) => user_id === person.id).length, 1);
      const keys = (await round.rows('api_keys')).filter((row) => row.user_id === person.id && active(row));
      assert.equal(keys.length, 1, texts(answers));
    },
  },
  {
    name: 'a member leaves while a user key is made',
    async run(round) {
      const person = await round.user('member', 'member');
      const [made, left] = await Promise.all([
        round.call('POST', '/api-keys/workspace/user', { ...key(round), user_id: person.id }),
        round.call('DELETE', `/admin/workspaces/${round.workspace.id}/users/${person.id}`),
      ]);
      noFault([made, left]);
      assert.equal(left.status, 200, left.text);
      assert.ok([200, 404].includes(made.status), made.text);
      const keys = (await round.rows('api_keys')).filter((row) => row.user_id === person.id && active(row));
      assert.equal(keys.length, 0, texts([made, left]));
      if (made.status !== 200) return;
      const use = await round.call('GET', '/configs', undefined, { 'x-gateway-api-key': made.body.key });
      assert.equal(use.status, 401);
    },
  },
  {
    name: 'a user is removed while he makes a key',
    async run(round) {
      const person = await round.user('member', 'manager');
      const [made, gone] = await Promise.all([
        round.call('POST', '/api-keys/workspace/user', { ...key(round), user_id: person.id }, person.headers),
        round.call('DELETE', `/admin/users/${person.id}`),
      ]);
      noFault([made, gone]);
      assert.equal(gone.status, 200, gone.text);
      const keys = (await round.rows('api_keys')).filter((row) => row.user_id === person.id && active(row));
      assert.equal(keys.length, 0, texts([made, gone]));
    },
  },
  {
    name: 'a workspace is deleted while things are made in it',
    async run(round) {
      const place = { workspace_id: round.workspace.id };
      const [removed, ...made] = await Promise.all([
        round.call('DELETE', `/admin/workspaces/${round.workspace.id}`),
        round.call('POST', '/api-keys/workspace/service', key(round)),
        round.call('POST', '/configs', { name: 'made', config: { retry: { attempts: 1 } }, ...place }),
        round.call('POST', '/virtual-keys', { name: 'made', provider: 'openai', key: 'sk-made', ...place }),
      ]);
      if (removed === undefined) throw new Error('no answer');
      const answers = [removed, ...made];
      noFault(answers);
      // What came first may stand in the way, or go with the workspace; what came after finds none.
      assert.ok([200, 409].includes(removed.status), texts(answers));
      for (const { status } of made) assert.ok([200, 404].includes(status), texts(answers));
      if (removed.status !== 200) return;
      const [first] = made;
      if (first?.status !== 200) return;
      const use = await round.call('GET', '/configs', undefined, { 'x-gateway-api-key': first.body.key });
      assert.equal(use.status, 401, texts([...answers, use]));
    },
  },
  {
    name: 'a config is deleted while it becomes the default of a workspace',
    async run(round) {
      const body = { name: 'default', config: { retry: { attempts: 1 } }, workspace_id: round.workspace.id };
      const made = await round.done('POST', '/configs', body);
      const [set, removed] = await Promise.all([
        round.call('PUT', `/admin/workspaces/${round.workspace.id}`, { defaults: { user_api_key_config: made.slug } }),
        round.call('DELETE', `/configs/${made.slug}`),
      ]);
      const answers = [set, removed];
      oneWinner(answers, [400, 409]);
      const workspace = (await round.rows('workspaces')).find(({ id }) => id === round.workspace.id);
      const config = (await round.rows('configs')).find(({ id }) => id === made.id);
      const named = workspace?.defaults?.user_api_key_config != null;
      assert.equal(named, config !== undefined && active(config), texts(answers));
    },
  },
  {
    name: 'an integration is deleted while a provider is made of it',
    async run(round) {
      const slug = `in-${round.n}`;
      await round.done('POST', '/integrations', {
        name: slug,
        slug,
        ai_provider_id: 'openai',
        key: 'sk-made',
        create_default_provider: false,
      });
      const [made, removed] = await Promise.all([
        round.call('POST', '/providers', { name: 'made', integration_id: slug, workspace_id: round.workspace.id }),
        round.call('DELETE', `/integrations/${slug}`),
      ]);
      const answers = [made, removed];
      noFault(answers);
      // Either the provider comes first and keeps its integration, or the integration is gone and takes no provider.
      assert.ok([200, 409].includes(removed.status), texts(answers));
      assert.equal(made.status, removed.status === 200 ? 404 : 200, texts(answers));
      const integration = (await round.rows('integrations')).find((row) => row.slug === slug);
      assert.equal(integration?.status, removed.status === 200 ? 'archived' : 'active', texts(answers));
      const providers = (await round.rows('providers')).filter((row) => row.integration_id === integration?.id);
      assert.equal(providers.length, made.status === 200 ? 1 : 0, texts(answers));
    },
  },
  {
    name: 'one request is sent twice with its Idempotency-Key',
    async run(round) {
      const headers = { 'idempotency-key': `once-${round.n}` };
      const answers = await Promise.all(
        [0, 1, 2].map(() => round.call('POST', '/api-keys/workspace/service', key(round), headers)),
      );
      noFault(answers);
      const made = (await round.rows('api_keys')).filter(({ name }) => name === key(round).name);
      assert.equal(made.length, 1, texts(answers));
      const told = new Set(answers.filter(({ status }) => status === 200).map(({ text }) => text));
      assert.equal(told.size, 1, texts(answers));
      for (const { status } of answers) assert.ok([200, 409].includes(status), texts(answers));
    },
  },
  {
    name: 'exclusions of two workspaces are set at once',
    async run(round) {
      const ids = [round.workspace.id, round.org.workspace_id];
      const answers = await Promise.all(
        ids.map((workspace_id) =>
          round.call('PUT', '/workspace-exclusions/input-guardrails', {
            workspaces: [{ workspace_id, excluded: true }],
          }),
        ),
      );
      assert.deepEqual(statuses(answers), [200, 200], texts(answers));
      const kept = (await round.rows('guardrail_exclusions')).map(({ workspace_id }) => workspace_id);
      assert.deepEqual(kept.sort(), ids.sort());
    },
  },
  {
    name: 'two settings of the organisation are changed at once',
    async run(round) {
      const answers = await Promise.all([
        round.call('PUT', '/admin/organisation/settings', { user_api_key_count: 7 }),
        round.call('PUT', '/admin/organisation/settings', { user_api_key_ttl: 3_600 }),
      ]);
      assert.deepEqual(statuses(answers), [200, 200], texts(answers));
      const settings = (await round.rows('organisations')).find(({ id }) => id === round.org.organisation_id)?.settings;
      assert.deepEqual([settings?.user_api_key_count, settings?.user_api_key_ttl], [7, 3_600]);
    },
  },
];

const key = (round: Round) => ({
  name: `made in round ${round.n}`,
  scopes: ['configs.list'],
  workspace_id: round.workspace.id,
});

const invite = (round: Round) => ({
  email: `invited-${round.n}@example.com`,
  role: 'member',
  workspaces: [{ id: round.workspace.slug, role: 'member' }],
  workspace_api_key_details: { scopes: ['configs.list'] },
});

/** Accepts as the page of the console does. */
async function accept(round: Round, link: string): Promise<Answer> {
  const token = link.slice(link.indexOf('#') + 1);
  const request = {
    method: 'POST',
    raw: {
      url: '/console/api/invite/acceptance',
      rawHeaders: [],
      socket: { remoteAddress: `10.0.${round.n >> 8}.${round.n & 255}` },
    },
    headers: {},
  };
  try {
    const body = await round.invitations.accept({ token, first_name: 'Ada', last_name: 'New' }, request as never);
    return { status: 200, headers: new Headers(), body, text: 'accepted' };
  } catch (error) {
    const status = error instanceof SluiceError ? errorStatus(error) : 500;
    return { status, headers: new Headers(), body: {}, text: String(error) };
  }
}

async function startRound(
  n: number,
  tables: Tables,
  admin: AdminHarness,
  sessions: ConsoleSessions,
  invitations: Invitations,
): Promise<Round> {
  const workspace = { id: newId(), slug: `ws-${newId()}` };
  const org = await tables.systemWrite(async (tx) => {
    const created = await createOrganisation(tx, {
      name: `Round ${n} ${newId()}`,
      owner: { email: 'ada@example.com', first_name: 'Ada', last_name: 'Owner' },
      blockInlineConfig: true,
      clock: systemClock,
    });
    await tx.insert('workspaces', workspaceRow(created.organisation_id, workspace.id, { slug: workspace.slug }));
    return created;
  });
  const call: Round['call'] = (method, path, body, headers = {}) =>
    admin.call(method, `/v1${path}`, {
      key: 'x-gateway-api-key' in headers || 'cookie' in headers ? null : org.admin_api_key,
      headers,
      ...(body === undefined ? {} : { body }),
    });
  const place = { organisationId: org.organisation_id, workspaceId: workspace.id };
  return {
    n,
    org,
    workspace,
    tables,
    invitations,
    call,
    done: async (method, path, body) => {
      const answer = await call(method, path, body);
      assert.equal(answer.status, 200, answer.text);
      return answer.body;
    },
    user: async (role, inWorkspace) => {
      const { id, token } = await tables.systemWrite(async (tx: SystemTx) => {
        const user = await addUser(tx, place, role, inWorkspace);
        return { id: user, token: await addSession(tx, place, user) };
      });
      const cookie = `${sessions.cookieName}=${token}`;
      const session = await sessions.find(cookie);
      return { id, headers: { cookie, origin: PUBLIC_URL, 'x-csrf-token': session?.csrf ?? '' } };
    },
    rows: (table) =>
      tables.systemRead((tx) =>
        tx.list(table, (table === 'organisations' ? {} : { where: { organisation_id: org.organisation_id } }) as never),
      ),
  };
}

interface Outcome {
  readonly passed: number;
  readonly failures: readonly string[];
}

async function race(it: Race, tables: Tables, admin: AdminHarness): Promise<Outcome> {
  const failures: string[] = [];
  let passed = 0;
  let begun = 0;
  await Promise.all(
    Array.from({ length: Number(options.width) }, async () => {
      while (begun < rounds && failures.length < 5) {
        const n = begun++;
        const sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
        const slow = delayed(tables);
        const invitations = new Invitations({ tables: slow, vault: plainVault, clock: systemClock, sessions });
        try {
          const round = startRound(n, tables, admin, sessions, invitations).then((made) => it.run(made));
          await within(ROUND_MS, 'answers to all calls', round);
          passed += 1;
          watch.progress();
        } catch (error) {
          failures.push(`${it.name}, round ${n}: ${(error as Error).message}\n${admin.logged.slice(-3).join('\n')}`);
        }
      }
    }),
  );
  return { passed, failures };
}

async function run(name: string, tables: Tables): Promise<boolean> {
  watch.phase(name);
  // One for each request: what a session may do is read anew, as on another node.
  const sessions = () => new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
  const authenticator = createAuthenticator({ tables, clock: systemClock, log: silentLog });
  let address = 0;
  const admin = await startAdmin(tables, {
    admin: {
      tables: delayed(tables),
      // Each call from an address of its own: the throttle of failed attempts is not what is tested.
      authenticator: {
        authenticate: (token) => authenticator.authenticate(token, `address ${address++}`),
        invalidate: (change) => authenticator.invalidate(change),
      },
      sessions: {
        cookies: sessions().cookies,
        find: (cookie) => sessions().find(cookie),
        findBearer: (token, address) => sessions().findBearer(token, address),
        authenticate: (request) => sessions().authenticate(request),
      },
    },
  });
  let pass = true;
  for (const it of RACES) {
    if (options.only !== undefined && !it.name.includes(options.only)) continue;
    under = it.name;
    watch.progress();
    const began = performance.now();
    const { passed, failures } = await race(it, tables, admin);
    const seconds = Math.round((performance.now() - began) / 100) / 10;
    process.stdout.write(
      `${JSON.stringify({ race: it.name, store: name, rounds: passed + failures.length, failed: failures.length, seconds, seed })}\n`,
    );
    for (const failure of failures.slice(0, 3)) process.stdout.write(`${failure}\n`);
    if (failures.length > 0) pass = false;
  }
  await admin.close();
  return pass;
}

const results: boolean[] = [];
if (options.store !== 'postgres') results.push(await run('sqlite', await temporaryTables()));
if (options.store !== 'sqlite') {
  const { startPostgres } = await import('../support/postgres-server.ts');
  const postgres = await startPostgres();
  try {
    const tables = await openPostgresTables({ url: await postgres.database(), log: silentLog });
    await tables.migrate();
    results.push(await run('postgres', tables));
  } finally {
    await postgres.stop();
  }
}
const failed = results.filter((pass) => !pass).length;
process.stdout.write(`races: ${results.length - failed} passed, ${failed} failed\n`);
process.exit(failed === 0 ? 0 : 1);
