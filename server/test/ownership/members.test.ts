/**
 * Every member of a request that is an id of something kept at the account: it has an owner, is refused, or is harmless for
 * a reason. The members are read from the official clients, so that a release with a new one is noticed.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { referencesOf } from '../../src/runtime/references.ts';
import { startWorld, type World } from './account.ts';
import { clientMembers } from './client-members.ts';

/** What the paths that are open on shared accounts take. */
const BODIES: Readonly<Record<string, readonly string[]>> = {
  openai: [
    'ChatCompletionCreateParamsBase',
    'CompletionCreateParamsBase',
    'EmbeddingCreateParams',
    'ImageGenerateParamsBase',
    'ImageEditParamsBase',
    'ImageCreateVariationParams',
    'SpeechCreateParams',
    'TranscriptionCreateParamsBase',
    'TranslationCreateParams',
    'ModerationCreateParams',
    'ResponseCreateParamsBase',
    'InputTokenCountParams',
    'BatchCreateParams',
    'JobCreateParams',
    'GraderRunParams',
    'GraderValidateParams',
  ],
  '@anthropic-ai/sdk': ['MessageCreateParamsBase', 'MessageCountTokensParams'],
};

/** Looked up: 404 unless the workspace owns it. */
const OWNED: Readonly<Record<string, unknown>> = {
  file_id: 'file-never',
  file_ids: ['file-never'],
  input_file_id: 'file-never',
  training_file: 'file-never',
  validation_file: 'file-never',
  previous_response_id: 'resp_never',
  comparison_response_id: 'resp_never',
  conversation: { id: 'conv_never' },
  vector_store_ids: ['vs_never'],
  container: { id: 'cntr_never' },
  container_id: 'cntr_never',
};

/** Kept at the account, and noted nowhere whose: 403. */
const REFUSED: Readonly<Record<string, unknown>> = {
  prompt: { id: 'pmpt_1', version: '2' },
  voice: { id: 'voice_1' },
  audio: { id: 'audio_1' },
  skill_id: 'skill_1',
  tunnel_id: 'tunnel_1',
  user_profile_id: 'up_1',
  previous_message_id: 'msg_1',
  credential_id: 'cred_1',
  // Not in the clients: buckets that Vertex AI writes to, voices of Mistral's shape.
  storageUri: 'gs://bucket/of-another',
  storage_uri: 'gs://bucket/of-another',
  voice_id: 'v_1',
};

const HARMLESS: Readonly<Record<string, string>> = {
  approval_request_id: 'an item of the same conversation, which has an owner',
  call_id: 'pairs a call with its result inside the request',
  caller_id: 'pairs a call with its result inside the request',
  tool_call_id: 'pairs a call with its result inside the request',
  tool_use_id: 'pairs a call with its result inside the request',
  tool_id: 'pairs a call with its result inside the request',
  connector_id: 'one of a fixed list; the caller sends an authorization of its own',
  download_id: 'made up by the caller',
  tab_id: 'made up by the caller',
  client_event_id: 'made up by the caller',
  user_id: 'made up by the caller',
  workspace_id: 'sent as a header, which only an account decides',
  assistant_id: 'of threads, which no open path reads',
  run_id: 'of threads, which no open path reads',
  thread_id: 'of threads, which no open path reads',
};

/** Types whose `id` is judged with the member that holds it, or as an item of a conversation. */
const IDS_OF: readonly RegExp[] = [
  /^(?:Beta)?Response(?:Prompt|ConversationParam)$|^(?:Beta)?ContainerParams$|^ID$|^Audio$/,
  // Items that a conversation repeats; a bare one is looked up.
  /^ItemReference$|^(?:Beta)?Response(?:\w+Call(?:Output)?|\w+Item|\w+ItemParam|OutputMessage|FunctionWebSearch)$/,
  /^(?:\w+(?:Call|CallOutput)|Message|AgentMessage|Program(?:Output)?|McpApprovalRe(?:quest|sponse)|McpListTools)$/,
  /^(?:AdditionalTools|CompactionTrigger|\w*UseBlockParam|ChatCompletionMessage\w+ToolCall)$/,
  // Made up by the provider for one answer, and sent back with it; an agent is one of the same request.
  /^(?:Acknowledged|Pending)SafetyCheck$|^Agent$/,
];

const isId = (name: string) =>
  name !== 'id' && /(?:^|_)ids?$|^(?:prompt|voice|container|conversation)$|^(?:training|validation)_file$/.test(name);

describe('members of requests', () => {
  it.each(Object.entries(BODIES))('%s: each that is an id is owned, refused or harmless', (client, roots) => {
    const members = clientMembers(client, roots);
    const known = { ...OWNED, ...REFUSED, ...HARMLESS };
    expect([...members.keys()].filter((name) => isId(name) && !Object.hasOwn(known, name))).toEqual([]);
    const types = [...(members.get('id') ?? [])];
    expect(types.filter((type) => !IDS_OF.some((pattern) => pattern.test(type)))).toEqual([]);
  });

  it('the declarations are read deeply', () => {
    const openai = clientMembers('openai', BODIES.openai ?? []);
    for (const name of ['tunnel_id', 'skill_id', 'vector_store_ids', 'previous_response_id', 'voice']) {
      expect(openai.has(name), name).toBe(true);
    }
    expect(clientMembers('@anthropic-ai/sdk', BODIES['@anthropic-ai/sdk'] ?? []).has('skill_id')).toBe(true);
  });
});

