import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FakeUpstream, startUpstream } from './support/upstream.ts';

/** Milliseconds of CPU for which one turn of the event loop may last, and runs of which the best counts. */
const BAR = 20;
const RUNS = 5;
const MB = 1024 * 1024;
const BODY = 31 * MB;

let upstream: FakeUpstream;
let child: ChildProcess;
let url = '';
let key = '';

async function told(question: string): Promise<Record<string, never>> {
  const answer = once(child, 'message');
  child.send(question);
  return (await answer)[0] as Record<string, never>;
}

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => {
    response.end();
  });
  child = fork(
    fileURLToPath(new URL('./support/children/loop-server.ts', import.meta.url)),
    [JSON.stringify({ port: upstream.port })],
    { execArgv: ['--expose-gc', '--max-semi-space-size=8'] },
  );
  const [{ url: at, key: own }] = (await once(child, 'message')) as [{ url: string; key: string }];
  url = at;
  key = own;
}, 60_000);

afterAll(async () => {
  if (child?.connected) {
    const ended = once(child, 'exit');
    child.send('stop');
    await ended;
  }
  await upstream?.stop();
});

interface Answered {
  readonly type?: string;
  readonly parts: readonly (string | Buffer)[];
}

interface Case {
  readonly title: string;
  readonly path?: string;
  readonly slug: string;
  readonly body?: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
  readonly answer?: () => Answered;
}

/** What may take longer, and why. Nothing else may. */
const EXCEPTIONS: readonly (readonly [title: RegExp, ms: number, why: string])[] = [
  [/^events of 7 MB/, 60, 'a whole event of 7 MB is read and written again'],
];
const barOf = (title: string): number => EXCEPTIONS.find(([which]) => which.test(title))?.[1] ?? BAR;

const SMALL = '{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":9}';

async function longestTurn({ path = '/messages', slug, body = SMALL, headers, answer }: Case): Promise<number> {
  const { type = 'application/json', parts } = answer?.() ?? { parts: ['{}'] };
  upstream.answer = async (_request, response) => {
    response.writeHead(200, { 'content-type': type });
    response.on('error', () => {});
    for (const part of parts) {
      if (response.destroyed) return;
      if (!response.write(part)) await Promise.race([once(response, 'drain'), once(response, 'close')]);
    }
    response.end();
  };
  await told('watch');
  const given = await fetch(`${url}/v1${path}`, {
    method: 'POST',
    headers: {
      'x-gateway-api-key': key,
      'x-gateway-provider': `@${slug}`,
      'content-type': 'application/json',
      ...headers,
    },
    body,
  });
  try {
    for await (const _ of given.body ?? []) {
      // Read to its end, or to where it is cut.
    }
  } catch {
    // A cut is an answer too.
  }
  upstream.received.length = 0;
  return (await told('tell')).longest as unknown as number;
}

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
const TEXTS: Readonly<Record<string, (bytes: number) => string>> = {
  'one long text': (bytes) => `"x":"${'a'.repeat(bytes)}"`,
  'a text of escapes': (bytes) => `"x":"${'\\n'.repeat(bytes / 2)}"`,
  'a text of other scripts': (bytes) => `"x":"${'é€'.repeat(bytes / 5)}"`,
};
const withMembers = (text: string, members: string): string => `${text.slice(0, -1)},${members}}`;
const all = Object.entries({ ...WORST, ...TEXTS });

const measured = async (one: Case): Promise<number> => {
  let best = Number.POSITIVE_INFINITY;
  for (let run = 0; run < RUNS && best >= barOf(one.title); run++) best = Math.min(best, await longestTurn(one));
  if (process.env.SLUICE_SHOW_DELAYS !== undefined)
    process.stderr.write(`${one.title.padEnd(60)} ${best.toFixed(1)}\n`);
  return best;
};

const CHUNK = '{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}';
const event = (data: string): string => `data: ${data}\n\n`;

const cases: Case[] = [
  ...all.flatMap(([what, make]): Case[] => [
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
    ...[15, 0.3].flatMap((mb): Case[] => {
      const answer = () => ({ parts: [withMembers('{"id":"c","choices":[]}', make(mb * MB))] });
      return [
        { title: `answer of ${mb} MB converted: ${what}`, slug: 'openai', answer },
        { title: `answer of ${mb} MB passed: ${what}`, slug: 'openai', path: '/chat/completions', answer },
      ];
    }),
    ...[7, 0.3].flatMap((mb): Case[] => {
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
  ...[':\n\n', 'data:\n\n', '\n', '\r', 'a\n', event('{}'), event(CHUNK), event('1')].flatMap((unit): Case[] => {
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

describe('the event loop is not held for longer than 20 ms, or a named exception, by', () => {
  it.each(cases)(
    '$title',
    async (one) => {
      expect(await measured(one)).toBeLessThan(barOf(one.title));
    },
    120_000,
  );
});
