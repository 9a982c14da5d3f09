/**
 * Passkeys: users sign in with a key pair whose private half stays on their device. Loaded with the first use, for the library
 * that reads what devices say. A challenge is a keyed digest over the browser's login cookie, so that asking for one writes
 * nothing; one that was answered well is stored until it would have expired, and is not taken again.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import {
  type AuthenticationResponseJSON,
  type AuthenticatorTransport,
  generateAuthenticationOptions,
  generateRegistrationOptions,
  type PublicKeyCredentialCreationOptionsJSON,
  type PublicKeyCredentialRequestOptionsJSON,
  type RegistrationResponseJSON,
  verifyAuthenticationResponse,
  verifyRegistrationResponse,
} from '@simplewebauthn/server';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { SystemTx, Tables, TenantTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Macs } from '../store/vault.ts';
import { mayUseLinks } from './auth-settings.ts';
import type { ConsoleSession, ConsoleSessions, LinkUser, SigningIn } from './console-session.ts';
import type { CreatedSession } from './session-rows.ts';
import { tokenDigest } from './session-rows.ts';
import { tenantOf } from './tenant.ts';

const CHALLENGE_TTL_MS = 5 * 60_000;
const USE = 'passkey challenge 1';
const CHALLENGE = /^([0-9a-z]{1,12}\.[0-9A-Za-z_-]{22})\.([0-9A-Za-z_-]{1,64})\.([0-9A-Za-z_-]{43})$/;
/** Of one user. */
const MOST = 20;

type Purpose = 'register' | 'sign in';

export interface PasskeyDeps {
  readonly tables: Pick<Tables, 'systemRead' | 'systemWrite' | 'read' | 'write'>;
  readonly vault: Macs;
  readonly clock: Clock;
  readonly sessions: Pick<ConsoleSessions, 'createSession' | 'passkeyHost'>;
  readonly publicUrl: () => string;
}

const refused = (message: string, cause?: unknown) =>
  new SluiceError('unauthenticated', message, cause === undefined ? {} : { cause });
const noPasskey = (cause?: unknown) => refused('This passkey does not sign you in here. Use another way.', cause);
const noChallenge = () => refused('This took too long, or began in another browser. Try again.');

/** Throws 403 where browsers offer no passkeys. */
function hostOf({ sessions }: PasskeyDeps): string {
  if (sessions.passkeyHost !== null) return sessions.passkeyHost;
  const message = 'Passkeys need an address with https and a name, or localhost: set SLUICE_PUBLIC_URL to one.';
  throw new SluiceError('forbidden', message);
}

function newChallenge({ vault, clock }: PasskeyDeps, purpose: Purpose, browser: string, whose: string): string {
  const text = `${(clock.now() + CHALLENGE_TTL_MS).toString(36)}.${randomBytes(16).toString('base64url')}`;
  const { keyId, digest } = vault.mac(USE, Buffer.from([purpose, text, browser, whose].join(' ')));
  return `${text}.${keyId}.${digest.toString('base64url')}`;
}

/** What the device answered to, as text; throws 401 unless it was made here, for this, for this browser, within five minutes. */
function checkChallenge(
  { vault, clock }: PasskeyDeps,
  sent: string,
  purpose: Purpose,
  browser: string | null,
  whose: string,
): { readonly digest: string; readonly expiresAt: number } {
  const challenge = Buffer.from(sent, 'base64url').toString();
  const [, text = '', keyId = '', given = ''] = CHALLENGE.exec(challenge) ?? [];
  if (text === '' || browser === null) throw noChallenge();
  const made = vault.mac(USE, Buffer.from([purpose, text, browser, whose].join(' ')), keyId);
  const bytes = Buffer.from(given, 'base64url');
  const expiresAt = Number.parseInt(text, 36);
  if (made === null || bytes.length !== made.digest.length || !timingSafeEqual(bytes, made.digest)) throw noChallenge();
  if (expiresAt <= clock.now()) throw noChallenge();
  return { digest: tokenDigest(challenge), expiresAt };
}

