/**
 * Guardrails over batches, through a whole server and its scheduler: what Sluice keeps is judged line by line, also where
 * a provider would have run it; what only a provider sees is refused.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { migratedDatabase } from '../support/postgres.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

type Json = Record<string, unknown>;
type Phase = 'input' | 'output';

const SECRET = 'ann.lee@example.com';
const FINAL = ['completed', 'failed', 'expired', 'cancelled', 'file_upload_failed', 'batch_start_failed'];
const PATIENT = { timeout: 20_000, interval: 20 };
const DENY = { deny: true };
/** Lines of a batch that run at the same time. */
const AT_ONCE = 8;

interface ResultLine {
  readonly custom_id: string;
  readonly response: { readonly status_code: number; readonly request_id: string; readonly body: Json };
}

describe.each(['SQLite', 'PostgreSQL'])('batches on %s', (engine) => {
  let upstream: FakeUpstream;
  let server: TestServer;
  let workspace: string;
  let count = 0;
  /** What the upstream says of a question. */
  let says: (question: string) => string;

  beforeAll(async () => {
    upstream = await startUpstream(({ path, body }, response) => {
      if (!path.endsWith('/chat/completions')) return sendJson(response, 500, {});
      const { messages } = JSON.parse(body.toString('utf8')) as { messages: { content: string }[] };
      const content = says(messages[0]?.content ?? '');
      sendJson(response, 200, {
        id: 'c',
        object: 'chat.completion',
        created: 1,
        model: 'gpt-4o',
        choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
      });
    });
    server = await startServer({
      SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}`,
      SLUICE_BATCH_CONCURRENCY: String(AT_ONCE),
      ...(engine === 'SQLite' ? {} : { SLUICE_DATABASE_URL: await migratedDatabase() }),
    });
    workspace = server.first.workspace_id;
    await server.provider({ id: 'openai', host: `${upstream.url}/v1`, slug: 'main' });
  }, 60_000);
  afterAll(async () => {
    await server?.stop();
    await upstream?.stop();
  });
  beforeEach(() => {
    upstream.received.length = 0;
    says = () => 'fine';
  });
  afterEach(() => defaults({ input_guardrails: [], output_guardrails: [] }));

  async function done(method: string, path: string, body?: unknown): Promise<Json> {
    const answer = await server.admin(method, path, body);
    if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  async function guardrail(actions: Json, redact = false): Promise<string> {
    const all = { deny: false, async: false, on_success: {}, on_fail: {}, ...actions };
    const checks = [{ id: 'gateway.pii', parameters: { categories: ['EMAIL_ADDRESS'], redact } }];
    return String(
      (await done('POST', '/guardrails', { name: `g ${++count}`, workspace_id: workspace, checks, actions: all })).slug,
    );
  }

  /** Makes these the workspace's defaults, and waits until requests meet them. */
  async function defaults(lists: Readonly<Record<`${Phase}_guardrails`, readonly string[]>>): Promise<void> {
    await done('PUT', `/admin/workspaces/${workspace}`, { defaults: lists });
    await vi.waitFor(async () => {
      const body = { model: 'gpt-4o', messages: [{ role: 'user', content: 'a' }] };
      const answer = await server.call('/chat/completions', body, {
        'x-gateway-provider': '@main',
        'x-gateway-dry-run': 'true',
      });
      const { guardrails } = (await answer.json()) as { guardrails?: Record<Phase, string[]> };
      const { input, output } = guardrails ?? { input: [], output: [] };
      expect([input, output]).toEqual([lists.input_guardrails, lists.output_guardrails]);
    }, PATIENT);
  }
  const byDefault = async (phase: Phase, actions: Json, redact = false): Promise<string> => {
    const name = await guardrail(actions, redact);
    const none = { input_guardrails: [], output_guardrails: [] };
    await defaults({ ...none, [`${phase}_guardrails`]: [name] });
    return name;
  };

  async function send(method: string, path: string, body?: Json | FormData, headers: Record<string, string> = {}) {
    const json = body !== undefined && !(body instanceof FormData);
    const answer = await fetch(`${server.url}/v1${path}`, {
      method,
      headers: {
        'x-gateway-api-key': server.first.workspace_api_key,
        'x-gateway-provider': 'gateway',
        ...(json ? { 'content-type': 'application/json' } : {}),
        ...headers,
      },
      ...(body === undefined ? {} : { body: json ? JSON.stringify(body) : (body as FormData) }),
    });
    return { status: answer.status, text: await answer.text() };
  }
  function form(lines: readonly string[]): FormData {
    const out = new FormData();
    out.set('purpose', 'batch');
    const url = '/v1/chat/completions';
    const text = lines.map((content, i) =>
      JSON.stringify({ custom_id: `${i}`, method: 'POST', url, body: { messages: [{ role: 'user', content }] } }),
    );
    out.set('file', new Blob([text.join('\n')]), 'lines.jsonl');
    return out;
  }
  async function create(lines: readonly string[], window: string, options: Json, model = 'gpt-4o'): Promise<string> {
    const file = await send('POST', '/files', form(lines));
    expect([file.status, file.text]).toEqual([200, expect.stringContaining('gw_file_')]);
    const made = await send('POST', '/batches', {
      input_file_id: JSON.parse(file.text).id,
      endpoint: '/v1/chat/completions',
      completion_window: window,
      model,
      gateway_options: options,
    });
    expect([made.status, made.text]).toEqual([200, expect.stringContaining('gw_batch_')]);
    return String(JSON.parse(made.text).id);
  }
  const ended = (id: string): Promise<Json & { output_file_id: string; errors: unknown }> =>
    vi.waitFor(async () => {
      const batch = JSON.parse((await send('GET', `/batches/${id}`)).text);
      if (!FINAL.includes(batch.status)) throw new Error(`the batch is ${batch.status}`);
      return batch;
    }, PATIENT);
  const MAIN = { 'x-gateway-provider': '@main' };

  /** Runs a batch and answers its lines by the number of the line. */
  async function run(lines: readonly string[], window: string, options: Json = MAIN) {
    const id = await create(lines, window, options);
    const batch = await ended(id);
    expect(batch.status).toBe('completed');
    const output = await send('GET', `/batches/${id}/output`);
    expect(output.status).toBe(200);
    const results = output.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as ResultLine)
      .sort((a, b) => Number(a.custom_id) - Number(b.custom_id));
    const records = (await server.records()).filter((record) => record.trace_id === id);
    const guardrails = results.map(
      ({ response }) => records.find((record) => record.id === response.request_id)?.guardrails,
    );
    expect(JSON.stringify(records)).not.toContain(SECRET);
    const statuses = results.map(({ response }) => response.status_code);
    return { batch, output: output.text, results, statuses, guardrails };
  }
  const received = () => upstream.received.map(({ path, body }) => `${path} ${body.toString('utf8')}`);

  describe.each(['immediate', '24h'])('with the window %s', (window) => {
    it('each line is judged by the defaults: what is denied is sent nowhere, and the rest is run', async () => {
      const name = await byDefault('input', DENY);
      const { statuses, results, guardrails, batch } = await run(['one', `write to ${SECRET}`, 'three'], window);
      expect(statuses).toEqual([200, 446, 200]);
      expect(results[1]?.response.body).toMatchObject({
        error: { type: 'hooks_failed' },
        hook_results: { before_request_hooks: [{ id: name, verdict: false }] },
      });
      expect(batch.request_counts).toEqual({ total: 3, completed: 2, failed: 1 });
      expect(received()).toHaveLength(2);
      for (const call of received()) {
        expect(call).toMatch(/\/chat\/completions /);
        expect(call).not.toContain(SECRET);
      }
      expect(guardrails).toMatchObject(
        [true, false, true].map((verdict) => [{ slug: name, phase: 'input', deny: true, verdict }]),
      );
    });

    it('each answer is judged: what is denied is not in the output', async () => {
      says = (question) => (question === 'two' ? `ask ${SECRET}` : 'fine');
      const name = await byDefault('output', DENY);
      const { statuses, output, guardrails } = await run(['one', 'two'], window);
      expect(statuses).toEqual([200, 446]);
      expect(output).not.toContain(SECRET);
      expect(received()).toHaveLength(2);
      expect(guardrails).toMatchObject([true, false].map((verdict) => [{ slug: name, phase: 'output', verdict }]));
    });
  });

  it('lines and answers are redacted, monitored and refused softly like single requests', async () => {
    says = (question) => question;
    await byDefault('input', DENY, true);
    expect((await run([`to ${SECRET}`], '24h')).output).toContain('{{EMAIL_ADDRESS_1}}');
    expect(received().join()).not.toContain(SECRET);
    await byDefault('output', {}, true);
    const redacted = await run([`to ${SECRET}`], '24h');
    expect(redacted.output).toContain('{{EMAIL_ADDRESS_1}}');
    expect(redacted.output).not.toContain(SECRET);
    await byDefault('input', {});
    const monitored = await run([`to ${SECRET}`], '24h');
    expect([monitored.statuses, monitored.batch.request_counts]).toEqual([
      [246],
      { total: 1, completed: 1, failed: 0 },
    ]);
    expect(monitored.guardrails).toMatchObject([[{ verdict: false, deny: false }]]);
    await byDefault('output', { ...DENY, soft_deny_200: true });
    const softly = await run([`to ${SECRET}`], 'immediate');
    expect([softly.statuses, softly.output]).toEqual([[200], expect.stringContaining('denied by a guardrail')]);
    expect(softly.output).not.toContain(SECRET);
  });

  it('a config that the batch names guards its lines', async () => {
    for (const phase of ['input', 'output'] as const) {
      says = () => SECRET;
      const config = { provider: '@main', [`${phase}_guardrails`]: [await guardrail(DENY)] };
      const { slug } = await done('POST', '/configs', { name: `c ${++count}`, workspace_id: workspace, config });
      const { statuses, output } = await run([SECRET], '24h', { 'x-gateway-config': slug });
      expect([phase, statuses]).toEqual([phase, [446]]);
      expect(output).not.toContain(SECRET);
    }
    // The second only: its answer was judged after it was given.
    expect(received()).toHaveLength(1);
  });

  it('a guardrail that becomes a default judges the lines that are still to be run', async () => {
    let release: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const answer = upstream.answer;
    upstream.answer = async (request, response) => {
      await held;
      await answer(request, response);
    };
    const id = await create([...Array(AT_ONCE).fill('one'), SECRET], 'immediate', MAIN);
    await vi.waitFor(() => expect(received()).toHaveLength(AT_ONCE), PATIENT);
    await byDefault('input', DENY);
    release();
    upstream.answer = answer;
    expect(await ended(id)).toMatchObject({ request_counts: { total: AT_ONCE + 1, completed: AT_ONCE, failed: 1 } });
    expect(received().join()).not.toContain(SECRET);
  });

  describe('what a provider runs by itself', () => {
    const SANDBOX = { 'x-gateway-provider': '@sandbox' };

    it('its output was judged by nobody: who denies answers refuses it, also as a file', async () => {
      const id = await create(['one'], '24h', SANDBOX, 'echo?batch_ms=0');
      const { status, output_file_id: file } = await ended(id);
      expect([status, file]).toEqual(['completed', expect.stringContaining('gw_file_')]);
      const paths = [`/batches/${id}/output`, `/files/${file}/content`];
      for (const path of paths) expect((await send('GET', path)).status).toBe(200);
      await byDefault('output', {});
      for (const path of paths) expect((await send('GET', path)).status).toBe(200);
      const name = await byDefault('output', DENY);
      for (const path of paths) {
        const refused = await send('GET', path);
        expect([path, refused.status]).toEqual([path, 400]);
        expect(JSON.parse(refused.text)).toMatchObject({
          error: { code: 'guardrail_not_enforced', message: expect.stringContaining(name) },
        });
      }
      // What it was asked is no answer, and what Sluice ran was judged.
      const own = await run(['one'], 'immediate');
      expect((await send('GET', `/files/${own.batch.output_file_id}/content`)).status).toBe(200);
      expect((await send('GET', `/files/${own.batch.input_file_id}/content`)).status).toBe(200);
    });

    it('files and batches that go to a provider as they are get refused by defaults that deny', async () => {
      const name = await byDefault('input', DENY);
      const provider = { 'x-gateway-provider': '@main' };
      const body = { input_file_id: 'file-1', endpoint: '/v1/chat/completions', completion_window: '24h' };
      for (const answer of [
        await send('POST', '/files', form([SECRET]), provider),
        await send('POST', '/batches', body, provider),
      ]) {
        expect([answer.status, JSON.parse(answer.text)]).toEqual([
          400,
          expect.objectContaining({
            error: expect.objectContaining({
              code: 'guardrail_not_enforced',
              message: expect.stringContaining(name),
            }),
          }),
        ]);
      }
      expect(received()).toEqual([]);
    });
  });
});
