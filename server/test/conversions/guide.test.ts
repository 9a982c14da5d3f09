/** The tables of the guide are made from what the conversions do. `UPDATE_GOLDEN=1` writes them. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../src/kernel/json.ts';
import { asObject } from '../../src/operations/convert/fields.ts';
import { providerOf } from './cases.ts';
import { LOSSES } from './losses.ts';
import { boundOf, CALLERS, type Caller, contextFor } from './relayed.ts';

const GUIDE = join(import.meta.dirname, '../../../docs/guides/conversions.md');

const SHAPES = {
  chat: ['chat', 'gpt-5-mini'],
  messages: ['anthropic', 'claude-opus-4-6'],
  gemini: ['google', 'gemini-2.5-flash'],
  converse: ['bedrock', 'us.anthropic.claude-opus-4-6-v1'],
  responses: ['responses', 'gpt-5-mini'],
} as const;

const USER = { role: 'user', content: 'Hi' };
const SCHEMA = { type: 'object', properties: { a: { type: 'string' } } };
const FUNCTION = { type: 'function', function: { name: 'f', parameters: SCHEMA } };
const said = (part: JsonObject): JsonObject => ({
  messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }, part] }],
});
const PNG = 'iVBORw0KGgo=';

/** What may be asked for, and the least body that does. */
const ASKED: Readonly<Record<Caller, Readonly<Record<string, JsonObject>>>> = {
  chat: {
    'max_completion_tokens, max_tokens': { max_completion_tokens: 3000 },
    temperature: { temperature: 0.5 },
    top_p: { top_p: 0.5 },
    top_k: { top_k: 5 },
    stop: { stop: ['END'] },
    tools: { tools: [FUNCTION] },
    tool_choice: { tools: [FUNCTION], tool_choice: 'required' },
    'parallel_tool_calls: false': { tools: [FUNCTION], parallel_tool_calls: false },
    'response_format: json_schema': {
      response_format: { type: 'json_schema', json_schema: { name: 'a', schema: SCHEMA } },
    },
    'response_format: json_object': { response_format: { type: 'json_object' } },
    reasoning_effort: { reasoning_effort: 'high' },
    thinking: { thinking: { type: 'enabled', budget_tokens: 2000 } },
    n: { n: 2 },
    seed: { seed: 7 },
    'logprobs, top_logprobs': { logprobs: true },
    logit_bias: { logit_bias: { 5: 1 } },
    'presence_penalty, frequency_penalty': { presence_penalty: 1 },
    verbosity: { verbosity: 'low' },
    prediction: { prediction: { type: 'content', content: 'x' } },
    'audio, modalities with audio': { modalities: ['text', 'audio'] },
    web_search_options: { web_search_options: {} },
    'service_tier: flex': { service_tier: 'flex' },
    'user, safety_identifier': { user: 'u' },
    metadata: { metadata: { a: 'b' } },
    prompt_cache_key: { prompt_cache_key: 'k' },
    'picture as data': said({ type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } }),
    'PDF file as data': said({
      type: 'file',
      file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' },
    }),
    file_id: said({ type: 'file', file: { file_id: 'file-1' } }),
    input_audio: said({ type: 'input_audio', input_audio: { data: 'UklGRg==', format: 'wav' } }),
  },
  messages: {
    temperature: { temperature: 0.5 },
    top_p: { top_p: 0.5 },
    top_k: { top_k: 5 },
    stop_sequences: { stop_sequences: ['END'] },
    tools: { tools: [{ name: 'f', input_schema: SCHEMA }] },
    'tools Anthropic runs itself': { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
    tool_choice: { tools: [{ name: 'f', input_schema: SCHEMA }], tool_choice: { type: 'any' } },
    thinking: { thinking: { type: 'enabled', budget_tokens: 2000 } },
    'output_config.effort': { output_config: { effort: 'high' } },
    'output_config.format': { output_config: { format: { type: 'json_schema', schema: SCHEMA } } },
    'metadata.user_id': { metadata: { user_id: 'u' } },
    'container, mcp_servers': { container: 'c' },
    image: said({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }),
    document: said({ type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' } }),
    'citations of a document': said({
      type: 'document',
      citations: { enabled: true },
      source: { type: 'text', media_type: 'text/plain', data: 'x' },
    }),
    'files by id': said({ type: 'image', source: { type: 'file', file_id: 'f' } }),
    cache_control: said({ type: 'text', text: 'x', cache_control: { type: 'ephemeral' } }),
  },
  responses: {
    instructions: { instructions: 'Be brief.' },
    max_output_tokens: { max_output_tokens: 3000 },
    temperature: { temperature: 0.5 },
    top_p: { top_p: 0.5 },
    'top_logprobs, include': { top_logprobs: 2 },
    tools: { tools: [{ type: 'function', name: 'f', parameters: SCHEMA, strict: false }] },
    'tools OpenAI runs itself': { tools: [{ type: 'web_search' }] },
    tool_choice: { tools: [{ type: 'function', name: 'f', parameters: SCHEMA }], tool_choice: 'required' },
    'parallel_tool_calls: false': {
      tools: [{ type: 'function', name: 'f', parameters: SCHEMA }],
      parallel_tool_calls: false,
    },
    'text.format: json_schema': { text: { format: { type: 'json_schema', name: 'a', schema: SCHEMA } } },
    'text.verbosity': { text: { verbosity: 'low' } },
    'reasoning.effort': { reasoning: { effort: 'high' } },
    'reasoning.summary': { reasoning: { summary: 'auto' } },
    previous_response_id: { previous_response_id: 'resp_1' },
    'background: true': { background: true },
    'truncation: auto': { truncation: 'auto' },
    prompt: { prompt: { id: 'p' } },
    'store, metadata': { store: true, metadata: { a: 'b' } },
    input_image: {
      input: [{ role: 'user', content: [{ type: 'input_image', image_url: `data:image/png;base64,${PNG}` }] }],
    },
    input_file: {
      input: [
        {
          role: 'user',
          content: [{ type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' }],
        },
      ],
    },
  },
};

const LEAST: Record<Caller, JsonObject> = {
  chat: { messages: [USER] },
  messages: { messages: [USER], max_tokens: 4000 },
  responses: { input: 'Hi' },
};

/** `yes` where it reaches the provider, `400` where it is refused by name, `–` where it is left out. */
function fate(caller: Caller, shape: keyof typeof SHAPES, more: JsonObject): string {
  const [provider, own] = SHAPES[shape];
  // Claude models on Bedrock get Messages as they are.
  const model = shape === 'converse' && caller === 'messages' ? 'us.amazon.nova-2-lite-v1:0' : own;
  const run = (asked: JsonObject): JsonValue | undefined => {
    const way = { caller, provider: providerOf(provider), asked };
    const bound = boundOf(way);
    return bound === null ? undefined : (bound.request?.(asked, contextFor(way)) ?? asked);
  };
  const least = { model, ...LEAST[caller] };
  try {
    const made = run({ ...least, ...more });
    // Tools are there in both, where the choice among them is asked for.
    const { tool_choice: _choice, parallel_tool_calls: _parallel, ...bare } = more;
    const without = Object.keys(bare).length < Object.keys(more).length ? bare : withoutMarks(asObject(more), least);
    return JSON.stringify(made) === JSON.stringify(run({ ...least, ...without })) ? '–' : 'yes';
  } catch (error) {
    if (error instanceof SluiceError && error.kind === 'unsupported_parameter') return '400';
    throw error;
  }
}

/** The same messages without marks for the cache, which are not content; the least body for everything else. */
function withoutMarks(more: JsonObject, least: JsonObject): JsonObject {
  if (!JSON.stringify(more).includes('cache_control')) return least;
  return JSON.parse(JSON.stringify(more).replaceAll(',"cache_control":{"type":"ephemeral"}', '')) as JsonObject;
}

function table(caller: Caller): string {
  const shapes = (Object.keys(SHAPES) as (keyof typeof SHAPES)[]).filter((shape) => shape !== caller);
  const rows = Object.entries(ASKED[caller]).map(([name, more]) => [
    `\`${name}\``,
    ...shapes.map((shape) => fate(caller, shape, more)),
  ]);
  return grid([[`Callers of ${caller} ask for`, ...shapes], ...rows]);
}

function grid(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(3, ...rows.map((row) => row[i]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')} |`;
  const [head = [], ...body] = rows;
  return [line(head), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...body.map(line)].join('\n');
}

it('the guide says what each conversion carries, refuses and loses', () => {
  const losses = grid([
    ['From', 'To', 'Lost', 'Why'],
    ...LOSSES.map(({ from, to, what, why }) => [from, to, what, why]),
  ]);
  const made = [...CALLERS.map(table), losses].join('\n\n');
  const guide = readFileSync(GUIDE, 'utf8');
  const [before = '', rest = ''] = guide.split('<!-- made -->\n');
  const after = rest.split('<!-- end -->')[1] ?? '';
  const whole = `${before}<!-- made -->\n\n${made}\n\n<!-- end -->${after}`;
  if (process.env.UPDATE_GOLDEN === '1') writeFileSync(GUIDE, whole);
  expect(readFileSync(GUIDE, 'utf8')).toBe(whole);
});
