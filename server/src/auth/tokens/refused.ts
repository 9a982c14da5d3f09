/** Why a token is refused: a class for the audit log, and one sentence for the caller. */
import { type ErrorKind, SluiceError } from '../../kernel/errors.ts';

const AGAIN = 'Get a new one from its issuer.';

/** What is answered, by why. It says nothing of the token, and nothing of the key set. */
const REFUSALS = {
  shape: ['unauthenticated', `The token is not valid: it is no signed JWT of at most 16 KB.`],
  header: [
    'unauthenticated',
    'The token is not valid: its header must have alg RS256, typ JWT and a kid, and no crit or b64.',
  ],
  payload: [
    'unauthenticated',
    'The token is not valid: its payload must be one JSON object in which no name occurs twice.',
  ],
  organisation: [
    'unauthenticated',
    'The token is not valid here: it must name an organisation of this installation as gateway_oid or organisation_id.',
  ],
  contradiction: [
    'unauthenticated',
    'The token is not valid: two of its claims name the same thing differently. Send one of them.',
  ],
  not_configured: [
    'forbidden',
    'This organisation takes no tokens. An administrator sets auth_settings.jwt in PUT /v1/admin/organisation/settings.',
  ],
  suspended: ['forbidden', 'This organisation is suspended. Ask the operator of this installation.'],
  signature: ['unauthenticated', `The token is not valid: no key of the organisation has signed it. ${AGAIN}`],
  expired: ['unauthenticated', `The token has expired, or does not say when it does (exp). ${AGAIN}`],
  not_yet: ['unauthenticated', 'The token is not valid yet (nbf, iat). Compare the clocks of issuer and server.'],
  issuer: ['unauthenticated', 'The token is not meant for this: its issuer (iss) is not the one of the organisation.'],
  audience: [
    'unauthenticated',
    'The token is not meant for this: its audience (aud) is not the one of the organisation.',
  ],
  workspace: [
    'forbidden',
    'The token names no workspace of the organisation as gateway_workspace or workspace_slug. It takes the id or slug.',
  ],
  scope: [
    'forbidden',
    'The token has no scope that a workspace key may have. Its issuer sends some as scope or scopes, such as completions.write.',
  ],
  user: ['forbidden', 'The token names a user who was removed, or who is no member of the workspace.'],
  claims: ['unauthenticated', 'The token cannot be used: one of its claims does not have the form that it must have.'],
} as const satisfies Readonly<Record<string, readonly [ErrorKind, string]>>;

export type RefusalReason = keyof typeof REFUSALS;

/** What the audit log says of a token, beside why it was refused. */
export interface RefusedToken {
  readonly organisationId: string;
  readonly kid: string;
  /** Names of its claims, never their values. */
  readonly claims: readonly string[];
}

export class TokenRefused extends SluiceError {
  readonly why: RefusalReason;
  /** Null while the organisation is not known. */
  readonly about: RefusedToken | null;

  constructor(why: RefusalReason, about: RefusedToken | null = null, message: string = REFUSALS[why][1]) {
    super(REFUSALS[why][0], message);
    this.why = why;
    this.about = about;
  }
}
