import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { call } from '../../../test/support/local.ts';
import { createLocal } from './local.ts';

const local = createLocal();
const messages = [{ role: 'user', content: 'hi' }];
const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }];
const chat = (body: unknown) => call(local, { body });

describe('bad chat requests are refused as OpenAI refuses them', () => {
  it.each([
    [{ model: 'echo' }, 'messages', 'missing_required_parameter'],
    [{ messages }, 'model', 'missing_required_parameter'],
    [{ model: 7, messages }, 'model', 'invalid_type'],
    [{ model: 'echo', messages: 'hi' }, 'messages', 'invalid_type'],
    [{ model: 'echo', messages: [] }, 'messages', 'empty_array'],
    [{ model: 'echo', messages: [7] }, 'messages[0]', 'invalid_type'],
    [{ model: 'echo', messages: [{ role: 'robot', content: 'x' }] }, 'messages[0].role', 'invalid_value'],
    [{ model: 'echo', messages: [{ role: 'user', content: null }] }, 'messages[0].content', 'invalid_type'],
    [
      { model: 'echo', messages: [{ role: 'user', content: [{ type: 'text' }] }] },
      'messages[0].content[0].text',
      'missing_required_parameter',
    ],
    [
      { model: 'echo', messages: [{ role: 'tool', content: 'x' }] },
      'messages[0].tool_call_id',
      'missing_required_parameter',
    ],
    [{ model: 'echo', messages, temperature: 3 }, 'temperature', 'decimal_above_max_value'],
    [{ model: 'echo', messages, n: 0 }, 'n', 'integer_below_min_value'],
    [{ model: 'echo', messages, max_tokens: 1.5 }, 'max_tokens', 'invalid_type'],
    [{ model: 'echo', messages, stop: ['a', 'b', 'c', 'd', 'e'] }, 'stop', 'array_above_max_length'],
    [{ model: 'echo', messages, stream: 'yes' }, 'stream', 'invalid_type'],
    [{ model: 'echo', messages, stream_options: { include_usage: true } }, 'stream_options', 'invalid_value'],
    [{ model: 'echo', messages, tool_choice: 'auto' }, 'tool_choice', 'invalid_value'],
    [
      { model: 'echo', messages, tools, tool_choice: { type: 'function', function: { name: 'g' } } },
      'tool_choice',
      null,
    ],
    [
      { model: 'echo', messages, tools: [{ type: 'function', function: { name: 'no spaces' } }] },
      'tools[0].function.name',
      'invalid_value',
    ],
    [
      { model: 'echo', messages, tools: [{ type: 'function', function: { name: '' } }] },
      'tools[0].function.name',
      'invalid_value',
    ],
    [{ model: 'echo', messages, functions: [{ name: '' }] }, 'functions[0].name', 'invalid_value'],
    [
      { model: 'echo', messages, tools: Array.from({ length: 129 }, () => tools[0]) },
      'tools',
      'array_above_max_length',
    ],
    [
      { model: 'echo', messages, response_format: { type: 'json_schema' } },
      'response_format.json_schema',
      'invalid_type',
    ],
    [{ model: 'echo', messages, logprobs: true }, 'logprobs', 'unsupported_parameter'],
  ])('%j', async (body, param, code) => {
    const { status, json } = await chat(body);
    expect(status).toBe(400);
    expect(json.error).toMatchObject({ type: 'invalid_request_error', param, code });
    expect(json.error.message.length).toBeGreaterThan(20);
  });

  it.each(['', '{', '[]', 'null', '"x"', '{"model":'])('a body that is no JSON object: %j', async (body) => {
    const { status, json } = await chat(body);
    expect(status).toBe(400);
    expect(json.error.type).toBe('invalid_request_error');
  });

  it('an unknown path is a 404 in shape', async () => {
    const { status, json } = await call(local, { path: '/v1/nothing', body: {} });
    expect(status).toBe(404);
    expect(json.error.code).toBe('unknown_url');
  });
});

