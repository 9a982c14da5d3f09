/** The device flow (RFC 8628): a user signs the command line in with a browser that need not be on the same machine. */
import { randomInt } from 'node:crypto';
import type { ConsoleSession } from '../auth/console-session.ts';
import { digestOf, digestOfToken, mintKey } from '../auth/key-format.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { AddressLimit } from './address-limit.ts';
import { OAuthError } from './errors.ts';

/** The only client of this flow. It needs no registration. */
export const COMMAND_LINE = 'sluice-cli';

const TTL_MS = 10 * 60_000;
/** Seconds. */
const INTERVAL = 5;
/** No vowels, so that no code is a word; no letters that look alike. */
const LETTERS = 'BCDFGHJKLMNPQRSTVWXZ';
const LENGTH = 8;

export interface DevicesOptions {
  readonly tables: Pick<Tables, 'systemRead' | 'systemWrite'>;
  readonly clock: Clock;
  readonly limit: AddressLimit;
  readonly publicUrl: () => string;
}

/**
 * Signs a user in within the transaction in which the device code is used up.
 *
 * @param approvedIn the session in which the user has approved
 */
export type SignIn<T> = (tx: SystemTx, user: Row<'users'>, approvedIn: Row<'console_sessions'>) => Promise<T>;

export class Devices {
  readonly #options: DevicesOptions;

  constructor(options: DevicesOptions) {
    this.#options = options;
  }

  /** Begins a sign-in. */
  async begin(clientId: string | undefined, address: string) {
    if (clientId !== COMMAND_LINE)
      throw new OAuthError('unauthorized_client', `This flow is for ${COMMAND_LINE} only.`);
    const { tables, clock, publicUrl } = this.#options;
    const now = clock.now();
    const device = mintKey('odc');
    const userCode = newUserCode();
    await tables.systemWrite(async (tx) => {
      await tx.remove('oauth_devices', { expires_at: { lt: now } });
      await tx.insert('oauth_devices', {
        digest: device.digest,
        user_code_digest: digestOf(userCode),
        client_id: clientId,
        address,
        status: 'pending',
        user_id: null,
        session_digest: null,
        poll_interval: INTERVAL,
        polled_at: null,
        expires_at: now + TTL_MS,
        created_at: now,
      });
    });
    const page = `${publicUrl()}/console/device`;
    return {
      device_code: device.key,
      user_code: userCode,
      verification_uri: page,
      // The fragment is never sent, so no log on the way holds the code.
      verification_uri_complete: `${page}#${userCode}`,
      expires_in: TTL_MS / 1000,
      interval: INTERVAL,
    };
  }

  /** What the page asks a signed-in user about. Throws 404 for a wrong code, and 429 once a session has tried 5. */
  async look(userCode: string, session: ConsoleSession) {
    const row = await this.#tried(session, (tx, where) => tx.find('oauth_devices', where), userCode);
    return { client_id: row.client_id, address: row.address, created_at: row.created_at, expires_at: row.expires_at };
  }

