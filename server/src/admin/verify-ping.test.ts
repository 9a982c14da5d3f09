/** Two servers: one registers the other as a deployment and pings it. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';

let control: TestServer;
let gateway: TestServer;
let id = '';

const put = (body: object) => control.admin('PUT', `/deployments/${id}`, body);
const pinged = async () => (await control.admin('GET', `/deployments/${id}/ping`)).body;
const verify = async (body: unknown, url = gateway.url) => {
  const answer = await fetch(`${url}/v1/verify-ping`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: answer.status, text: await answer.text() };
};

beforeAll(async () => {
  control = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.1' });
  const made = (await control.admin('POST', '/deployments', { name: 'gateway' })).body as Record<string, string>;
  id = made.id ?? '';
  gateway = await startServer({
    SLUICE_CONTROL_PLANE_URL: control.url,
    SLUICE_CLIENT_AUTH: made.client_auth ?? '',
  });
  await put({ auth_settings: { gateway_base_url: gateway.url } });
}, 60_000);

afterAll(async () => {
  await gateway?.stop();
  await control?.stop();
});

it('a Sluice that is registered as a gateway answers the ping, and both sides say success', async () => {
  expect(await pinged()).toEqual({
    outbound: { success: true, version: expect.any(String), error: null },
    inbound: { success: true, error: null },
    object: 'deployment-ping',
  });
});

it('the client_auth goes to the address in the settings only, whatever a caller names', async () => {
  const heard: (string | undefined)[] = [];
  const thief = createServer((request, response) => {
    heard.push(request.headers.authorization);
    response.end('{}');
  });
  await new Promise<void>((resolve) => thief.listen(0, '127.0.0.1', resolve));
  const there = `http://127.0.0.1:${(thief.address() as AddressInfo).port}`;
  for (const callback_url of [
    `${there}/v1/deployments/self/verify-ping`,
    `${control.url}@${there.slice(7)}/v1/deployments/self/verify-ping`,
    `${control.url}/v1/deployments/self`,
    undefined,
  ]) {
    const answer = await verify({ code: 'x', callback_url });
    expect([answer.status, answer.text.includes('callback_url must be')]).toEqual([403, true]);
  }
  thief.close();
  expect(heard).toEqual([]);
});

it('a gateway without the settings says which it needs', async () => {
  const answer = await verify({ code: 'x', callback_url: 'x' }, control.url);
  expect(answer.status).toBe(404);
  expect(answer.text).toContain('SLUICE_CONTROL_PLANE_URL and SLUICE_CLIENT_AUTH');
});

it('a wrong code, a wrong body and an ended client_auth each have an error', async () => {
  const callback_url = `${control.url}/v1/deployments/self/verify-ping`;
  for (const code of [1, '', 'x'.repeat(129)]) expect((await verify({ code, callback_url })).status).toBe(400);
  expect((await verify({ code: 'x', callback_url })).status).toBe(200);
  await put({ rotate_auth: true });
  const ended = await verify({ code: 'x', callback_url });
  expect(ended.status).toBe(502);
  expect(ended.text).toContain('answered with 401');
  expect(ended.text).toContain('SLUICE_CLIENT_AUTH');
});
