/**
 * Who reaches what at a provider account: every call of the official client and every operation, by every spelling of its
 * path, for the workspace an object belongs to, another workspace, and another organisation.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS, type OperationId } from '../../src/operations/operation.ts';
import { clientCalls, startWorld, type World } from './account.ts';

let world: World;
/** Made by workspace a at the shared account, through Sluice. */
const own = { file: '', job: '', batch: '', response: '', conversation: '', model: '' };

const jobBody = (training_file: string) => ({
  model: 'gpt-4o-mini',
  training_file,
  suffix: 'v1',
  method: {
    type: 'supervised',
    supervised: { hyperparameters: { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 } },
  },
});

beforeAll(async () => {
  world = await startWorld();
  const { a } = world.keys;
  const form = new FormData();
  form.set('purpose', 'fine-tune');
  form.set('file', new File(['{}\n'], 'rows.jsonl'));
  own.file = (await world.call(a, world.shared.a, 'POST', '/files', form)).body.id ?? '';
  const job = await world.call(a, world.shared.a, 'POST', '/fine_tuning/jobs', jobBody(own.file));
  own.job = job.body.id ?? '';
  own.model = `ft:${own.job}`;
  const batch = { input_file_id: own.file, endpoint: '/v1/chat/completions', completion_window: '24h' };
  own.batch = (await world.call(a, world.shared.a, 'POST', '/batches', batch)).body.id ?? '';
  const response = await world.call(a, world.shared.a, 'POST', '/responses', { model: 'gpt-4o', input: 'x' });
  own.response = response.body.id ?? '';
  expect(own).toMatchObject({
    file: expect.stringMatching(/^file-/),
    job: expect.stringMatching(/^ftjob-/),
    batch: expect.stringMatching(/^batch_/),
    response: expect.stringMatching(/^resp_/),
  });
}, 60_000);

afterAll(() => world?.stop());

/** Ways to write one path. Those that no reading allows are refused before anything else. */
const SPELLINGS: Readonly<Record<string, (path: string) => string>> = {
  'as it is': (path) => path,
  'below /proxy': (path) => `/proxy${path}`,
  'in upper case': (path) => path.replace(/^\/[^/]+/, (first) => first.toUpperCase()),
  'below /proxy in upper case': (path) => `/proxy${path.toUpperCase().replace(/%7B|%7D/g, '')}`,
  'with an encoded slash': (path) => `/proxy/${path.slice(1).replace('/', '%2F')}`,
  'with an encoded letter': (path) => `/proxy/%${path.charCodeAt(1).toString(16)}${path.slice(2)}`,
  'with a letter encoded twice': (path) => `/proxy/%25${path.charCodeAt(1).toString(16)}${path.slice(2)}`,
  'with two slashes': (path) => `/proxy/${path}`,
  'with a slash at the end': (path) => `/proxy${path}/`,
  'with a parameter of its segment': (path) => `/proxy${path};x=1`,
};

/** What neither reads nor changes an object passes for everybody. Everything else of the client is closed. */
const OPEN: ReadonlySet<string> = new Set([
  'GET /models',
  'GET /models/{}',
  'POST /audio/speech',
  'POST /audio/transcriptions',
  'POST /audio/translations',
  'POST /chat/completions',
  'POST /completions',
  'POST /embeddings',
  'POST /fine_tuning/alpha/graders/run',
  'POST /fine_tuning/alpha/graders/validate',
  'POST /images/edits',
  'POST /images/generations',
  'POST /images/variations',
  'POST /messages',
  'POST /messages/count_tokens',
  'POST /moderations',
  'POST /rerank',
  'POST /responses',
  'POST /responses/input_tokens',
]);

const REFUSED: ReadonlySet<number> = new Set([400, 403, 404, 405, 501]);

/** The id of an object of workspace a that stands at `{}`. */
function idFor(path: string): string {
  if (path.startsWith('/files')) return own.file;
  if (path.startsWith('/batches')) return own.batch;
  if (path.startsWith('/fine_tuning/jobs')) return own.job;
  if (path.startsWith('/responses')) return own.response;
  if (path.startsWith('/models') || path.startsWith('/fine_tuning/checkpoints')) return own.model;
  return 'id-of-another';
}

