/** Ways to name what another workspace keeps at a shared account that are not the usual ones. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { referencesOf } from '../../src/runtime/references.ts';
import { startWorld, type World } from './account.ts';

let world: World;
/** Of workspace a. */
let response = '';

beforeAll(async () => {
  world = await startWorld();
  response = (await asA('POST', '/responses', { model: 'gpt-4o', input: 'x' })).body.id ?? '';
}, 60_000);

afterAll(() => world?.stop());

type Call = (
  method: string,
  path: string,
  body?: unknown,
  headers?: Record<string, string>,
) => ReturnType<World['call']>;
const asA: Call = (...call) => world.call(world.keys.a, world.shared.a, ...call);
const asB: Call = (...call) => world.call(world.keys.b, world.shared.b, ...call);

describe('at an account that several workspaces share, an item of another workspace is not named', () => {
  it.each<[string, (id: string) => object]>([
    ['without a type', (id) => ({ id })],
    ['with a type of null', (id) => ({ type: null, id })],
    ['with a role alone', (id) => ({ role: 'user', id })],
    ['with a role that is none', (id) => ({ role: 'nobody', content: 'x', id })],
    ['as reasoning', (id) => ({ type: 'reasoning', id })],
    ['as reasoning with a summary', (id) => ({ type: 'reasoning', id, summary: [], encrypted_content: null })],
    ['as a message without content', (id) => ({ type: 'message', role: 'assistant', id })],
    ['with names in capitals', (id) => ({ Type: 'item_reference', ID: id })],
  ])('%s', async (_title, item) => {
    const body = { model: 'gpt-4o', input: [item(`msg_${response}`)] };
    for (const path of ['/responses', '/proxy/responses']) {
      const theirs = await asB('POST', path, body);
      expect(theirs, theirs.text).toMatchObject({ status: 404, sent: 0 });
    }
    const mine = await asA('POST', '/proxy/responses', body);
    expect(mine, mine.text).toMatchObject({ status: 200, sent: 1 });
  });

  it('and an item that the request repeats whole goes on', async () => {
    const input = [
      { type: 'message', role: 'assistant', id: 'msg_x', content: [{ type: 'output_text', text: 'x' }] },
      { role: 'user', id: 'msg_y', content: 'x' },
      { type: 'reasoning', id: 'rs_x', summary: [], encrypted_content: 'gAAAA' },
      { type: 'function_call', id: 'fc_x', call_id: 'c', name: 'f', arguments: '{}' },
    ];
    const answer = await asB('POST', '/proxy/responses', { model: 'gpt-4o', input });
    expect(answer, answer.text).toMatchObject({ status: 200, sent: 1 });
  });
});

