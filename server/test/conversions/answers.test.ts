import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseExact } from '../../src/kernel/json-exact.ts';
import { CASES, golden } from './cases.ts';
import { readAnswer, readStream } from './clients.ts';
import { CALLERS, type Caller, JSON_TYPE, Relayed } from './relayed.ts';

const pretty = (text: string): string => `${JSON.stringify(parseExact(text), null, 2)}\n`;

/** The last event of a stream that is complete. */
const END: Record<Caller, RegExp> = {
  chat: /\ndata: \[DONE\]\n\n$/,
  messages: /event: message_stop\ndata: [^\n]+\n\n$/,
  responses: /event: response\.(?:completed|incomplete)\ndata: [^\n]+\n\n$/,
};
const ERROR: Record<Caller, RegExp> = {
  chat: /data: \{"error":[^\n]+\n\n$/,
  messages: /event: error\ndata: \{"type":"error",[^\n]+\n\n$/,
  responses: /event: (?:error|response\.failed)\ndata: [^\n]+\n\n$/,
};

it('every shape of provider is answered to every shape of caller', () => {
  const pairs = CASES.flatMap(({ name, callers }) => callers.map((caller) => `${name.split('-')[0]} to ${caller}`));
  const served = ['chat', 'messages', 'gemini', 'converse', 'cohere', 'responses'].flatMap((shape) =>
    CALLERS.map((one) => `${shape} to ${one}`),
  );
  expect(new Set(pairs)).toEqual(new Set([...served, 'invoke to messages']));
});

describe.each(CASES.map((one) => [one.name, one] as const))(
  '%s',
  (name, { folder, way, callers, native, answer, stream, type }) => {
    for (const caller of callers) {
      const passes = native.includes(caller);
      if (answer !== null)
        it(`is answered to ${caller}`, () => {
          const { status, text, outcome } = new Relayed(way(caller, false)).answer([answer], JSON_TYPE);
          if (passes) expect(text).toBe(answer.toString());
          else
            golden(
              join(folder, `answer.${caller}.json`),
              pretty(status === 200 ? text : `{"status":${status},"body":${text}}`),
            );
          // A response that failed is told with status 200.
          expect(outcome).toBe(status === 200 && !name.endsWith('-failed') ? 'ok' : 'failed');
        });
      if (stream === null) continue;
      it(`streams to ${caller}, to an end or an error`, () => {
        const { text, outcome } = new Relayed(way(caller, true)).answer([stream], type);
        if (!passes) golden(join(folder, `stream.${caller}.sse`), text);
        else expect(text.startsWith(stream.toString())).toBe(true);
        expect([END[caller].test(text), ERROR[caller].test(text)]).toEqual([outcome === 'ok', outcome !== 'ok']);
      });
      if (answer === null) continue;
      it(`is the same for the client of ${caller}, streamed or not`, async () => {
        const whole = new Relayed(way(caller, false)).answer([answer], JSON_TYPE);
        const streamed = new Relayed(way(caller, true)).answer([stream], type);
        if (whole.status !== 200) return expect(streamed.outcome).toBe('failed');
        expect(await readStream(caller, streamed.text)).toEqual(readAnswer(caller, whole.text));
        if (!passes) expect([streamed.usage, streamed.model]).toEqual([whole.usage, whole.model]);
      });
    }
  },
);
