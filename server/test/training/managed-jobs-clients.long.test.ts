/** The official client and jobs that Sluice runs itself, through a whole server. */
import { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { type OpenAiObjects, startOpenAiObjects } from '../support/upstreams/openai.ts';

const ROWS = '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}\n'.repeat(12);
const OWN = { 'x-gateway-provider': 'gateway' };
const BODY = {
  suffix: 'v1',
  method: {
    type: 'supervised',
    supervised: { hyperparameters: { n_epochs: 2, learning_rate_multiplier: 1, batch_size: 1 } },
  },
};

let server: ObjectServer;
let upstream: OpenAiObjects;

beforeAll(async () => {
  server = await startObjectServer();
  upstream = await startOpenAiObjects();
  await server.shared({ id: 'openai', host: upstream.base });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
  expect(upstream.faults).toEqual([]);
});

const own = () => server.first_.client('gateway', OWN);
const kept = async (rows = ROWS) =>
  (await own().files.create({ file: await toFile(Buffer.from(rows), 'rows.jsonl'), purpose: 'fine-tune' })).id;

describe('the official client trains through Sluice', () => {
  it('on the sandbox, from the kept file to the tuned model, which then answers', async () => {
    const client = own();
    const body = {
      ...BODY,
      model: 'echo',
      training_file: await kept(),
      gateway_options: { 'x-gateway-virtual-key': 'sandbox' },
    };
    const dry = await server.first_.send('POST', '/fine_tuning/jobs', { ...OWN, 'x-gateway-dry-run': 'true' }, body);
    expect(dry.body).toMatchObject({ estimate: { seconds: 5 } });
    const nowhere = client.fineTuning.jobs.create({ ...body, training_file: 'gw_file_none' } as never);
    await expect(nowhere).rejects.toMatchObject({ status: 404, code: 'AB02', param: 'training_file' });
    await expect(nowhere).rejects.toMatchObject({ requestID: expect.stringMatching(/^[0-9a-f-]{36}$/) });

    const job = await client.fineTuning.jobs.create(body as never);
    expect(job).toMatchObject({ object: 'fine_tuning.job', status: 'validating_files' });
    expect(job._request_id).toMatch(/^[0-9a-f-]{36}$/);
    await expect
      .poll(async () => (await client.fineTuning.jobs.retrieve(job.id)).status, { timeout: 40_000, interval: 200 })
      .toBe('succeeded');
    const done = await client.fineTuning.jobs.retrieve(job.id);
    expect(done.trained_tokens).toBeGreaterThan(0);
    const events = [];
    for await (const event of client.fineTuning.jobs.listEvents(job.id, { limit: 2 })) events.push(event);
    expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
    expect(events.filter((event) => event.type === ('status' as never))).toHaveLength(4);
    const { data } = await client.fineTuning.jobs.checkpoints.list(job.id);
    expect(data.every((one) => one.fine_tuning_job_id === job.id)).toBe(true);
    for (const id of done.result_files) {
      expect((await client.files.retrieve(id)).purpose).toBe('fine-tune-results');
      expect((await (await client.files.content(id)).text()).length).toBeGreaterThan(0);
    }
    const answer = await server.first_
      .client('sandbox')
      .chat.completions.create({ model: done.fine_tuned_model ?? '', messages: [{ role: 'user', content: 'Hi' }] });
    expect(answer.choices[0]?.message.content).toBeTruthy();
    await expect(client.fineTuning.jobs.cancel(job.id)).rejects.toMatchObject({ status: 400 });
  }, 60_000);

  it('at the account that options, headers, a config or the model name, and at none without one of them', async () => {
    const { gateway_options: _, ...body } = {
      ...BODY,
      model: 'echo',
      training_file: await kept(),
      gateway_options: {},
    };
    const dry = { 'x-gateway-dry-run': 'true' };
    const send = (headers: Record<string, string>, more: object = {}) =>
      server.first_.send('POST', '/fine_tuning/jobs', { ...dry, ...headers }, { ...body, ...more });
    for (const base of [OWN, {}]) {
      for (const answer of [
        await send(base, { gateway_options: { 'x-gateway-virtual-key': 'sandbox' } }),
        await send({ ...base, 'x-gateway-virtual-key': 'sandbox' }),
        await send({ ...base, 'x-gateway-config': '{"provider":"@sandbox"}' }),
        await send(base, { model: '@sandbox/echo' }),
      ])
        expect(answer).toMatchObject({ status: 200, body: { target: { slug: 'sandbox' } } });
      const none = await send(base);
      expect(none).toMatchObject({ status: 400, body: { message: expect.stringContaining('gateway_options') } });
      expect((await send({ ...base, 'x-gateway-virtual-key': 'nope' })).status).toBe(400);
    }
  }, 60_000);

  it('on a provider, whose answers are its own; a dry run shows the call and makes none', async () => {
    const client = own();
    const body = {
      ...BODY,
      model: 'gpt-4o-mini',
      training_file: await kept(),
      gateway_options: { 'x-gateway-provider': '@openai-shared-one' },
    };
    const before = upstream.received.length;
    const dry = await server.first_.send('POST', '/fine_tuning/jobs', { ...OWN, 'x-gateway-dry-run': 'true' }, body);
    expect(dry).toMatchObject({
      status: 200,
      body: {
        object: 'dry_run',
        valid: true,
        target: { provider: 'openai' },
        request: { method: 'POST', headers: { authorization: '***' }, body: { model: 'gpt-4o-mini', suffix: 'v1' } },
        estimate: { epochs: 2 },
      },
    });
    expect(upstream.received.length).toBe(before);
    const refused = { ...body, role_arn: 'arn:aws:iam::1:role/r' };
    expect(await server.first_.send('POST', '/fine_tuning/jobs', OWN, refused)).toMatchObject({
      status: 400,
      error: { code: 'unsupported_parameter', param: 'role_arn' },
    });
    const inside = { ...body, gateway_options: { ...body.gateway_options, 'x-gateway-dry-run': 'true' } };
    expect(await server.first_.send('POST', '/fine_tuning/jobs', OWN, inside)).toMatchObject({
      status: 400,
      error: { param: 'gateway_options.x-gateway-dry-run' },
    });
    expect(upstream.received.length).toBe(before);

    const job = await client.fineTuning.jobs.create(body as never);
    for (const verb of ['pause', 'resume'] as const) {
      await expect(client.fineTuning.jobs[verb](job.id)).rejects.toMatchObject({
        status: 404,
        code: 'AB08',
        message: expect.stringContaining('cannot be'),
      });
    }
    const upstreamJob = () => [...upstream.state.jobs.values()].find((row) => row.user_provided_suffix === 'v1');
    await expect.poll(upstreamJob, { timeout: 20_000, interval: 50 }).toBeTruthy();
    const file = upstream.state.contents.get(String(upstreamJob()?.training_file));
    expect(file?.toString()).toBe(ROWS);
    expect((await client.fineTuning.jobs.list()).data.map(({ id }) => id)).toContain(job.id);
    expect((await server.second.send('GET', `/fine_tuning/jobs/${job.id}`, OWN)).status).toBe(404);
    expect((await client.fineTuning.jobs.cancel(job.id)).status).toBe('cancelled');
    expect(upstreamJob()?.status).toBe('cancelled');
    await expect.poll(() => upstream.state.files.size, { timeout: 20_000, interval: 50 }).toBe(0);
  }, 60_000);

  it('and reads in the job what is wrong with a data set', async () => {
    const client = own();
    const body = {
      ...BODY,
      model: 'gpt-4o-mini',
      training_file: await kept(`${ROWS}{"messages":[]}\n`),
      gateway_options: { 'x-gateway-virtual-key': 'openai-shared-one' },
    };
    const job = await client.fineTuning.jobs.create(body as never);
    await expect
      .poll(async () => (await client.fineTuning.jobs.retrieve(job.id)).status, { timeout: 20_000, interval: 100 })
      .toBe('failed');
    const failed = await client.fineTuning.jobs.retrieve(job.id);
    expect(failed.error).toMatchObject({ code: 'invalid_training_file', param: 'training_file' });
    expect(failed.error?.message).toContain('line 13');
    expect(upstream.state.jobs.size).toBeLessThanOrEqual(1);
  }, 60_000);
});
