import { describe, expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import type { CheckHttpClient } from './check.ts';
import { compileGuardrail, type GivenActions } from './compile.ts';
import type { Guardrail, GuardrailResult } from './guardrail.ts';
import { afterToolCall, beforeToolCall, type ToolCall, toolCallRefusal, toolGuardrails } from './tool-calls.ts';

const clock = new TestClock();

function guardrail(actions: GivenActions, ...checks: (readonly [string, Record<string, unknown>])[]): Guardrail {
  return compileGuardrail({
    id: `id-${checks.map(([id]) => id).join()}`,
    slug: 'pg-tools',
    name: 'Tools',
    target: 'mcp_tools',
    actions,
    checks: checks.map(([id, parameters]) => ({ id, is_enabled: true, parameters })),
  });
}

const none = (words: string[]) => ['default.contains', { words, operator: 'none' }] as const;
const pii = ['gateway.pii', { categories: ['EMAIL_ADDRESS'], redact: true }] as const;
const hook = ['default.webhook', { webhookURL: 'https://hook.example/' }] as const;

/** A webhook that says `said`; what it was sent is kept. */
function options(said: unknown = { verdict: true }) {
  const sent: { eventType?: string; request?: { json: unknown; text: string }; response?: { text: string } }[] = [];
  const results: GuardrailResult[] = [];
  return {
    sent,
    results,
    clock,
    onAsync: (result: GuardrailResult) => results.push(result),
    outside: (signal: AbortSignal): CheckHttpClient => ({
      signal,
      most: { bytes: 2 * 1024 * 1024, weight: 50_000 },
      owner: 'o',
      now: () => 0,
      resolves: async () => true,
      call: async ({ body }) => {
        sent.push(JSON.parse(String(body)));
        return { status: 200, headers: {}, body: Buffer.from(JSON.stringify(said)) };
      },
    }),
  };
}

const call = (args: ToolCall['arguments']): ToolCall => ({
  tool: 'send_mail',
  arguments: args,
  server: 'mail',
  metadata: { team: 'search' },
  header: () => undefined,
});
const textResult = (...texts: string[]) => ({ content: texts.map((text) => ({ type: 'text', text })) });

describe('which guardrails watch a call', () => {
  const own = { ...guardrail({}, none(['a'])), id: 'own' };
  const other = { ...own, id: 'other' };
  const mapping = (more: object) => ({
    guardrail: own,
    mcpServerId: 's',
    runOn: ['beforeToolCall'] as const,
    capabilityIds: [],
    ...more,
  });
  const before = { mcpServerId: 's', capabilityId: 't', phase: 'beforeToolCall' } as const;

  it.each([
    ['all tools of its server', {}, true],
    ['the tool that it names', { capabilityIds: ['x', 't'] }, true],
    ['no other tool', { capabilityIds: ['x'] }, false],
    ['no other server', { mcpServerId: 'z' }, false],
    ['no other phase', { runOn: ['afterToolCall'] }, false],
  ])('a mapping stands for %s', (_title, more, watches) => {
    expect(toolGuardrails([], [mapping(more)], before)).toEqual(watches ? [own] : []);
  });

  it('defaults come first, and nothing runs twice', () => {
    const mappings = [mapping({}), mapping({ guardrail: other }), mapping({ capabilityIds: ['t'] })];
    expect(toolGuardrails([other], mappings, before).map(({ id }) => id)).toEqual(['other', 'own']);
  });
});

describe('before a tool call', () => {
  it('the arguments are judged as JSON text, and a denial makes no call', () => {
    const list = [guardrail({ deny: true }, none(['"rm -rf']))];
    const denied = beforeToolCall(list, call({ steps: [{ shell: 'rm -rf /' }] }), options());
    expect(denied).toMatchObject({ refused: true, failed: false, results: [{ verdict: false, id: 'pg-tools' }] });
    const args = { steps: [{ shell: 'ls' }] };
    expect(beforeToolCall(list, call(args), options())).toMatchObject({ refused: false, value: args });
  });

  it('without deny the call goes on, and the verdict is told', () => {
    const args = { text: 'no' };
    const verdict = beforeToolCall([guardrail({}, none(['no']))], call(args), options());
    expect(verdict).toMatchObject({ refused: false, failed: true, value: args, results: [{ verdict: false }] });
  });

  it('what is taken out does not reach the server', async () => {
    const args = { to: 'ada@example.com', note: 'write "ada@example.com"', n: 1 };
    const { refused, value } = await beforeToolCall([guardrail({}, pii)], call(args), options());
    expect(refused).toBe(false);
    expect(JSON.stringify(value)).not.toContain('ada@example.com');
    expect(value).toMatchObject({ n: 1, note: expect.stringMatching(/^write "/) });
    expect(args.to).toBe('ada@example.com');
  });

  it('a webhook is told of the call, may replace the arguments, and cannot change the tool', async () => {
    const replaced = { verdict: true, transformedData: { request: { json: { name: 'rm', arguments: { a: 2 } } } } };
    const own = options(replaced);
    const verdict = await beforeToolCall([guardrail({}, hook)], call({ a: 1 }), own);
    expect(verdict).toMatchObject({ refused: false, value: { a: 2 } });
    expect(own.sent).toMatchObject([
      {
        eventType: 'beforeToolCall',
        requestType: 'toolCall',
        metadata: { team: 'search' },
        request: { json: { name: 'send_mail', arguments: { a: 1 } }, text: '{"a":1}' },
      },
    ]);
  });

  it('arguments that are no longer an object refuse the call, also where nothing denies', async () => {
    for (const json of [{ name: 'send_mail' }, { arguments: [1] }]) {
      const own = options({ verdict: true, transformedData: { request: { json } } });
      expect(await beforeToolCall([guardrail({}, hook)], call({ a: 1 }), own)).toMatchObject({ refused: true });
    }
  });

  it('the next guardrail sees what the one before it made of them', async () => {
    const replaced = { verdict: true, transformedData: { request: { json: { arguments: { text: 'secret' } } } } };
    const list = [guardrail({}, hook), guardrail({ deny: true }, none(['secret']))];
    expect(await beforeToolCall(list, call({ text: 'fine' }), options(replaced))).toMatchObject({ refused: true });
  });

  it('a webhook that cannot be reached refuses where its guardrail denies, and only there', async () => {
    const broken = {
      ...options(),
      outside: (): CheckHttpClient => {
        throw new Error('down');
      },
    };
    expect(await beforeToolCall([guardrail({ deny: true }, hook)], call({}), broken)).toMatchObject({ refused: true });
    expect(await beforeToolCall([guardrail({}, hook)], call({}), broken)).toMatchObject({ refused: false });
  });

  it('one that runs beside the call never holds it', () => {
    const own = options();
    const list = [guardrail({ deny: true, async: true }, none(['no']))];
    expect(beforeToolCall(list, call({ text: 'no' }), own)).toMatchObject({ refused: false, results: [] });
    expect(own.results).toMatchObject([{ verdict: false, async: true }]);
  });

  it('no guardrail costs nothing: the same arguments, at once', () => {
    const args = { a: 1 };
    expect(beforeToolCall([], call(args), options())).toEqual({
      refused: false,
      failed: false,
      results: [],
      value: args,
    });
  });
});

describe('after a tool call', () => {
  const list = [guardrail({ deny: true }, none(['hidden']))];

  it.each([
    ['a first text', textResult('hidden')],
    ['a later text', textResult('fine', 'so hidden')],
    ['a resource', { content: [{ type: 'resource', resource: { uri: 'file:///a', text: 'hidden' } }] }],
    ['a link', { content: [{ type: 'resource_link', uri: 'file:///hidden', name: 'a' }] }],
    ['a structure', { content: [], structuredContent: { rows: [{ note: 'hidden' }] } }],
    ['an error', { ...textResult('hidden'), isError: true }],
  ])('%s is found and withheld', (_title, result) => {
    expect(afterToolCall(list, call({}), result, options())).toMatchObject({ refused: true });
  });

  it('without deny the result is shown as it is', () => {
    const result = textResult('hidden');
    const verdict = afterToolCall([guardrail({}, none(['hidden']))], call({}), result, options());
    expect(verdict).toMatchObject({ refused: false, failed: true });
    expect((verdict as { value: unknown }).value).toBe(result);
  });

  it('what is taken out is taken out of every part, and the rest stays', async () => {
    const result = {
      content: [
        { type: 'text', text: 'ada@example.com', annotations: { priority: 1 } },
        { type: 'image', data: 'AAAA', mimeType: 'image/png' },
        { type: 'resource', resource: { uri: 'file:///a', text: 'bob@example.com' } },
      ],
      structuredContent: { mail: 'eve@example.com', n: 1 },
    };
    const { refused, value } = await afterToolCall([guardrail({}, pii)], call({}), result, options());
    expect(refused).toBe(false);
    expect(JSON.stringify(value)).not.toMatch(/(ada|bob|eve)@/);
    expect(value).toMatchObject({
      content: [{ annotations: { priority: 1 } }, result.content[1], { resource: { uri: 'file:///a' } }],
      structuredContent: { n: 1 },
    });
    expect(result.content[0]?.text).toBe('ada@example.com');
  });

  it('a text that is to be taken out and cannot be found refuses the result', () => {
    const made = guardrail({}, none(['a']));
    const judge = {
      lookBehind: null,
      judge: () => ({ verdict: true, data: null, replacements: [{ path: 'content[7].text', text: '' }] }),
    };
    const lost = { ...made, checks: made.checks.map((check) => ({ ...check, mutates: true, judge })) };
    expect(afterToolCall([lost], call({}), textResult('a'), options())).toMatchObject({ refused: true, value: {} });
  });

  it('a result of another form holds no texts and passes', () => {
    for (const result of [{}, { content: null }, { content: [null, 5, { type: 'text' }] }, { content: 'hidden' }]) {
      expect(afterToolCall([guardrail({}, none(['hidden']))], call({}), result as never, options())).toMatchObject({
        refused: false,
      });
    }
  });

  it('a refusal is an error of JSON-RPC with the results of its phase', () => {
    const { results } = afterToolCall(list, call({}), textResult('hidden'), options()) as {
      readonly results: readonly GuardrailResult[];
    };
    expect(toolCallRefusal('afterToolCall', results)).toEqual({
      code: -32000,
      message: expect.stringContaining('withhold'),
      data: { hook_results: { before_request_hooks: [], after_request_hooks: results } },
    });
    expect(toolCallRefusal('beforeToolCall', results).data.hook_results.before_request_hooks).toBe(results);
  });
});