/** The challenge that a device says it answers to. */
function challengeIn(response: { readonly clientDataJSON: string }): string {
  try {
    const said: unknown = JSON.parse(Buffer.from(response.clientDataJSON, 'base64url').toString());
    const { challenge } = said as { readonly challenge?: unknown };
    return typeof challenge === 'string' ? challenge : '';
  } catch {
    return '';
  }
}

/** Uses a challenge up; of two answers to one the second is refused, over all nodes. */
async function useUp(
  tx: Pick<SystemTx, 'insert' | 'remove'>,
  now: number,
  used: { digest: string; expiresAt: number },
) {
  await tx.remove('used_challenges', { expires_at: { lt: now } });
  await tx.insert('used_challenges', { digest: used.digest, expires_at: used.expiresAt });
}

/** What a browser needs to make a passkey for the user. @param browser digest of its login cookie */
export async function registrationOptions(
  deps: PasskeyDeps,
  { principal }: ConsoleSession,
  browser: string,
): Promise<PublicKeyCredentialCreationOptionsJSON> {
  const rpID = hostOf(deps);
  const userId = principal.userId ?? '';
  const { user, known } = await deps.tables.read(tenantOf(principal), async (tx) => ({
    user: await tx.find('users', { id: userId }),
    known: await tx.list('passkeys', { where: { user_id: userId } }),
  }));
  return generateRegistrationOptions({
    rpName: 'Sluice',
    rpID,
    userName: user?.email ?? userId,
    userID: new Uint8Array(Buffer.from(userId)),
    userDisplayName: [user?.first_name, user?.last_name].filter(Boolean).join(' '),
    challenge: newChallenge(deps, 'register', browser, userId),
    timeout: CHALLENGE_TTL_MS,
    excludeCredentials: known.map(({ id }) => ({ id })),
    authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
  });
}

/** Stores the passkey that a device has made. Throws 401 for an answer that is not good, 409 for one known already. */
export async function registerPasskey(
  deps: PasskeyDeps,
  { principal }: ConsoleSession,
  browser: string | null,
  { name, response }: { readonly name: string; readonly response: RegistrationResponseJSON },
  within: (tx: TenantTx, row: Row<'passkeys'>) => Promise<void>,
): Promise<Row<'passkeys'>> {
  const expectedRPID = hostOf(deps);
  const userId = principal.userId ?? '';
  const sent = challengeIn(response.response);
  const used = checkChallenge(deps, sent, 'register', browser, userId);
  const expectedOrigin = new URL(deps.publicUrl()).origin;
  const asked = { response, expectedChallenge: sent, expectedOrigin, expectedRPID, requireUserVerification: true };
  const found = await verifyRegistrationResponse(asked).catch((error: unknown) => {
    throw refused('The device’s answer is not good. Try again, or use another device.', error);
  });
  if (!found.verified) throw refused('The device’s answer is not good. Try again, or use another device.');
  const { credential } = found.registrationInfo;
  const now = deps.clock.now();
  const row: Row<'passkeys'> = {
    id: credential.id,
    organisation_id: principal.organisationId,
    user_id: userId,
    name,
    public_key: Buffer.from(credential.publicKey).toString('base64url'),
    counter: credential.counter,
    transports: credential.transports ?? [],
    last_used_at: null,
    created_at: now,
  };
  await deps.tables.systemWrite((tx) => useUp(tx, now, used)).catch(onlyOnce);
  await deps.tables.write(
    tenantOf(principal),
    async (tx) => {
      if ((await tx.count('passkeys', { where: { user_id: userId } })) >= MOST) {
        throw new SluiceError('conflict', `You have ${MOST} passkeys, which is the most. Delete one first.`);
      }
      await tx.insert('passkeys', row);
      await within(tx, row);
    },
    { queue: principal.organisationId },
  );
  return row;
}

function onlyOnce(error: unknown): never {
  throw error instanceof SluiceError && error.kind === 'conflict' ? noChallenge() : error;
}

