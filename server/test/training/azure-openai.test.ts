import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { BatchRequest, JobRequest } from '../../src/operations/training.ts';
import { azureOpenAi } from '../../src/providers/azure-openai/azure-openai.ts';
import { providerById } from '../../src/providers/catalog.ts';
import type { AmbientIdentity, UploadRequest } from '../../src/providers/training.ts';
import { type AdapterContextOptions, adapterContext, type TestContext } from '../support/adapter-context.ts';
import { DATED_VERSION, type EntraServer, startAzureOpenAi, startEntra } from '../support/upstreams/azure-openai.ts';
import type { OpenAiObjects } from '../support/upstreams/openai.ts';
import { azureOpenAiDated, azureOpenAi as azureOpenAiV1 } from './fields/azure-openai.ts';
import { BASE, requestFor } from './fields/inputs.ts';
import { FIELD_NAMES } from './fields/names.ts';
import { refusal, textOf, valueAt, walk } from './support.ts';

const { jobs, files, batches } = azureOpenAi.training ?? {};
if (!jobs || !files || !batches || !jobs.pause || !batches.inputLine) throw new Error('a part is missing');
const { pause } = jobs;
const { inputLine } = batches;

const SETTINGS = {
  v1: { azure_resource_name: 'my-resource' },
  dated: { azure_resource_name: 'my-resource', azure_api_version: DATED_VERSION },
} as const;

let upstream: OpenAiObjects;
let context: TestContext;
const opened: TestContext[] = [];

const open = (options: Partial<AdapterContextOptions> = {}): TestContext => {
  const one = adapterContext({ base: upstream.base, settings: SETTINGS.v1, ...options });
  opened.push(one);
  return one;
};

async function start(surface: 'v1' | 'dated', signIn?: Record<string, RegExp>): Promise<void> {
  upstream = await startAzureOpenAi(surface, signIn);
  context = open({ settings: SETTINGS[surface] });
}

afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const job = (base: Partial<JobRequest> = {}): JobRequest => requestFor({ base }, 'training_file');

const upload = (content: string, more: Partial<UploadRequest> = {}): UploadRequest => ({
  filename: 'data.jsonl',
  purpose: 'fine-tune',
  contentType: 'application/jsonl',
  stream: Readable.from([Buffer.from(content)]),
  bytes: Buffer.byteLength(content),
  ...more,
});

const batch = (more: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id: 'file-in',
  endpoint: '/v1/chat/completions',
  completion_window: '24h',
  metadata: null,
  model: null,
  job_name: null,
  role_arn: null,
  output_data_config: null,
  extra: {},
  body: {},
  ...more,
});

describe.each([
  ['v1', azureOpenAiV1],
  ['dated', azureOpenAiDated],
] as const)('every field of a create request on the %s surface', (surface, subject) => {
  beforeEach(() => start(surface));

  it.each(FIELD_NAMES)('%s reaches Azure, or is refused by name before any call', async (name) => {
    const request = requestFor(subject, name);
    const fate = subject.table[name];
    if ('place' in fate) {
      await jobs.create(request, context);
      expect(valueAt(upstream.last, fate.place)).toEqual(fate.value);
      expect(jobs.prepare(request, context).body).toEqual(upstream.last);
    } else {
      expect(await refusal(() => jobs.create(request, context))).toMatchObject({
        status: 400,
        code: 'unsupported_parameter',
        param: fate.refused,
      });
      expect(context.calls).toEqual([]);
    }
  });
});

