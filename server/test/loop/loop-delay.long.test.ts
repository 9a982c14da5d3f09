import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BODY, type LoopCase, type LoopServer, MB, SMALL, startLoopServer } from '../support/loop.ts';
import { sampled } from '../support/sampled.ts';

/** Milliseconds of CPU for which one turn of the event loop may last. */
const BAR = 20;

let loop: LoopServer;
beforeAll(async () => {
  loop = await startLoopServer();
}, 60_000);
afterAll(async () => loop?.stop());

const fill = (unit: string, bytes: number, join = ','): string =>
  Array(Math.floor(bytes / (unit.length + join.length)))
    .fill(unit)
    .join(join);
const keysOf = (bytes: number): string => {
  const out: string[] = [];
  for (let size = 0, i = 0; size < bytes; i++) {
    const one = `"${i.toString(36)}":1`;
    out.push(one);
    size += one.length + 1;
  }
  return out.join(',');
};

/** What a parser has most work with, as the members of an object, in about so many bytes. */
const WORST: Readonly<Record<string, (bytes: number) => string>> = {
  'many keys': (bytes) => keysOf(bytes),
  'empty arrays': (bytes) => `"x":[${fill('[]', bytes)}]`,
  'empty objects': (bytes) => `"x":[${fill('{}', bytes)}]`,
  'objects of one key': (bytes) => `"x":[${fill('{"k":1}', bytes)}]`,
  numbers: (bytes) => `"x":[${fill('1', bytes)}]`,
  'long numbers': (bytes) => `"x":[${fill('12345678901234567890123', bytes)}]`,
  fractions: (bytes) => `"x":[${fill('0.012345678901234567', bytes)}]`,
  'infinite numbers': (bytes) => `"x":[${fill('1e999', bytes)}]`,
  'empty texts': (bytes) => `"x":[${fill('""', bytes)}]`,
  'white space': (bytes) => `"x":1${' \n\t'.repeat(bytes / 3)}`,
  'one long key': (bytes) => `"${'k'.repeat(bytes)}":1`,
  'one key of escapes': (bytes) => `"${'\\n'.repeat(bytes / 2)}":1`,
  'one long number': (bytes) => `"x":${'1'.repeat(bytes)}`,
  nesting: (bytes) => `"x":${'['.repeat(bytes / 2)}${']'.repeat(bytes / 2)}`,
};
/** A picture in base64, where chat has it. */
const picture = (bytes: number): string =>
  event(
    `{"id":"c","model":"m","choices":[{"index":0,"delta":{"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,${'iVBORw0KGgo'.repeat(bytes / 11)}"}}]}}]}`,
  );
const TEXTS: Readonly<Record<string, (bytes: number) => string>> = {
  'one long text': (bytes) => `"x":"${'a'.repeat(bytes)}"`,
  'a text of escapes': (bytes) => `"x":"${'\\n'.repeat(bytes / 2)}"`,
  'a text of quotes': (bytes) => `"x":"${'\\"'.repeat(bytes / 2)}"`,
  'a text of other scripts': (bytes) => `"x":"${'é€'.repeat(bytes / 5)}"`,
};
const withMembers = (text: string, members: string): string => `${text.slice(0, -1)},${members}}`;
const all = Object.entries({ ...WORST, ...TEXTS });

const CHUNK = '{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}';
const event = (data: string): string => `data: ${data}\n\n`;

const cases: LoopCase[] = [
  ...all.flatMap(([what, make]): LoopCase[] => [
    {
      title: `request passed: ${what}`,
      slug: 'openai',
      path: '/chat/completions',
      body: withMembers(SMALL, make(BODY)),
    },
    { title: `request converted: ${what}`, slug: 'openai', body: withMembers(SMALL, make(BODY)) },
    {
      title: `request converted, as heavy as may be: ${what}`,
      slug: 'openai',
      body: withMembers(SMALL, make(0.3 * MB)),
    },
    ...[15, 0.3].flatMap((mb): LoopCase[] => {
      const answer = () => ({ parts: [withMembers('{"id":"c","choices":[]}', make(mb * MB))] });
      return [
        { title: `answer of ${mb} MB converted: ${what}`, slug: 'openai', answer },
        { title: `answer of ${mb} MB passed: ${what}`, slug: 'openai', path: '/chat/completions', answer },
      ];
    }),
    // Of 1.5 MB: as large as one may be that is converted, but for its pictures.
    ...[7, 1.5, 0.3].flatMap((mb): LoopCase[] => {
      const one = event(withMembers(CHUNK, `"usage":{},${make(mb * MB)}`));
      const answer = () => ({ type: 'text/event-stream', parts: [one, one, one, event('[DONE]')] });
      const streamed = withMembers(SMALL, '"stream":true');
      return [
        { title: `events of ${mb} MB converted: ${what}`, slug: 'openai', body: streamed, answer },
        {
          title: `events of ${mb} MB passed: ${what}`,
          slug: 'openai',
          path: '/chat/completions',
          body: streamed,
          answer,
        },
      ];
    }),
  ]),
  {
    title: 'pictures of 5 MB converted, repeated at the end',
    slug: 'together-ai',
    path: '/responses',
    body: '{"model":"m","input":"Hi","stream":true}',
    answer: () => ({
      type: 'text/event-stream',
      parts: [
        event(CHUNK),
        picture(5 * MB),
        picture(5 * MB),
        picture(5 * MB),
        event(CHUNK.replace('{}', '{},"finish_reason":"stop"')),
        event('[DONE]'),
      ],
    }),
  },
  ...[':\n\n', 'data:\n\n', '\n', '\r', 'a\n', event('{}'), event(CHUNK), event('1')].flatMap((unit): LoopCase[] => {
    const part = Buffer.from(unit.repeat(MB / unit.length));
    const answer = () => ({ type: 'text/event-stream', parts: [event(CHUNK), ...Array<Buffer>(8).fill(part)] });
    const streamed = withMembers(SMALL, '"stream":true');
    const what = JSON.stringify(unit.slice(0, 20));
    return [
      { title: `a flood of ${what} converted`, slug: 'openai', body: streamed, answer },
      { title: `a flood of ${what} passed`, slug: 'openai', path: '/chat/completions', body: streamed, answer },
    ];
  }),
];

describe('the event loop is not held for longer than 20 ms by', () => {
  it.each(sampled(cases, ({ title }) => title))(
    '$title',
    async (one) => expect(await loop.measured(one, BAR)).toBeLessThan(BAR),
    120_000,
  );
});
