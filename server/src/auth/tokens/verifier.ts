/**
 * Whom a token speaks for. The order is: its form, the organisation that it names, the signature by that organisation's keys, and
 * only then anything else that it says. The organisation that chose the keys is the one of the principal.
 */
import { hash, verify } from 'node:crypto';
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { Tables, TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { type JwtSettings, jwtSettingsOf } from '../jwt-settings.ts';
import type { Principal } from '../principal.ts';
import { systemTenant } from '../tenant.ts';
import { checkIssuer, checkTimes, organisationIn, type Refuse, scopesIn, subjectsIn, workspaceIn } from './claims.ts';
import { type CompactToken, readToken } from './compact.ts';
import type { KeySets } from './key-sets.ts';
import { type RefusedToken, TokenRefused } from './refused.ts';

/** Characters of a metadata value. */
const MAX_METADATA = 128;
/** Names of claims in the audit log. */
const MAX_NAMES = 32;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** What claims say that resources have the rules for. Each throws a SluiceError that names the claim. */
export interface ClaimRules {
  limits(
    claims: JsonObject,
    token: string,
    place: { readonly organisationId: string; readonly now: number },
  ): Pick<Principal, 'rateLimits' | 'usageLimits' | 'changedAt'> & Required<Pick<Principal, 'limitOwner'>>;
  metadata(value: unknown): Record<string, string>;
}

export interface VerifierOptions {
  readonly tables: Pick<Tables, 'read' | 'systemRead'>;
  readonly keySets: Pick<KeySets, 'find'>;
  readonly clock: Clock;
  readonly rules: ClaimRules;
  /** Of the installation: for organisations with an issuer and an audience that name no scopes themselves. */
  readonly defaultScopes: readonly string[];
}

export interface Verified {
  readonly principal: Principal;
  /** Milliseconds since the epoch. */
  readonly usableUntil: number;
  /** Monotonic: the key set is looked at again then. */
  readonly keysUntil: number;
  readonly about: RefusedToken;
  /** `defaults.config_id` names no config of the workspace: it is left out. */
  readonly unknownConfig: boolean;
}

type Organisation = Row<'organisations'>;

/** Throws `TokenRefused`, `unavailable` where no key set can be read, or what the store throws. */
export async function verifyToken(options: VerifierOptions, token: string): Promise<Verified> {
  const read = readToken(token);
  const named = organisationIn(read.claims);
  const organisation = await organisationOf(options, named);
  const about = { organisationId: organisation.id, kid: read.kid, claims: namesOf(read.claims) };
  const refuse: Refuse = (why) => new TokenRefused(why, about);
  const settings = jwtSettingsOf(organisation);
  if (settings === null) throw refuse('not_configured');
  if (organisation.status !== 'active') throw refuse('suspended');
  // A token that names no organisation could be one for any other service of its issuer.
  if (named === null && (settings.issuer === null || settings.audience === null)) throw refuse('organisation');
  const keys = await options.keySets.find(organisation.id, settings, read.kid);
  if (!isSigned(read, keys.keys)) throw refuse('signature');
  const now = options.clock.now();
  const { exp, usableUntil } = checkTimes(read.claims, now, refuse);
  checkIssuer(read.claims, settings, refuse);
  const { principal, unknownConfig } = await principalOf(options, read, token, organisation, settings, refuse);
  return {
    principal: { ...principal, expiresAt: exp * 1_000 },
    usableUntil: usableUntil * 1_000,
    keysUntil: keys.until,
    about,
    unknownConfig,
  };
}

/** As an administrator may be shown them: a stranger has written them. */
function namesOf(claims: JsonObject): string[] {
  return Object.keys(claims)
    .slice(0, MAX_NAMES)
    .filter((name) => /^[\w.:/-]{1,64}$/.test(name));
}

/** The one that the token names; the only one of the installation, where it names none. */
async function organisationOf({ tables }: VerifierOptions, id: string | null): Promise<Organisation> {
  const found = await tables.systemRead(async (tx) => {
    if (id !== null) return tx.find('organisations', { id });
    const [only, second] = await tx.list('organisations', { orderBy: [['id', 'asc']], limit: 2 });
    return second === undefined ? only : undefined;
  });
  if (found === undefined) throw new TokenRefused('organisation');
  return found;
}

function isSigned({ signed, signature }: CompactToken, keys: readonly Parameters<typeof verify>[2][]): boolean {
  const bytes = Buffer.from(signed, 'latin1');
  return keys.some((key) => verify('sha256', bytes, key, signature));
}

async function principalOf(
  { tables, rules, clock, defaultScopes }: VerifierOptions,
  { claims }: CompactToken,
  token: string,
  { id: organisationId }: Organisation,
  settings: JwtSettings,
  refuse: Refuse,
): Promise<{ principal: Principal; unknownConfig: boolean }> {
  const bound = settings.issuer !== null && settings.audience !== null;
  const scopes = scopesIn(claims, bound ? (settings.defaultScopes ?? defaultScopes) : [], refuse);
  const subjects = subjectsIn(claims, refuse);
  const place = workspaceIn(claims, refuse) ?? (bound ? settings.defaultWorkspace : null);
  if (place === null) throw refuse('workspace');
  const { config, metadata } = defaultsIn(claims, refuse);
  const limits = ruled(() => rules.limits(claims, token, { organisationId, now: clock.now() }), refuse);
  const given = metadata === undefined ? {} : ruled(() => rules.metadata(metadata), refuse);
  const state = await tables.read(systemTenant(organisationId), async (tx) => {
    const workspace = await workspaceNamed(tx, place);
    if (workspace === undefined) throw refuse('workspace');
    const userId = await attributedTo(tx, workspace.id, subjects, refuse);
    return { workspaceId: workspace.id, userId, config: await configNamed(tx, workspace.id, config) };
  });
  const [label] = subjects;
  const named: Record<string, string> =
    label === undefined || label.length > MAX_METADATA ? {} : { _user: label.toWellFormed() };
  return {
    unknownConfig: config !== undefined && state.config === null,
    principal: {
      kind: 'token',
      keyId: null,
      keyName: null,
      organisationId,
      workspaceId: state.workspaceId,
      userId: state.userId,
      role: null,
      scopes,
      defaults: {
        metadata: { ...named, ...given },
        ...(state.config === null ? {} : { config_id: state.config }),
      },
      rateLimits: limits.rateLimits,
      usageLimits: limits.usageLimits,
      limitOwner: limits.limitOwner,
      changedAt: limits.changedAt ?? 0,
      tokenVersion: settings.version,
      expiresAt: null,
    },
  };
}

/** What the rules of resources say is wrong is said to the caller: it names a claim, and the token is verified. */
function ruled<T>(rule: () => T, refuse: Refuse): T {
  try {
    return rule();
  } catch (error) {
    if (!(error instanceof SluiceError)) throw error;
    throw new TokenRefused('claims', refuse('claims').about, error.message);
  }
}

function defaultsIn(claims: JsonObject, refuse: Refuse): { config: string | undefined; metadata: unknown } {
  const { defaults } = claims;
  if (defaults === undefined || defaults === null) return { config: undefined, metadata: undefined };
  if (!isObject(defaults)) throw refuse('claims');
  const { config_id: config, metadata } = defaults;
  if (config !== undefined && config !== null && typeof config !== 'string') throw refuse('claims');
  return { config: config ?? undefined, metadata: metadata ?? undefined };
}

async function workspaceNamed(tx: TenantTx, name: string): Promise<Row<'workspaces'> | undefined> {
  const id = name.toLowerCase();
  const byId = UUID.test(id) ? await tx.find('workspaces', { id, status: 'active' }) : undefined;
  return byId ?? (await tx.find('workspaces', { slug: name, status: 'active' }));
}

/** The slug of a config of the workspace. A text that is none is never a config by itself: it could be a whole one in JSON. */
async function configNamed(tx: TenantTx, workspaceId: string, name: string | undefined): Promise<string | null> {
  if (name === undefined) return null;
  const where = { workspace_id: workspaceId, status: 'active' } as const;
  const id = name.toLowerCase();
  const byId = UUID.test(id) ? await tx.find('configs', { ...where, id }) : undefined;
  return (byId ?? (await tx.find('configs', { ...where, slug: name })))?.slug ?? null;
}

/**
 * The first user that the subjects name, by address or id; null when they name nobody. Every user that they name must be able to
 * work in the workspace: a token outlives neither the removal of who it speaks for nor the end of the membership.
 */
async function attributedTo(
  tx: TenantTx,
  workspaceId: string,
  subjects: readonly string[],
  refuse: Refuse,
): Promise<string | null> {
  let first: string | null = null;
  for (const subject of new Set(subjects.map((text) => text.trim().toLowerCase()))) {
    const user = await userNamed(tx, subject);
    if (user === undefined) continue;
    if (user.status !== 'active') throw refuse('user');
    if (user.role === 'member') {
      const where = { workspace_id: workspaceId, user_id: user.id, status: 'active' } as const;
      if ((await tx.find('workspace_members', where)) === undefined) throw refuse('user');
    }
    first ??= user.id;
  }
  return first;
}

/** Of several with one address only the last may be active. */
async function userNamed(tx: TenantTx, subject: string): Promise<Row<'users'> | undefined> {
  if (UUID.test(subject)) return tx.find('users', { id: subject });
  if (!subject.includes('@')) return undefined;
  const active = await tx.find('users', { email: subject, status: 'active' });
  return active ?? (await tx.find('users', { email: subject, status: 'archived' }));
}

/** The name of a token in caches and audit rows. */
export const tokenDigest = (token: string): string => hash('sha256', token, 'hex');
