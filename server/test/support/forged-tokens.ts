/** Tokens that must open nothing, each wrong in one way, beside the right one that they are made from. */
import { createHmac, createPrivateKey, generateKeyPairSync, sign } from 'node:crypto';
import { encoded, type Issuer, issuer, signed } from './tokens.ts';

export interface Forged {
  readonly name: string;
  readonly token: string;
  readonly status: 401 | 403;
}

export interface ForgedWorld {
  /** Whose key the organisation has, in an inline set, with the issuer `https://issuer.example` and the audience `sluice`. */
  readonly key: Issuer;
  /** Claims that are right. */
  readonly claims: Readonly<Record<string, unknown>>;
  /** An organisation and a workspace of it that are not the token's. */
  readonly foreign: { readonly organisationId: string; readonly workspaceId: string };
  /** Seconds since the epoch. */
  readonly now: number;
}

export const ISSUER = 'https://issuer.example';
export const AUDIENCE = 'sluice';

/** A second organisation is in the store; it takes no tokens. */
export function forgedTokens({ key, claims, foreign, now }: ForgedWorld): Forged[] {
  const header = { alg: 'RS256', typ: 'JWT', kid: key.kid };
  const good = signed(header, claims, key.privateKey);
  const [head = '', payload = '', signature = ''] = good.split('.');
  const stranger = issuer(key.kid);
  const pem = key.publicKey.export({ type: 'spki', format: 'pem' }) as string;
  const jwk = key.jwk;
  const made: [string, string, (401 | 403)?][] = [];
  const add = (name: string, token: string, status: 401 | 403 = 401) => made.push([name, token, status]);
  const withHeader = (name: string, changed: object) => add(name, signed(changed, claims, key.privateKey));
  const withClaims = (name: string, changed: object, status: 401 | 403 = 401) =>
    add(name, signed(header, { ...claims, ...changed }, key.privateKey), status);
  const payloadText = (name: string, text: string) => add(name, signed(header, text, key.privateKey));
  const without = (name: string) => Object.fromEntries(Object.entries(claims).filter(([one]) => one !== name));
  const rest = JSON.stringify(claims).slice(1);

  // Signatures.
  add('another key under the same kid', signed(header, claims, stranger.privateKey));
  add(
    'another key that the header brings as jwk',
    signed({ ...header, jwk: stranger.jwk }, claims, stranger.privateKey),
  );
  add(
    'another key that the header names as jku',
    signed({ ...header, jku: 'https://evil.example/jwks' }, claims, stranger.privateKey),
  );
  add(
    'another key that the header names as x5u',
    signed({ ...header, x5u: 'https://evil.example' }, claims, stranger.privateKey),
  );
  add('another key with a certificate as x5c', signed({ ...header, x5c: ['AAAA'] }, claims, stranger.privateKey));
  add('the signature of other claims', `${head}.${encoded({ ...claims, sub: 'somebody else' })}.${signature}`);
  add('the signature of another header', `${encoded({ ...header, x: 1 })}.${payload}.${signature}`);
  add('no signature', `${head}.${payload}.`);
  add('a signature of zeros', `${head}.${payload}.${Buffer.alloc(256).toString('base64url')}`);
  add('a signature cut short', `${head}.${payload}.${signature.slice(0, -8)}`);
  add('a signature with more behind it', `${head}.${payload}.${signature}AAAA`);
  add('a changed signature', `${head}.${payload}.${signature.startsWith('A') ? 'B' : 'A'}${signature.slice(1)}`);
  add('PKCS#1 padding with SHA-512', signed(header, claims, key.privateKey, 'sha512'));
  add('PKCS#1 padding with SHA-1', signed(header, claims, key.privateKey, 'sha1'));
  const text = `${head}.${payload}`;
  const pss = sign('sha256', Buffer.from(text), { key: key.privateKey, padding: 6, saltLength: 32 });
  add('PSS padding under RS256', `${text}.${pss.toString('base64url')}`);

  // Algorithms.
  for (const alg of ['none', 'None', 'NONE', '', 'rs256', 'RS384', 'RS512', 'PS256', 'ES256', 'EdDSA', 'HS256'])
    withHeader(`alg ${alg || 'empty'}`, { ...header, alg });
  withHeader('alg as a list', { ...header, alg: ['RS256'] });
  withHeader('no alg', { typ: 'JWT', kid: key.kid });
  for (const alg of ['none', 'None']) add(`alg ${alg} unsigned`, `${encoded({ ...header, alg })}.${payload}.`);
  for (const [name, secret] of [
    ['PEM', pem],
    ['modulus', String(jwk.n)],
    ['JWK', JSON.stringify(jwk)],
  ] as const) {
    const open = `${encoded({ ...header, alg: 'HS256' })}.${payload}`;
    add(
      `HS256 with the public key as secret (${name})`,
      `${open}.${createHmac('sha256', secret).update(open).digest('base64url')}`,
    );
  }
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  add('ES256 by a key of a curve', signed({ ...header, alg: 'ES256' }, claims, ec.privateKey));
  add(
    'a key of a curve under RS256',
    signed(header, claims, createPrivateKey(ec.privateKey.export({ type: 'pkcs8', format: 'pem' }))),
  );

  // Headers.
  withHeader('an unknown kid', { ...header, kid: 'unknown' });
  withHeader('no kid', { alg: 'RS256', typ: 'JWT' });
  withHeader('an empty kid', { ...header, kid: '' });
  withHeader('a kid as a number', { ...header, kid: 1 });
  withHeader('a kid as a path', { ...header, kid: '../../../../dev/null' });
  withHeader('a kid of the prototype', { ...header, kid: '__proto__' });
  withHeader('a kid of an object method', { ...header, kid: 'constructor' });
  withHeader('a kid in SQL', { ...header, kid: `' OR 1=1 --` });
  withHeader('no typ', { alg: 'RS256', kid: key.kid });
  withHeader('typ at+jwt', { ...header, typ: 'at+jwt' });
  withHeader('typ logout+jwt', { ...header, typ: 'logout+jwt' });
  withHeader('crit', { ...header, crit: ['exp'] });
  withHeader('an empty crit', { ...header, crit: [] });
  withHeader('b64 false', { ...header, b64: false });
  add(
    'a header with alg twice',
    signed(`{"alg":"none","alg":"RS256","typ":"JWT","kid":"${key.kid}"}`, claims, key.privateKey),
  );
  add(
    'a header with an escaped name twice',
    signed(`{"alg":"RS256","\\u0061lg":"none","typ":"JWT","kid":"${key.kid}"}`, claims, key.privateKey),
  );
  add('a header that is a list', signed('["RS256"]', claims, key.privateKey));
  add('a header that is no JSON', signed('eyJ', claims, key.privateKey));
  add('a long header', signed({ ...header, x: 'x'.repeat(2_000) }, claims, key.privateKey));

  // Forms.
  add('four parts', `${good}.${signature}`);
  add('padding', `${head}=.${payload}.${signature}`);
  add('the other alphabet', `${head}.${payload}+/.${signature}`);
  add('a space inside', `${head}.${payload} .${signature}`);
  add('an empty payload', `${head}..${signature}`);
  add('17 KB', signed(header, { ...claims, x: 'x'.repeat(13_000) }, key.privateKey));
  add('five parts of an encrypted token', `${good}.${signature}.${signature}`);

  // Payloads.
  payloadText('two organisations', `{"gateway_oid":"${foreign.organisationId}",${rest}`);
  payloadText('two organisations, one escaped', `{"gateway\\u005foid":"${foreign.organisationId}",${rest}`);
  payloadText('exp twice', `{"exp":1,${rest}`);
  payloadText('a name twice inside', `{"x":{"a":1,"a":2},${rest}`);
  payloadText('a payload that is a list', `[${JSON.stringify(claims)}]`);
  payloadText('a payload that is null', 'null');
  payloadText('more behind the payload', `${JSON.stringify(claims)}{}`);
  payloadText('a byte order mark', `\uFEFF${JSON.stringify(claims)}`);
  payloadText('deep nesting', `{"x":${'['.repeat(100)}${']'.repeat(100)},${rest}`);
  add(
    'a payload that is no UTF-8',
    signed(header, claims, key.privateKey).replace(
      /\.[^.]*\./,
      () => `.${Buffer.from([0x7b, 0xff, 0x7d]).toString('base64url')}.`,
    ),
  );

  // Times.
  withClaims('an expired token', { exp: now - 61 });
  withClaims('exp as a text', { exp: String(now + 600) });
  withClaims('exp null', { exp: null });
  payloadText('exp beyond all numbers', `{"exp":1e999,${JSON.stringify(without('exp')).slice(1)}`);
  withClaims('exp negative', { exp: -1 });
  withClaims('exp true', { exp: true });
  add('no exp', signed(header, without('exp'), key.privateKey));
  withClaims('not valid yet', { nbf: now + 3_600 });
  withClaims('nbf as a text', { nbf: String(now) });
  withClaims('issued in the future', { iat: now + 3_600 });

  // Whose, and for whom.
  withClaims('another issuer', { iss: 'https://issuer.example/' });
  withClaims('an issuer in a list', { iss: [ISSUER] });
  add('no issuer', signed(header, without('iss'), key.privateKey));
  withClaims('another audience', { aud: 'other' });
  withClaims('an audience with more', { aud: 'sluice2' });
  withClaims('other audiences', { aud: ['other', 'Sluice'] });
  withClaims('an audience as an object', { aud: { sluice: true } });
  add('no audience', signed(header, without('aud'), key.privateKey));
  withClaims('an unknown organisation', { gateway_oid: '00000000-0000-7000-8000-00000000dead' });
  withClaims('an organisation that takes no tokens', { gateway_oid: foreign.organisationId }, 403);
  withClaims('an organisation that is no id', { gateway_oid: 'default' });
  withClaims('an organisation as a number', { gateway_oid: 1 });
  withClaims('organisations that differ', { organisation_id: foreign.organisationId });
  add('no organisation among several', signed(header, without('gateway_oid'), key.privateKey));
  withClaims('a foreign workspace', { gateway_workspace: foreign.workspaceId }, 403);
  withClaims('an unknown workspace', { gateway_workspace: 'nowhere' }, 403);
  withClaims('workspaces that differ', { workspace_slug: 'other' });
  add('no workspace', signed(header, without('gateway_workspace'), key.privateKey), 403);
  withClaims('no scope that is known', { scope: 'openid email' }, 403);
  withClaims('a scope of organisations alone', { scope: 'organisation_users.create audit_logs.list' }, 403);
  withClaims('a scope as a number', { scope: 7 });
  withClaims('limits that are none', { usage_limits: { credit_limit: -5 } });
  withClaims('metadata that is none', { defaults: { metadata: { a: 1 } } });
  return made.map(([name, token, status = 401]) => ({ name, token, status }));
}
