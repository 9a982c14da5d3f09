/** Routes of files, batches and jobs, and the rules under which they are served. */
import { toFile } from 'openai';
import { describe, expect, it } from 'vitest';
import { startObjectServer } from '../support/object-server.ts';
import {
  AT_ONE,
  AT_TWO,
  asked,
  jobBody,
  mine,
  ONE,
  ROWS,
  server,
  upload,
  upstream,
  useSharedAccounts,
} from '../support/shared-account.ts';
import { startUpstream } from '../support/upstream.ts';

useSharedAccounts();

describe('routes', () => {
  it.each(['/files', '/fine_tuning/jobs', '/batches'])(
    '%s of a provider without them is 501 without a call',
    async (path) => {
      const calls = await asked(async () => {
        const answer = await server.first_.send('GET', path, { 'x-gateway-provider': '@cohere-test' });
        expect([answer.status, answer.error.code, answer.error.type]).toEqual([
          501,
          'unsupported_operation',
          'invalid_request_error',
        ]);
      });
      expect(calls).toEqual([]);
    },
  );

  it.each([
    ['GET', '/files/a/b'],
    ['PUT', '/files/a'],
    ['PATCH', '/files'],
    ['POST', '/files/a/content'],
    ['GET', '/fine_tuning'],
    ['GET', '/fine_tuning/models'],
    ['POST', '/fine_tuning/jobs/a/retry'],
    ['GET', '/batches/a/lines'],
    ['DELETE', '/batches/a'],
  ])('%s %s is 404 and reaches no provider', async (verb, path) => {
    const calls = await asked(async () => {
      const answer = await server.first_.send(verb, path, AT_ONE);
      expect([answer.status, answer.error.code]).toEqual([404, 'AB08']);
    });
    expect(calls).toEqual([]);
  });

  it('decode an id once, slashes in it included, and refuse dot segments however they are written', async () => {
    const own = {
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': upstream.base,
      authorization: 'Bearer test-key',
    };
    for (const id of ['..%2fx', 's3%3A%2F%2Fb%2F..%2Fk', 's3%253A%252F%252Fb%252F..%252Fk', '%00', 'a%5cb']) {
      expect([id, (await server.first_.send('GET', `/files/${id}`, own)).status]).toEqual([id, 400]);
    }
    const calls = await asked(() => server.first_.send('GET', '/files/s3%3A%2F%2Fbucket%2Fa%20b', AT_ONE));
    expect(calls).toEqual([]);
  });

  it('need a credential, a scope and a provider', async () => {
    expect((await fetch(`${server.url}/v1/files`)).status).toBe(401);
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'none',
      workspace_id: server.first.workspace_id,
      scopes: ['logs.list'],
    });
    if (made.status === 200) {
      const answer = await fetch(`${server.url}/v1/files`, { headers: { 'x-gateway-api-key': String(made.body.key) } });
      expect(answer.status).toBe(403);
    }
    expect((await server.first_.send('GET', '/files')).status).toBe(400);
  });

  it('keep the credential out of what a provider’s error echoes, and its status in', async () => {
    const file = await upload();
    upstream.state.fail = {
      status: 429,
      body: { error: { message: 'Key test-key is over its limit', type: 'rate_limit', code: 'x' } },
      headers: { 'retry-after': '7' },
    };
    const answer = await server.first_.send('GET', `/files/${file.id}`, AT_ONE);
    expect([answer.status, answer.error.type, answer.headers.get('retry-after')]).toEqual([
      429,
      'rate_limit_error',
      '7',
    ]);
    expect(answer.text).not.toContain('test-key');
  });

  it('leave one record each, with the calls they made', async () => {
    const before = (await server.records()).length;
    const file = await upload();
    await server.first_.send('GET', '/files/file-nope', AT_ONE);
    await server.first_.send(
      'POST',
      '/fine_tuning/jobs',
      {},
      jobBody(file.id, { gateway_options: { 'x-gateway-virtual-key': ONE } }),
    );
    const records = (await server.records()).slice(0, -before || undefined);
    expect(
      records.map((one) => [
        one.operation,
        one.status,
        one.outcome,
        one.provider_slug,
        (one.attempts as object[]).length,
      ]),
    ).toEqual([
      ['finetune_create', 200, 'ok', ONE, 1],
      ['file', 404, 'refused', ONE, 0],
      ['files_upload', 200, 'ok', ONE, 1],
    ]);
    expect(records[0]).toMatchObject({ model_requested: 'gpt-4o-mini-2024-07-18', cost_micros: 0 });
    expect(Number(records[2]?.bytes_in)).toBeGreaterThan(ROWS.length);
    expect(Number(records[2]?.upstream_bytes_out)).toBeGreaterThan(ROWS.length);
  });
});

