/** Google Secret Manager. */
import { isObject } from '../kernel/json.ts';
import { Secret } from '../kernel/secret.ts';
import { googleHeaders } from '../providers/google/credentials.ts';
import type { SecretContent } from '../resources/secret-references/manager.ts';
import type { Access } from './access.ts';
import { crc32c } from './crc32c.ts';
import { codeIn, failed, ManagerError, objectIn } from './problem.ts';

const ADVICE = {
  missing: 'There is no such secret or version: check secret_path.',
  denied: 'Check that the identity has the role Secret Manager Secret Accessor on the secret.',
};

/** Secrets of one location are at the address of that location. */
export function googleBase(path: string): string {
  const [, location] = /^projects\/[^/]+\/locations\/([^/]+)\//.exec(path) ?? [];
  return location === undefined
    ? 'https://secretmanager.googleapis.com'
    : `https://secretmanager.${location}.rep.googleapis.com`;
}

export async function readGoogle(access: Access): Promise<SecretContent> {
  const { path } = access.place;
  if (access.field('gcp_auth_type') === 'workloadIdentity' && access.ambient === undefined) {
    throw new ManagerError(
      'would be signed in to with the identity of this server, which your organisation may not borrow',
      'Use gcp_auth_type serviceAccount, or let the operator add your organisation to SLUICE_SECRETS_IDENTITY.',
    );
  }
  const settings =
    access.field('gcp_auth_type') === 'serviceAccount'
      ? { vertex_auth_type: 'serviceAccount', vertex_service_account_json: access.field('gcp_service_account_json') }
      : { vertex_auth_type: 'wif' };
  const headers = await googleHeaders({ ...access, credentials: { key: null, settings } });
  const version = path.includes('/versions/') ? '' : '/versions/latest';
  const answer = await access.call({
    method: 'GET',
    url: new URL(`${access.base}/v1/${path}${version}:access`),
    headers: ['accept', 'application/json', ...headers],
    body: null,
  });
  const body = await objectIn(answer);
  if (answer.status !== 200) {
    const inner = isObject(body.error) ? body.error : {};
    const code = codeIn(inner.status);
    if (code === 'FAILED_PRECONDITION') {
      throw new ManagerError(
        `answered ${answer.status} (${code})`,
        'This version of the secret is disabled or destroyed.',
      );
    }
    throw failed(answer, code, ADVICE, access.now());
  }
  const payload = isObject(body.payload) ? body.payload : {};
  if (typeof payload.data !== 'string') throw new ManagerError('gave an answer without a secret', ADVICE.missing);
  const bytes = Buffer.from(payload.data, 'base64');
  if (payload.dataCrc32c !== undefined && String(payload.dataCrc32c) !== String(crc32c(bytes))) {
    throw new ManagerError('gave a secret that was damaged on its way', 'Sluice asks again by itself.');
  }
  return { text: new Secret(bytes.toString('utf8')) };
}
