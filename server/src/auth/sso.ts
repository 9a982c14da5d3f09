/** What signing in through identity providers offers to the routes. The machinery behind it is loaded with its first use. */
import type { TenantTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';

/** What the sign-in page may say of a failed sign-in: no text of a provider is ever among it. */
export type SsoError =
  | 'access_denied'
  | 'login_required'
  | 'interaction_required'
  | 'consent_required'
  /** The provider failed, or said something else. */
  | 'provider_error'
  /** The attempt is unknown: used, too old, or begun in another browser. */
  | 'expired'
  /** The answer of the provider breaks a rule of OpenID Connect. */
  | 'invalid_answer'
  /** There is no account for this person here. */
  | 'no_account'
  /** The provider proved who the person is too long ago for this organisation. */
  | 'too_old';

/** An attempt that begins. */
export interface SsoBegin {
  readonly client: Row<'sso_clients'>;
  /** A hint for the page of the provider; never more than that. */
  readonly email: string | null;
  /** Digest of the login cookie, which is given to the browser with the answer. */
  readonly browser: string;
  /** Checked path within the console. */
  readonly returnTo: string;
  /** Without a slash at its end. */
  readonly publicUrl: string;
}

/** What of a sign-in goes to the audit log. */
export interface SsoDeed {
  readonly action: 'auth.sign_in' | 'auth.sign_in_failed' | 'auth.sign_out';
  readonly organisationId: string;
  readonly userId: string | null;
  readonly resourceId: string;
  readonly status: number;
  readonly after: Readonly<Record<string, unknown>>;
}

export type WriteAudit = (tx: TenantTx, deed: SsoDeed) => Promise<void>;

/** The browser that comes back from a provider. */
export interface SsoCallback {
  /** Raw, without the question mark. */
  readonly query: string;
  /** Digest of the login cookie; null without one. */
  readonly browser: string | null;
  /** Digest of the session that the browser has; it ends. */
  readonly replaces: string | null;
  readonly userAgent: string | undefined;
  readonly publicUrl: string;
  readonly audit: WriteAudit;
}

export type SsoOutcome =
  | { readonly ok: true; readonly token: string; readonly returnTo: string; readonly organisationId: string }
  | { readonly ok: false; readonly error: SsoError };

export interface SingleSignOn {
  /**
   * The address at the provider to send the browser to. Throws `unavailable` when the provider's metadata cannot be read
   * or used; what is wrong goes to the log.
   */
  begin(attempt: SsoBegin): Promise<{ readonly url: string }>;
  /** What comes of the browser's return. Rejects only for faults of ours. */
  finish(callback: SsoCallback): Promise<SsoOutcome>;
  /** Where the browser signs out at the provider; null when it has no such page, or cannot be asked. */
  endSessionUrl(session: {
    readonly organisationId: string;
    readonly clientId: string;
    readonly idToken: string | null;
    readonly publicUrl: string;
  }): Promise<string | null>;
  /** Null when the metadata of an issuer can be read and used now, else what is wrong with it. Never rejects. */
  problemOf(organisationId: string, issuer: string): Promise<string | null>;
  /** Ends sessions as a provider's logout token says. False for a token that breaks a rule. */
  backChannelLogout(clientId: string, token: string, audit: WriteAudit): Promise<boolean>;
}
