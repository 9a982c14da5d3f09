import { expect, test } from 'vitest';
import { moreOf, requestOf, writtenOf } from './request.ts';

test('a replayed request is sent as it was stored, however it was written', () => {
  const bodies = [
    { model: 'm', messages: [{ role: 'user', content: 'Hi' }] },
    {
      model: 'm',
      messages: [
        { role: 'system', content: 'S' },
        { role: 'user', content: 'Hi' },
      ],
      temperature: 0,
    },
    {
      model: 'm',
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }],
      tools: [{ type: 'function' }],
    },
    {
      model: 'm',
      messages: [
        { role: 'user', content: 'a' },
        { role: 'assistant', content: 'b' },
      ],
    },
  ];
  for (const body of bodies) {
    const found = writtenOf(body);
    const sent = found && requestOf(found.model ?? '', found.written);
    expect(sent).toEqual({ ...body, stream: true, stream_options: { include_usage: true } });
  }
  expect(writtenOf({ input: 'an embedding' })).toBeNull();
});

test('further parameters that are no object are a fault, and none are fine', () => {
  expect([moreOf('').fault, moreOf('{"a":1}').fault]).toEqual([null, null]);
  for (const text of ['[1]', '{', '3']) expect(moreOf(text).fault).toMatch(/JSON object/);
});
