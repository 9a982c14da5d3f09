/** A certified identity provider on loopback, whose pages are answered by script: who asks is signed in as `account`. */

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Provider } from 'oidc-provider';

export interface CertifiedProvider {
  readonly issuer: string;
  /** Who signs in next. */
  account: string;
  /** Follows an address of `POST /v2/auth/login` through all pages: the address that the browser is sent back to. */
  approve(url: string): Promise<string>;
  close(): Promise<void>;
}

/** @param clients as the provider registers them, made once its address is known
 * @param host by which browsers know it; it listens on 127.0.0.1 */
export async function startCertifiedProvider(
  clients: readonly Record<string, unknown>[],
  claims: (account: string) => Record<string, unknown>,
  host = '127.0.0.1',
): Promise<CertifiedProvider> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const issuer = `http://${host}:${(server.address() as AddressInfo).port}`;
  const provider = new Provider(issuer, {
    clients,
    claims: { email: ['email', 'email_verified'], profile: ['name', 'given_name', 'family_name', 'groups'] },
    conformIdTokenClaims: false,
    cookies: { keys: ['test'] },
    features: {
      devInteractions: { enabled: false },
      rpInitiatedLogout: { enabled: true },
      backchannelLogout: { enabled: true },
    },
    findAccount: (_context: unknown, id: string) => ({
      accountId: id,
      claims: async () => ({ sub: id, ...claims(id) }),
    }),
    interactions: { url: (_context: unknown, interaction: { uid: string }) => `/interaction/${interaction.uid}` },
    pkce: { required: () => true },
  });
  const own: CertifiedProvider = {
    issuer,
    account: 'ada',
    approve: async (first) => {
      const jar = new Map<string, string>();
      let url = first;
      for (let hop = 0; hop < 20 && url.startsWith(issuer); hop++) {
        const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
        const answer = await fetch(url, { redirect: 'manual', headers: { cookie } });
        for (const text of answer.headers.getSetCookie()) {
          const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(text) ?? [];
          jar.set(name, value);
        }
        const location = answer.headers.get('location');
        if (location === null) throw new Error(`${answer.status} ${await answer.text()}`);
        url = new URL(location, issuer).href;
      }
      return url;
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
  provider.use(async (context, next) => {
    if (!context.path.startsWith('/interaction/')) return next();
    const { prompt, params, session } = await provider.interactionDetails(context.req, context.res);
    if (prompt.name === 'login') {
      const result = { login: { accountId: own.account } };
      await provider.interactionFinished(context.req, context.res, result, { mergeWithLastSubmission: false });
    } else {
      const grant = new provider.Grant({ accountId: session?.accountId, clientId: String(params.client_id) });
      grant.addOIDCScope(String(params.scope));
      const result = { consent: { grantId: await grant.save() } };
      await provider.interactionFinished(context.req, context.res, result, { mergeWithLastSubmission: true });
    }
    context.respond = false;
  });
  server.on('request', provider.callback());
  return own;
}