describe('jobs on the dated surface', () => {
  beforeEach(() => start('dated'));

  it('keep their method, so that a preference job stays one, and move their numbers to the top', async () => {
    await jobs.create(job({ method: 'dpo', hyperparametersPath: 'method.dpo.hyperparameters' }), context);
    expect(upstream.last).toEqual({
      model: 'base-model',
      training_file: 'file-train',
      suffix: 'v1',
      method: { type: 'dpo' },
      hyperparameters: { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1 },
    });
    expect(upstream.received[0]?.path).toBe(`/openai/fine_tuning/jobs?api-version=${DATED_VERSION}`);
  });

  it.each(['x'.repeat(41), 'with space', 'dot.dot', 'ü'])('refuse the suffix %j', async (suffix) => {
    expect(await refusal(() => jobs.create(job({ suffix }), context))).toMatchObject({ status: 400, param: 'suffix' });
  });

  it.each([
    ['n_epochs', 0],
    ['n_epochs', 'auto'],
    ['batch_size', 'auto'],
    ['learning_rate_multiplier', 'auto'],
    ['learning_rate_multiplier', 0],
  ] as const)('refuse %s = %j', async (name, value) => {
    const request = job({ hyperparameters: { ...BASE.hyperparameters, [name]: value } });
    const param = `method.supervised.hyperparameters.${name}`;
    expect(await refusal(() => jobs.create(request, context))).toMatchObject({ status: 400, param });
  });

  it('take the project of a tracker and refuse what is read-only there', async () => {
    const tracker = (more: Record<string, unknown>) =>
      job({ integrations: [{ type: 'tracker', tracker: { project: 'p', ...more } }] });
    await jobs.create(tracker({ name: null, entity: null, tags: [] }), context);
    expect(upstream.last.integrations).toEqual([{ type: 'wandb', wandb: { project: 'p' } }]);
    for (const [name, value] of [
      ['name', 'run'],
      ['entity', 'team'],
      ['tags', ['a']],
    ] as const) {
      expect(await refusal(() => jobs.create(tracker({ [name]: value }), context))).toMatchObject({
        param: `integrations[0].tracker.${name}`,
      });
    }
  });

  it('send the training tier that guides name, and refuse other members wherever they stand', async () => {
    const request = job({ extra: { trainingType: 'GlobalStandard' } });
    await jobs.create({ ...request, body: { ...request.body, trainingType: 'GlobalStandard' } }, context);
    expect(upstream.last.trainingType).toBe('GlobalStandard');
    const deep = job({ extra: { 'method.supervised.other': 1 } });
    expect(await refusal(() => jobs.create(deep, context))).toMatchObject({ param: 'method.supervised.other' });
  });

  it('are answered with every field of the shape: owner, automatic epochs, absent lists and seed', async () => {
    expect(await jobs.create(job(), context)).toMatchObject({
      status: 'validating_files',
      organization_id: 'my-resource',
      hyperparameters: { n_epochs: 'auto', batch_size: -1 },
      result_files: [],
      seed: 0,
      error: null,
      finished_at: null,
      trained_tokens: null,
    });
    const [first] = (await jobs.list({ after: null, limit: 5 }, context)).data;
    expect(first).not.toHaveProperty('organisation_id');
  });
});

describe.each(['v1', 'dated'] as const)('jobs at Azure, %s surface', (surface) => {
  beforeEach(() => start(surface));

  it.each([
    ['created', 'queued'],
    ['pending', 'queued'],
    ['resuming', 'queued'],
    ['paused', 'queued'],
    ['pausing', 'running'],
    ['validating_files', 'validating_files'],
    ['queued', 'queued'],
    ['running', 'running'],
    ['succeeded', 'succeeded'],
    ['failed', 'failed'],
    ['cancelled', 'cancelled'],
  ])('%s is reported as %s', async (raw, status) => {
    const { id } = await jobs.create(job(), context);
    upstream.state.jobs.set(id, { ...upstream.state.jobs.get(id), status: raw });
    expect((await jobs.retrieve(id, context)).status).toBe(status);
  });

  it('are listed, cancelled, held, and tell events and checkpoints', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.unshift((await jobs.create(job(), context)).id);
    expect(await walk((page) => jobs.list(page, context), 2)).toEqual(ids);
    const [id = ''] = ids;
    expect((await pause(id, context)).status).toBe('queued');
    expect((await jobs.cancel(id, context)).status).toBe('cancelled');
    upstream.state.events.set(id, [
      { id: 'e1', object: 'fine_tuning.job.event', created_at: 1, level: 'warning', message: 'slow' },
    ]);
    upstream.state.checkpoints.set(id, [
      {
        id: 'c1',
        object: 'fine_tuning.job.checkpoint',
        created_at: 1,
        fine_tuned_model_checkpoint: 'm:1',
        fine_tuning_job_id: id,
        metrics: { train_loss: 0.5, other: 2 },
        step_number: 10,
      },
    ]);
    expect((await jobs.events(id, { after: null, limit: 20 }, context)).data[0]).toMatchObject({ level: 'warn' });
    expect((await jobs.checkpoints(id, { after: null, limit: 10 }, context)).data[0]?.metrics).toEqual({
      train_loss: 0.5,
      other: 2,
    });
  });

  it('pass errors on with the field that Azure names', async () => {
    upstream.state.fail = {
      status: 400,
      body: { error: { code: 'invalidPayload', message: 'The suffix is too long.', target: 'suffix', innererror: {} } },
    };
    expect(await refusal(() => jobs.create(job(), context))).toMatchObject({
      status: 400,
      message: 'The suffix is too long.',
      param: 'suffix',
      code: 'invalid_payload',
    });
  });
});

