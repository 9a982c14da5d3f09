/** What belongs to whom at provider accounts: of one workspace alone, of several, opened, and of callers themselves. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { clientCalls, startWorld, type World } from './account.ts';

let world: World;

beforeAll(async () => {
  world = await startWorld();
}, 60_000);

afterAll(() => world?.stop());

const RESPONSE = { model: 'gpt-4o', input: 'x' };
const asA = (method: string, path: string, body?: unknown, headers?: Record<string, string>) =>
  world.call(world.keys.a, world.shared.a, method, path, body, headers);
const asB = (method: string, path: string, body?: unknown, headers?: Record<string, string>) =>
  world.call(world.keys.b, world.shared.b, method, path, body, headers);
const admin = async (method: string, path: string, body?: unknown) => {
  const answer = await world.server.admin(method, path, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body;
};

/** Uploads as workspace a; the id. */
async function upload(call = asA): Promise<string> {
  const form = new FormData();
  form.set('purpose', 'fine-tune');
  form.set('file', new File(['{}\n'], 'rows.jsonl'));
  return (await call('POST', '/files', form)).body.id ?? '';
}

describe('at an account that several workspaces share', () => {
  it.each([
    ['whole', RESPONSE],
    ['streamed', { ...RESPONSE, stream: true }],
  ])('a response that was %s is its workspace’s: it reads, continues, cancels and deletes it', async (_title, body) => {
    const { text } = await asA('POST', '/responses', body);
    const id = /resp_\d+/.exec(text)?.[0] ?? '';
    const next = { ...RESPONSE, previous_response_id: id };
    const item = { ...RESPONSE, input: [{ type: 'item_reference', id: `msg_${id}` }] };
    for (const [method, path, sent] of [
      ['GET', `/responses/${id}`],
      ['GET', `/proxy/responses/${id}`],
      ['GET', `/responses/${id}/input_items`],
      ['POST', '/responses', next],
      ['POST', '/proxy/responses', next],
      ['POST', '/responses', item],
      ['POST', `/responses/${id}/cancel`],
      ['DELETE', `/responses/${id}`],
    ] as const) {
      const [theirs, mine] = [await asB(method, path, sent), await asA(method, path, sent)];
      expect({ path, status: theirs.status, sent: theirs.sent }, theirs.text).toEqual({ path, status: 404, sent: 0 });
      expect({ path, status: mine.status, sent: mine.sent }, mine.text).toEqual({ path, status: 200, sent: 1 });
    }
  });

  it('a response that was made below /proxy is its workspace’s, one that was not stored is nobody’s', async () => {
    const { id } = (await asA('POST', '/proxy/responses', RESPONSE)).body;
    expect(await asA('GET', `/responses/${id}`)).toMatchObject({ status: 200, sent: 1 });
    const lost = (await asA('POST', '/responses', { ...RESPONSE, store: false })).body.id;
    expect(await asA('GET', `/responses/${lost}`)).toMatchObject({ status: 404, sent: 0 });
  });

  const user = (part: object) => ({ model: 'gpt-4o', input: [{ role: 'user', content: [part] }] });
  const withTool = (tool: object) => ({ ...RESPONSE, tools: [tool] });

  it.each<[string, string, (file: string) => object]>([
    ['input_file', '/responses', (file_id) => user({ type: 'input_file', file_id })],
    ['input_image', '/responses', (file_id) => user({ type: 'input_image', file_id })],
    [
      'files of a container',
      '/responses',
      (id) => withTool({ type: 'code_interpreter', container: { type: 'auto', file_ids: [id] } }),
    ],
    ['a mask', '/responses', (file_id) => withTool({ type: 'image_generation', input_image_mask: { file_id } })],
    [
      'the answer of a tool',
      '/responses',
      (file_id) => ({
        ...RESPONSE,
        input: [{ type: 'function_call_output', call_id: 'c', output: [{ type: 'input_file', file_id }] }],
      }),
    ],
    [
      'a file of a chat',
      '/chat/completions',
      (file_id) => ({ model: 'gpt-4o', messages: [{ role: 'user', content: [{ type: 'file', file: { file_id } }] }] }),
    ],
    [
      'the same below /proxy',
      '/proxy/chat/completions',
      (file_id) => ({ model: 'gpt-4o', messages: [{ role: 'user', content: [{ type: 'file', file: { file_id } }] }] }),
    ],
  ])('the file that a body names is the workspace’s own: %s', async (_title, path, body) => {
    const file = await upload();
    expect(await asA('POST', path, body(file))).toMatchObject({ status: 200, sent: 1 });
    expect(await asB('POST', path, body(file))).toMatchObject({ status: 404, sent: 0 });
    expect(await asA('POST', path, body('file-never'))).toMatchObject({ status: 404, sent: 0 });
  });

  it.each<[string, object]>([
    ['a conversation', { ...RESPONSE, conversation: 'conv_1' }],
    ['a conversation, as an object', { ...RESPONSE, conversation: { id: 'conv_1' } }],
    ['a vector store', withTool({ type: 'file_search', vector_store_ids: ['vs_1'] })],
    ['a container', withTool({ type: 'code_interpreter', container: 'cntr_1' })],
    ['an image of an earlier answer', { ...RESPONSE, input: [{ type: 'image_generation_call', id: 'ig_1' }] }],
  ])('nobody reaches %s that the workspace does not own', async (_title, body) => {
    expect(await asB('POST', '/responses', body)).toMatchObject({ status: 404, sent: 0 });
  });

  it('a name that is written with escapes, or comes from a config, is found all the same', async () => {
    const file = await upload();
    const escaped = `{"model":"gpt-4o","input":[{"role":"user","content":[{"type":"input_file","file\\u005fid":"${file}"}]}]}`;
    expect(await asB('POST', '/responses', escaped)).toMatchObject({ status: 404, sent: 0 });
    expect(await asA('POST', '/responses', escaped)).toMatchObject({ status: 200, sent: 1 });
    const { id } = (await asA('POST', '/responses', RESPONSE)).body;
    const config = { provider: `@${world.shared.b}`, override_params: { previous_response_id: id } };
    const headers = { 'x-gateway-config': JSON.stringify(config) };
    expect(await world.call(world.keys.b, null, 'POST', '/responses', RESPONSE, headers)).toMatchObject({
      status: 404,
      sent: 0,
    });
  });

  it('a body of another type than JSON names nothing that nobody reads', async () => {
    const text = JSON.stringify({ ...RESPONSE, previous_response_id: 'resp_1' });
    for (const type of ['text/plain', 'application/json; charset=utf-16', 'application/x-ndjson']) {
      const answer = await asB('POST', '/proxy/responses', text, { 'content-type': type });
      expect({ type, sent: answer.sent }, answer.text).toEqual({ type, sent: 0 });
    }
  });

  it('words of users and of tools are no objects', async () => {
    const body = {
      model: 'gpt-4o',
      metadata: { file_id: 'mine' },
      messages: [{ role: 'user', content: 'the "file_id" of a conversation' }],
      tools: [
        {
          type: 'function',
          function: { name: 'f', parameters: { type: 'object', properties: { file_id: { const: 'x' } } } },
        },
      ],
    };
    expect(await asB('POST', '/chat/completions', body)).toMatchObject({ status: 200, sent: 1 });
  });

  it('each target of a config is judged: a response is asked for only where it is the workspace’s', async () => {
    const { id } = (await asA('POST', '/responses', RESPONSE)).body;
    const targets = [{ provider: `@${world.shared.b}` }, { provider: `@${world.shared.b}` }];
    const headers = { 'x-gateway-config': JSON.stringify({ strategy: { mode: 'fallback' }, targets }) };
    expect(await world.call(world.keys.b, null, 'GET', `/responses/${id}`, undefined, headers)).toMatchObject({
      status: 404,
      sent: 0,
    });
  });

  it('the model that a job of the workspace made is deleted by it, and its checkpoints are shared by it', async () => {
    const file = await upload();
    const hyperparameters = { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 };
    const method = { type: 'supervised', supervised: { hyperparameters } };
    const job = { model: 'gpt-4o-mini', training_file: file, suffix: 'v1', method };
    const { id } = (await asA('POST', '/fine_tuning/jobs', job)).body;
    expect(await asA('GET', `/fine_tuning/jobs/${id}`)).toMatchObject({ status: 200 });
    for (const [method, path] of [
      ['GET', `/fine_tuning/checkpoints/ft:${id}/permissions`],
      ['POST', `/fine_tuning/checkpoints/ft:${id}/permissions`],
      ['DELETE', `/fine_tuning/checkpoints/ft:${id}/permissions/cp_1`],
      ['DELETE', `/models/ft:${id}`],
    ] as const) {
      const body = method === 'POST' ? { project_ids: ['p'] } : undefined;
      expect(await asB(method, path, body)).toMatchObject({ status: 404, sent: 0 });
      const mine = await asA(method, path, body);
      expect(mine, mine.text).toMatchObject({ status: 200, sent: 1 });
    }
  });

  it('graders run', async () => {
    for (const path of ['/fine_tuning/alpha/graders/run', '/fine_tuning/alpha/graders/validate']) {
      expect(await asB('POST', path, { grader: { type: 'string_check' } })).toMatchObject({ status: 200, sent: 1 });
    }
  });

  it('an administrator opens pass-through to a workspace, and closes it; both are audited', async () => {
    expect(await asB('GET', '/proxy/vector_stores')).toMatchObject({ status: 403, sent: 0 });
    await admin('PUT', '/integrations/shared', { passthrough: { workspaces: ['b'] } });
    expect((await admin('GET', '/integrations/shared')).passthrough).toEqual({ workspaces: [world.workspaces.b] });
    expect(await asB('GET', '/proxy/vector_stores')).toMatchObject({ status: 200, sent: 1 });
    expect(await asB('GET', '/proxy/files/file-old')).toMatchObject({ status: 200, sent: 1 });
    expect(await asA('GET', '/proxy/vector_stores')).toMatchObject({ status: 403, sent: 0 });
    const { id } = (await asB('POST', '/conversations', {})).body;
    expect(await asB('POST', '/responses', { ...RESPONSE, conversation: id })).toMatchObject({ status: 200 });
    expect(await asA('POST', '/responses', { ...RESPONSE, conversation: id })).toMatchObject({ status: 404, sent: 0 });
    await admin('PUT', '/integrations/shared', { passthrough: null });
    expect(await asB('GET', '/proxy/vector_stores')).toMatchObject({ status: 403, sent: 0 });
    const span = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z';
    expect(JSON.stringify(await admin('GET', `/audit-logs?${span}`))).toContain('passthrough');
    const refused = await world.server.admin('PUT', '/integrations/shared', {
      passthrough: { workspaces: ['nobody'] },
    });
    expect(refused).toMatchObject({ status: 404, body: { error: { param: 'passthrough.workspaces[0]' } } });
  });
});

