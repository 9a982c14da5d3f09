/**
 * Requests and answers that go through a conversion and back hold what they held, or a refusal has named what is too much.
 * What is lost on purpose is left out of what is compared, and listed with its reason in `losses.ts`.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonObject, JsonValue } from '../../src/kernel/json.ts';
import type { ConvertTarget } from '../../src/operations/convert/conversion.ts';
import { asArray, asObject } from '../../src/operations/convert/fields.ts';
import { conversion } from '../../src/operations/convert/index.ts';
import { deepFreeze, testContext } from '../../src/operations/convert/testing.ts';

/** The middle format with all that a provider's side may add to it. */
const WIDE: ConvertTarget = {
  extensions: new Set(['thinking', 'top_k', 'cache_control', 'service_tier', 'extra_content']),
  reasoning: { field: 'reasoning_content', history: true },
};

const text = fc.oneof(
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 12 }),
  fc.constantFrom('Grüße 😀', 'a\nb', '{"t":21}', ' x ', '"quoted"', '\u2028'),
);
const data = fc.constantFrom('iVBORw0KGgo=', 'JVBERi0xLjQK', 'AAAA');
const mark = fc.option(fc.constantFrom({ type: 'ephemeral' }, { type: 'ephemeral', ttl: '1h' }), {
  nil: undefined,
  freq: 4,
});
const marked = <T extends object>(part: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.tuple(part, mark).map(([one, cache_control]) => (cache_control === undefined ? one : { ...one, cache_control }));
const name = fc.constantFrom('weather', 'clock', 'look_up', 'f-1');
const input = fc.dictionary(fc.constantFrom('city', 'n', 'ä'), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 });
const schema = fc.constantFrom(
  { type: 'object', properties: {} },
  { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
);

const textPart = marked(text.map((said) => ({ type: 'text', text: said })));
const imagePart = marked(
  fc.oneof(
    data.map((base64) => ({ type: 'image_url', image_url: { url: `data:image/png;base64,${base64}` } })),
    fc.constant({ type: 'image_url', image_url: { url: 'https://example.org/a.png' } }),
  ),
);
const filePart = marked(
  data.map((base64) => ({
    type: 'file',
    file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${base64}` },
  })),
);
const userParts = fc.array(fc.oneof({ weight: 4, arbitrary: textPart }, imagePart, filePart), {
  minLength: 1,
  maxLength: 3,
});

const given = <T>(value: fc.Arbitrary<T>, freq = 2): fc.Arbitrary<T | undefined> =>
  fc.option(value, { nil: undefined, freq });
const without = (body: object): JsonObject => JSON.parse(JSON.stringify(body)) as JsonObject;

interface Turn {
  readonly user: string | JsonObject[];
  readonly said: string | null;
  readonly refusal: string | undefined;
  readonly calls: readonly { readonly name: string; readonly input: JsonObject; readonly result: string }[];
}
const turn: fc.Arbitrary<Turn> = fc.record({
  user: fc.oneof(text, userParts as fc.Arbitrary<JsonObject[]>),
  said: fc.option(text),
  refusal: given(text, 6),
  calls: fc.array(
    fc.record({ name, input: input as fc.Arbitrary<JsonObject>, result: fc.oneof(text, fc.constant('')) }),
    { maxLength: 3 },
  ),
});

/** A conversation of chat: calls are answered in the turn that follows them. */
const chatMessages = fc
  .tuple(
    fc.array(fc.tuple(fc.constantFrom('system', 'developer'), text), { maxLength: 2 }),
    fc.array(turn, { maxLength: 3 }),
    text,
  )
  .map(([instructions, turns, last]) => {
    const out: JsonObject[] = instructions.map(([role, content]) => ({ role, content }));
    turns.forEach(({ user, said, refusal, calls }, i) => {
      const ids = calls.map((_, j) => `call_${i}_${j}`);
      out.push({ role: 'user', content: user });
      if (said !== null || refusal !== undefined || calls.length > 0)
        out.push(
          without({
            role: 'assistant',
            content: said,
            refusal,
            tool_calls:
              calls.length === 0
                ? undefined
                : calls.map((call, j) => ({
                    id: ids[j],
                    type: 'function',
                    function: { name: call.name, arguments: JSON.stringify(call.input) },
                  })),
          }),
        );
      calls.forEach(({ result }, j) => {
        out.push({ role: 'tool', tool_call_id: ids[j] ?? '', content: result });
      });
    });
    return [...out, { role: 'user', content: last }];
  });

const tool = marked(
  fc.record({ name, description: given(text), parameters: schema, strict: given(fc.boolean()) }).map((definition) => ({
    type: 'function',
    function: without(definition),
  })),
);
const tools = fc.uniqueArray(tool, {
  minLength: 1,
  maxLength: 3,
  selector: (one) => String(asObject(one.function).name),
});
const choice = fc.oneof(
  fc.constantFrom('auto', 'none', 'required'),
  fc.constant({ type: 'function', function: { name: 'weather' } }),
);

/** Fields that both sides of every conversion hold. */
const sampling = {
  temperature: given(fc.constantFrom(0, 0.5, 1)),
  top_p: given(fc.constantFrom(0.1, 1)),
  stop: given(fc.oneof(text, fc.array(text, { minLength: 1, maxLength: 2 }))),
  user: given(fc.constantFrom('u-1', 'ü')),
  stream: given(fc.boolean()),
};
/** Fields that some sides do not hold: refused by name unless they ask for nothing. */
const more = {
  n: given(fc.constantFrom(1, 2), 6),
  seed: given(fc.constant(7), 8),
  logprobs: given(fc.boolean(), 6),
  top_logprobs: given(fc.constantFrom(0, 2), 8),
  logit_bias: given(fc.constantFrom({}, { '5': 1 }), 8),
  presence_penalty: given(fc.constantFrom(0, 1), 8),
  frequency_penalty: given(fc.constantFrom(0, 1), 8),
  verbosity: given(fc.constantFrom('medium', 'low'), 8),
  modalities: given(fc.constantFrom(['text'], ['text', 'audio']), 8),
  prediction: given(fc.constant({ type: 'content', content: 'x' }), 9),
  web_search_options: given(fc.constant({}), 9),
  audio: given(fc.constant({ voice: 'a', format: 'wav' }), 9),
};
const chatRequest = fc
  .record({
    messages: chatMessages,
    max_completion_tokens: fc.integer({ min: 1100, max: 9000 }),
    ...sampling,
    ...more,
    tools: given(tools),
    tool_choice: given(choice, 4),
    parallel_tool_calls: given(fc.boolean(), 4),
    reasoning_effort: given(fc.constantFrom('low', 'medium', 'high'), 4),
    thinking: given(fc.constantFrom({ type: 'adaptive' }, { type: 'enabled', budget_tokens: 1024 }), 6),
    top_k: given(fc.constant(5), 6),
    service_tier: given(fc.constantFrom('auto', 'default', 'flex'), 6),
    response_format: given(
      fc.oneof(
        fc.constantFrom({ type: 'text' }, { type: 'json_object' }),
        fc.record({ schema, strict: given(fc.boolean()) }).map(({ schema: wanted, strict }) => ({
          type: 'json_schema',
          json_schema: without({ name: 'answer', schema: wanted, strict }),
        })),
      ),
      4,
    ),
  })
  .map(without);

const names = (param: string | null): string => param?.split(/[.[]/, 1)[0] ?? '';

/** Runs a request, taking away what is refused by its name, as `drop_params` would; the names in their order. */
function accepted<T>(body: JsonObject, run: (body: JsonObject) => T): { made: T; body: JsonObject; refused: string[] } {
  const refused: string[] = [];
  let left = body;
  for (;;) {
    try {
      return { made: run(deepFreeze(left)), body: left, refused };
    } catch (error) {
      if (!(error instanceof SluiceError) || error.kind !== 'unsupported_parameter') throw error;
      const field = names(error.param);
      // Whoever is told a name must be able to do something about it.
      expect(Object.keys(left)).toContain(field);
      expect(error.message).toContain(`"${error.param}"`);
      refused.push(field);
      const { [field]: _, ...rest } = left;
      left = rest;
    }
  }
}

const parsed = (json: JsonValue | undefined): JsonValue => {
  try {
    return JSON.parse(String(json)) as JsonValue;
  } catch {
    return String(json);
  }
};

const partsOf = (content: JsonValue | undefined): JsonObject[] =>
  typeof content === 'string' ? [{ type: 'text', text: content }] : asArray(content).map(asObject);

const textOf = (content: JsonValue | undefined): string =>
  partsOf(content)
    .map((part) => part.text ?? part.refusal ?? '')
    .join('');

/** What a chat request says and asks for, without what `losses.ts` gives up. */
function factsOfChat(body: JsonObject): unknown {
  const system: string[] = [];
  const turns: { who: string; parts: unknown[] }[] = [];
  const add = (who: string, parts: unknown[]): void => {
    const last = turns.at(-1);
    if (parts.length === 0) return;
    if (last?.who === who) last.parts.push(...parts);
    else turns.push({ who, parts: [...parts] });
  };
  for (const message of asArray(body.messages).map(asObject)) {
    const { role, content } = message;
    if (role === 'system' || role === 'developer') system.push(...partsOf(content).map((part) => String(part.text)));
    else if (role === 'user') add('user', partsOf(content));
    else if (role === 'tool') add('tool', [{ id: message.tool_call_id, text: textOf(content) }]);
    else {
      const said = `${textOf(content)}${message.refusal ?? ''}`;
      const calls = asArray(message.tool_calls).map((call) => {
        const { id, function: called } = asObject(call);
        return { id, name: asObject(called).name, input: parsed(asObject(called).arguments) };
      });
      add('assistant', [...(said === '' ? [] : [said]), ...calls]);
    }
  }
  const format = asObject(body.response_format);
  const hasTools = asArray(body.tools).length > 0;
  const { tool_choice: choice, stop, parallel_tool_calls: parallel } = body;
  return {
    system: system.join('\n\n'),
    turns,
    tools: asArray(body.tools).map((one) => {
      const { strict, ...definition } = asObject(asObject(one).function);
      return { ...definition, strict: strict ?? null, cache: asObject(one).cache_control ?? null };
    }),
    choice: hasTools ? (choice ?? 'auto') : null,
    alone: hasTools && choice !== 'none' && parallel === false,
    stop: stop === undefined ? [] : [stop].flat(),
    format: format.type === 'json_schema' ? asObject(format.json_schema).schema : null,
    most: body.max_completion_tokens ?? body.max_tokens,
    temperature: body.temperature,
    top_p: body.top_p,
    top_k: body.top_k,
    user: body.user,
    effort: body.reasoning_effort ?? null,
    thinking: body.thinking ?? null,
    stream: body.stream,
    tier: body.service_tier === 'default' ? 'default' : null,
  };
}

function there(
  from: 'chat' | 'messages' | 'responses',
  to: 'chat' | 'messages' | 'responses',
  body: JsonObject,
): JsonObject {
  const convert = conversion(from, to, WIDE);
  if (convert === null) throw new Error(`${from} is not converted to ${to}`);
  const once = convert.request(body, testContext({ stream: body.stream === true }));
  return without({ ...once, model: undefined });
}

describe('a request', () => {
  it('of chat comes back from Messages as it was', () => {
    fc.assert(
      fc.property(chatRequest, (request) => {
        const { made, body } = accepted(request, (asked) => there('chat', 'messages', asked));
        expect(factsOfChat(there('messages', 'chat', deepFreeze(made)))).toEqual(factsOfChat(body));
      }),
      { numRuns: 150 },
    );
  });

  it('of chat is refused by every field that asks for what Messages cannot do, and by no other', () => {
    const asks: Readonly<Record<string, (value: unknown) => boolean>> = {
      n: (value) => value !== 1,
      logprobs: (value) => value !== false,
      top_logprobs: (value) => value !== 0,
      logit_bias: (value) => Object.keys(value as object).length > 0,
      presence_penalty: (value) => value !== 0,
      frequency_penalty: (value) => value !== 0,
      verbosity: (value) => value !== 'medium',
      modalities: (value) => (value as string[]).length > 1,
      service_tier: (value) => value === 'flex',
      response_format: (value) => (value as JsonObject).type === 'json_object',
      seed: () => true,
      prediction: () => true,
      web_search_options: () => true,
      audio: () => true,
    };
    fc.assert(
      fc.property(chatRequest, (request) => {
        const { refused } = accepted(request, (asked) => there('chat', 'messages', asked));
        const expected = Object.keys(request).filter((field) => asks[field]?.(request[field]));
        expect(refused.sort()).toEqual(expected.sort());
      }),
      { numRuns: 150 },
    );
  });

  it('of Messages comes back from chat as it was', () => {
    fc.assert(
      fc.property(chatRequest, (request) => {
        // What chat becomes there is a request of Messages with everything both can hold.
        const { made } = accepted(request, (asked) => there('chat', 'messages', asked));
        const { made: back, refused } = accepted(made, (asked) =>
          there('chat', 'messages', deepFreeze(there('messages', 'chat', asked))),
        );
        expect(refused).toEqual([]);
        expect(normal(back)).toEqual(normal(made));
      }),
      { numRuns: 150 },
    );
  });

  it('of Responses comes back from chat as it was', () => {
    fc.assert(
      fc.property(chatRequest, (request) => {
        const { made } = accepted(request, (asked) => there('chat', 'responses', asked));
        const { made: chat, body } = accepted(made, (asked) => there('responses', 'chat', asked));
        expect(normalItems(there('chat', 'responses', deepFreeze(chat)))).toEqual(normalItems(body));
      }),
      { numRuns: 150 },
    );
  });
});

/** A request of Messages without what stands for the same: one text block, and who may say it in which of two ways. */
function normal(body: JsonObject): unknown {
  const flat = (content: JsonValue | undefined): JsonObject[] => {
    const out: JsonObject[] = [];
    for (const part of partsOf(content)) {
      const last = out.at(-1);
      if (
        part.type === 'text' &&
        last?.type === 'text' &&
        last.cache_control === undefined &&
        part.cache_control === undefined
      )
        last.text = `${last.text}${part.text}`;
      else out.push({ ...part });
    }
    return out;
  };
  const system = partsOf(body.system).map((part) => part.text);
  const { service_tier: tier, ...rest } = body;
  return {
    ...rest,
    ...(tier === undefined || tier === 'auto' ? null : { tier }),
    system: system.join('\n\n'),
    messages: asArray(body.messages).map((message) => {
      const { role, content } = asObject(message);
      return { role, content: role === 'assistant' ? flat(content) : partsOf(content) };
    }),
  };
}

/** A request of Responses without what stands for the same, and without what asks for nothing. */
function normalItems(body: JsonObject): unknown {
  const { tool_choice: choice, parallel_tool_calls: parallel, text: format, service_tier: tier, ...rest } = body;
  const hasTools = asArray(body.tools).length > 0;
  const { verbosity, ...other } = asObject(format);
  return {
    ...rest,
    choice: hasTools ? (choice ?? 'auto') : null,
    alone: hasTools && parallel === false,
    verbosity: verbosity === 'medium' ? undefined : verbosity,
    format: other.format ?? null,
    tier: tier === 'auto' ? undefined : tier,
    input: asArray(body.input).map((item) => {
      const { content, output, ...kept } = asObject(item);
      const parts = partsOf(content ?? output).map(({ type, ...part }) => ({
        ...part,
        type: String(type).replace(/^(?:in|out)put_/, ''),
      }));
      return { ...kept, parts };
    }),
  };
}
