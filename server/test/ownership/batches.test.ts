/** Lines of batches that a provider runs: what they name is the workspace's own, however their file came to the account. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startWorld, type World } from './account.ts';

let world: World;
/** Of workspace a. */
let response = '';
let file = '';

beforeAll(async () => {
  world = await startWorld();
  response = (await asA('POST', '/responses', { model: 'gpt-4o', input: 'x' })).body.id ?? '';
  file = (await upload(asA, '{}\n', 'fine-tune')).body.id ?? '';
}, 60_000);

afterAll(() => world?.stop());

type Call = (method: string, path: string, body?: unknown) => ReturnType<World['call']>;
const asA: Call = (method, path, body) => world.call(world.keys.a, world.shared.a, method, path, body);
const asB: Call = (method, path, body) => world.call(world.keys.b, world.shared.b, method, path, body);
const admin = async (method: string, path: string, body?: unknown) => {
  const answer = await world.server.admin(method, path, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body;
};

let lines = 0;
const lineOf = (body: object) =>
  JSON.stringify({
    custom_id: `line ${++lines}`,
    method: 'POST',
    url: '/v1/responses',
    body: { model: 'gpt-4o', ...body },
  });
const HARMLESS = lineOf({ input: 'the "file_id" of a \\u00e9' });
const fileOf = (...lines: string[]) => lines.map((line) => `${line}\n`).join('');

function upload(call: Call, content: string | Buffer, purpose = 'batch', path = '/files') {
  const form = new FormData();
  form.set('purpose', purpose);
  form.set('file', new File([typeof content === 'string' ? content : new Uint8Array(content)], 'lines.jsonl'));
  return call('POST', path, form);
}

const batchOf = (input_file_id: string, more: object = {}) => ({
  input_file_id,
  endpoint: '/v1/responses',
  completion_window: '24h',
  ...more,
});

describe('at an account that several workspaces share, a line', () => {
  const input = (part: object) => ({ input: [{ role: 'user', content: [part] }] });
  const tool = (one: object) => ({ input: 'x', tools: [one] });

  it.each<[string, string, () => object]>([
    ['a response', 'body.previous_response_id', () => ({ input: 'x', previous_response_id: response })],
    ['an item', 'body.input[0].id', () => ({ input: [{ type: 'item_reference', id: `msg_${response}` }] })],
    ['a file', 'body.input[0].content[0].file_id', () => input({ type: 'input_file', file_id: file })],
  ])('names %s of its own workspace, and no other’s', async (_title, field, body) => {
    const content = fileOf(HARMLESS, lineOf(body()), HARMLESS);
    const theirs = await upload(asB, content);
    expect(theirs, theirs.text).toMatchObject({ status: 404, body: { error: { param: 'file' } } });
    expect(theirs.text).toContain(`Line 2, ${field}: This workspace has no such`);
    const mine = await upload(asA, content);
    expect(mine, mine.text).toMatchObject({ status: 200 });
    expect(await asA('POST', '/batches', batchOf(mine.body.id ?? ''))).toMatchObject({ status: 200 });
  });

  it.each<[string, object]>([
    ['a conversation', { conversation: 'conv_1' }],
    ['a vector store', tool({ type: 'file_search', vector_store_ids: ['vs_1'] })],
    ['a container', tool({ type: 'code_interpreter', container: 'cntr_1' })],
    ['a file that never was', input({ type: 'input_image', file_id: 'file-never' })],
  ])('does not name %s that the workspace does not own', async (_title, body) => {
    expect(await upload(asB, fileOf(lineOf(body)))).toMatchObject({ status: 404 });
  });

  it.each<[string, number, () => string | Buffer]>([
    [
      'with an escape',
      404,
      () => fileOf(HARMLESS, lineOf({ previous_response_id: response }).replace('_r', '\\u005fr')),
    ],
    ['in the last line, which does not end', 404, () => `${HARMLESS}\n${lineOf({ previous_response_id: response })}`],
    ['behind a lone return', 400, () => `${HARMLESS}\r${lineOf({ previous_response_id: response })}\n`],
    ['twice', 400, () => fileOf(lineOf({ a: response }).replace('"a":', '"conversation":"c","conversation":'))],
    ['in UTF-16', 400, () => Buffer.from(fileOf(lineOf({ previous_response_id: response })), 'utf16le')],
    ['behind a byte that is no text', 400, () => Buffer.concat([Buffer.from([0xff, 0x0a]), Buffer.from(HARMLESS)])],
  ])('hides nothing that is written %s', async (_title, status, content) => {
    const answer = await upload(asB, content());
    expect(answer.status, answer.text).toBe(status);
  });

  it.each<[string, object, number]>([
    ['files', { method: 'GET', url: '/v1/files' }, 403],
    ['a file', { method: 'GET', url: '/v1/files/file-1/content' }, 403],
    ['the address of another host', { url: 'https://other.example/v1/files' }, 403],
    ['an address that is no text', { url: ['/v1/responses'] }, 403],
    ['a conversation, in capitals', { url: undefined, URL: '/v1/conversations' }, 403],
    ['a response that is not its own', { method: 'DELETE', url: '/v1/responses/resp_other' }, 404],
    ['a chat of a deployment', { url: '/chat/completions' }, 200],
    ['a rerank', { url: '/v1/rerank' }, 200],
  ])('asks for no more than a request alone could: %s', async (_title, more, status) => {
    const line = { ...(JSON.parse(lineOf({ input: 'x' })) as object), ...more };
    const answer = await upload(asB, fileOf(HARMLESS, JSON.stringify(line)));
    expect(answer.status, answer.text).toBe(status);
    if (status !== 200) expect(answer.text).toContain('Line 2');
  });

  it('is found wherever the pieces of an upload end', async () => {
    const long = lineOf({ input: 'x'.repeat(70_000) });
    for (const length of [65_400, 65_500, 65_530, 131_000]) {
      const content = fileOf(lineOf({ input: 'x'.repeat(length) }), lineOf({ previous_response_id: response }), long);
      const answer = await upload(asB, content);
      expect(answer.text).toContain('Line 2, body.previous_response_id');
    }
  });
});

it('a dry run of a batch calls no provider, and refuses what can be judged without one', async () => {
  const { id } = (await upload(asB, fileOf(lineOf({ input: 'x', previous_response_id: response })), 'fine-tune')).body;
  const sent = world.upstream.received.length;
  const dry = (more: object) =>
    world.call(world.keys.b, world.shared.b, 'POST', '/batches', batchOf(id ?? '', more), {
      'x-gateway-dry-run': 'true',
    });
  expect(await dry({})).toMatchObject({ status: 200, body: { object: 'dry_run' } });
  const blob = await dry({ input_blob: 'https://blobs.example/a' });
  expect(blob, blob.text).toMatchObject({ status: 403, body: { error: { param: 'input_blob' } } });
  // Batches of other tests are read in the background.
  const since = world.upstream.received.slice(sent).map(({ method, path }) => `${method} ${path}`);
  expect(since.filter((one) => one.startsWith('POST ') || one.includes(id ?? ''))).toEqual([]);
});

describe('a batch at a shared account reads its file again, and is refused with the line, when the file', () => {
  const foreign = () => fileOf(HARMLESS, lineOf({ input: 'x', previous_response_id: response }));
  const refused = async (id: string) => {
    const batches = () =>
      world.upstream.received.filter(({ method, path }) => `${method} ${path}` === 'POST /v1/batches');
    const before = batches().length;
    const answer = await asB('POST', '/batches', batchOf(id));
    expect(answer, answer.text).toMatchObject({ status: 404, body: { error: { param: 'input_file_id' } } });
    expect(answer.text).toContain('Line 2, body.previous_response_id');
    expect(batches()).toHaveLength(before);
  };

  it('was uploaded for another purpose', async () => {
    await refused((await upload(asB, foreign(), 'fine-tune')).body.id ?? '');
  });

  it('was uploaded through pass-through', async () => {
    await admin('PUT', '/integrations/shared', { passthrough: { workspaces: ['b'] } });
    const { id } = (await upload(asB, foreign(), 'batch', '/proxy/files')).body;
    await refused(id ?? '');
    await admin('PUT', '/integrations/shared', { passthrough: null });
    await refused(id ?? '');
  });

  it('was handed over by the workspace that may name it', async () => {
    const { id } = (await upload(asA, foreign())).body;
    await admin('POST', '/integrations/shared/objects/adopt', {
      workspace: 'b',
      from: world.workspaces.a,
      kinds: ['file'],
      ids: [id],
    });
    await refused(id ?? '');
  });

  it('cannot be read, or is not the only thing that is read', async () => {
    await admin('POST', '/integrations/shared/objects/adopt', {
      workspace: 'b',
      kinds: ['file'],
      ids: ['file-secret'],
    });
    const secret = await asB('POST', '/batches', batchOf('file-secret'));
    expect(secret, secret.text).toMatchObject({ status: 403, body: { error: { param: 'input_file_id' } } });
    const own = (await upload(asB, fileOf(HARMLESS))).body.id ?? '';
    const blob = await asB('POST', '/batches', batchOf(own, { input_blob: 'https://blobs.example/a' }));
    expect(blob, blob.text).toMatchObject({ status: 403, body: { error: { param: 'input_blob' } } });
    expect(await asB('POST', '/batches', batchOf(own))).toMatchObject({ status: 200 });
  });
});

it('a batch that Sluice hands to the provider fails with the line that names what is not the workspace’s', async () => {
  const content = fileOf(lineOf({ input: 'x' }), lineOf({ input: 'x', previous_response_id: response }));
  const own = (call: World['keys']['a']) => (method: string, path: string, body?: unknown) =>
    world.call(call, '=gateway', method, path, body);
  const { id } = (await upload(own(world.keys.b), content)).body;
  const sent = world.upstream.received.length;
  const options = { 'x-gateway-virtual-key': world.shared.b };
  const batch = batchOf(id ?? '', { model: 'gpt-4o', gateway_options: options });
  const made = await own(world.keys.b)('POST', '/batches', batch);
  expect(made, made.text).toMatchObject({ status: 200 });
  await expect
    .poll(async () => (await own(world.keys.b)('GET', `/batches/${made.body.id}`)).text, { timeout: 10_000 })
    .toContain('Line 2, body.previous_response_id: This workspace has no such response');
  expect(world.upstream.received.slice(sent).filter(({ path }) => /\/(?:files|batches)$/.test(path))).toEqual([]);
});

it('at an account of one workspace lines are not looked at, and a batch does not read its file', async () => {
  const alone: Call = (method, path, body) => world.call(world.keys.a, world.alone, method, path, body);
  const { id } = (await upload(alone, fileOf(lineOf({ previous_response_id: 'resp_old' })))).body;
  expect(await alone('POST', '/batches', batchOf(id ?? ''))).toMatchObject({ status: 200 });
  expect(world.upstream.received.filter(({ path }) => path === `/v1/files/${id}/content`)).toEqual([]);
});
