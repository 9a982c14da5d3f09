/** Requests of which guardrails can read the head, a form or nothing. */
import { describe, expect, it } from 'vitest';
import {
  hooks,
  inline,
  type Json,
  lastRecord,
  pii,
  SECRET,
  send,
  server,
  upstream,
  useGuarded,
  WORD,
} from '../support/guarded-requests.ts';
import { sendJson } from '../support/upstream.ts';

useGuarded();

describe('what guardrails cannot look at', () => {
  it.each([['token ids', '/embeddings', { model: 'text-embedding-3-small', input: [1, 2, 3] }]])(
    '%s are refused by those that deny, and pass those that do not',
    async (_, path, body) => {
      const refused = await send(body, inline({ input_guardrails: [{ ...WORD, id: 'strict' }] }), path);
      expect(refused.status).toBe(400);
      expect(await refused.json()).toMatchObject({
        error: { code: 'guardrail_not_enforced', message: expect.stringContaining('strict') },
      });
      const redacting = { id: 'strict', 'gateway.pii': pii(true).parameters };
      expect((await send(body, inline({ input_guardrails: [redacting] }), path)).status).toBe(400);
      expect(upstream.received).toEqual([]);
      for (const passing of [
        { ...WORD, deny: false },
        { ...WORD, async: true },
        { 'gateway.pii': pii(false).parameters },
        { 'default.addPrefix': { prefix: 'a' } },
        { 'default.webhook': { webhookURL: `${hooks.url}/x` } },
      ])
        expect([passing, (await send(body, inline({ input_guardrails: [passing] }), path)).status]).toEqual([
          passing,
          200,
        ]);
    },
  );

  it('a text that calls itself sound is none', async () => {
    const headers = (deny: boolean) => ({
      ...inline({ input_guardrails: [{ ...WORD, deny }] }),
      'content-type': 'audio/wav',
    });
    expect((await send('forbidden', headers(true), '/listen')).status).toBe(400);
    expect((await send('forbidden', headers(false), '/listen')).status).toBe(200);
    const sound = await fetch(`${server.url}/v1/listen`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': server.first.workspace_api_key, ...headers(true) },
      body: new Uint8Array([82, 73, 70, 70, 255, 254, 0, 0]),
    });
    expect(sound.status).toBe(200);
  });

  it('a stored response that is asked for as a stream is refused by those that deny answers', async () => {
    const read = (query: string) =>
      fetch(`${server.url}/v1/responses/resp_1${query}`, {
        headers: { 'x-gateway-api-key': server.first.workspace_api_key, ...inline({ output_guardrails: [WORD] }) },
      });
    expect((await read('?stream=true')).status).toBe(400);
    expect(upstream.received).toEqual([]);
    expect((await read('?stream=false')).status).toBe(200);
  });

  it('files for a provider are refused by those that deny, unless they judge the head of requests only', async () => {
    const upload = (config: Json) => {
      const form = new FormData();
      form.set('purpose', 'batch');
      form.set('file', new Blob(['{"custom_id":"1"}\n']), 'lines.jsonl');
      return fetch(`${server.url}/v1/files`, {
        method: 'POST',
        headers: { 'x-gateway-api-key': server.first.workspace_api_key, ...inline(config) },
        body: form,
      });
    };
    const refused = await upload({ input_guardrails: [{ ...WORD, id: 'strict' }] });
    expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining('strict')]);
    const types = (blockedTypes: string[]) => ({
      input_guardrails: [{ id: 'types', deny: true, 'default.allowedRequestTypes': { blockedTypes } }],
    });
    const blocked = await upload(types(['uploadFile']));
    expect([blocked.status, await blocked.text()]).toEqual([446, expect.stringContaining('types')]);
    expect(upstream.received).toEqual([]);
    upstream.answer = (_request, response) =>
      sendJson(response, 200, {
        id: 'file-1',
        object: 'file',
        bytes: 18,
        created_at: 1,
        filename: 'lines.jsonl',
        purpose: 'batch',
      });
    expect((await upload(types(['embed']))).status).toBe(200);
  });
});

