import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { leastCost } from '../../../test/support/cost.ts';
import { AUDIENCE, forgedTokens, ISSUER } from '../../../test/support/forged-tokens.ts';
import { temporaryTables } from '../../../test/support/tables.ts';
import { encoded, issuer } from '../../../test/support/tokens.ts';
import { TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { silentLog } from '../../kernel/log.ts';
import { claimLimits, claimMetadata } from '../../resources/claim-limits.ts';
import { type CreatedOrganisation, createOrganisation } from '../../resources/organisations.ts';
import { userRow } from '../../store/conformance/rows.ts';
import type { Tables } from '../../store/ports.ts';
import type { Row, TableName } from '../../store/schema.ts';
import { type Authenticator, createAuthenticator } from '../authenticator.ts';
import type { Principal } from '../principal.ts';
import { type HeldToken, heldToken, rightsOfToken } from './held-token.ts';
import type { FetchedSet } from './key-sets.ts';
import type { TokenNote } from './token-authenticator.ts';

const first = issuer('first');
const second = issuer('second');
const clock = new TestClock();
const nowSeconds = () => Math.floor(clock.now() / 1_000);

let tables: Tables;
let alpha: CreatedOrganisation;
let beta: CreatedOrganisation;
let authenticator: Authenticator;
let storeDown = false;
/** What the address of keys answers, and how often it was asked. */
let published: () => FetchedSet | Promise<FetchedSet> = () => ({ text: '{"keys":[]}', maxAgeMs: null });
let fetches = 0;
let notes: TokenNote[] = [];
const files = new Map<string, string>();

const setOf = (...keys: { jwk: object }[]): FetchedSet => ({
  text: JSON.stringify({ keys: keys.map(({ jwk }) => jwk) }),
  maxAgeMs: null,
});

beforeAll(async () => {
  tables = await temporaryTables(clock);
  const create = (name: string) =>
    tables.systemWrite((tx) =>
      createOrganisation(tx, {
        name,
        owner: { email: `owner@${name.toLowerCase()}.example`, first_name: 'Ada', last_name: 'A' },
        blockInlineConfig: true,
        clock,
      }),
    );
  alpha = await create('Alpha');
  beta = await create('Beta');
});
afterAll(() => tables.close());

/** A node that has just started. */
function start(): Authenticator {
  const watched = <A extends unknown[], T>(run: (...args: A) => Promise<T>) => {
    return async (...args: A): Promise<T> => {
      if (storeDown) throw new Error('connection lost');
      return run(...args);
    };
  };
  return createAuthenticator({
    tables: {
      findKey: watched((id: string) => tables.findKey(id)),
      read: watched(tables.read.bind(tables)) as Tables['read'],
      systemRead: watched(tables.systemRead.bind(tables)) as Tables['systemRead'],
    },
    clock,
    log: silentLog,
    tokens: async () => ({
      readSet: async () => {
        fetches += 1;
        return published();
      },
      files: {
        read: async (id) => files.get(id) ?? null,
        write: async (id, text) => void files.set(id, text),
      },
      rules: { limits: claimLimits, metadata: claimMetadata },
      defaultScopes: [],
      note: (note) => void notes.push(note),
    }),
  });
}

beforeEach(async () => {
  storeDown = false;
  fetches = 0;
  notes = [];
  files.clear();
  clock.advance(3_600_000);
  authenticator = start();
  await configure({ jwks: { keys: [first.jwk] } });
});

let versions = 0;
/** Saves `auth_settings.jwt`, as the route does, and tells the node. */
async function configure(jwt: object | null, organisation = alpha): Promise<void> {
  await tables.systemWrite(async (tx) => {
    const row = await tx.find('organisations', { id: organisation.organisation_id });
    const settings = { ...row?.settings, block_inline_config: true, auth_settings: {} };
    if (jwt !== null) settings.auth_settings = { jwt: { version: `v${++versions}`, ...jwt } };
    await tx.update('organisations', { id: organisation.organisation_id }, { settings });
  });
  changed('organisations', organisation.organisation_id);
}

const changed = (topic: TableName, entityId: string, organisationId = alpha.organisation_id) =>
  authenticator.invalidate({ organisationId, workspaceId: null, topic, entityId });

const claims = (more: object = {}) => ({
  exp: nowSeconds() + 86_400,
  gateway_oid: alpha.organisation_id,
  gateway_workspace: alpha.workspace_id,
  scope: 'completions.write',
  sub: 'service-a',
  ...more,
});

/** The principal, or the kind of the error. */
async function outcome(token: string, address = '10.0.0.1'): Promise<Principal | string> {
  try {
    return await authenticator.authenticate(token, address);
  } catch (error) {
    return error instanceof SluiceError ? error.kind : String(error);
  }
}
const principalOf = async (token: string) => {
  const found = await outcome(token);
  if (typeof found === 'string') throw new Error(found);
  return found;
};

describe('a token', () => {
  it('has the rights of a workspace key: of one workspace, and no scope of organisations', async () => {
    const scope = 'gateway.completions.write organisation_users.create nonsense logs.view';
    const principal = await principalOf(first.token(claims({ scope, scopes: ['gateway.logs.export'] })));
    expect(principal).toMatchObject({
      kind: 'token',
      keyId: null,
      userId: null,
      role: null,
      organisationId: alpha.organisation_id,
      workspaceId: alpha.workspace_id,
      defaults: { metadata: { _user: 'service-a' } },
    });
    expect([...principal.scopes].sort()).toEqual(['completions.write', 'logs.export', 'logs.view']);
  });

  it('that is wrong in any of a hundred ways opens nothing, and is refused as what it is', async () => {
    await configure({ jwks: { keys: [first.jwk] }, issuer: ISSUER, audience: AUDIENCE });
    const right = claims({ iss: ISSUER, aud: ['other', AUDIENCE] });
    const foreign = { organisationId: beta.organisation_id, workspaceId: beta.workspace_id };
    const forged = forgedTokens({ key: first, claims: right, foreign, now: nowSeconds() });
    expect(new Set(forged.map(({ token }) => token)).size).toBe(forged.length);
    expect(forged.length).toBeGreaterThanOrEqual(100);
    const found = [];
    for (const [i, { name, token, status }] of forged.entries()) {
      const wanted = status === 401 ? 'unauthenticated' : 'forbidden';
      const got = await outcome(token, `10.1.${i}.1`);
      if (got !== wanted) found.push(`${name}: ${JSON.stringify(got)}`);
    }
    expect(found).toEqual([]);
    expect(await outcome(first.token(right))).toMatchObject({ kind: 'token' });
  });

  it('is judged by the clock with a minute of skew, at each use', async () => {
    const token = first.token(claims({ exp: nowSeconds() - 30, nbf: nowSeconds() + 30 }));
    expect(await outcome(token)).toMatchObject({ kind: 'token' });
    authenticator.confirm(clock.monotonic() + 40_000);
    clock.advance(30_000);
    expect(await outcome(token)).toBe('unauthenticated');
  });

  it('carries limits as an object or a list, and members of answers are ignored', async () => {
    const list = [
      { id: 'x', status: 'active', type: 'tokens', credit_limit: 5 },
      { credit_limit: 7, periodic_reset: 'weekly' },
    ];
    const principal = await principalOf(
      first.token(claims({ usage_limits: list, rate_limits: { type: 'requests', unit: 'rpm', value: 3 } })),
    );
    expect(principal.usageLimits).toEqual([
      { type: 'tokens', credit_limit: 5 },
      { credit_limit: 7, periodic_reset: 'weekly' },
    ]);
    expect(principal.rateLimits).toEqual([{ type: 'requests', unit: 'rpm', value: 3 }]);
    const other = await principalOf(first.token(claims({ usage_limits: list, jti: 'another token' })));
    expect(other.limitOwner).toEqual(principal.limitOwner);
  });

  it('never brings a config of its own: a name that is none is left out, and told', async () => {
    const inline = '{"retry":{"attempts":5}}';
    const principal = await principalOf(
      first.token(claims({ defaults: { config_id: inline, metadata: { team: 'a' } } })),
    );
    expect(principal.defaults).toEqual({ metadata: { _user: 'service-a', team: 'a' } });
    expect(notes).toMatchObject([{ reason: 'unknown_config', status: 200 }]);
  });

  it('without scope, workspace or organisation is taken where issuer and audience say whose it is', async () => {
    const bare = {
      exp: nowSeconds() + 600,
      iss: ISSUER,
      aud: AUDIENCE,
      scope: 'openid',
      gateway_oid: alpha.organisation_id,
    };
    const defaults = { default_scopes: ['logs.view'], default_workspace: alpha.workspace_id };
    await configure({ jwks: { keys: [first.jwk] }, ...defaults });
    expect(await outcome(first.token(bare))).toBe('forbidden');
    await configure({ jwks: { keys: [first.jwk] }, ...defaults, issuer: ISSUER, audience: AUDIENCE });
    const principal = await principalOf(first.token(bare));
    expect([principal.workspaceId, ...principal.scopes]).toEqual([alpha.workspace_id, 'logs.view']);
    expect(await outcome(first.token({ ...bare, scope: 'audit_logs.list' }))).toBe('forbidden');
    expect(await outcome(first.token({ ...bare, gateway_oid: undefined }))).toBe('unauthenticated');
  });
});

describe('whom a token speaks for', () => {
  const user = async (email: string, more: Partial<Row<'users'>>, member: boolean) => {
    const id = `00000000-0000-7000-8000-0000000${String(clock.now()).slice(-5)}`;
    const organisation_id = alpha.organisation_id;
    await tables.systemWrite(async (tx) => {
      await tx.insert('users', userRow(organisation_id, id, { email, role: 'member', status: 'active', ...more }));
      const times = { created_at: 1, last_updated_at: 1 };
      const place = { organisation_id, workspace_id: alpha.workspace_id, user_id: id };
      if (member) await tx.insert('workspace_members', { ...place, role: 'member', status: 'active', ...times });
    });
    changed('users', id);
    return id;
  };

  it('is the member of the workspace whose address or id it names; an address of nobody is a label', async () => {
    const id = await user('grace@alpha.example', {}, true);
    for (const named of [{ email_id: 'Grace@Alpha.example' }, { sub: id }, { sub: 'x', uid: id }]) {
      expect(await outcome(first.token(claims(named)))).toMatchObject({ kind: 'token', userId: id });
    }
    expect(await outcome(first.token(claims({ email_id: 'nobody@alpha.example' })))).toMatchObject({ userId: null });
  });

  it('may not be removed, nor without a membership; both act at once, also for a token that is known', async () => {
    clock.advance(7_001);
    const id = await user('joan@alpha.example', {}, true);
    const token = first.token(claims({ email_id: 'joan@alpha.example' }));
    expect(await outcome(token)).toMatchObject({ userId: id });
    await tables.systemWrite((tx) => tx.remove('workspace_members', { user_id: id }));
    changed('workspace_members', id);
    expect(await outcome(token)).toBe('forbidden');
    await tables.systemWrite((tx) => tx.update('users', { id }, { role: 'admin' }));
    changed('users', id);
    expect(await outcome(token)).toMatchObject({ userId: id });
    await tables.systemWrite((tx) => tx.update('users', { id }, { status: 'archived' }));
    changed('users', id);
    expect(await outcome(token)).toBe('forbidden');
    expect(await outcome(first.token(claims({ email_id: 'a@b.example', uid: id })))).toBe('forbidden');
  });
});

describe('keys that are withdrawn', () => {
  it('end every token that they signed with the change of the settings, and tokens of other keys go on', async () => {
    await configure({ jwks: { keys: [first.jwk, second.jwk] } });
    const [old, young] = [first.token(claims()), second.token(claims())];
    const more = [first.token(claims({ jti: '1' })), first.token(claims({ jti: '2' }))];
    for (const token of [young, old, ...more]) expect(await outcome(token)).toMatchObject({ kind: 'token' });
    await configure({ jwks: { keys: [second.jwk] } });
    for (const token of [old, ...more]) expect(await outcome(token)).toBe('unauthenticated');
    expect(await outcome(young)).toMatchObject({ kind: 'token' });
    await configure(null);
    expect(await outcome(young)).toBe('forbidden');
  });

  it('end without the feed too: what nobody confirms is verified again after five seconds', async () => {
    const token = first.token(claims());
    await principalOf(token);
    await tables.systemWrite((tx) =>
      tx.update('organisations', { id: alpha.organisation_id }, { status: 'suspended' }),
    );
    clock.advance(5_001);
    expect(await outcome(token)).toBe('forbidden');
    await tables.systemWrite((tx) => tx.update('organisations', { id: alpha.organisation_id }, { status: 'active' }));
    changed('organisations', alpha.organisation_id);
    await principalOf(token);
    storeDown = true;
    clock.advance(30_000);
    expect(await outcome(token)).toMatchObject({ kind: 'token' });
    clock.advance(31_000);
    expect(await outcome(token)).toBe('unavailable');
  });
});

describe('keys by address', () => {
  const jwks_url = 'https://issuer.example/jwks';

  it('are read once for three hundred unknown names in thirty seconds', async () => {
    published = () => setOf(first);
    await configure({ jwks_url });
    await principalOf(first.token(claims()));
    clock.advance(30_000);
    const unknown = (i: number) => first.token(claims(), { kid: `unknown-${i}` });
    const all = await Promise.all(Array.from({ length: 150 }, (_, i) => outcome(unknown(i), `10.2.${i}.1`)));
    for (let i = 150; i < 300; i++) all.push(await outcome(unknown(i), `10.2.${i % 250}.2`));
    expect(new Set(all)).toEqual(new Set(['unauthenticated']));
    expect(fetches).toBe(2);
    clock.advance(30_000);
    await outcome(unknown(300), '10.2.250.3');
    expect(fetches).toBe(3);
  });

  it('follow a rotation: a new key works thirty seconds later at most, one that left its set ends with the next look', async () => {
    published = () => setOf(first);
    await configure({ jwks_url });
    const old = first.token(claims());
    await principalOf(old);
    published = () => setOf(first, second);
    clock.advance(30_000);
    expect(await outcome(second.token(claims()))).toMatchObject({ kind: 'token' });
    published = () => setOf(second);
    const confirmed = () => authenticator.confirm(clock.monotonic());
    clock.advance(599_000);
    confirmed();
    expect(await outcome(old)).toMatchObject({ kind: 'token' });
    clock.advance(1_000);
    confirmed();
    expect(await outcome(old)).toBe('unauthenticated');
  });

  it('of one name are all tried: an issuer may publish two while it replaces one', async () => {
    const twin = { ...second, jwk: { ...second.jwk, kid: 'first' } };
    published = () => setOf(twin, first);
    await configure({ jwks_url });
    expect(await outcome(first.token(claims()))).toMatchObject({ kind: 'token' });
    expect(await outcome(second.token(claims(), { kid: 'first' }))).toMatchObject({ kind: 'token' });
    // No more than four: each is work that a stranger's token causes.
    published = () => setOf(first, first, first, first, twin);
    await configure({ jwks_url, audience: 'gateway' });
    expect(await outcome(second.token(claims({ aud: 'gateway' }), { kid: 'first' }))).toBe('unauthenticated');
    expect(await outcome(first.token(claims({ aud: 'gateway' })))).toMatchObject({ kind: 'token' });
  });

  it('are used for a day while the address does not answer, over a restart too, and not under other settings', async () => {
    published = () => setOf(first);
    await configure({ jwks_url });
    await principalOf(first.token(claims()));
    published = () => Promise.reject(new Error('unreachable'));
    clock.advance(23 * 3_600_000);
    expect(await outcome(first.token(claims({ jti: '1' })))).toMatchObject({ kind: 'token' });
    authenticator = start();
    expect(await outcome(first.token(claims({ jti: '2' })))).toMatchObject({ kind: 'token' });
    clock.advance(3_600_001);
    expect(await outcome(first.token(claims({ jti: '3' })))).toBe('unavailable');
    authenticator = start();
    expect(await outcome(first.token(claims({ jti: '4' })))).toBe('unavailable');
    published = () => setOf(first);
    clock.advance(30_000);
    expect(await outcome(first.token(claims({ jti: '5' })))).toMatchObject({ kind: 'token' });
    published = () => Promise.reject(new Error('unreachable'));
    await configure({ jwks_url });
    expect(await outcome(first.token(claims({ jti: '6' })))).toBe('unavailable');
  });

  it('that are weak, private or for another use are as if they were not there', async () => {
    const short = issuer('short', 1_024);
    const exponent = { ...second, jwk: { ...second.jwk, e: 'AQ' } };
    const leaked = { jwk: { ...first.privateKey.export({ format: 'jwk' }), kid: 'first' } };
    const other = { jwk: { ...first.jwk, use: 'enc' } };
    for (const [set, token] of [
      [setOf(short), short.token(claims())],
      [setOf(exponent), second.token(claims())],
      [setOf(leaked), first.token(claims())],
      [setOf(other), first.token(claims())],
      [{ text: '{"keys":[null,1,{}]}', maxAgeMs: null }, first.token(claims())],
    ] as const) {
      published = () => set;
      await configure({ jwks_url });
      expect(await outcome(token)).toBe('unauthenticated');
    }
  });
});

describe('a token that is known', () => {
  it('costs less than 10 µs of CPU, which no store and no signature takes', async () => {
    const usual = first.token(
      claims({ iss: ISSUER, email_id: 'nobody@alpha.example', usage_limits: { credit_limit: 5 } }),
    );
    await principalOf(usual);
    storeDown = true;
    const found = authenticator.authenticate(usual, '10.0.0.1');
    expect(found).not.toBeInstanceOf(Promise);
    const cost = leastCost(() => authenticator.authenticate(usual, '10.0.0.1'), { least: 4, calls: 2_000 });
    if (process.env.SLUICE_SHOW_COST !== undefined) process.stdout.write(`a known token: ${cost.toFixed(2)} µs\n`);
    expect(cost).toBeLessThan(10);
  });
});

describe('what a token began and goes on after it', () => {
  it('has the rights of the token until settings, organisation, workspace or user say otherwise', async () => {
    const held = heldToken(await principalOf(first.token(claims())));
    if (held === null) throw new Error('nothing was held');
    const stored = JSON.parse(JSON.stringify(held)) as typeof held;
    const rights = async (token: HeldToken = stored) => {
      const place = { organisationId: alpha.organisation_id, workspaceId: alpha.workspace_id };
      const { principal, refusal } = await rightsOfToken(tables, { ...place, token });
      return refusal?.kind ?? [...principal.scopes];
    };
    clock.advance(86_400_000 * 2);
    expect(await rights()).toEqual(['completions.write']);
    expect(await rights({ ...stored, userId: '00000000-0000-7000-8000-00000000dead' })).toBe('forbidden');
    const status = (value: 'active' | 'suspended') =>
      tables.systemWrite((tx) => tx.update('organisations', { id: alpha.organisation_id }, { status: value }));
    await status('suspended');
    expect(await rights()).toBe('forbidden');
    await status('active');
    await configure({ jwks: { keys: [first.jwk] } });
    expect(await rights()).toBe('forbidden');
  });
});

describe('what is told of refused tokens', () => {
  it('is why, the kid and the names of claims: no value, and nothing of a token that names no organisation', async () => {
    await outcome(second.token(claims({ secret_claim: 'hidden' }), { kid: 'other' }));
    await outcome(`${encoded({ alg: 'none' })}.e30.AAAA`);
    expect(notes).toHaveLength(1);
    expect(notes[0]).toMatchObject({ reason: 'signature', status: 401, kid: 'other', address: '10.0.0.1' });
    expect(notes[0]?.claims).toContain('secret_claim');
    expect(JSON.stringify(notes)).not.toContain('hidden');
  });
});
