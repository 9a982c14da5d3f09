/** What the actions of signing in get and answer. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ConsoleSession, ConsoleSessions } from '../../auth/console-session.ts';
import type { TokenPair } from '../../auth/session-families.ts';
import type { SingleSignOn } from '../../auth/sso.ts';
import type { KnownPaths } from '../../http/known-paths.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Tables } from '../../store/ports.ts';
import type { Vault } from '../../store/vault.ts';
import type { AccessLog } from '../../telemetry/access-log.ts';
import type { MailedLinks } from '../mailed-links.ts';
import type { AddressLimiter } from '../rate-limit.ts';

/** What the routes of signing in work with. */
export interface SignInDeps {
  readonly sessions: ConsoleSessions;
  readonly tables: Tables;
  /** Signs the audit log, and opens the ID tokens of sessions. */
  readonly vault: Vault;
  readonly clock: Clock;
  readonly log: Log;
  /** SLUICE_PUBLIC_URL; a function because a free port is known only after listening. */
  readonly publicUrl: () => string;
  readonly mailedLinks: Pick<MailedLinks, 'available' | 'ask'>;
  /** The way to identity providers, which is loaded with its first use. */
  readonly sso: () => Promise<SingleSignOn>;
  /** Of all routes here together, for each client address. */
  readonly limiter: AddressLimiter;
  readonly paths: KnownPaths;
  readonly accessLog: AccessLog | null;
}

/** Anyone, or a sign-in by cookie or token. */
export type SignInAuth = 'public' | 'signed_in';

export interface SignInCall<B = unknown, Q = unknown, A extends SignInAuth = SignInAuth> {
  readonly deps: SignInDeps;
  readonly body: B;
  readonly query: Q;
  /** Checked for a write; null of a route that anyone may call. */
  readonly session: A extends 'signed_in' ? ConsoleSession : null;
  /** The sign-in of the request, by cookie or token, without the checks of a write; null without one. Throws as `findSignIn`. */
  readonly signedIn: () => Promise<ConsoleSession | null>;
  readonly request: FastifyRequest;
  /** For cookies. */
  readonly reply: FastifyReply;
}

/** Body of `POST /v2/auth/login`. */
export interface Login {
  /** Lower case. */
  readonly email?: string | undefined;
  readonly organisation_id?: string | undefined;
  readonly sso_client_id?: string | undefined;
  readonly return_to?: string | undefined;
}

export type LoginAnswer = { readonly object: 'login' } & (
  | {
      readonly type: 'oidc';
      readonly url: string;
      readonly linked_sso: { readonly id: string; readonly name: string; readonly type: string }[];
    }
  | { readonly type: 'email' }
  | TokenPair
);