describe.each(['v1', 'dated'] as const)('files at Azure, %s surface', (surface) => {
  beforeEach(() => start(surface));

  it('are uploaded, read, listed by purpose and deleted', async () => {
    const made = await files.upload(upload('{"a":1}\n'), context);
    await files.upload(upload('x', { purpose: 'batch' }), context);
    expect(upstream.state.forms[0]?.fields).toEqual(['purpose', 'file']);
    expect(await textOf((await files.content(made.id, context)).stream)).toBe('{"a":1}\n');
    expect((await files.list('fine-tune', context)).map((one) => one.id)).toEqual([made.id]);
    expect(await files.list(null, context)).toHaveLength(2);
    await files.remove(made.id, context);
    expect(await files.list('fine-tune', context)).toEqual([]);
  });

  it('have the states callers know, and are gone while they are being deleted', async () => {
    const { id } = await files.upload(upload('x'), context);
    const set = (status: string) => upstream.state.files.set(id, { ...upstream.state.files.get(id), status });
    for (const [raw, status] of [
      ['pending', 'uploaded'],
      ['running', 'uploaded'],
      ['uploaded', 'uploaded'],
      ['processed', 'processed'],
      ['error', 'error'],
    ] as const) {
      set(raw);
      expect((await files.retrieve(id, context)).status).toBe(status);
    }
    for (const raw of ['deleting', 'deleted']) {
      set(raw);
      expect(await refusal(() => files.retrieve(id, context))).toMatchObject({ status: 404, type: 'not_found_error' });
      expect(await files.list(null, context)).toEqual([]);
    }
  });

  it('are never for vision', async () => {
    expect(await refusal(() => files.upload(upload('x', { purpose: 'vision' }), context))).toMatchObject({
      status: 400,
      param: 'purpose',
    });
    expect(context.calls).toEqual([]);
  });
});

describe.each(['v1', 'dated'] as const)('batches at Azure, %s surface', (surface) => {
  beforeEach(() => start(surface));

  it('have the endpoint in the form of the surface, and in ours for callers', async () => {
    const made = await batches.create(batch({ output_data_config: 'https://store.example/out' }), context);
    expect(upstream.last).toEqual({
      input_file_id: 'file-in',
      endpoint: surface === 'v1' ? '/v1/chat/completions' : '/chat/completions',
      completion_window: '24h',
      output_folder: { url: 'https://store.example/out' },
    });
    expect(made.endpoint).toBe('/v1/chat/completions');
    expect((await batches.list({ after: null, limit: 5 }, context)).data[0]?.endpoint).toBe('/v1/chat/completions');
    expect((await batches.cancel(made.id, context)).status).toBe('cancelling');
  });

  it.each(['job_name', 'role_arn'] as const)('refuse %s by name', async (param) => {
    expect(await refusal(() => batches.create(batch({ [param]: 'x' }), context))).toMatchObject({ status: 400, param });
    expect(context.calls).toEqual([]);
  });

  it('stream their results, with an error file that is named but empty left alone', async () => {
    const { id } = await batches.create(batch(), context);
    const out = await files.upload(upload('{"custom_id":"a"}', { purpose: 'batch' }), context);
    const row = { ...upstream.state.batches.get(id), status: 'completed', output_file_id: out.id, error_file_id: '' };
    upstream.state.batches.set(id, row);
    expect(await textOf(await batches.output(id, context))).toBe('{"custom_id":"a"}\n');
    upstream.state.batches.set(id, { ...row, output_file_id: '' });
    expect(await textOf(await batches.output(id, context))).toBe('');
  });

  it('refuse the output of results in a storage account that cannot be read', async () => {
    const { id } = await batches.create(batch(), context);
    const blob = { output_blob: 'https://store.blob.example/out.jsonl', output_file_id: '' };
    upstream.state.batches.set(id, { ...upstream.state.batches.get(id), status: 'completed', ...blob });
    expect(await refusal(() => batches.output(id, context))).toMatchObject({
      status: 400,
      message: expect.stringContaining('output_blob'),
    });
  });

  it('have lines without the version in their path', () => {
    const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model: 'd' } };
    expect(inputLine(line, batch())).toEqual({ ...line, url: '/chat/completions' });
    expect(inputLine({ ...line, url: '/chat/completions' }, batch())).toEqual({ ...line, url: '/chat/completions' });
  });
});