it('what only reads is judged by the head of the request, and told so by its status', async () => {
  upstream.answer = (_request, response) => sendJson(response, 200, { object: 'list', data: [] });
  const list = (more: Json) =>
    fetch(`${server.url}/v1/files`, {
      headers: {
        'x-gateway-api-key': server.first.workspace_api_key,
        ...inline({
          input_guardrails: [{ id: 'types', 'default.allowedRequestTypes': { blockedTypes: ['listFiles'] }, ...more }],
        }),
      },
    });
  expect((await list({})).status).toBe(246);
  upstream.received.length = 0;
  expect((await list({ deny: true })).status).toBe(446);
  expect(upstream.received).toEqual([]);
});

it('what deletes is judged by the head of the request, and its answer says nothing', async () => {
  const remove = (config: Json) =>
    fetch(`${server.url}/v1/responses/resp_1`, {
      method: 'DELETE',
      headers: { 'x-gateway-api-key': server.first.workspace_api_key, ...inline(config) },
    });
  const types = { id: 'types', deny: true, 'default.allowedRequestTypes': { blockedTypes: ['deleteModelResponse'] } };
  expect((await remove({ input_guardrails: [types] })).status).toBe(446);
  expect(upstream.received).toEqual([]);
  expect((await remove({ output_guardrails: [{ deny: true, 'default.wordCount': { minWords: 100 } }] })).status).toBe(
    200,
  );
});

it('parameters of a form are judged like those of JSON, each of them where one is given twice', async () => {
  const edit = async (params: Json, ...fields: [string, string][]) => {
    const form = new FormData();
    form.set('model', 'gpt-image-1');
    form.set('image[]', new Blob([new Uint8Array([1, 255])]), 'a.png');
    form.set('prompt', 'a');
    for (const [name, value] of fields) form.append(name, value);
    const guardrail = { deny: true, 'default.requestParametersCheck': { params } };
    const headers = {
      'x-gateway-api-key': server.first.workspace_api_key,
      ...inline({ input_guardrails: [guardrail] }),
    };
    return (await fetch(`${server.url}/v1/images/edits`, { method: 'POST', headers, body: form })).status;
  };
  expect(await edit({ blockedKeys: ['image'] })).toBe(446);
  expect(await edit({ blockedKeys: ['mask'] })).toBe(200);
  expect(await edit({ allowedKeys: ['image', 'n'] }, ['n', '1'])).toBe(200);
  expect(await edit({ allowedKeys: ['image'] }, ['n', '1'])).toBe(446);
  const values = { n: { allowedValues: [1] } };
  expect(await edit({ values }, ['n', '1'])).toBe(200);
  expect(await edit({ values }, ['n', '2'])).toBe(446);
  expect(await edit({ values }, ['n', '2'], ['n', '1'])).toBe(446);
  expect(await edit({ values }, ['n', '1'], ['n', '2'])).toBe(446);
});

it('the prompt of a form is judged, and redacted where it stands', async () => {
  const edit = async (config: Json, prompt: string) => {
    const form = new FormData();
    form.set('model', 'gpt-image-1');
    form.set('image', new Blob([new Uint8Array([1, 2, 3, 255])]), 'a.png');
    form.set('prompt', prompt);
    const headers = { 'x-gateway-api-key': server.first.workspace_api_key, ...inline(config) };
    return (await fetch(`${server.url}/v1/images/edits`, { method: 'POST', headers, body: form })).status;
  };
  const body = () => upstream.received.at(-1)?.body.toString('latin1');
  expect(await edit({ input_guardrails: [WORD] }, 'forbidden')).toBe(446);
  expect(upstream.received).toEqual([]);
  expect(await edit({ input_guardrails: [{ 'gateway.pii': pii(true).parameters }] }, `a card for ${SECRET}`)).toBe(200);
  expect(body()).toContain('a card for ');
  expect(body()).not.toContain(SECRET);
  expect(body()).toContain('\x01\x02\x03\xff');
  const beside = { input_guardrails: [{ ...WORD, id: 'beside', async: true }] };
  expect(await edit(beside, 'forbidden')).toBe(200);
  expect(await lastRecord()).toMatchObject({ guardrails: [{ slug: 'beside', verdict: false }] });
});