let world: World;
beforeAll(async () => {
  world = await startWorld();
}, 60_000);
afterAll(() => world?.stop());
const asB = (path: string, body: unknown) => world.call(world.keys.b, world.shared.b, 'POST', path, body);

const turns = (content: unknown) => ({ messages: [{ role: 'user', content }] });
const SHAPES: readonly (readonly [path: string, around: (content: unknown) => object])[] = [
  ['/chat/completions', turns],
  ['/proxy/chat/completions', turns],
  ['/responses', (content) => ({ input: [{ role: 'user', content }] })],
  ['/proxy/responses', (content) => ({ input: [{ role: 'user', content }] })],
  ['/proxy/messages', (content) => ({ max_tokens: 9, ...turns(content) })],
];
const PLACES: Readonly<Record<string, (around: (content: unknown) => object, member: object) => object>> = {
  outermost: (around, member) => ({ ...around('Hi'), ...member }),
  'in a message': (around, member) => around([{ type: 'text', text: 'Hi', ...member }]),
  'in a part of a message': (around, member) => around([{ type: 'x', source: { type: 'y', inner: [member] } }]),
  'in a tool': (around, member) => ({ ...around('Hi'), tools: [{ type: 'x', environment: member }] }),
};
const status = (name: string) => (Object.hasOwn(OWNED, name) ? 404 : 403);

describe.each(SHAPES)('%s at an account that several workspaces share', (path, around) => {
  it.each(Object.entries(PLACES))('nothing that is kept is named %s', async (_place, put) => {
    const answers: string[] = [];
    const wanted: string[] = [];
    for (const [name, value] of Object.entries({ ...OWNED, ...REFUSED })) {
      const answer = await asB(path, { model: 'gpt-4o', ...put(around, { [name]: value }) });
      answers.push(`${name}: ${answer.status}, sent ${answer.sent}`);
      wanted.push(`${name}: ${status(name)}, sent 0`);
    }
    expect(answers).toEqual(wanted);
  });

  it('what is no id passes: texts of prompts, voices and skills of the provider, schemas of tools', async () => {
    const tool = {
      type: 'function',
      function: { name: 'f', parameters: { storageUri: 'gs://b', voice: { id: 'x' } } },
    };
    for (const member of [
      { prompt: 'a "voice" with an "id"' },
      { voice: 'alloy' },
      { skill_id: 'openai-spreadsheets' },
      { type: 'anthropic', skill_id: 'xlsx' },
      { tools: [tool] },
    ]) {
      const answer = await asB(path, { model: 'gpt-4o', ...around('Hi'), ...member });
      expect(answer, answer.text).toMatchObject({ sent: 1 });
    }
  });
});

describe('at an account that several workspaces share', () => {
  it('speech has no voice of another workspace', async () => {
    const ask = (voice: unknown) => asB('/audio/speech', { model: 'tts', input: 'Hi', voice });
    for (const voice of [{ id: 'voice_1' }, 'voice_1', 'VOICE_1']) {
      expect(await ask(voice)).toMatchObject({ status: 403, sent: 0 });
    }
    expect((await ask('alloy')).sent).toBe(1);
  });

  it('a prediction is written to no bucket of the account', () => {
    const at = (more: object) =>
      referencesOf({ instances: [{ prompt: 'x' }], parameters: { sampleCount: 1, ...more } });
    expect(at({ storageUri: 'gs://b/x' }).unknown).toBe('parameters.storageUri');
    expect(at({}).unknown).toBe(null);
    const image = { gcsUri: 'gs://b/x.png' };
    expect(referencesOf({ instances: [{ image }] }).uris).toEqual([
      { uri: 'gs://b/x.png', param: 'instances[0].image.gcsUri' },
    ]);
  });

  it.each<[string, string, number]>([
    ['images', '[{"file_id":"file-never"}]', 404],
    ['mask', ' {"file\\u005fid":"file-never"}', 404],
    ['images[]', '{"file_id":"file-never"}', 404],
    ['extra', '{"deep":[{"previous_response_id":"resp_never"}]}', 404],
    ['images[0][file_id]', 'file-never', 404],
    ['voice', '{"id":"voice_1"}', 403],
    ['voice[id]', 'voice_1', 403],
    ['prompt[id]', 'pmpt_1', 403],
    ['container[id]', 'cntr_never', 404],
    ['extra', `${'['.repeat(200_000)}`, 400],
  ])('the form field %s = %.40s names nothing of another workspace', async (field, value, wanted) => {
    for (const path of ['/proxy/images/edits', '/images/edits']) {
      const form = new FormData();
      form.set('model', 'gpt-image-1');
      form.set(field, value);
      form.set('image', new File(['x'], 'a.png', { type: 'image/png' }));
      const answer = await asB(path, form);
      expect({ path, sent: answer.sent }, answer.text).toEqual({ path, sent: 0 });
      if (path.startsWith('/proxy')) expect(answer.status, answer.text).toBe(wanted);
    }
  });

  it.each([
    ['prompt', '{"id":"a","file_id":"b"}'],
    ['prompt', 'a {"file_id"'],
    ['extra', '{"file_id'],
  ])('the words of a form stay words: %s = %s', async (field, value) => {
    const form = new FormData();
    form.set('model', 'gpt-image-1');
    form.set(field, value);
    form.set('image', new File(['x'], 'a.png', { type: 'image/png' }));
    const answer = await asB('/proxy/images/edits', form);
    expect(answer, answer.text).toMatchObject({ sent: 1 });
  });
});
