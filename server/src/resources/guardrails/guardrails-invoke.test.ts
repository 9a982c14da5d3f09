/** One guardrail run directly: `POST /guardrails/{id}/invoke`. On both engines. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { actionsWith, type Call, type Answer as HookAnswer, outsideOf } from '../../../test/support/guardrails.ts';
import { systemClock } from '../../kernel/clock.ts';
import { createGuardrailInvoker } from '../../llm/guard/guardrail-invoker.ts';
import { Services } from '../services.ts';
import { GUARDRAIL_INVOKER } from './invoke.ts';

const NOBODY = '00000000-0000-7000-8000-00000000000b';

describe.each(['sqlite', 'postgres'] as const)('guardrails.invoke on %s', (engine) => {
  let admin: AdminHarness;
  let hook: (call: Call) => HookAnswer;
  const called: { readonly organisation: string; readonly call: Call }[] = [];

  beforeAll(async () => {
    const guardrails = createGuardrailInvoker({
      clock: systemClock,
      outside: (organisation) => (signal) => ({
        ...outsideOf((call) => {
          called.push({ organisation, call });
          return hook(call);
        }),
        signal,
      }),
    });
    admin = await startAdmin(await emptyTables(engine), {
      admin: { services: new Services().provide(GUARDRAIL_INVOKER, guardrails) },
    });
  });

  beforeEach(() => {
    called.length = 0;
    hook = () => ({ body: { verdict: true } });
  });

  afterAll(async () => {
    await admin?.close();
  });

  const none = (...words: string[]) => ({ id: 'default.contains', parameters: { words, operator: 'none' } });
  const pii = { id: 'gateway.pii', parameters: { categories: ['EMAIL_ADDRESS'], redact: true } };
  const made = async (body: object, key?: string) => {
    const { workspace_id } = admin.a;
    const answer = await admin.call('POST', '/v1/guardrails', { body: { name: 'Tried', workspace_id, ...body }, key });
    expect(answer.status, answer.text).toBe(200);
    return answer.body as { id: string; slug: string };
  };
  const invoke = (name: string, body: object, key: string | undefined = admin.a.workspace_api_key) =>
    admin.call('POST', `/v1/guardrails/${name}/invoke`, { body, key });
  const said = async (name: string, body: object) => {
    const answer = await invoke(name, body);
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  };
  const refused = (answer: Answer, status: number, code: string, param: string | null) => {
    expect([answer.status, answer.body.error?.code, answer.body.error?.param], answer.text).toEqual([
      status,
      code,
      param,
    ]);
  };

  it('answers the result of the guardrail, by id, slug and prefixed, and neither records nor audits', async () => {
    const { id, slug } = await made({ checks: [none('forbidden')], actions: actionsWith({ deny: true }) });
    const count = () => admin.tables.systemRead((tx) => tx.count('audit_log', {}));
    const before = await count();
    for (const name of [id, slug, `guard_${slug}`]) {
      expect(await said(name, { phase: 'input', text: 'this is forbidden' })).toEqual({
        object: 'guardrail_result',
        id: slug,
        verdict: false,
        transformed: false,
        checks: [expect.objectContaining({ id: 'default.contains', verdict: false, error: null })],
        feedback: expect.objectContaining({ value: -5, weight: 1 }),
        execution_time: expect.any(Number),
        async: false,
        deny: true,
        skipped: false,
        type: 'guardrail',
        created_at: expect.stringMatching(/^\d{4}-.*Z$/),
        transformed_data: null,
      });
    }
    expect(await said(id, { phase: 'output', text: 'fine' })).toMatchObject({ verdict: true });
    expect(await count()).toBe(before);
  });

  it.each<[string, object, object]>([
    ['a text of the input', { phase: 'input', text: 'no' }, { phase: 'input', text: 'yes' }],
    ['a text of the output', { phase: 'output', text: 'no' }, { phase: 'output', text: 'yes' }],
    [
      'an earlier message',
      {
        phase: 'input',
        messages: [
          { role: 'user', content: [{ type: 'text', text: 'no' }] },
          { role: 'assistant', content: 'yes' },
          { role: 'user', content: 'yes' },
        ],
      },
      { phase: 'input', messages: [{ role: 'user', content: 'yes' }] },
    ],
    [
      'a request',
      { phase: 'input', request: { messages: [{ role: 'system', content: 'no' }] } },
      { phase: 'input', request: { messages: [{ role: 'user', content: 'yes' }] } },
    ],
    [
      'a request of another type',
      { phase: 'input', request_type: 'embed', request: { input: ['yes', 'no'] } },
      { phase: 'input', request_type: 'embed', request: { input: ['yes'] } },
    ],
    [
      'an answer',
      {
        phase: 'output',
        request_type: 'messages',
        request: { messages: [{ role: 'user', content: 'no' }] },
        response: { content: [{ type: 'text', text: 'no' }] },
      },
      {
        phase: 'output',
        request_type: 'messages',
        request: { messages: [{ role: 'user', content: 'no' }] },
        response: { content: [{ type: 'text', text: 'yes' }] },
      },
    ],
  ])('judges %s', async (_title, failing, passing) => {
    const { id } = await made({ checks: [none('no')] });
    expect(await said(id, failing)).toMatchObject({ verdict: false });
    expect(await said(id, passing)).toMatchObject({ verdict: true });
  });

  it('gives back what was sent as the guardrail has changed it, in its own form', async () => {
    const { id } = await made({ checks: [pii] });
    const text = 'write to ada@example.com';
    const clean = expect.not.stringContaining('ada@example.com');
    expect(await said(id, { phase: 'input', text })).toMatchObject({
      transformed: true,
      transformed_data: { text: clean },
    });
    expect(await said(id, { phase: 'output', text })).toMatchObject({ transformed_data: { text: clean } });
    const message = { role: 'user', content: text };
    expect(await said(id, { phase: 'input', messages: [message] })).toMatchObject({
      transformed_data: { messages: [{ role: 'user', content: clean }] },
    });
    expect(await said(id, { phase: 'input', request: { model: 'm', messages: [message] } })).toMatchObject({
      transformed_data: { request: { model: 'm', messages: [{ content: clean }] } },
    });
    const response = { choices: [{ index: 0, message: { role: 'assistant', content: text } }] };
    expect(await said(id, { phase: 'output', response })).toMatchObject({
      transformed_data: { response: { choices: [{ message: { content: clean } }] } },
    });
    expect(await said(id, { phase: 'input', text: 'nobody' })).toMatchObject({ transformed_data: null });
  });

  it('tells checks the model, the type, metadata and headers that were sent', async () => {
    const { id } = await made({
      checks: [
        { id: 'default.modelWhitelist', parameters: { models: ['gpt-5'] } },
        { id: 'default.requiredMetadataKeys', parameters: { metadataKeys: ['team'] } },
        { id: 'default.allowedRequestTypes', parameters: { allowedTypes: ['chatComplete'] } },
        { id: 'default.webhook', parameters: { webhookURL: 'https://hook.example/', forwardHeaders: ['x-team'] } },
      ],
    });
    const good = {
      phase: 'input',
      text: 'x',
      model: 'gpt-5',
      metadata: { team: 'a' },
      headers: { 'x-team': 'search' },
    };
    expect(await said(id, good)).toMatchObject({ verdict: true });
    expect(called).toMatchObject([
      { organisation: admin.a.organisation_id, call: { headers: { 'x-team': 'search' } } },
    ]);
    for (const wrong of [{ model: 'gpt-4' }, { metadata: {} }, { request_type: 'embed' }]) {
      expect(await said(id, { ...good, ...wrong })).toMatchObject({ verdict: false });
    }
  });

  it('runs with the secrets of the guardrail, which its answer does not tell', async () => {
    const parameters = { webhookURL: 'https://hook.example/', headers: { 'x-key': 'hush-canary' } };
    const { id } = await made({ checks: [{ id: 'default.webhook', parameters }] });
    hook = () => ({ body: { verdict: false, data: { why: 'because' } } });
    const answer = await invoke(id, { phase: 'input', text: 'x' });
    expect(answer.body).toMatchObject({ verdict: false, checks: [{ data: { why: 'because' } }] });
    expect(called[0]?.call.headers['x-key']).toBe('hush-canary');
    expect(answer.text).not.toContain('hush-canary');
  });

  it('a check that cannot be carried out is told as an error, and fails where the guardrail denies', async () => {
    const webhook = { id: 'default.webhook', parameters: { webhookURL: 'https://hook.example/' } };
    hook = () => new Error('internal 10.0.0.1');
    for (const deny of [true, false]) {
      const { id } = await made({ checks: [webhook], actions: actionsWith({ deny }) });
      const answer = await invoke(id, { phase: 'input', text: 'x' });
      expect(answer.body).toMatchObject({ verdict: !deny, checks: [{ error: { message: expect.any(String) } }] });
      expect(answer.text).not.toContain('10.0.0.1');
    }
  });

  it('a check whose secrets do not open fails, and is not left out', async () => {
    const headers = { 'x-key': 'hush-canary' };
    const webhook = { id: 'default.webhook', parameters: { webhookURL: 'https://hook.example/', headers } };
    const { id } = await made({ checks: [webhook], actions: actionsWith({ deny: true }) });
    await admin.tables.systemWrite(async (tx) => {
      const version = await tx.find('guardrail_versions', { guardrail_id: id });
      const checks = (version?.checks ?? []).map((check) => ({ ...check, sealed: 'slc1.damaged' }));
      await tx.update('guardrail_versions', { guardrail_id: id }, { checks });
    });
    expect(await said(id, { phase: 'input', text: 'x' })).toMatchObject({
      verdict: false,
      checks: [{ error: { name: 'NotReady' } }],
    });
    expect(called).toEqual([]);
  });

  it('one that runs beside requests is waited for here; without a check for the phase it is skipped', async () => {
    const beside = await made({ checks: [none('no')], actions: actionsWith({ async: true, deny: true }) });
    expect(await said(beside.id, { phase: 'input', text: 'no' })).toMatchObject({ verdict: false, async: true });
    for (const async of [true, false]) {
      const { id } = await made({
        checks: [{ id: 'default.jsonKeys', parameters: { keys: ['a'] } }],
        actions: actionsWith({ async }),
      });
      expect(await said(id, { phase: 'input', text: 'x' })).toMatchObject({ skipped: true, verdict: true, checks: [] });
    }
  });

  it('guardrails of tool calls judge arguments and results', async () => {
    const { id } = await made({ target: 'mcp_tools', checks: [none('no'), pii] });
    expect(await said(id, { phase: 'input', text: '{"a":"no"}' })).toMatchObject({ verdict: false });
    const redacted = await said(id, { phase: 'input', text: '{"a":"ada@example.com"}' });
    expect(redacted).toMatchObject({ verdict: true, transformed: true });
    expect(JSON.parse(redacted.transformed_data.text).a).not.toContain('ada');
    expect(await said(id, { phase: 'output', text: 'ada@example.com' })).toMatchObject({
      transformed_data: { text: expect.not.stringContaining('ada') },
    });
    for (const text of ['no JSON', '[]', '"no"', '']) {
      refused(await invoke(id, { phase: 'input', text }), 400, 'AB01', 'text');
    }
    refused(await invoke(id, { phase: 'input', messages: [{}] }), 400, 'AB01', 'messages');
    refused(await invoke(id, { phase: 'input', request: {} }), 400, 'AB01', 'request');
  });

  it.each<[string, object, string]>([
    ['no phase', { phase: undefined }, 'phase'],
    ['another phase', { phase: 'beforeToolCall' }, 'phase'],
    ['nothing to judge', { text: undefined }, 'text'],
    ['two things to judge', { messages: [{ role: 'user', content: 'x' }] }, 'text'],
    ['a text of null', { text: null }, 'text'],
    ['half a character', { text: '\ud800' }, 'text'],
    ['a text too long', { text: 'x'.repeat(200_001) }, 'text'],
    ['messages of the output', { text: undefined, phase: 'output', messages: [{}] }, 'messages'],
    ['no messages', { text: undefined, messages: [] }, 'messages'],
    ['messages of text', { text: undefined, messages: ['x'] }, 'messages[0]'],
    ['a request as list', { text: undefined, request: [] }, 'request'],
    ['an answer in the input phase', { text: undefined, response: {} }, 'response'],
    ['a request alone in the output phase', { text: undefined, phase: 'output', request: {} }, 'response'],
    ['an unknown type', { request_type: 'chat' }, 'request_type'],
    ['metadata of numbers', { metadata: { a: 1 } }, 'metadata.a'],
    ['a header in upper case', { headers: { 'X-Team': 'a' } }, 'headers.X-Team'],
    ['an unknown field', { stream: true }, 'stream'],
  ])('%s is refused', async (_title, more, param) => {
    const { id } = await made({ checks: [none('no')] });
    const answer = await invoke(id, { phase: 'input', text: 'x', ...more });
    expect([answer.status, answer.body.error.code]).toEqual([400, 'AB01']);
    expect(answer.body.error.param.replaceAll(/\["([^"]*)"\]/g, '.$1')).toBe(param);
    expect(called).toEqual([]);
  });

  it('a body over the limit is refused', async () => {
    const { id } = await made({ checks: [none('no')] });
    const content = 'x'.repeat(1_200_000);
    const answer = await invoke(id, { phase: 'input', messages: [{ role: 'user', content }] });
    expect(answer.status).toBe(413);
  });

  it('a workspace runs its own guardrails and those of its organisation; others are not there', async () => {
    const { organisation_id, workspace_id } = admin.a;
    const shared = await made({ organisation_id, workspace_id: undefined, checks: [none('no')] });
    expect(await said(shared.id, { phase: 'input', text: 'no' })).toMatchObject({ verdict: false });
    const { body: second } = await admin.call('POST', '/v1/admin/workspaces', { body: { name: 'Second' } });
    const elsewhere = await made({ workspace_id: second.id, checks: [none('no')] });
    const foreign = await made({ workspace_id: admin.b.workspace_id, checks: [none('no')] }, admin.b.admin_api_key);
    const archived = await made({ checks: [none('no')] });
    await admin.call('DELETE', `/v1/guardrails/${archived.id}`);
    for (const { id, slug } of [elsewhere, foreign, archived, { id: NOBODY, slug: 'pg-none' }]) {
      for (const name of [id, slug]) {
        refused(await invoke(name, { phase: 'input', text: 'no' }), 404, 'AB08', null);
      }
    }
    const other = await invoke(shared.id, { phase: 'input', text: 'no', workspace_id }, admin.b.workspace_api_key);
    expect(other.status).toBe(403);
  });

  it('needs guardrails.invoke, which keys of an organisation do not have', async () => {
    const { id } = await made({ checks: [none('no')] });
    const body = { name: 'weak', scopes: ['guardrails.read'], workspace_id: admin.a.workspace_id };
    const { body: weak } = await admin.call('POST', '/v1/api-keys/workspace/service', { body });
    for (const key of [weak.key, admin.a.admin_api_key]) {
      const answer = await invoke(id, { phase: 'input', text: 'x', workspace_id: admin.a.workspace_id }, key);
      expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
    }
    refused(await admin.call('POST', `/v1/guardrails/${id}/invoke`, { key: null, body: {} }), 401, 'AB05', null);
  });
});
