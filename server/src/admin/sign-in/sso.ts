/** Where signing in meets the identity providers of organisations. */
import type { SsoBegin } from '../../auth/sso.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Secret } from '../../kernel/secret.ts';
import { isUuid } from '../../resources/fields.ts';
import { coveringDomains } from '../../resources/settings/domains.ts';
import type { Row } from '../../store/schema.ts';
import type { Login, LoginAnswer, SignInDeps } from './call.ts';

/** The registration that a sign-in goes to, and the others of its organisation. */
export interface SsoChoice {
  readonly client: Row<'sso_clients'>;
  readonly linked: readonly Row<'sso_clients'>[];
}

/** What a browser asks for. */
export interface RequestedLogin extends Login {
  readonly email: string;
}

/**
 * The client that this address, or `sso_client_id`, signs in with; null when the address belongs to none. Throws
 * `unknown_reference` at `sso_client_id` for one that is unknown, foreign or disabled alike. What it answers depends on the
 * domain of the address, and never on whether a user has it.
 */
export async function findSsoClient({ tables }: SignInDeps, asked: RequestedLogin): Promise<SsoChoice | null> {
  const { sso_client_id: named } = asked;
  const linked = await tables.systemRead(async (tx) => {
    const [domain] = await coveringDomains(tx, asked.email);
    const id = asked.organisation_id ?? domain?.organisation_id;
    const organisation = id === undefined ? undefined : await tx.find('organisations', { id, status: 'active' });
    if (organisation === undefined) return [];
    const where = { organisation_id: organisation.id, status: 'active' as const };
    return tx.list('sso_clients', { where, orderBy: [['created_at', 'asc']], limit: MOST });
  });
  const wanted = named !== undefined && isUuid(named) ? named.toLowerCase() : named;
  const client =
    named === undefined
      ? (linked.find((one) => one.is_default) ?? linked[0])
      : linked.find((one) => one.id === wanted || one.slug === named);
  if (client !== undefined) return { client, linked };
  if (named === undefined) return null;
  throw new SluiceError('unknown_reference', 'There is no such identity provider for this address.', {
    param: 'sso_client_id',
  });
}

/** As many as an organisation may have. */
const MOST = 20;

/**
 * Begins a sign-in at the provider.
 *
 * @param asked with `browser`, the digest of the login cookie that the answer sets
 */
export async function startOidc(
  deps: SignInDeps,
  { client, linked }: SsoChoice,
  asked: RequestedLogin & Pick<SsoBegin, 'browser'>,
): Promise<LoginAnswer> {
  const publicUrl = deps.publicUrl().replace(/\/+$/, '');
  const returnTo = checkReturn(asked.return_to, publicUrl);
  const sso = await deps.sso();
  const { email, browser } = asked;
  const { url } = await sso.begin({ client, email, browser, returnTo, publicUrl });
  const shown = linked.map(({ id, name, type }) => ({ id, name, type }));
  return { object: 'login', type: 'oidc', url, linked_sso: shown };
}

const HOME = '/console/';
/** What browsers and proxies take for other characters, or another path. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const TRICKS = /[\u0000-\u0020\u007f\\]|\/\/|\.\.|%(?:[01][0-9a-f]|2[ef]|5c|7f)/i;

/** A path of the console on this origin. Throws 400 for anything else. */
function checkReturn(given: string | undefined, publicUrl: string): string {
  if (given === undefined) return HOME;
  const url = URL.parse(given, publicUrl);
  const own = url !== null && url.origin === new URL(publicUrl).origin && /^\/console(?:[/?#]|$)/.test(given);
  if (own && !TRICKS.test(given)) return given;
  throw new SluiceError('validation', 'return_to must be a path of the console, such as /console/logs.', {
    param: 'return_to',
  });
}

/** Where a browser signs out at the provider that its session came from; null without one. */
export async function endSessionUrl(
  deps: SignInDeps,
  session: Row<'console_sessions'>,
  idToken: Secret | null,
): Promise<string | null> {
  const { organisation_id: organisationId, client_id: clientId } = session;
  if (clientId === null) return null;
  const publicUrl = deps.publicUrl().replace(/\/+$/, '');
  const sso = await deps.sso();
  return sso.endSessionUrl({ organisationId, clientId, idToken: idToken?.reveal() ?? null, publicUrl });
}