describe('what Sluice keeps and runs itself', () => {
  const OWN = { 'x-gateway-provider': 'gateway' };

  it('is reached by its ids whatever the headers name, and by the provider name gateway', async () => {
    const form = new FormData();
    form.set('purpose', 'fine-tune');
    form.set('file', new Blob([ROWS]), 'rows.jsonl');
    const calls = await asked(async () => {
      const kept = await server.first_.send('POST', '/files', OWN, form);
      expect(kept.status).toBe(200);
      const id = String(kept.body?.id);
      expect(id).toMatch(/^gw_file_/);
      expect((await server.first_.send('GET', `/files/${id}/content`, AT_ONE)).text).toBe(ROWS);
      expect((await server.second.send('GET', `/files/${id}`, AT_TWO)).status).toBe(404);
      const listed = await server.first_.send('GET', '/files', OWN);
      expect(((listed.body?.data ?? []) as { id: string }[]).map((one) => one.id)).toEqual([id]);
      expect((await server.first_.send('POST', '/fine_tuning/jobs/gw_ftjob_x/pause', AT_ONE)).status).toBe(404);
      expect((await server.first_.send('GET', '/batches/gw_batch_x', AT_ONE)).status).toBe(404);
    });
    expect(calls).toEqual([]);
    const records = await server.records();
    expect(records[0]).toMatchObject({ operation: 'batch', provider: null, cost_micros: 0 });
  });

  it('trains a kept file at the provider that a header or gateway_options name', async () => {
    const file = await toFile(Buffer.from(ROWS), 'rows.jsonl');
    const kept = await server.first_.client(ONE, OWN).files.create({ file, purpose: 'fine-tune' });
    const before = upstream.state.jobs.size;
    const job = await mine.fineTuning.jobs.create(jobBody(kept.id) as never);
    expect(job.id).toMatch(/^gw_ftjob_/);
    await expect.poll(() => upstream.state.jobs.size, { timeout: 10_000, interval: 20 }).toBe(before + 1);
    expect((await mine.fineTuning.jobs.cancel(job.id)).status).toBe('cancelled');
  });
});

describe('rules of the organisation', () => {
  it('saved-only mode refuses brought-along accounts and leaves Sluice’s own files open', async () => {
    const strict = await startObjectServer({ BLOCK_INLINE_CONFIG: 'true' });
    try {
      const inline = await strict.first_.send('GET', '/files', {
        'x-gateway-provider': 'openai',
        authorization: 'Bearer test-key',
      });
      expect([inline.status, inline.error.code]).toEqual([400, 'inline_provider_blocked']);
      expect((await strict.first_.send('GET', '/files', { 'x-gateway-provider': 'gateway' })).status).toBe(200);
      expect((await strict.first_.send('GET', '/files', { 'x-gateway-provider': '@sandbox' })).status).toBe(200);
      const chat = await strict.first_.send(
        'POST',
        '/chat/completions',
        { 'x-gateway-provider': 'gateway' },
        { model: 'x', messages: [] },
      );
      expect([chat.status, chat.error.code]).toEqual([400, 'inline_provider_blocked']);
    } finally {
      await strict.stop();
    }
  });

  it('rate limits of a key count these requests like every other', async () => {
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'limited',
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
      rate_limits: [{ type: 'requests', unit: 'rph', value: 2 }],
    });
    expect(made.status, JSON.stringify(made.body)).toBe(200);
    const statuses: number[] = [];
    for (const provider of ['gateway', '@sandbox', 'gateway']) {
      const headers = { 'x-gateway-api-key': String(made.body.key), 'x-gateway-provider': provider };
      const form = new FormData();
      form.set('purpose', 'batch');
      form.set('file', new Blob(['{}\n']), 'lines.jsonl');
      const answer = await fetch(`${server.url}/v1/files`, { method: 'POST', headers, body: form });
      statuses.push(answer.status);
      // A list takes nothing from the limit.
      await fetch(`${server.url}/v1/files`, { headers });
    }
    expect(statuses).toEqual([200, 200, 429]);
  });

  it('a request timeout ends a call that does not answer', async () => {
    const slow = await startUpstream(() => {});
    const answer = await server.first_.send('GET', '/files', {
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': `${slow.url}/v1`,
      authorization: 'Bearer test-key',
      'x-gateway-request-timeout': '100',
    });
    expect([answer.status, answer.error.type]).toEqual([408, 'timeout_error']);
    await slow.stop();
  });
});