describe('at an account that several workspaces share', () => {
  it('a content type does not hide what a JSON body names', async () => {
    const text = JSON.stringify({ model: 'gpt-4o', input: 'x', previous_response_id: response });
    for (const path of ['/proxy/responses', '/proxy/messages', '/responses', '/proxy/deployments/audio/completions']) {
      for (const type of ['audio/mpeg', 'Audio/wav', 'multipart/form-data; boundary=x']) {
        const answer = await asB('POST', path, text, { 'content-type': type });
        expect({ path, type, sent: answer.sent }, answer.text).toEqual({ path, type, sent: 0 });
      }
    }
  });

  it.each(['previous_response_id', 'images[0][file_id]', 'images[file_ids][]', 'File_ID'])(
    'the form field %s names objects of the workspace only',
    async (field) => {
      for (const path of ['/proxy/responses', '/proxy/images/edits', '/images/edits']) {
        const form = new FormData();
        form.set('model', 'gpt-image-1');
        form.set(field, response);
        form.set('image', new File(['x'], 'a.png', { type: 'image/png' }));
        const answer = await asB('POST', path, form);
        expect({ path, sent: answer.sent }, answer.text).toEqual({ path, sent: 0 });
        form.delete(field);
        if (path === '/proxy/images/edits') expect(await asB('POST', path, form)).toMatchObject({ sent: 1 });
      }
    },
  );

  it.each<[string, (ids: string[]) => object]>([
    ['ids', (file_ids) => ({ tools: [{ type: 'code_interpreter', container: { type: 'auto', file_ids } }] })],
    ['addresses', (ids) => ({ input: [{ role: 'user', content: ids.map((id) => ({ file_uri: `gs://b/${id}` })) }] })],
  ])('a request names at most 1,000 objects, by %s', async (by, bodyOf) => {
    const ids = (count: number) => Array.from({ length: count }, (_, i) => `file-${i}`);
    const ask = (count: number) => asB('POST', '/proxy/responses', { model: 'gpt-4o', ...bodyOf(ids(count)) });
    const most = await ask(1_000);
    expect(most.status, most.text).toBe(by === 'ids' ? 404 : 200);
    const more = await ask(10_000);
    expect(more, more.text).toMatchObject({ status: 400, sent: 0 });
    expect(more.text).toContain('more than 1000 objects');
  });

  it('the same object counts once', () => {
    const content = Array.from({ length: 5_000 }, () => ({ type: 'input_file', file_id: 'file-1' }));
    expect(referencesOf({ input: [{ role: 'user', content }] }).objects).toHaveLength(1);
  });

  it.each(['metadata', 'schema', 'input', 'parameters', 'x'])(
    'a variable of a prompt hides nothing: %s',
    async (name) => {
      const variables = { [name]: { type: 'input_file', file_id: 'file-old' } };
      const body = { model: 'gpt-4o', prompt: { variables } };
      expect(await asB('POST', '/proxy/responses', body)).toMatchObject({ status: 404, sent: 0 });
      const text = { model: 'gpt-4o', prompt: { variables: { container: 'a box' } } };
      expect(await asB('POST', '/proxy/responses', text)).toMatchObject({ status: 200, sent: 1 });
    },
  );

  it('nor does a member of a variable that has the name of something a user fills in', () => {
    const variables = { x: { metadata: { type: 'input_file', file_id: 'file-1' } } };
    expect(referencesOf({ prompt: { id: 'pmpt_1', variables } }).objects).toMatchObject([{ id: 'file-1' }]);
  });

  it('a chat does not name the spoken answer of an earlier one', async () => {
    const chat = (audio: object | null) => ({ model: 'gpt-4o', messages: [{ role: 'assistant', audio }] });
    for (const path of ['/chat/completions', '/proxy/chat/completions']) {
      const answer = await asB('POST', path, chat({ id: 'audio_1' }));
      expect(answer, answer.text).toMatchObject({ status: 403, sent: 0 });
      expect(answer.text).toContain('messages[0].audio.id');
    }
    expect(await asB('POST', '/proxy/chat/completions', chat(null))).toMatchObject({ status: 200, sent: 1 });
  });

  it('a request does not name a guardrail that is set up at the account, in its body or in a header', async () => {
    const chat = { model: 'gpt-4o', messages: [{ role: 'user', content: 'x' }] };
    for (const path of ['/chat/completions', '/proxy/chat/completions']) {
      for (const guardrailConfig of [{ guardrailIdentifier: 'gr1' }, { guardrail_identifier: 'gr1' }]) {
        const answer = await asB('POST', path, { ...chat, guardrailConfig });
        expect(answer, answer.text).toMatchObject({ status: 403, sent: 0 });
        expect(answer.text).toContain('guardrailConfig.guardrail');
      }
    }
    const header = {
      'X-Amzn-Bedrock-GuardrailIdentifier': 'gr1',
      'x-gateway-forward-headers': 'x-amzn-bedrock-guardrailidentifier',
    };
    const named = await asB('POST', '/proxy/chat/completions', chat, header);
    expect(named, named.text).toMatchObject({ status: 403, sent: 0 });
    expect(named.text).toContain('x-amzn-bedrock-guardrailidentifier');
    expect(await asB('POST', '/proxy/chat/completions', chat)).toMatchObject({ status: 200, sent: 1 });
  });

  it('a field whose name is in capitals is found', async () => {
    const body = { model: 'gpt-4o', input: 'x', Previous_Response_ID: response };
    expect(await asB('POST', '/proxy/responses', body)).toMatchObject({ status: 404, sent: 0 });
  });
});