describe('chat parameters', () => {
  it('max_tokens ends the answer with finish_reason length', async () => {
    for (const name of ['max_tokens', 'max_completion_tokens']) {
      const { json } = await chat({
        model: 'echo',
        messages: [{ role: 'user', content: 'One two three four five' }],
        [name]: 3,
      });
      expect(json.choices[0]).toMatchObject({ message: { content: 'One two three' }, finish_reason: 'length' });
      expect(json.usage.completion_tokens).toBe(3);
    }
  });

  it('an answer of exactly max_tokens tokens is complete', async () => {
    const { json } = await chat({
      model: 'echo',
      messages: [{ role: 'user', content: 'One two three' }],
      max_tokens: 3,
    });
    expect(json.choices[0].finish_reason).toBe('stop');
  });

  it('a character of several tokens is never cut in half', async () => {
    const content = '🎉👩‍👩‍👧🦥';
    for (let limit = 1; limit < 12; limit++) {
      const { json } = await chat({ model: 'echo', messages: [{ role: 'user', content }], max_tokens: limit });
      const text: string = json.choices[0].message.content;
      expect(content.startsWith(text)).toBe(true);
      expect(text.isWellFormed()).toBe(true);
    }
  });

  it('stop ends the text before the first stop', async () => {
    for (const stop of ['three', ['nine', 'three', 'four']]) {
      const { json } = await chat({ model: 'echo', messages: [{ role: 'user', content: 'One two three four' }], stop });
      expect(json.choices[0]).toMatchObject({ message: { content: 'One two ' }, finish_reason: 'stop' });
    }
    const lorem = await chat({ model: 'lorem?tokens=100000', messages, stop: 'amet' });
    expect(lorem.json.choices[0].message.content).toBe('Lorem ipsum dolor sit ');
  });

  it('n answers n choices, streamed too', async () => {
    expect((await chat({ model: 'echo', messages, n: 3 })).json.choices.map((c: { index: number }) => c.index)).toEqual(
      [0, 1, 2],
    );
    const { text } = await chat({ model: 'echo', messages, n: 2, stream: true });
    expect(text.match(/"index":1,/g)?.length).toBeGreaterThan(1);
    expect(text.match(/"finish_reason":"stop"/g)).toHaveLength(2);
  });

  it('images are accepted, counted and mentioned', async () => {
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } };
    const plain = await chat({
      model: 'echo',
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Look' }] }],
    });
    const { json } = await chat({
      model: 'echo',
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Look' }, image] }],
    });
    expect(json.choices[0].message.content).toBe('Look\n[image]');
    expect(json.usage.prompt_tokens - plain.json.usage.prompt_tokens).toBe(85);
  });

  it('tools are called when they are named in the message, chosen or required, and not after their results', async () => {
    const tool = (name: string) => ({ type: 'function', function: { name } });
    const ask = async (content: string, more: object = {}) => {
      const { json } = await chat({
        model: 'echo',
        messages: [{ role: 'user', content }],
        tools: [tool('aa'), tool('bb')],
        ...more,
      });
      return (json.choices[0].message.tool_calls ?? []).map((one: { function: { name: string } }) => one.function.name);
    };
    expect(await ask('please')).toEqual(['aa']);
    expect(await ask('bb please')).toEqual(['bb']);
    expect(await ask('aabb bb, then aa.')).toEqual(['aa', 'bb']);
    expect(await ask('bb then aa', { parallel_tool_calls: false })).toEqual(['aa']);
    expect(await ask('aa', { tool_choice: 'none' })).toEqual([]);
    expect(await ask('aa', { tool_choice: { type: 'function', function: { name: 'bb' } } })).toEqual(['bb']);
    const history = [
      { role: 'user', content: 'aa' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'aa', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'call_1', content: 'done' },
    ];
    expect(await ask('', { messages: history })).toEqual([]);
    expect(await ask('', { messages: history, tool_choice: 'required' })).toEqual(['aa']);
  });

  it('calls of one answer, and of its choices, have ids of their own', async () => {
    const tool = (name: string) => ({ type: 'function', function: { name } });
    const { json } = await chat({
      model: 'echo',
      n: 2,
      messages: [{ role: 'user', content: 'aa bb' }],
      tools: [tool('aa'), tool('bb')],
    });
    const ids = json.choices.flatMap((choice: { message: { tool_calls: { id: string }[] } }) =>
      choice.message.tool_calls.map((one) => one.id),
    );
    expect(new Set(ids).size).toBe(4);
  });

  it('the old functions field is answered with a function_call', async () => {
    const { json } = await chat({ model: 'echo', messages, functions: [{ name: 'f' }] });
    expect(json.choices[0]).toMatchObject({
      message: { function_call: { name: 'f', arguments: '{}' } },
      finish_reason: 'function_call',
    });
  });

  it('text that looks like a placeholder of the sandbox stays text', async () => {
    const content = '{{sandbox text 0}} $& \u2028';
    const { json } = await chat({ model: 'echo', messages: [{ role: 'user', content }] });
    expect(json.choices[0].message.content).toBe(content);
  });
});

