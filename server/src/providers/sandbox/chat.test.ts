import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import { countTokens as countChat } from 'gpt-tokenizer/model/gpt-4o';
import { describe, expect, it } from 'vitest';
import { call, eventsOf } from '../../../test/support/local.ts';
import { TestClock } from '../../kernel/clock.ts';
import { createLocal } from './local.ts';

const local = createLocal();
const user = (content: unknown) => [{ role: 'user', content }];

describe('chat completions', () => {
  it('echo says back the last user message and says that it is the sandbox', async () => {
    const clock = new TestClock(1_767_225_600_000);
    const { status, headers, json } = await call(local, {
      clock,
      path: '/v1/chat/completions',
      body: { model: 'sandbox/echo', messages: [{ role: 'system', content: 'Be kind.' }, ...user('Hello, Sluice')] },
    });
    expect(status).toBe(200);
    expect(headers['content-type']).toBe('application/json');
    expect(headers['x-request-id']).toMatch(/^req_[0-9a-f]{32}$/);
    expect(json).toMatchObject({
      object: 'chat.completion',
      created: 1_767_225_600,
      model: 'echo',
      system_fingerprint: 'sandbox',
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hello, Sluice' }, finish_reason: 'stop' }],
    });
  });

  it('the same request has the same answer', async () => {
    const clock = new TestClock();
    const body = { model: 'gpt-4o', messages: user('Say something') };
    const first = await call(local, { clock, body });
    const second = await call(createLocal(), { clock, body });
    expect(second.text).toBe(first.text);
    const other = await call(local, { clock, body: { ...body, messages: user('Say more') } });
    expect(other.json.id).not.toBe(first.json.id);
  });

  it('counts tokens as gpt-tokenizer does', async () => {
    const text = 'Zählen, bitte: 日本語 🎉 <|endoftext|> and 12345.678 done.';
    const messages = [
      { role: 'system', content: 'You count.' },
      { role: 'user', content: text },
    ] as const;
    const { json } = await call(local, { body: { model: 'echo', messages } });
    expect(json.choices[0].message.content).toBe(text);
    const plain = { disallowedSpecial: new Set<string>() };
    expect(json.usage.completion_tokens).toBe(countTokens(text, plain));
    const simple = [
      { role: 'system', content: 'You count.' },
      { role: 'user', content: 'One two three' },
    ] as const;
    const again = await call(local, { body: { model: 'echo', messages: simple } });
    expect(again.json.usage.prompt_tokens).toBe(countChat([...simple]));
  });

  it('streams token by token, with usage only when asked for', async () => {
    const body = { model: 'echo', stream: true, messages: user('One two three four') };
    const events = eventsOf((await call(local, { body })).text);
    expect(events.at(-1)?.data).toBe('[DONE]');
    const chunks = events.slice(0, -1).map((event) => event.json);
    expect(chunks.every((chunk) => chunk.object === 'chat.completion.chunk' && !('usage' in chunk))).toBe(true);
    expect(chunks[0].choices[0].delta).toMatchObject({ role: 'assistant', content: '' });
    expect(chunks.map((chunk) => chunk.choices[0].delta.content ?? '').join('')).toBe('One two three four');
    expect(chunks.filter((chunk) => chunk.choices[0].delta.content)).toHaveLength(4);
    expect(chunks.at(-1).choices[0]).toMatchObject({ delta: {}, finish_reason: 'stop' });

    const asked = await call(local, { body: { ...body, stream_options: { include_usage: true } } });
    const withUsage = eventsOf(asked.text)
      .slice(0, -1)
      .map((event) => event.json);
    expect(withUsage.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
    expect(withUsage.at(-1)).toMatchObject({
      choices: [],
      usage: { completion_tokens: 4 },
    });
  });
});