describe('at an account that one workspace alone can use', () => {
  const alone = (method: string, path: string, body?: unknown) =>
    world.call(world.keys.a, world.alone, method, path, body);

  it('every call of the official client reaches the account, named or passed through', async () => {
    const missed: string[] = [];
    for (const call of clientCalls()) {
      const [method = '', template = ''] = call.split(' ');
      const path = template.replaceAll('{}', 'old-1');
      const body = method === 'GET' || method === 'DELETE' ? undefined : RESPONSE;
      const { status, sent } = await alone(method, `/proxy${path}`, body);
      if (sent !== 1 || status !== 200) missed.push(`${call} → ${status}, sent ${sent}`);
    }
    expect(missed).toEqual([]);
  }, 60_000);

  it('files, jobs and batches from before Sluice are listed, read and used', async () => {
    for (const path of ['/files', '/fine_tuning/jobs', '/batches']) {
      const { body } = await alone('GET', path);
      expect(JSON.stringify(body)).toMatch(/(?:file-|ftjob-|batch_)old/);
    }
    for (const path of [
      '/files/file-old',
      '/files/file-old/content',
      '/fine_tuning/jobs/ftjob-old',
      '/batches/batch_old',
      '/responses/resp_old',
    ]) {
      expect(await alone('GET', path)).toMatchObject({ status: 200, sent: 1 });
    }
    const batch = { input_file_id: 'file-old', endpoint: '/v1/chat/completions', completion_window: '24h' };
    expect(await alone('POST', '/batches', batch)).toMatchObject({ status: 200 });
    expect(await alone('POST', '/responses', { ...RESPONSE, previous_response_id: 'resp_old' })).toMatchObject({
      status: 200,
    });
  });

  it('what the workspace made stays its own when the account is opened to another; the rest is nobody’s until it is adopted', async () => {
    const { id } = (await alone('POST', '/responses', RESPONSE)).body;
    const file = await upload((method, path, body) => alone(method, path, body));
    const entry = { id: world.workspaces.b, enabled: true, default_provider_slug: 'alone-b' };
    await admin('PUT', '/integrations/alone/workspaces', { workspaces: [entry] });
    expect(await alone('GET', `/responses/${id}`)).toMatchObject({ status: 200, sent: 1 });
    expect(await alone('GET', `/files/${file}`)).toMatchObject({ status: 200, sent: 1 });
    expect(await alone('GET', '/files/file-old')).toMatchObject({ status: 404, sent: 0 });
    for (const path of [`/responses/${id}`, `/files/${file}`, '/files/file-old']) {
      expect(await world.call(world.keys.b, 'alone-b', 'GET', path)).toMatchObject({ status: 404, sent: 0 });
    }
    await admin('PUT', '/integrations/alone/workspaces', { workspaces: [{ id: world.workspaces.b, enabled: false }] });
    expect(await alone('GET', '/files/file-old')).toMatchObject({ status: 200, sent: 1 });
  });
});

