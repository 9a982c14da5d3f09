/** HashiCorp Vault: both versions of the key-value engine, and four ways of signing in. */
import { createHash } from 'node:crypto';
import { isObject, type JsonObject } from '../kernel/json.ts';
import type { AdapterAnswer, FreshToken } from '../providers/training.ts';
import { integerOf } from '../providers/training-calls.ts';
import type { SecretContent } from '../resources/secret-references/manager.ts';
import type { Access } from './access.ts';
import { failed, ManagerError, objectIn } from './problem.ts';

const ADVICE = {
  missing:
    'No such secret, or this version of it was deleted. For version 2 of the engine the path has data/ behind the mount: secret/data/openai.',
  denied: 'Check that the token or role may read this path, and vault_namespace.',
};
const LOGIN_ADVICE = {
  missing: 'There is no such auth method: check vault_auth_path and vault_namespace.',
  denied: 'Check the role and its credential, and vault_namespace.',
};
/** Life of a login that does not say, and of one that never ends: it is looked at again. */
const UNSAID_S = 3600;

const base = (access: Access): string => (access.field('vault_addr') ?? '').replace(/\/+$/, '');

export async function readVault(access: Access): Promise<SecretContent> {
  const [path = '', query = ''] = access.place.path.split('?');
  const url = new URL(`${base(access)}/v1/${path.split('/').map(encodeURIComponent).join('/')}`);
  if (query !== '') url.search = query;
  const login = loginOf(access);
  let token = await tokenOf(access, login);
  let answer = await ask(access, 'GET', url, token, null);
  if (answer.status === 403 && login !== null) {
    // It may have been revoked before its time.
    answer.stream.destroy();
    access.tokens.drop(login.name, token);
    token = await tokenOf(access, login);
    answer = await ask(access, 'GET', url, token, null);
  }
  if (answer.status !== 200) throw await failure(access, answer, ADVICE);
  const body = await objectIn(answer);
  if (login === null) await renew(access, token);
  const { data } = body;
  if (!isObject(data)) throw new ManagerError('gave no secret', ADVICE.missing);
  // Version 2 has the secret one level down, beside its metadata.
  if ('data' in data && isObject(data.metadata)) {
    if (!isObject(data.data)) throw new ManagerError('has deleted this version of the secret', ADVICE.missing);
    return { object: data.data };
  }
  return { object: data };
}

interface Login {
  /** Under which its token is kept. The credential is part of it. */
  readonly name: string;
  readonly method: string;
  body(): Promise<JsonObject>;
}

function loginOf(access: Access): Login | null {
  const type = access.field('vault_auth_type');
  const at = (method: string): string => access.field('vault_auth_path') ?? method;
  const role = access.field('vault_role') ?? '';
  switch (type) {
    case 'approle': {
      const body = { role_id: access.field('vault_role_id') ?? '', secret_id: access.field('vault_secret_id') ?? '' };
      return { name: nameOf(access, at('approle'), body), method: at('approle'), body: async () => body };
    }
    case 'jwt': {
      const body = { role, jwt: access.field('vault_jwt') ?? '' };
      return { name: nameOf(access, at('jwt'), body), method: at('jwt'), body: async () => body };
    }
    case 'kubernetes': {
      if (access.ambient === undefined) {
        throw new ManagerError(
          'would be signed in to with the identity of this server, which your organisation may not borrow',
          'Use another vault_auth_type, or let the operator add your organisation to SLUICE_SECRETS_IDENTITY.',
        );
      }
      const name = nameOf(access, at('kubernetes'), { role });
      return { name, method: at('kubernetes'), body: async () => ({ role, jwt: await access.server.clusterToken() }) };
    }
    default:
      return null;
  }
}

function nameOf(access: Access, method: string, credential: Readonly<Record<string, string>>): string {
  const parts = [access.place.organisationId, base(access), access.field('vault_namespace') ?? '', method, credential];
  return `vault ${createHash('sha256').update(JSON.stringify(parts)).digest('base64url')}`;
}

function tokenOf(access: Access, login: Login | null): Promise<string> | string {
  if (login === null) return access.field('vault_token') ?? '';
  return access.tokens.get(login.name, async () => {
    const path = login.method.split('/').map(encodeURIComponent).join('/');
    const url = new URL(`${base(access)}/v1/auth/${path}/login`);
    const asked = access.now();
    const answer = await ask(access, 'POST', url, null, await login.body());
    if (answer.status !== 200) throw await failure(access, answer, LOGIN_ADVICE);
    const { auth } = await objectIn(answer);
    const token = isObject(auth) ? auth.client_token : undefined;
    if (typeof token !== 'string' || token === '') throw new ManagerError('gave no token', LOGIN_ADVICE.denied);
    return lasting(token, isObject(auth) ? integerOf(auth.lease_duration) : null, asked);
  });
}

/** A new one is asked for when two thirds of its life are over. */
function lasting<T>(value: T, seconds: number | null, asked: number): FreshToken<T> {
  const life = (seconds === null || seconds <= 0 ? UNSAID_S : seconds) * 1000;
  return { value, expiresAt: asked + life, refreshAt: asked + (life * 2) / 3 };
}

/** Keeps a token alive that somebody else has made, while Vault lets it be renewed; reads do not fail for it. */
async function renew(access: Access, token: string): Promise<void> {
  const name = nameOf(access, 'renew', { token });
  await access.tokens
    .get(name, async () => {
      const asked = access.now();
      const answer = await ask(access, 'POST', new URL(`${base(access)}/v1/auth/token/renew-self`), token, {});
      const { auth } = await objectIn(answer);
      const seconds = answer.status === 200 && isObject(auth) ? integerOf(auth.lease_duration) : null;
      return lasting(true, seconds, asked);
    })
    .catch(() => undefined);
}

function ask(
  access: Access,
  method: 'GET' | 'POST',
  url: URL,
  token: string | null,
  body: JsonObject | null,
): Promise<AdapterAnswer> {
  const namespace = access.field('vault_namespace');
  return access.call({
    method,
    url,
    headers: [
      'accept',
      'application/json',
      'x-vault-request',
      'true',
      ...(token === null ? [] : ['x-vault-token', token]),
      ...(namespace === undefined ? [] : ['x-vault-namespace', namespace]),
      ...(body === null ? [] : ['content-type', 'application/json']),
    ],
    body: body === null ? null : Buffer.from(JSON.stringify(body)),
  });
}

/** Vault's own texts are not repeated: they name paths and policies. 503 is what it answers while it is sealed. */
async function failure(access: Access, answer: AdapterAnswer, advice: typeof ADVICE): Promise<ManagerError> {
  const { status } = answer;
  answer.stream.destroy();
  if (status === 503) return new ManagerError('answered 503', 'It is sealed or in maintenance: unseal it.');
  if (status === 400 && advice === LOGIN_ADVICE) return new ManagerError('answered 400', LOGIN_ADVICE.denied);
  return failed(answer, null, advice, access.now());
}
