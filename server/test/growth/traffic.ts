/** What callers do with a whole server: limited requests, files, a batch and a fine-tuning job that Sluice runs. */
import { vi } from 'vitest';
import type { TestServer } from '../support/server.ts';

const FINAL = new Set(['completed', 'failed', 'expired', 'cancelled', 'succeeded']);
/** Sluice keeps and runs it itself. */
const OWN = { 'x-gateway-provider': 'gateway' };
const messages = [{ role: 'user', content: 'Hello' }];

export async function traffic(server: TestServer, during: (by: string) => void): Promise<void> {
  during('limits');
  const limits = {
    usage_limits: { credit_limit: 5, type: 'cost' },
    rate_limits: [{ type: 'requests', unit: 'rpm', value: 99 }],
  };
  const workspace_id = server.first.workspace_id;
  await must(server, '/api-keys/workspace/service', {
    name: 'limited',
    workspace_id,
    scopes: ['completions.write'],
    ...limits,
  });
  const key = String(
    (
      await must(server, '/api-keys/workspace/service', {
        name: 'limited too',
        workspace_id,
        scopes: ['completions.write', 'logs.view'],
        ...limits,
      })
    ).key,
  );
  const of = { workspace_id, group_by: [{ key: 'api_key' }] };
  const conditions = [{ key: 'workspace_id', value: workspace_id }];
  await must(server, '/policies/usage-limits', {
    ...of,
    name: 'Budget',
    conditions,
    type: 'tokens',
    credit_limit: 1_000_000,
    alert_threshold: 1,
    periodic_reset: 'monthly',
  });
  await must(server, '/policies/rate-limits', {
    ...of,
    name: 'Rate',
    conditions,
    type: 'requests',
    unit: 'rpm',
    value: 99,
  });

  during('requests');
  const mine = { 'x-gateway-api-key': key };
  for (let i = 0; i < 12; i++) {
    const answer = await server.call('/chat/completions', { model: '@sandbox/echo', messages }, mine);
    await answer.text();
  }
  await (await server.call('/responses', { model: '@sandbox/echo', input: 'Hello' })).text();

  during('files');
  const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { messages } };
  const row = (i: number) => ({ messages: [...messages, { role: 'assistant', content: `Answer ${i}` }] });
  const input = await upload(server, 'batch', [line, { ...line, custom_id: 'b' }]);
  const training = await upload(
    server,
    'fine-tune',
    Array.from({ length: 12 }, (_, i) => row(i)),
  );
  const listed = (await (await get(server, '/files?limit=1')).json()) as { data: { id: string }[] };
  await get(server, `/files?limit=1&after=${listed.data[0]?.id}&purpose=batch`);
  await get(server, `/files/${input}/content`);

  during('a batch');
  const options = { gateway_options: { 'x-gateway-virtual-key': 'sandbox' } };
  const batch = await ended(server, '/batches', {
    input_file_id: input,
    endpoint: '/v1/chat/completions',
    completion_window: 'immediate',
    model: 'echo',
    ...options,
  });
  await get(server, '/batches?limit=1');
  await get(server, `/files/${batch.output_file_id}/content`);

  during('a fine-tuning job');
  const hyperparameters = { n_epochs: 2, learning_rate_multiplier: 1, batch_size: 4 };
  const job = await ended(server, '/fine_tuning/jobs', {
    model: 'echo?train_ms=0',
    training_file: training,
    suffix: 'grown',
    method: { type: 'supervised', supervised: { hyperparameters } },
    ...options,
  });
  await get(server, '/fine_tuning/jobs?limit=1');
  await get(server, `/fine_tuning/jobs/${job.id}/events?limit=1`);
  await get(server, `/fine_tuning/jobs/${job.id}/checkpoints`);
  during('the end of files');
  await get(server, `/files/${training}`, 'DELETE');
}

async function must(server: TestServer, path: string, body: object): Promise<Record<string, unknown>> {
  const answer = await server.admin('POST', path, body);
  if (answer.status !== 200) throw new Error(`${path}: ${JSON.stringify(answer)}`);
  return answer.body;
}

async function get(server: TestServer, path: string, method = 'GET'): Promise<Response> {
  const headers = { ...OWN, 'x-gateway-api-key': server.first.workspace_api_key };
  const answer = await fetch(`${server.url}/v1${path}`, { method, headers });
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}

async function upload(server: TestServer, purpose: string, rows: readonly object[]): Promise<string> {
  const form = new FormData();
  form.set('purpose', purpose);
  form.set('file', new Blob([rows.map((row) => JSON.stringify(row)).join('\n')]), 'rows.jsonl');
  const headers = { ...OWN, 'x-gateway-api-key': server.first.workspace_api_key };
  const answer = await fetch(`${server.url}/v1/files`, { method: 'POST', headers, body: form });
  const text = await answer.text();
  const { id } = JSON.parse(text) as { id?: string };
  if (id === undefined) throw new Error(`upload: ${answer.status} ${text}`);
  return id;
}

/** Makes an object that works by itself, and waits until it has ended well. */
async function ended(server: TestServer, path: string, body: object): Promise<Record<string, unknown>> {
  const made = (await (await server.call(path, body, OWN)).json()) as Record<string, unknown>;
  if (made.id === undefined) throw new Error(`${path}: ${JSON.stringify(made)}`);
  return vi.waitFor(
    async () => {
      const now = (await (await get(server, `${path}/${made.id}`)).json()) as Record<string, unknown>;
      if (!FINAL.has(String(now.status))) throw new Error(`${path} is ${now.status}`);
      if (now.status !== 'completed' && now.status !== 'succeeded') throw new Error(JSON.stringify(now));
      return now;
    },
    { timeout: 40_000, interval: 50 },
  );
}