/** What a browser needs to sign in with a passkey of any user. */
export async function signInOptions(
  deps: PasskeyDeps,
  browser: string,
): Promise<PublicKeyCredentialRequestOptionsJSON> {
  const challenge = newChallenge(deps, 'sign in', browser, '');
  const rpID = hostOf(deps);
  return generateAuthenticationOptions({ rpID, challenge, timeout: CHALLENGE_TTL_MS, userVerification: 'required' });
}

export interface PasskeySignIn {
  readonly within: (tx: SystemTx, user: LinkUser) => Promise<void>;
  /** Of a passkey that is known, whose answer was refused. */
  readonly onRefused: (user: LinkUser) => Promise<void>;
}

/** Signs a user in. Throws 401 for every answer that is not good, 403 where the user must use an identity provider. */
export async function signInWithPasskey(
  deps: PasskeyDeps,
  from: SigningIn & { readonly browser: string | null },
  response: AuthenticationResponseJSON,
  { within, onRefused }: PasskeySignIn,
): Promise<CreatedSession> {
  const host = hostOf(deps);
  const sent = challengeIn(response.response);
  const used = checkChallenge(deps, sent, 'sign in', from.browser, '');
  const row = await deps.tables.systemRead((tx) => tx.find('passkeys', { id: response.id }));
  if (row === undefined) throw noPasskey();
  const owner = { id: row.user_id, organisation_id: row.organisation_id };
  try {
    const counter = await newCounter(deps, host, row, response, sent);
    return await deps.tables.systemWrite(
      async (tx) => {
        const now = deps.clock.now();
        await useUp(tx, now, used);
        await checkUser(tx, owner);
        // Two answers of one device at the same moment: the counter that one of them saw is no more.
        const as = { id: row.id, organisation_id: row.organisation_id, counter: row.counter };
        if ((await tx.update('passkeys', as, { counter, last_used_at: now })) === 0) throw noPasskey();
        const own = { organisationId: owner.organisation_id, userId: owner.id };
        const made = await deps.sessions.createSession(tx, own, from);
        await within(tx, owner);
        return made;
      },
      { queue: owner.organisation_id },
    );
  } catch (error) {
    const known = error instanceof SluiceError && error.kind !== 'unavailable' && error.kind !== 'internal';
    if (known) await onRefused(owner);
    return onlyOnce(error);
  }
}

/** The counter of a good answer; throws 401 for any other, also where the counter has not risen. */
async function newCounter(
  deps: PasskeyDeps,
  expectedRPID: string,
  row: Row<'passkeys'>,
  response: AuthenticationResponseJSON,
  expectedChallenge: string,
): Promise<number> {
  const { userHandle } = response.response;
  if (userHandle !== undefined && Buffer.from(userHandle, 'base64url').toString() !== row.user_id) throw noPasskey();
  const found = await verifyAuthenticationResponse({
    response,
    expectedChallenge,
    expectedOrigin: new URL(deps.publicUrl()).origin,
    expectedRPID,
    requireUserVerification: true,
    credential: {
      id: row.id,
      publicKey: new Uint8Array(Buffer.from(row.public_key, 'base64url')),
      counter: row.counter,
      transports: row.transports as AuthenticatorTransport[],
    },
  }).catch((error: unknown) => {
    throw noPasskey(error);
  });
  if (!found.verified) throw noPasskey();
  return found.authenticationInfo.newCounter;
}

async function checkUser(tx: SystemTx, { id, organisation_id }: LinkUser): Promise<void> {
  const user = await tx.find('users', { id, organisation_id, status: 'active' });
  const organisation = await tx.find('organisations', { id: organisation_id });
  if (!user || !organisation) throw noPasskey();
  if (organisation.status !== 'active') {
    throw new SluiceError('forbidden', 'This organisation is suspended. Ask the operator of this installation.');
  }
  if (!mayUseLinks(organisation, user.role)) {
    throw new SluiceError('forbidden', 'In this organisation only owners use passkeys. Use your identity provider.');
  }
}
