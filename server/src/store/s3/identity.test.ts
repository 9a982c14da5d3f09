import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { operatorHttp } from '../../http/operator-http.ts';
import { systemClock } from '../../kernel/clock.ts';
import { machineIdentity } from './identity.ts';

const START = Date.parse('2026-01-01T00:00:00Z');
const HOUR = 3_600_000;

/** A platform on loopback: `answer` says what each request gets, null is 403. What was asked is kept. */
async function platform(answer: (request: IncomingMessage, body: string) => string | null) {
  const asked: string[] = [];
  const server = createServer(async (request, response) => {
    const body = await text(request);
    asked.push(`${request.method} ${request.url}`);
    const said = answer(request, body);
    response.writeHead(said === null ? 403 : 200).end(said ?? 'the token abc is wrong');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const http = operatorHttp();
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  onTestFinished(async () => {
    await http.close();
    server.close();
  });
  let now = START;
  const keys = (variables: Readonly<Record<string, string>>) =>
    machineIdentity({
      region: 'eu-central-1',
      domain: 'amazonaws.com',
      clock: { ...systemClock, now: () => now },
      send: http.send,
      variable: (name) => variables[name],
      file: async (path) => `content of ${path}\n`,
    });
  const pass = (ms: number): void => {
    now += ms;
  };
  return { url, asked, keys, pass };
}

const ends = (n: number) => new Date(START + n * HOUR).toISOString();
const lent = (n: number) =>
  JSON.stringify({ Code: 'Success', AccessKeyId: `id-${n}`, SecretAccessKey: 's', Token: 't', Expiration: ends(n) });
const keysOf = (n: number) => ({ accessKeyId: `id-${n}`, secretAccessKey: 's', sessionToken: 't' });

describe('the identity of the machine', () => {
  it('is the role of a cluster: its token file is exchanged at STS', async () => {
    const { url, asked, keys } = await platform((request, body) => {
      const form = new URLSearchParams(body);
      expect(request.headers['content-type']).toBe('application/x-www-form-urlencoded; charset=utf-8');
      expect(form.get('Action')).toBe('AssumeRoleWithWebIdentity');
      expect(form.get('RoleArn')).toBe('arn:aws:iam::1:role/sluice');
      expect(form.get('WebIdentityToken')).toBe('content of /var/token');
      return `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>id-1</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>${ends(1)}</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`;
    });
    const identity = keys({
      AWS_WEB_IDENTITY_TOKEN_FILE: '/var/token',
      AWS_ROLE_ARN: 'arn:aws:iam::1:role/sluice',
      AWS_ENDPOINT_URL_STS: url,
    });
    expect(await identity()).toEqual(keysOf(1));
    expect(asked).toEqual(['POST /']);
  });

  it('is that of the container, whose token may be in a file', async () => {
    const { url, keys } = await platform((request) =>
      request.headers.authorization === 'content of /var/pod' ? lent(1) : null,
    );
    const address = { AWS_CONTAINER_CREDENTIALS_FULL_URI: `${url}/v1/credentials` };
    expect(await keys({ ...address, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: '/var/pod' })()).toEqual(keysOf(1));
    const refused = keys({ ...address, AWS_CONTAINER_AUTHORIZATION_TOKEN: 'abc' })();
    await expect(refused).rejects.toThrow(/^127\.0\.0\.1:\d+ answered 403 when asked for AWS credentials$/);
  });

  it('is that of the instance, by version 2 of its service', async () => {
    const { url, asked, keys } = await platform((request) => {
      if (request.method === 'PUT') return request.headers['x-aws-ec2-metadata-token-ttl-seconds'] ? 'session' : null;
      if (request.headers['x-aws-ec2-metadata-token'] !== 'session') return null;
      return request.url?.endsWith('/') ? 'sluice-role\n' : lent(1);
    });
    expect(await keys({ AWS_EC2_METADATA_SERVICE_ENDPOINT: url })()).toEqual(keysOf(1));
    const roles = '/latest/meta-data/iam/security-credentials/';
    expect(asked).toEqual(['PUT /latest/api/token', `GET ${roles}`, `GET ${roles}sluice-role`]);
  });

  it('is asked for once, however many wait, and again before the keys end', async () => {
    let given = 0;
    const { url, asked, keys, pass } = await platform(() => lent(++given));
    const identity = keys({ AWS_CONTAINER_CREDENTIALS_FULL_URI: url });
    expect(await Promise.all([identity(), identity(), identity()])).toEqual([keysOf(1), keysOf(1), keysOf(1)]);
    pass(0.9 * HOUR);
    expect(await identity()).toEqual(keysOf(1));
    expect(asked).toHaveLength(1);
    pass(0.05 * HOUR);
    expect(await identity()).toEqual(keysOf(2));
  });

  it('says what to set where the machine has none', async () => {
    const { keys } = await platform(() => null);
    await expect(keys({ AWS_EC2_METADATA_DISABLED: 'true' })()).rejects.toThrow(/set AWS_ACCESS_KEY_ID/);
  });
});