describe('signing in to Azure', () => {
  const ENTRA = {
    ...SETTINGS.v1,
    azure_auth_mode: 'entra',
    azure_entra_tenant_id: 'tenant-1',
    azure_entra_client_id: 'client-1',
    azure_entra_client_secret: 'secret-1',
  };
  let entra: EntraServer;

  beforeEach(async () => {
    entra = await startEntra();
    await start('v1', { authorization: /^Bearer (?:entra|managed)-\d+$/ });
  });
  afterEach(async () => {
    await entra.stop();
    expect(entra.faults).toEqual([]);
  });

  const signedIn = (settings: Record<string, unknown>, more: Partial<AdapterContextOptions> = {}): TestContext =>
    open({ settings, key: null, redirect: { 'login.microsoftonline.com': entra.url }, ...more });
  const list = (one: object) => jobs.list({ after: null, limit: 1 }, one as TestContext);
  const ambient = (variables: Record<string, string>): AmbientIdentity => ({
    variable: (name) => variables[name],
    file: (path) => Promise.resolve(`assertion of ${path}\n`),
  });

  it('asks for one token for calls that come at once, and again before it expires', async () => {
    let now = 1_767_225_600_000;
    const one = signedIn(ENTRA, { now: () => now });
    await Promise.all([list(one), list(one), files.upload(upload('x'), one)]);
    expect(entra.tokens).toEqual(['entra-1']);
    expect(entra.last).toMatchObject({ client_id: 'client-1', client_secret: 'secret-1' });
    expect(upstream.received.every((call) => call.headers['api-key'] === undefined)).toBe(true);
    now += 50 * 60_000;
    await list(one);
    expect(entra.tokens).toHaveLength(1);
    now += 6 * 60_000;
    await list(one);
    expect(entra.tokens).toEqual(['entra-1', 'entra-2']);
    const asked = one.calls.filter((call) => call.url.host === 'login.microsoftonline.com');
    expect(asked.map((call) => [call.url.href, call.accountHeaders])).toEqual(
      Array(2).fill(['https://login.microsoftonline.com/tenant-1/oauth2/v2.0/token', false]),
    );
  });

  it('never gives a token to an account with another secret', async () => {
    const one = signedIn(ENTRA);
    await list(one);
    entra.refuse = { status: 401, error: 'invalid_client', description: 'AADSTS7000215: Invalid secret for client-1.' };
    const other = {
      ...one,
      credentials: { ...one.credentials, settings: { ...ENTRA, azure_entra_client_secret: 'x' } },
    };
    const refused = await refusal(() => list(other));
    expect(refused).toMatchObject({ status: 401, type: 'authentication_error', code: 'invalid_api_key' });
    expect(refused.message).toContain('AADSTS7000215');
    expect(refused.message).not.toMatch(/client-1|tenant-1/);
    expect(upstream.received).toHaveLength(1);
  });

  it('tells a failure of the token endpoint from a refusal, and asks again the next time', async () => {
    const one = signedIn(ENTRA);
    entra.refuse = { status: 503, error: 'temporarily_unavailable', description: '' };
    expect(await refusal(() => list(one))).toMatchObject({ status: 502 });
    await list(one);
    expect(entra.tokens).toEqual(['entra-1']);
  });

  it.each(['../common', 'a/b', 'a?b', 'a#b', 'a@b', '', ' ', '-', 'x'.repeat(300)])(
    'refuses the tenant %j before any call',
    async (tenant) => {
      const one = signedIn({ ...ENTRA, azure_entra_tenant_id: tenant });
      expect(await refusal(() => list(one))).toMatchObject({ status: 400, param: 'azure_entra_tenant_id' });
      expect(one.calls).toEqual([]);
    },
  );

  it('shows no token in a dry run, and asks for none', () => {
    const one = signedIn(ENTRA);
    expect(jobs.prepare(job(), one).headers).toContain('Bearer ***');
    expect(one.calls).toEqual([]);
  });

  it("uses the server's federated identity where the operator lets accounts have it", async () => {
    for (const [mode, prefix] of [
      ['workload', 'azure_workload'],
      ['entraFederated', 'azure_entra'],
    ] as const) {
      const settings = {
        ...SETTINGS.v1,
        azure_auth_mode: mode,
        [`${prefix}_tenant_id`]: 'tenant-1',
        [`${prefix}_client_id`]: 'client-2',
      };
      const one = signedIn(settings);
      await list({ ...one, ambient: ambient({ AZURE_FEDERATED_TOKEN_FILE: '/var/run/token' }) });
      expect(entra.last).toMatchObject({ client_id: 'client-2', client_assertion: 'assertion of /var/run/token' });
      const without = signedIn(settings);
      expect(await refusal(() => list(without))).toMatchObject({ status: 503, param: 'azure_auth_mode' });
      expect(await refusal(() => list({ ...without, ambient: ambient({}) }))).toMatchObject({ status: 503 });
      expect(without.calls).toEqual([]);
    }
  });

  it('uses a managed identity through its platform, and never the metadata address', async () => {
    const settings = { ...SETTINGS.v1, azure_auth_mode: 'managed', azure_managed_client_id: 'client-3' };
    const one = signedIn(settings);
    const refused = await refusal(() => list(one));
    expect(refused).toMatchObject({ status: 503, kind: 'out_of_service', param: 'azure_auth_mode' });
    expect(one.calls).toEqual([]);
    const platform = ambient({ IDENTITY_ENDPOINT: `${entra.url}/msi/token`, IDENTITY_HEADER: 'platform-secret' });
    await list({ ...one, ambient: platform });
    expect(entra.tokens).toEqual(['managed-1']);
    expect(new URL(entra.received[0]?.path ?? '', entra.url).searchParams.get('client_id')).toBe('client-3');
  });

  it('refuses a mode it does not know, and an account without what its mode needs', async () => {
    expect(await refusal(() => list(signedIn({ ...ENTRA, azure_auth_mode: 'magic' })))).toMatchObject({
      status: 400,
      param: 'azure_auth_mode',
    });
    const { azure_entra_client_secret: _secret, ...rest } = ENTRA;
    expect(await refusal(() => list(signedIn(rest)))).toMatchObject({ param: 'azure_entra_client_secret' });
    expect(await refusal(() => list(signedIn(SETTINGS.v1)))).toMatchObject({ status: 400 });
  });
});

