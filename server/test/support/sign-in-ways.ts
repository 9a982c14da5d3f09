/** Ways in which a sign-in ends, for tests that take it away on one node and use it on another. */
import { createHmac, randomUUID } from 'node:crypto';
import { sessionRow, tokenDigest } from '../../src/auth/session-rows.ts';
import { base62 } from '../../src/kernel/id.ts';
import type { Tables } from '../../src/store/ports.ts';
import type { Row } from '../../src/store/schema.ts';
import type { Probe } from './revocation.ts';

export interface SignInNodes {
  readonly tables: Tables;
  readonly organisationId: string;
  /** Where it is taken away. */
  readonly here: string;
  /** Where it is used. */
  readonly there: string;
  makeUser(): Promise<{ readonly id: string }>;
  /** A call of the administration on this node that must succeed; answers when it had. */
  change(method: string, path: string, body: unknown): Promise<number>;
}

/** What a browser that is signed in sends. */
export type BrowserHeaders = Record<'cookie' | 'x-csrf-token', string>;

/** A sign-in of a user, written as signing in writes it. */
export async function signedInBrowser(
  { tables, organisationId }: Pick<SignInNodes, 'tables' | 'organisationId'>,
  userId: string,
  own: Partial<Row<'console_sessions'>> = {},
): Promise<BrowserHeaders> {
  const token = base62(43);
  const now = Date.now();
  const named = { digest: tokenDigest(token), organisationId, userId, kind: 'session' } as const;
  await tables.systemWrite((tx) =>
    tx.insert('console_sessions', { ...sessionRow(named, now, now + 3_600_000), ...own }),
  );
  const csrf = createHmac('sha256', token).update('sluice console csrf').digest('base64url');
  return { cookie: `sluice_session=${token}`, 'x-csrf-token': csrf };
}

/** Calls a route of signing in, and answers its body; throws unless it is 200. */
export async function signInCall(
  node: string,
  path: string,
  headers: Record<string, string>,
  body: unknown,
): Promise<Record<string, string>> {
  const answer = await fetch(`${node}/v2/auth/${path}`, {
    method: 'POST',
    headers: { origin: node, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${text}`);
  return JSON.parse(text) as Record<string, string>;
}

const statusOf = async (url: string, headers: Record<string, string>): Promise<number> => {
  const answer = await fetch(url, { headers });
  await answer.arrayBuffer();
  return answer.status;
};

const OLD_MS = 16 * 60_000;

/** By title; each makes a sign-in that is good on the other node until `revoke`. `nodes` is called when one is made. */
export function signInWays(nodes: () => SignInNodes) {
  const self = (headers: Record<string, string>): Probe => {
    const { there } = nodes();
    return () => statusOf(`${there}/v1/auth/self`, headers);
  };
  const bearer = (token: string | undefined) => ({ authorization: `Bearer ${token}` });
  const made = async (own: Partial<Row<'console_sessions'>> = {}) => {
    const browser = await signedInBrowser(nodes(), (await nodes().makeUser()).id, own);
    return { browser, pair: await signInCall(nodes().here, 'login', browser, {}) };
  };
  const done = async (...call: Parameters<typeof signInCall>) => {
    await signInCall(...call);
    return performance.now();
  };
  const ends = (probe: Probe, revoke: () => Promise<number>) => ({ probe, allowed: 200, refused: 401, revoke });
  return {
    'a browser signs out': async () => {
      const { browser } = await made();
      return ends(self(browser), () => done(nodes().here, 'logout', browser, {}));
    },
    'a browser signs out, whose tokens are used elsewhere': async () => {
      const { browser, pair } = await made();
      return ends(self(bearer(pair.auth_token)), () => done(nodes().here, 'logout', browser, {}));
    },
    'a user signs out everywhere, with a token': async () => {
      const user = await nodes().makeUser();
      const [one, other] = [await signedInBrowser(nodes(), user.id), await signedInBrowser(nodes(), user.id)];
      const { auth_token } = await signInCall(nodes().here, 'login', one, {});
      return ends(self(other), () => done(nodes().here, 'logout', bearer(auth_token), { everywhere: true }));
    },
    'a refresh token is used twice': async () => {
      const { pair, browser } = await made();
      const { refresh_token } = pair;
      const next = await signInCall(nodes().here, 'refresh', {}, { refresh_token });
      const revoke = async () => {
        await done(nodes().here, 'refresh', {}, { refresh_token }).catch(() => undefined);
        return performance.now();
      };
      return { ...ends(self(bearer(next.auth_token)), revoke), kept: self(browser) };
    },
    'the longest life of a sign-in is made shorter': async () => {
      const created_at = Date.now() - OLD_MS;
      const { browser } = await made({ created_at, auth_time: created_at, client_id: randomUUID() });
      const set = (session_settings: unknown) =>
        nodes().change('PUT', '/admin/organisation/settings', { session_settings });
      return { ...ends(self(browser), () => set({ max_session_ttl: 900 })), restore: () => set(null) };
    },
  };
}
