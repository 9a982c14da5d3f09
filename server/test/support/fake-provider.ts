/** An identity provider on loopback that signs whatever a case says, right or wrong, and notes what it is asked. */
import type { webcrypto } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, exportSPKI, generateKeyPair, type JWK, SignJWT } from 'jose';

export type Claims = Record<string, unknown>;

/** One sign-in as a case has it. All parts have the right values by default; functions get them and answer others. */
export interface Case {
  claims?: (right: Claims) => Claims;
  header?: Claims;
  /** Signs instead of the provider's key. */
  sign?: (claims: Claims, header: Claims) => Promise<string>;
  /** Of the redirect back: the right ones come in. */
  query?: (right: URLSearchParams) => URLSearchParams;
  userinfo?: Claims;
  /** What the token endpoint answers instead of tokens. */
  token?: { status: number; body: unknown };
}

export interface FakeProvider {
  readonly issuer: string;
  readonly clientId: string;
  /** Of the next sign-ins. */
  current: Case;
  /** Members that replace those of the metadata. */
  metadata: Claims;
  /** Forms that the token endpoint was sent. */
  readonly exchanges: { readonly form: URLSearchParams; readonly authorization: string | undefined }[];
  /** Paths that were asked for. */
  readonly asked: string[];
  /** Signs with a key of the set. */
  sign(claims: Claims, header?: Claims): Promise<string>;
  /** The public key as text, which a naive verifier takes for a secret. */
  publicPem(): Promise<string>;
  /** Makes a new key, the last of the set, and drops the old ones unless `keep`. */
  rotate(keep: boolean, kid?: string): Promise<void>;
  /** Follows an address of `POST /v2/auth/login`: the address that the browser is sent back to. */
  approve(url: string): Promise<string>;
  close(): Promise<void>;
}

const RIGHT = { email: 'ada@acme.example', email_verified: true, given_name: 'Ada', family_name: 'Lovelace' };

export async function startFakeProvider(clientId = 'sluice', issuerPath = ''): Promise<FakeProvider> {
  let keys: { kid: string; jwk: JWK; key: webcrypto.CryptoKey; publicKey: webcrypto.CryptoKey }[] = [];
  let made = 0;
  const codes = new Map<string, { readonly nonce: string | null; readonly case: Case }>();
  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const issuer = `${base}${issuerPath}`;
  const root = issuer.replace(/\/$/, '');

  const fake: FakeProvider = {
    issuer,
    clientId,
    current: {},
    metadata: {},
    exchanges: [],
    asked: [],
    sign: async (claims, header = {}) => {
      const [first] = keys;
      if (first === undefined) throw new Error('no key');
      const head = { alg: 'RS256', kid: first.kid, typ: 'JWT', ...header };
      return new SignJWT(claims).setProtectedHeader(head as never).sign(first.key, { crit: { x: true } });
    },
    publicPem: () => exportSPKI(keys[0]?.publicKey as webcrypto.CryptoKey),
    rotate: async (keep, kid = `key-${made++}`) => {
      const { privateKey: key, publicKey } = await generateKeyPair('RS256', { extractable: true });
      const jwk = { ...(await exportJWK(publicKey)), kid, alg: 'RS256', use: 'sig' };
      keys = [{ kid, jwk, key, publicKey }, ...(keep ? keys : [])];
    },
    approve: async (url) => {
      const asked = new URL(url).searchParams;
      const code = `code-${made++}`;
      const { current } = fake;
      codes.set(code, { nonce: asked.get('nonce'), case: current });
      const right = new URLSearchParams({ code, state: asked.get('state') ?? '', iss: issuer });
      return `${asked.get('redirect_uri')}?${current.query?.(right) ?? right}`;
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
  await fake.rotate(false);

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const json = (status: number, body: unknown) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    const path = new URL(request.url ?? '/', base).pathname.slice(root.length - base.length);
    fake.asked.push(path);
    if (path === '/.well-known/openid-configuration') {
      json(200, {
        issuer,
        authorization_endpoint: `${root}/authorize`,
        token_endpoint: `${root}/token`,
        userinfo_endpoint: `${root}/userinfo`,
        jwks_uri: `${root}/jwks`,
        end_session_endpoint: `${root}/logout`,
        id_token_signing_alg_values_supported: ['RS256'],
        response_types_supported: ['code'],
        subject_types_supported: ['public'],
        authorization_response_iss_parameter_supported: true,
        ...fake.metadata,
      });
    } else if (path === '/jwks') json(200, { keys: keys.map(({ jwk }) => jwk).reverse() });
    else if (path === '/userinfo') json(200, { sub: 'ada', ...fake.current.userinfo });
    else if (path === '/token') await exchange(request, json);
    else json(404, {});
  }

  async function exchange(request: IncomingMessage, json: (status: number, body: unknown) => unknown): Promise<void> {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const form = new URLSearchParams(text);
    fake.exchanges.push({ form, authorization: request.headers.authorization });
    const found = codes.get(form.get('code') ?? '');
    codes.delete(form.get('code') ?? '');
    if (found === undefined) return void json(400, { error: 'invalid_grant' });
    const { case: own, nonce } = found;
    if (own.token !== undefined) return void json(own.token.status, own.token.body);
    const now = Math.floor(Date.now() / 1000);
    const right = { iss: issuer, aud: clientId, sub: 'ada', iat: now, exp: now + 300, nonce, ...RIGHT };
    const claims = own.claims?.(right) ?? right;
    const id_token = await (own.sign ?? fake.sign)(claims, own.header ?? {});
    json(200, { access_token: 'access', token_type: 'Bearer', expires_in: 300, id_token });
  }

  return fake;
}