describe('the host and the surface of an Azure account', () => {
  const base = (settings: Record<string, unknown>) => azureOpenAi.baseUrl({ key: null, settings });

  beforeEach(() => start('v1'));

  it('is in the catalog', () => {
    expect(providerById('azure-openai')).toBe(azureOpenAi);
  });

  it('is v1 unless the account pins a date, by its own setting or by its default deployment', () => {
    const deployment = (azure_api_version: string, is_default?: boolean) => ({
      azure_api_version,
      azure_deployment_name: 'd',
      azure_model_slug: 'm',
      ...(is_default === undefined ? {} : { is_default }),
    });
    const named = { azure_resource_name: 'My-Resource' };
    const v1 = 'https://my-resource.openai.azure.com/openai/v1';
    const dated = 'https://my-resource.openai.azure.com/openai';
    expect(base({})).toBeNull();
    expect(base(named)).toBe(v1);
    expect(base({ ...named, azure_api_version: 'v1' })).toBe(v1);
    expect(base({ ...named, azure_api_version: 'preview' })).toBe(v1);
    expect(base({ ...named, azure_api_version: '2024-10-21' })).toBe(dated);
    expect(base({ ...named, azure_deployment_config: [deployment('2024-10-21')] })).toBe(dated);
    expect(base({ ...named, azure_deployment_config: [deployment('2024-10-21'), deployment('v1', true)] })).toBe(v1);
    expect(base({ ...named, azure_api_version: 'v1', azure_deployment_config: [deployment('2024-10-21')] })).toBe(v1);
    expect(() => base({ ...named, azure_api_version: '2024&x=1' })).toThrow(SluiceError);
  });

  it('never leaves azure.com, whatever the resource is called', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.domain(), fc.webUrl()), (name) => {
        let url: string | null;
        try {
          url = base({ azure_resource_name: name });
        } catch (error) {
          expect(error).toMatchObject({ kind: 'malformed_call', param: 'azure_resource_name' });
          return;
        }
        if (url === null) expect(name).toBe('');
        else expect(url).toBe(`https://${name.toLowerCase()}.openai.azure.com/openai/v1`);
      }),
    );
    for (const name of ['a.b', 'evil.example/', 'a#', 'a:80', 'a@b', '-a', 'a'.repeat(64), 'xn--a.b']) {
      expect(() => base({ azure_resource_name: name })).toThrow(SluiceError);
    }
  });

  it('sends api-version=preview on the v1 surface only when it is asked for', async () => {
    const calls: string[] = [];
    const spy = (settings: object) => ({
      ...context,
      credentials: { ...context.credentials, settings: { ...settings } },
      call: (request: { url: URL }) => {
        calls.push(request.url.search);
        return Promise.reject(new Error('not sent'));
      },
    });
    await jobs.retrieve('j', spy({ azure_api_version: 'preview' })).catch(() => {});
    await jobs.retrieve('j', spy({})).catch(() => {});
    expect(calls).toEqual(['?api-version=preview', '']);
  });
});