describe('messages', () => {
  const ask = (body: object) =>
    call(local, { path: '/messages', body: { model: 'echo', max_tokens: 100, messages, ...body } });

  it.each([
    [{ max_tokens: null }, 'max_tokens'],
    [{ messages: null }, 'messages'],
    [{ messages: [{ role: 'user' }] }, 'messages.0.content'],
    [{ messages: [{ role: 'user', content: 7 }] }, 'messages.0.content'],
    [{ tools: [{ name: 'x' }] }, 'tools.0.input_schema'],
    [{ tools: [{ name: '', input_schema: {} }] }, 'tools.0.name'],
    [{ thinking: { type: 'enabled', budget_tokens: 2000 } }, 'max_tokens'],
  ])('%j is refused in Anthropic’s shape', async (body, named) => {
    const { status, json, headers } = await ask(body);
    expect(status).toBe(400);
    expect(json).toMatchObject({
      type: 'error',
      error: { type: 'invalid_request_error' },
      request_id: headers['request-id'],
    });
    expect(json.error.message).toContain(named);
  });

  it('says which stop sequence ended the text', async () => {
    const { json } = await ask({ messages: [{ role: 'user', content: 'a b STOP c' }], stop_sequences: ['STOP'] });
    expect(json).toMatchObject({ stop_reason: 'stop_sequence', stop_sequence: 'STOP', content: [{ text: 'a b ' }] });
  });

  it('max_tokens ends the text', async () => {
    const { json } = await ask({ messages: [{ role: 'user', content: 'One two three' }], max_tokens: 2 });
    expect(json).toMatchObject({ stop_reason: 'max_tokens', usage: { output_tokens: 2 } });
  });
});

describe('responses', () => {
  it('a tool without a name is refused', async () => {
    const body = { model: 'echo', input: 'the word', tools: [{ type: 'function', name: '', parameters: {} }] };
    const { status, json } = await call(local, { path: '/responses', body });
    expect(status).toBe(400);
    expect(json.error).toMatchObject({ param: 'tools[0].name', code: 'invalid_value' });
  });

  it('max_output_tokens leaves the response incomplete', async () => {
    const { json } = await call(local, {
      path: '/responses',
      body: { model: 'lorem', input: 'x', max_output_tokens: 16 },
    });
    expect(json).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      usage: { output_tokens: 16 },
    });
  });

  it('has no stored response', async () => {
    const { status, json } = await call(local, {
      path: '/responses',
      body: { model: 'echo', input: 'x', previous_response_id: 'resp_1' },
    });
    expect(status).toBe(404);
    expect(json.error.code).toBe('previous_response_not_found');
  });
});

describe('embeddings', () => {
  const embed = async (input: unknown, more: object = {}) =>
    (await call(local, { path: '/embeddings', body: { model: 'e', input, ...more } })).json;
  const cosine = (a: number[], b: number[]) => a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0);

  it('are stable unit vectors, nearer for texts that share words', async () => {
    const { data, usage } = await embed([
      'the cat sat on the mat',
      'a cat on a mat',
      'quarterly revenue grew',
      'the cat sat on the mat',
    ]);
    const [a, b, c, again] = data.map((item: { embedding: number[] }) => item.embedding);
    expect(a).toHaveLength(1536);
    expect(Math.abs(cosine(a, a) - 1)).toBeLessThan(1e-6);
    expect(again).toEqual(a);
    expect(cosine(a, b)).toBeGreaterThan(cosine(a, c) + 0.2);
    expect(usage.prompt_tokens).toBe(usage.total_tokens);
  });

  it('base64 and float say the same numbers', async () => {
    const floats = (await embed('hello', { dimensions: 100 })).data[0].embedding;
    const bytes = Buffer.from(
      (await embed('hello', { dimensions: 100, encoding_format: 'base64' })).data[0].embedding,
      'base64',
    );
    expect(bytes).toHaveLength(400);
    expect(floats.map(Math.fround)).toEqual(Array.from({ length: 100 }, (_, i) => bytes.readFloatLE(i * 4)));
  });

  it('take lists of tokens, one or many', async () => {
    expect((await embed([1, 2, 3])).usage.prompt_tokens).toBe(3);
    const { data, usage } = await embed([[1, 2], [3], [1, 2]], { dimensions: 8 });
    expect(usage.prompt_tokens).toBe(5);
    expect(data[0].embedding).toEqual(data[2].embedding);
    expect(data[0].embedding).not.toEqual(data[1].embedding);
  });

  it('answer two thousand inputs', async () => {
    const { data } = await embed(
      Array.from({ length: 2048 }, (_, i) => `text ${i}`),
      { dimensions: 256 },
    );
    expect(data).toHaveLength(2048);
    expect(data[2047].index).toBe(2047);
  });

  it.each([[''], [[]], [7], [['a', 7]], [Array.from({ length: 2049 }, () => 'x')]])(
    'input %# is refused',
    async (input) => {
      expect((await embed(input)).error.param).toBe('input');
    },
  );
});

