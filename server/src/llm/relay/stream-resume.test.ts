/** A stream that broke is gone on with by what the object of its shape says, whatever shape that is. */
import { expect, it } from 'vitest';
import type { JsonObject } from '../../kernel/json.ts';
import { OPERATIONS, type Operation } from '../../operations/operation.ts';
import { chatUsage } from '../../operations/shapes/chat/usage.ts';
import { type Resume, StreamJoin } from '../../operations/shapes/resume.ts';
import type { WireShape } from '../../operations/shapes/wire-shape.ts';
import { DeliveredPrefix } from './delivered-prefix.ts';
import { prefixOf, StreamResume } from './stream-resume.ts';

/** A shape that no provider has: events of `{"say"}`, with a picture now and then. */
class SayJoin extends StreamJoin {
  override join({ say, tokens }: JsonObject): JsonObject | null {
    if (typeof tokens === 'number') return { tokens: this.usage({ prompt_tokens: 1, completion_tokens: tokens }) };
    const text = typeof say === 'string' ? this.said(say) : '';
    return text === '' ? null : { say: text };
  }
}
const resume: Resume = {
  see(seen, { say, picture }) {
    if (picture !== undefined) seen.isPlain = false;
    if (typeof say === 'string') seen.text += say;
  },
  goingOn: (body, text) => ({ ...body, begin: text }),
  join: (seen, used) => new SayJoin(chatUsage, seen, used),
};
const saying: WireShape = { ...OPERATIONS.models.wire, resume };
const operation: Operation = { ...OPERATIONS.chat, wire: saying };

const event = (data: JsonObject): Buffer => Buffer.from(`data: ${JSON.stringify(data)}\n\n`);
const SPENT = { input: 10, output: 2, cache_read: 0, cache_write: 0, reasoning: 0, audio_input: 0, audio_output: 0 };

it('a shape that brings its own way is followed, gone on with and joined without another line', () => {
  const shown = new DeliveredPrefix(operation.wire.resume);
  shown.see([event({ say: 'Once ' }), event({ say: 'upon ' })]);
  expect([shown.continuable, shown.text, prefixOf(shown)]).toEqual([true, 'Once upon ', 'Once upon']);
  expect(resume.goingOn({ model: 'm' }, prefixOf(shown))).toEqual({ model: 'm', begin: 'Once upon' });

  const passed = new StreamResume(operation, shown, [SPENT]).pass([event({ say: ' a time' }), event({ tokens: 3 })]);
  // The space was seen already; the usage is that of both attempts.
  expect(passed.map(String)[0]).toBe('data: {"say":"a time"}\n\n');
  expect(passed.map(String)[1]).toContain('"prompt_tokens":11,"completion_tokens":5');
});

it('what such a shape cannot go on from is not gone on from, and neither is a shape without a way', () => {
  const pictured = new DeliveredPrefix(resume);
  pictured.see([event({ say: 'Look: ' }), event({ picture: 'x' })]);
  expect(pictured.continuable).toBe(false);

  const none = new DeliveredPrefix(OPERATIONS.models.wire.resume);
  none.see([event({ say: 'Once' })]);
  expect(none.continuable).toBe(false);
  expect(() => new StreamResume({ ...operation, wire: OPERATIONS.models.wire }, none, [])).toThrow('cannot be joined');
});

it('which text of a request may differ under a cached answer is said by the shape, too', () => {
  expect(OPERATIONS.chat.wire.similar({ messages: [{ role: 'user', content: 'Hi' }] }, 'match')?.text).toBe('Hi');
  expect(OPERATIONS.completions.wire.similar({ prompt: 'Hi', n: 1 }, 'match')).toEqual({ text: 'Hi', rest: { n: 1 } });
  expect(OPERATIONS.embeddings.wire.similar({ input: 'Hi' }, 'match')).toBeNull();
});