it('an account that is open to the whole organisation is shared from the moment that a second workspace is made', async () => {
  const fresh = await startWorld();
  try {
    const { admin: ask, first } = fresh.server;
    await ask('DELETE', `/admin/workspaces/${fresh.workspaces.b}`, { force_delete: true });
    await ask('POST', '/integrations', {
      name: 'open',
      slug: 'open',
      ai_provider_id: 'openai',
      key: 'sk-stored',
      configurations: { custom_host: `${fresh.upstream.url}/v1` },
    });
    await ask('POST', '/providers', {
      name: 'open',
      slug: 'open',
      integration_id: 'open',
      workspace_id: first.workspace_id,
    });
    const read = () => fresh.call(fresh.keys.a, 'open', 'GET', '/files/file-old');
    expect(await read()).toMatchObject({ status: 200, sent: 1 });
    const made = await ask('POST', '/admin/workspaces', { name: 'C', slug: 'c' });
    expect(await read()).toMatchObject({ status: 404, sent: 0 });
    await ask('DELETE', `/admin/workspaces/${made.body.id}`, { force_delete: true });
    expect(await read()).toMatchObject({ status: 200, sent: 1 });
  } finally {
    await fresh.stop();
  }
}, 60_000);

describe('form fields of an upload that Sluice does not know', () => {
  const upload = (
    fields: readonly (readonly [string, string | File])[],
    slug: string,
    more: Record<string, string> = {},
  ) => {
    const form = new FormData();
    for (const [name, value] of fields) form.append(name, value);
    return world.call(world.keys.a, slug, 'POST', '/files', form, more);
  };
  const file = ['file', new File(['{}\n'], 'rows.jsonl')] as const;
  const purpose = ['purpose', 'fine-tune'] as const;
  const anchor = ['expires_after[anchor]', 'created_at'] as const;
  const seconds = ['expires_after[seconds]', '3600'] as const;

  it.each([
    ['before the file', [purpose, anchor, seconds, file]],
    ['behind the file', [purpose, file, anchor, seconds]],
    ['behind the file, with the purpose', [file, purpose, anchor, seconds]],
  ] as const)('go on to a provider of OpenAI’s shape: %s', async (_title, fields) => {
    const answer = await upload(fields, world.shared.a);
    expect(answer, answer.text).toMatchObject({ status: 200, sent: 1 });
    const body = world.upstream.received.findLast(({ method }) => method === 'POST')?.body.toString() ?? '';
    for (const [name, value] of [anchor, seconds]) expect(body).toContain(`name="${name}"\r\n\r\n${value}\r\n`);
    expect(body.match(/form-data/g)).toHaveLength(4);
  });

  it('are refused by name elsewhere', async () => {
    const answer = await upload([purpose, anchor, file], 'sandbox');
    expect(answer).toMatchObject({ status: 400, sent: 0, body: { error: { param: anchor[0] } } });
  });

  it('must come before a file whose size is announced', async () => {
    const size = { 'x-gateway-file-upload-size': '3' };
    expect((await upload([purpose, file, anchor], world.shared.a, size)).status).toBe(400);
    expect((await upload([purpose, anchor, file], world.shared.a, size)).status).toBe(200);
  });
});
