/** The trace context that providers are sent: trusted hosts always, public ones where the integration asks for it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const MADE = /^00-([0-9a-f]{32})-([0-9a-f]{16})-0[01]$/;

let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  const choices = [{ index: 0, message: { role: 'assistant', content: 'fine' }, finish_reason: 'stop' }];
  upstream = await startUpstream((_, response) => sendJson(response, 200, { id: 'c', model: 'm', choices }));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: new URL(upstream.url).host });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1`, slug: 'near' });
});

afterAll(async () => {
  await server.stop();
  await upstream.stop();
});

const ask = async (headers: Record<string, string> = {}) => {
  const body = { model: 'gpt-x', messages: [{ role: 'user', content: 'hi' }] };
  const answer = await server.call('/chat/completions', body, { 'x-gateway-provider': '@near', ...headers });
  expect(answer.status).toBe(200);
  return answer.json() as Promise<Record<string, unknown>>;
};
const sent = () => upstream.received.at(-1)?.headers.traceparent;

describe('a trusted host', () => {
  it('is sent the caller’s trace, with the span of the call in place of the caller’s', async () => {
    await ask({ traceparent: `00-${TRACE}-${PARENT}-00` });
    const [, trace, span] = MADE.exec(String(sent())) ?? [];
    expect(trace).toBe(TRACE);
    expect(span).not.toBe(PARENT);
    expect(String(sent()).endsWith('-00')).toBe(true);
  });

  it('is sent the trace of the request itself, where the caller names none, in the form of W3C', async () => {
    await ask();
    expect(sent()).toMatch(MADE);
    await ask({ 'x-gateway-trace-id': 'order 7', 'x-gateway-span-id': 'step.1' });
    expect(sent()).toMatch(MADE);
  });

  it('is sent what the caller says is to be forwarded as it is, once', async () => {
    const traceparent = `00-${TRACE}-${PARENT}-01`;
    await ask({ traceparent, 'x-gateway-forward-headers': 'traceparent' });
    expect(sent()).toBe(traceparent);
  });
});

describe('a public provider', () => {
  /** Names of the headers that it would be sent. */
  async function wouldSend(slug: string): Promise<string[]> {
    const shown = await ask({ 'x-gateway-provider': `@${slug}`, 'x-gateway-dry-run': 'true' });
    const { request } = shown as { request: { headers: Record<string, string> } };
    return Object.keys(request.headers);
  }

  async function integration(slug: string, configurations: object): Promise<number> {
    const made = await server.admin('POST', '/integrations', {
      name: slug,
      slug,
      ai_provider_id: 'openai',
      key: 'sk-public',
      configurations,
      create_default_provider: true,
      default_provider_slug: slug,
      workspace_id: server.first.workspace_id,
    });
    return made.status;
  }

  it('is sent no trace, unless its integration says propagate', async () => {
    expect(await integration('quiet', {})).toBe(200);
    expect(await integration('told', { propagate: true })).toBe(200);
    expect(await integration('not-told', { propagate: false })).toBe(200);
    expect(await wouldSend('quiet')).not.toContain('traceparent');
    expect(await wouldSend('not-told')).not.toContain('traceparent');
    expect(await wouldSend('told')).toContain('traceparent');
  });

  it('has no other value of propagate than true and false', async () => {
    expect(await integration('odd', { propagate: 'yes' })).toBe(400);
  });
});