  /** Approves or refuses, once. Throws as `look` does. `decided`: what else the transaction writes. */
  async decide(
    userCode: string,
    approved: boolean,
    session: ConsoleSession,
    decided: (tx: SystemTx) => Promise<void>,
  ): Promise<void> {
    const { organisationId, userId } = session.principal;
    await this.#tried(
      session,
      async (tx, where) => {
        const row = await tx.find('oauth_devices', where);
        const status = approved ? 'approved' : 'denied';
        const by = { user_id: userId, session_digest: session.digest };
        if (row === undefined || (await tx.update('oauth_devices', where, { status, ...by })) === 0) return undefined;
        await decided(tx);
        return row;
      },
      userCode,
      organisationId,
    );
  }

  /**
   * The client asks whether the user has decided. Throws `authorization_pending`, `slow_down`, `access_denied`, `expired_token` or
   * `invalid_grant`. A code signs in once: of simultaneous calls one does.
   */
  async poll<T>(deviceCode: string, clientId: string, signIn: SignIn<T>): Promise<T> {
    const { tables, clock } = this.#options;
    const digest = digestOfToken(deviceCode, 'odc');
    const now = clock.now();
    const unknown = () => new OAuthError('invalid_grant', 'The device_code is not valid: it is unknown or was used.');
    if (digest === null) throw unknown();
    // A code that is no good must not take a turn among the writes: anybody may send one.
    if ((await tables.systemRead((tx) => tx.find('oauth_devices', { digest }))) === undefined) throw unknown();
    const outcome = await tables.systemWrite(async (tx) => {
      const row = await tx.find('oauth_devices', { digest, client_id: clientId });
      if (row === undefined) return unknown();
      if (row.expires_at <= now) return new OAuthError('expired_token', 'The code has expired. Start again.');
      if (row.status === 'pending') return this.#wait(tx, row, now);
      if ((await tx.remove('oauth_devices', { digest })) === 0) return unknown();
      const refused = new OAuthError('access_denied', 'The sign-in was refused.');
      const approved = row.status === 'approved' ? await approvalOf(tx, row) : undefined;
      if (approved === undefined) return refused;
      try {
        return { signedIn: await signIn(tx, approved.user, approved.session) };
      } catch (error) {
        // Too old for the organisation by now: the code is used up all the same.
        if (error instanceof SluiceError && error.kind === 'unauthenticated') return refused;
        throw error;
      }
    });
    if (outcome instanceof OAuthError) throw outcome;
    return outcome.signedIn;
  }

  async #wait(tx: SystemTx, row: Row<'oauth_devices'>, now: number): Promise<OAuthError> {
    const early = row.polled_at !== null && now - row.polled_at < row.poll_interval * 1000;
    const poll_interval = early ? row.poll_interval + INTERVAL : row.poll_interval;
    await tx.update('oauth_devices', { digest: row.digest }, { polled_at: now, poll_interval });
    return early
      ? new OAuthError('slow_down', `Ask every ${poll_interval} seconds.`)
      : new OAuthError('authorization_pending', 'The user has not decided yet.');
  }

  /** A try costs one of the session's five, and a right one is given back. */
  async #tried<T>(
    session: ConsoleSession,
    run: (tx: SystemTx, where: ReturnType<typeof pending>) => Promise<T | undefined>,
    userCode: string,
    queue?: string,
  ): Promise<T> {
    const { tables, clock, limit } = this.#options;
    const giveBack = await limit.tryOf(session.digest, session.expiresAt);
    if (giveBack === null)
      throw new SluiceError(
        'throttled',
        'Too many wrong codes. Sign out, sign in again, and start again on the command line.',
      );
    const where = pending(normal(userCode), clock.now());
    const found = await tables.systemWrite((tx) => run(tx, where), queue === undefined ? {} : { queue });
    if (found === undefined)
      throw new SluiceError('not_found', 'There is no such code. Codes work once, for 10 minutes.', {
        param: 'user_code',
      });
    await giveBack();
    return found;
  }
}

/** Who has approved, and in which session; undefined where either is gone: a sign-out meanwhile takes the approval back. */
async function approvalOf(tx: SystemTx, { user_id: id, session_digest: digest }: Row<'oauth_devices'>) {
  if (id === null || digest === null) return undefined;
  const user = await tx.find('users', { id, status: 'active' });
  const session = await tx.find('console_sessions', { digest, kind: 'session', user_id: id });
  return user === undefined || session === undefined ? undefined : { user, session };
}

const pending = (code: string, now: number) =>
  ({ user_code_digest: digestOf(code), status: 'pending', expires_at: { gt: now } }) as const;

function newUserCode(): string {
  const letters = Array.from({ length: LENGTH }, () => LETTERS[randomInt(LETTERS.length)]).join('');
  return `${letters.slice(0, 4)}-${letters.slice(4)}`;
}

/** A code as people type it: without the dash, in small letters, with spaces. */
function normal(text: string): string {
  const letters = text
    .toUpperCase()
    .replace(/[^A-Z]/g, '')
    .slice(0, LENGTH + 1);
  return `${letters.slice(0, 4)}-${letters.slice(4)}`;
}
