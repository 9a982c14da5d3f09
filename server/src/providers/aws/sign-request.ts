import type { Signer } from '../provider.ts';
import { awsAuth } from './credentials.ts';
import { awsRegion } from './settings.ts';
import { type AwsScope, signed } from './sign.ts';

/** Signs the calls of an AWS account on the data plane (`Provider.sign`). */
export function signRequest(service: AwsScope['service']): Signer {
  return async (request, access) => {
    const { headers, origin, path } = request;
    const region = awsRegion(access);
    const auth = await awsAuth(access, origin);
    if ('bearer' in auth) {
      headers.push('authorization', `Bearer ${auth.bearer.reveal()}`);
      return [auth.bearer.reveal()];
    }
    const { keys } = auth;
    const [only] = request.body ?? [];
    const body = request.body?.length === 1 && only !== undefined ? only : request.body && Buffer.concat(request.body);
    const method = request.method as Parameters<typeof signed>[0]['method'];
    const plain = { method, url: new URL(origin + path), headers, body };
    const made = await signed(plain, keys, { service, region }, access.now());
    headers.splice(0, headers.length, ...made.headers);
    return [keys.accessKeyId, keys.secretAccessKey, ...(keys.sessionToken === undefined ? [] : [keys.sessionToken])];
  };
}