describe('at an account that several workspaces share', () => {
  const operations = Object.values(OPERATIONS).filter(({ id }) => id !== 'proxy');
  const named = operations.map(({ method, path }) => `${method} ${path.replace(/:\w+/g, '{}')}`);
  const calls = [...new Set([...clientCalls(), ...named])].sort();

  it('the official client has as many calls as this test was made for, or more', () => {
    expect(calls.length).toBeGreaterThan(200);
    expect([...OPEN].filter((call) => !calls.includes(call))).toEqual([]);
  });

  it.each(Object.entries(SPELLINGS))(
    'nothing of another workspace is reached by any call of the official client, its path written %s',
    async (_title, spell) => {
      const reached: string[] = [];
      for (const call of calls) {
        const [method = '', template = ''] = call.split(' ');
        const path = template.replaceAll('{}', () => idFor(template));
        const body =
          method === 'GET' || method === 'DELETE' ? undefined : { model: 'gpt-4o', input: 'x', messages: [] };
        const { status, sent } = await world.call(world.keys.b, world.shared.b, method, spell(path), body);
        if (OPEN.has(call)) continue;
        // A list of what the workspace owns, which is nothing, is answered without asking anybody.
        const empty = method === 'GET' && status === 200 && sent === 0;
        if (sent > 0 || !(REFUSED.has(status) || empty)) reached.push(`${call} → ${status}, sent ${sent}`);
      }
      expect(reached).toEqual([]);
    },
    60_000,
  );

  it('what works on no object passes, below /proxy, too', async () => {
    for (const call of OPEN) {
      const [method = '', template = ''] = call.split(' ');
      const path = template.replace('{}', 'gpt-4o');
      const body = method === 'GET' ? undefined : { model: 'gpt-4o', input: 'x', messages: [] };
      const { status, sent, text } = await world.call(world.keys.b, world.shared.b, method, `/proxy${path}`, body);
      expect({ call, status, sent }, text).toEqual({ call, status: 200, sent: 1 });
    }
  });

  it('another organisation does not find the account, and a workspace finds none that it may not use', async () => {
    for (const [key, slug] of [
      [world.keys.stranger, world.shared.a],
      [world.keys.b, world.alone],
    ] as const) {
      for (const path of [
        `/files/${own.file}`,
        `/proxy/files/${own.file}`,
        `/responses/${own.response}`,
        '/proxy/files',
      ]) {
        expect(await world.call(key, slug, 'GET', path)).toMatchObject({ status: 400, sent: 0 });
      }
    }
  });

  it('a custom host may not make another path of what was judged', async () => {
    const host = `${world.upstream.url}/v1/threads/thread_of_another`;
    const answer = await world.call(
      world.keys.b,
      world.shared.b,
      'POST',
      '/proxy/messages',
      {},
      {
        'x-gateway-custom-host': host,
      },
    );
    expect(answer).toMatchObject({ status: 403, sent: 0 });
  });

  it('a caller with a provider token of its own passes everything', async () => {
    for (const path of ['/proxy/files/file-old', '/proxy/vector_stores', '/Files', `/responses/${own.response}`]) {
      const answer = await world.call(world.keys.b, '=openai', 'GET', path, undefined, {
        authorization: 'Bearer sk-own',
        'x-gateway-custom-host': `${world.upstream.url}/v1`,
      });
      expect({ path, ...answer }, answer.text).toMatchObject({ path, status: 200, sent: 1 });
    }
  });
});

/** One request of each operation about objects of workspace a; null: it names none. */
type Asks = readonly [method: string, path: string, body?: object] | null;
const chat = (content: object[]) => ({ model: 'gpt-4o', messages: [{ role: 'user', content }] });

const REQUESTS: Readonly<Record<OperationId, () => Asks>> = {
  chat: () => ['POST', '/chat/completions', chat([{ type: 'file', file: { file_id: own.file } }])],
  completions: () => null,
  embeddings: () => null,
  messages: () => ['POST', '/messages', { max_tokens: 1, ...chat([{ type: 'container_upload', file_id: own.file }]) }],
  count_tokens: () => null,
  responses: () => ['POST', '/responses', { model: 'gpt-4o', input: 'x', previous_response_id: own.response }],
  response: () => ['GET', `/responses/${own.response}`],
  response_delete: () => ['DELETE', `/responses/${own.response}`],
  response_items: () => ['GET', `/responses/${own.response}/input_items`],
  moderations: () => null,
  images_generate: () => null,
  images_edit: () => null,
  images_vary: () => null,
  speech: () => null,
  transcribe: () => null,
  translate: () => null,
  rerank: () => null,
  models: () => null,
  model: () => null,
  model_delete: () => ['DELETE', `/models/${own.model}`],
  files_upload: () => null,
  files: () => ['GET', '/files'],
  file: () => ['GET', `/files/${own.file}`],
  file_delete: () => ['DELETE', `/files/${own.file}`],
  file_content: () => ['GET', `/files/${own.file}/content`],
  batch_create: () => [
    'POST',
    '/batches',
    { input_file_id: own.file, endpoint: '/v1/chat/completions', completion_window: '24h' },
  ],
  batches: () => ['GET', '/batches'],
  batch: () => ['GET', `/batches/${own.batch}`],
  batch_cancel: () => ['POST', `/batches/${own.batch}/cancel`],
  batch_output: () => ['GET', `/batches/${own.batch}/output`],
  finetune_create: () => ['POST', '/fine_tuning/jobs', jobBody(own.file)],
  finetune_jobs: () => ['GET', '/fine_tuning/jobs'],
  finetune_job: () => ['GET', `/fine_tuning/jobs/${own.job}`],
  finetune_cancel: () => ['POST', `/fine_tuning/jobs/${own.job}/cancel`],
  finetune_pause: () => ['POST', `/fine_tuning/jobs/${own.job}/pause`],
  finetune_resume: () => ['POST', `/fine_tuning/jobs/${own.job}/resume`],
  finetune_events: () => ['GET', `/fine_tuning/jobs/${own.job}/events`],
  finetune_checkpoints: () => ['GET', `/fine_tuning/jobs/${own.job}/checkpoints`],
  proxy: () => ['POST', `/responses/${own.response}/cancel`],
};

describe.each(Object.keys(OPERATIONS) as OperationId[])('the operation %s', (id) => {
  const request = REQUESTS[id];

  it('reaches nothing of another workspace', async () => {
    const asks = request();
    if (asks === null) return expect(id in REQUESTS).toBe(true);
    const [method, path, body] = asks;
    const { status, sent, text } = await world.call(world.keys.b, world.shared.b, method, path, body);
    expect({ sent, text }).toMatchObject({ sent: 0 });
    if (status === 200) expect(JSON.parse(text)).toMatchObject({ data: [] });
    else expect(REFUSED.has(status), text).toBe(true);
  });
});
