/** Answers as providers give them, written after their published definitions, and what each kind of caller is sent for them. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { JsonObject } from '../../src/kernel/json.ts';
import { providerById } from '../../src/providers/catalog.ts';
import { compatible } from '../../src/providers/openai-compatible.ts';
import type { Provider } from '../../src/providers/provider.ts';
import { awsEvent, awsException } from '../support/aws-frames.ts';
import { AWS, boundOf, CALLERS, type Caller, SSE, type Way } from './relayed.ts';

const FOLDER = join(import.meta.dirname, '__fixtures__', 'answers');

/** A provider that speaks Responses and nothing else. */
const RESPONSES_ONLY = compatible({
  id: 'responses',
  title: 'Responses',
  baseUrl: 'https://provider.test/v1',
  chat: false,
  serves: ['responses'],
});

/** A provider that speaks chat completions as they are published. */
const CHAT_ONLY = compatible({
  id: 'chat',
  title: 'Chat',
  baseUrl: 'https://provider.test/v1',
  chat: { maxCompletionTokens: true, developerRole: true },
});

export function providerOf(id: string): Provider {
  const provider = id === 'responses' ? RESPONSES_ONLY : id === 'chat' ? CHAT_ONLY : providerById(id);
  if (provider === undefined) throw new Error(`no provider ${id}`);
  return provider;
}

interface About {
  readonly provider: string;
  readonly model: string;
  /** Default true. */
  readonly strict?: boolean;
  /** Who can ask for it; default: everybody. */
  readonly callers?: readonly Caller[];
  /** What callers ask for beside a text. */
  readonly asked?: Partial<Record<Caller, JsonObject>>;
}

const HELLO: Record<Caller, JsonObject> = {
  chat: { messages: [{ role: 'user', content: 'Hi' }] },
  messages: { max_tokens: 8000, messages: [{ role: 'user', content: 'Hi' }] },
  responses: { input: 'Hi' },
};

export interface Case {
  readonly name: string;
  readonly folder: string;
  readonly way: (caller: Caller, stream: boolean) => Way;
  /** Callers that are served, `native` ones with the bytes as they came. */
  readonly callers: readonly Caller[];
  readonly native: readonly Caller[];
  readonly answer: Buffer | null;
  readonly stream: Buffer | null;
  /** Events of a stream of AWS. */
  readonly frames: readonly (readonly [type: string, payload: JsonObject])[];
  readonly type: string;
}

/** An event of AWS; a `!` before its type makes it an exception, a `chunk` holds the model's own. */
export function awsFrame(type: string, payload: JsonObject): Buffer {
  if (type.startsWith('!')) return awsException(type.slice(1), payload);
  const bytes = Buffer.from(JSON.stringify(payload)).toString('base64');
  return awsEvent(type, type === 'chunk' ? { bytes } : payload);
}

/** Events of AWS stand one a line: `["<type>", <payload>]`. */
const linesOf = (text: string): [string, JsonObject][] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as [string, JsonObject]);

function load(name: string): Case {
  const folder = join(FOLDER, name);
  const read = (file: string): Buffer | null =>
    existsSync(join(folder, file)) ? readFileSync(join(folder, file)) : null;
  const { provider, model, strict, callers, asked } = JSON.parse(String(read('case.json'))) as About;
  const way = (caller: Caller, stream: boolean): Way => ({
    caller,
    provider: providerOf(provider),
    asked: {
      model,
      ...HELLO[caller],
      ...(stream ? { stream: true } : null),
      ...(stream && caller === 'chat' ? { stream_options: { include_usage: true } } : null),
      ...asked?.[caller],
    },
    ...(strict === undefined ? null : { strict }),
  });
  const served = (callers ?? CALLERS).filter((caller) => boundOf(way(caller, false)) !== null);
  const lines = read('stream.jsonl');
  const frames = lines === null ? [] : linesOf(lines.toString());
  return {
    name,
    folder,
    way,
    callers: served,
    native: served.filter((caller) => {
      if (lines !== null) return false;
      const bound = boundOf(way(caller, false));
      if (bound === null || bound.convert !== null) return false;
      return bound.binding.answerTouches !== undefined || (bound.response ?? bound.stream) === undefined;
    }),
    answer: read('answer.json'),
    stream: lines === null ? read('stream.sse') : Buffer.concat(frames.map((frame) => awsFrame(...frame))),
    frames,
    type: lines === null ? SSE : AWS,
  };
}

export const CASES: readonly Case[] = readdirSync(FOLDER).sort().map(load);

/** What a fixture says; `UPDATE_GOLDEN=1` makes it say `made`, to be read by whoever changes it. */
export function golden(file: string, made: string): void {
  if (process.env.UPDATE_GOLDEN === '1') writeFileSync(file, made);
  expect(made).toBe(existsSync(file) ? readFileSync(file, 'utf8') : `(no file ${file}; UPDATE_GOLDEN=1 writes it)`);
}
