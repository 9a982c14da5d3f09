import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../../test/support/upstream.ts';

let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  upstream = await startUpstream((_request, response) =>
    sendJson(response, 200, { id: 'c', object: 'chat.completion', model: 'm', choices: [] }),
  );
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  for (const id of ['openai', 'deepseek']) await server.provider({ id, host: `${upstream.url}/v1`, slug: id });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

async function sent(config: object, body: string, slug = 'openai'): Promise<string> {
  const headers = { 'x-gateway-config': JSON.stringify({ provider: `@${slug}`, ...config }) };
  const answer = await server.call('/chat/completions', body, headers);
  expect([answer.status, await answer.text()]).toEqual([200, expect.any(String)]);
  return upstream.received.at(-1)?.body.toString('utf8') ?? '';
}

const BODY = '{ "n" : 12345678901234567890,\n\t"model": "a" , "x":[1.50, 1e2],"messages":[], "temperature" :0.10}';

describe('parameters of a config change nothing else of the body', () => {
  it.each<[string, object, string]>([
    ['the model', { override_params: { model: 'b' } }, BODY.replace('"a"', '"b"')],
    ['one member', { override_params: { temperature: 0.5 } }, BODY.replace('0.10', '0.5')],
    [
      'several members',
      { override_params: { x: { y: 1 }, model: 'b', temperature: null } },
      BODY.replace('"a"', '"b"').replace('[1.50, 1e2]', '{"y":1}').replace('0.10', 'null'),
    ],
    ['a member that is not there', { override_params: { top_p: 1 } }, BODY.replace('{', '{"top_p":1,')],
    ['a default', { default_params: { top_p: 1, temperature: 1 } }, BODY.replace('{', '{"top_p":1,')],
    [
      'a default that is overridden',
      { default_params: { x: 1 }, override_params: { x: 2 } },
      BODY.replace('[1.50, 1e2]', '2'),
    ],
    ['a default model that is not needed', { default_params: { model: 'b' } }, BODY],
    ['a dropped member that is not there', { drop_params: ['seed', 'y.z'] }, BODY],
  ])('%s', async (_title, config, expected) => {
    expect(await sent(config, BODY)).toBe(expected);
  });

  it('a body without a model gets that of the config', async () => {
    const body = '{ "messages" : [ ] }';
    expect(await sent({ override_params: { model: 'b' } }, body)).toBe('{"model":"b", "messages" : [ ] }');
    expect(await sent({ default_params: { model: 'b', n: 1 } }, body)).toBe('{"n":1,"model":"b", "messages" : [ ] }');
  });

  it('a name in escapes is the same member', async () => {
    const body = '{"model":"a","messages":[],"\\u0074op_p": 0.50}';
    expect(await sent({ override_params: { top_p: 1 } }, body)).toBe('{"model":"a","messages":[],"\\u0074op_p": 1}');
  });
});

describe('what cannot be spliced is written anew, and says the same', () => {
  it.each<[string, object, object]>([
    ['a member that is taken out', { drop_params: ['temperature'] }, { n: 1, model: 'a', messages: [] }],
    [
      'a member that is put in and taken out',
      { override_params: { seed: 1 }, drop_params: ['seed'] },
      { n: 1, model: 'a', messages: [], temperature: 1 },
    ],
    [
      'how the answer streams',
      { override_params: { stream_options: null } },
      { n: 1, model: 'a', messages: [], temperature: 1, stream_options: null },
    ],
    ['a name beyond ASCII', { override_params: { é: 1 } }, { n: 1, model: 'a', messages: [], temperature: 1, é: 1 }],
  ])('%s', async (_title, config, expected) => {
    const body = JSON.stringify({ n: 1, model: 'a', messages: [], temperature: 1 });
    expect(JSON.parse(await sent(config, body))).toEqual(expected);
  });

  it('a member that the provider has under another name goes through its transform', async () => {
    const body = '{"model":"a","messages":[]}';
    const made = await sent({ override_params: { max_completion_tokens: 7 } }, body, 'deepseek');
    expect(JSON.parse(made)).toEqual({ model: 'a', messages: [], max_tokens: 7 });
  });

  it('a name beyond ASCII that the body has already is there once', async () => {
    const made = await sent({ override_params: { é: 1 } }, '{"model":"a","messages":[],"é":0}');
    expect(made.match(/é|\\u00e9/g)).toHaveLength(1);
    expect(JSON.parse(made)).toEqual({ model: 'a', messages: [], é: 1 });
  });

  it('how a stream is counted is said once', async () => {
    const body = '{"model":"a","messages":[],"stream":true}';
    const made = await sent({ override_params: { stream_options: { include_usage: false } } }, body);
    expect(made.match(/stream_options/g)).toHaveLength(1);
  });

  it('an empty body holds what the config says', async () => {
    expect(JSON.parse(await sent({ override_params: { model: 'b', messages: [], n: 1 } }, '{}'))).toEqual({
      model: 'b',
      messages: [],
      n: 1,
    });
  });
});