describe('rerank', () => {
  it('puts the documents that share words with the query first', async () => {
    const { json } = await call(local, {
      path: '/rerank',
      body: {
        model: 'r',
        query: 'capital of France',
        documents: ['bananas', { text: 'Paris is the capital of France' }, 'France'],
        top_n: 2,
        return_documents: true,
      },
    });
    expect(json.results.map((result: { index: number }) => result.index)).toEqual([1, 2]);
    expect(json.results[0].document).toEqual({ text: 'Paris is the capital of France' });
    expect(json.usage).toMatchObject({ search_units: 1 });
  });
});

describe('whatever is sent', () => {
  const PATHS = [
    '/chat/completions',
    '/completions',
    '/messages',
    '/messages/count_tokens',
    '/responses',
    '/embeddings',
    '/moderations',
    '/rerank',
    '/images/generations',
    '/audio/speech',
  ];
  const model = fc.constantFrom(
    'echo',
    'gpt-4o',
    'lorem?tokens=5',
    'malformed?event=1',
    'error?status=599',
    '?',
    'slow?ttft_ms=0&tokens_per_s=1000000',
    'cut?mode=end',
  );
  const part = fc.oneof(
    fc.record(
      {
        type: fc.constantFrom('text', 'input_text', 'image_url', 'tool_result', 'thinking', 'x'),
        text: fc.string(),
        content: fc.jsonValue(),
      },
      { requiredKeys: [] },
    ),
    fc.jsonValue(),
  );
  const message = fc.record(
    {
      role: fc.constantFrom('user', 'assistant', 'system', 'tool', 'x'),
      content: fc.oneof(fc.string(), fc.array(part), fc.jsonValue()),
      tool_calls: fc.jsonValue(),
      type: fc.constantFrom('message', 'function_call', 'x'),
    },
    { requiredKeys: [] },
  );
  const tool = fc.record(
    {
      type: fc.constantFrom('function', 'custom', 'x'),
      name: fc.constantFrom('f', '__proto__', 'constructor'),
      function: fc.record({ name: fc.constantFrom('f', 'toString'), parameters: fc.jsonValue() }),
      parameters: fc.jsonValue(),
      input_schema: fc.jsonValue(),
    },
    { requiredKeys: [] },
  );
  const loose = (value: fc.Arbitrary<unknown>) =>
    fc.oneof({ weight: 4, arbitrary: value }, { weight: 1, arbitrary: fc.jsonValue() });
  const body = fc.record(
    {
      model: loose(model),
      messages: loose(fc.array(message, { minLength: 1, maxLength: 3 })),
      input: loose(fc.oneof(fc.string(), fc.array(message))),
      prompt: loose(fc.string()),
      query: loose(fc.string()),
      documents: loose(fc.array(fc.oneof(fc.string(), fc.dictionary(fc.string(), fc.jsonValue())))),
      voice: fc.constant('alloy'),
      max_tokens: loose(fc.integer({ min: 1, max: 50 })),
      n: loose(fc.integer({ min: 1, max: 3 })),
      stop: loose(fc.string()),
      tools: loose(fc.array(tool, { maxLength: 2 })),
      tool_choice: loose(fc.constantFrom('auto', 'required')),
      response_format: loose(fc.record({ type: fc.constantFrom('json_object', 'text') })),
      text: loose(fc.constant({ format: { type: 'json_object' } })),
      thinking: loose(fc.constant({ type: 'adaptive' })),
      dimensions: loose(fc.integer({ min: 1, max: 10 })),
      system: fc.jsonValue(),
    },
    { requiredKeys: ['model'] },
  );

  it('the answer is a result or a 4xx in shape, never a crash', async () => {
    const seen = new Set<number>();
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...PATHS), body, fc.boolean(), async (path, value, stream) => {
        const { status, error, json } = await call(local, {
          path,
          body: { ...value, ...(stream ? { stream } : null) },
        });
        seen.add(status);
        expect(error).toBeNull();
        expect(status === 200 || status === 400 || status === 599, `${status} ${JSON.stringify(json)}`).toBe(true);
        if (status === 400) expect(json.error.type).toBe('invalid_request_error');
      }),
      { numRuns: 1500 },
    );
    expect([...seen].sort()).toEqual([200, 400, 599]);
  });

  it('forms too', async () => {
    const piece = fc.constantFrom(
      '--b',
      '\r\n',
      '--b--',
      'content-disposition: form-data; name="file"; filename="a"',
      'content-disposition: form-data; name="model"',
      '\r\n\r\n',
      'echo',
      '-',
      ' ',
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(piece, { maxLength: 20 }),
        fc.constantFrom('/audio/transcriptions', '/images/edits', '/images/variations'),
        async (pieces, path) => {
          const { status, json } = await call(local, {
            path,
            body: pieces.join(''),
            headers: ['content-type', 'multipart/form-data; boundary=b'],
          });
          expect(status).toBe(400);
          expect(json.error.type).toBe('invalid_request_error');
        },
      ),
      { numRuns: 500 },
    );
  });
});
