/** Answers and events that are damaged in one place: told as a failure, or as if nothing had been; never as half a success. */
import { describe, expect, it } from 'vitest';
import { isObject, type JsonObject, type JsonValue } from '../../src/kernel/json.ts';
import { parseExact } from '../../src/kernel/json-exact.ts';
import { parseEvent, SseSplitter } from '../../src/kernel/sse.ts';
import { asArray, asObject } from '../../src/operations/convert/fields.ts';
import { awsFrame, CASES, type Case } from './cases.ts';
import { AWS, type Caller, JSON_TYPE, Relayed, SSE, type Told } from './relayed.ts';

type Path = readonly (string | number)[];

const nested = (depth: number): JsonValue => {
  let value: JsonValue = 1;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
};

const WRONG: readonly JsonValue[] = [17, true, {}, [], 'constructor', nested(300)];
/** Lists of what no list of an answer holds. */
const WRONG_LISTS: readonly JsonValue[] = [[[]], [17], [null]];

const kindOf = (value: unknown): string => (Array.isArray(value) ? 'list' : value === null ? 'null' : typeof value);

/** What may stand in place of a value by mistake: of another kind, or nothing. Another one of its kind is another answer. */
function wrongFor(value: JsonValue, at: Path): (JsonValue | undefined)[] {
  const others = WRONG.filter((one) => kindOf(one) !== kindOf(value) && !(value === null && typeof one === 'string'));
  // Some servers give the object itself.
  const wrong = at.at(-1) === 'arguments' ? others.filter((one) => !isObject(one)) : others;
  return [...wrong, ...(kindOf(value) === 'list' ? WRONG_LISTS : []), null, undefined];
}

/** Arguments of a call may be anything. */
const FREE = new Set(['input', 'args']);

function* placesIn(value: JsonValue, at: Path = []): Generator<Path> {
  if (at.length > 0) yield at;
  const last = at.at(-1);
  if (typeof last === 'string' && FREE.has(last) && isObject(value)) return;
  const inner = Array.isArray(value) ? value.entries() : isObject(value) ? Object.entries(value) : [];
  for (const [key, one] of inner) yield* placesIn(one ?? null, [...at, key]);
}

function valueAt(value: JsonValue, at: Path): JsonValue {
  let found: unknown = value;
  for (const key of at) found = (found as Record<string | number, unknown>)[key];
  return found as JsonValue;
}

/** A copy with another value at a place; undefined takes it away. */
function changed(value: JsonValue, [key, ...rest]: Path, to: JsonValue | undefined): JsonValue {
  if (key === undefined) return to ?? null;
  const copy = (Array.isArray(value) ? [...value] : { ...asObject(value) }) as Record<string | number, JsonValue>;
  if (rest.length === 0 && to === undefined) {
    if (Array.isArray(copy)) copy.splice(Number(key), 1);
    else delete copy[key];
  } else copy[key] = changed(copy[key] ?? null, rest, to);
  return copy as unknown as JsonValue;
}

interface Said {
  text: string;
  calls: string[];
  end: string;
}

function eventsIn(text: string): JsonObject[] {
  return new SseSplitter()
    .push(Buffer.from(text))
    .flatMap((bytes) => parseEvent(bytes) ?? [])
    .filter(({ data }) => data !== '[DONE]')
    .map(({ data }) => JSON.parse(data) as JsonObject);
}

/** All that a caller is told to show or to do. */
function saidIn(caller: Caller, streamed: boolean, body: string): Said {
  const said: Said = { text: '', calls: [], end: '' };
  const calls = new Map<unknown, string>();
  const call = (key: unknown, more: unknown[]): void => {
    calls.set(key, (calls.get(key) ?? '') + more.filter((one) => one !== undefined && one !== '').join('|'));
  };
  for (const event of streamed ? eventsIn(body) : [JSON.parse(body) as JsonObject]) {
    if (caller === 'chat')
      for (const choice of asArray(event.choices)) {
        const { message, delta, finish_reason } = asObject(choice);
        const { content, refusal, tool_calls, images } = asObject(message ?? delta);
        said.text += `${content ?? ''}${refusal ?? ''}${asArray(images).length > 0 ? JSON.stringify(images) : ''}`;
        asArray(tool_calls).forEach((one, i) => {
          const { index, id, function: called } = asObject(one);
          call(index ?? i, [id, asObject(called).name, asObject(called).arguments]);
        });
        said.end += finish_reason ?? '';
      }
    else if (caller === 'messages') {
      const blocks = streamed ? [event.content_block ?? null] : asArray(event.content);
      blocks.forEach((block, i) => {
        const { type, text, id, name, input } = asObject(block);
        if (type === 'text') said.text += text;
        if (type === 'tool_use') call(event.index ?? i, [id, name, streamed ? '' : JSON.stringify(input)]);
      });
      const { text, partial_json, stop_reason } = asObject(event.delta);
      said.text += text ?? '';
      if (partial_json !== undefined) call(event.index, [partial_json]);
      said.end += event.stop_reason ?? stop_reason ?? '';
    } else {
      const { output, status } = streamed ? asObject(event.response) : event;
      if (status === 'in_progress') continue;
      for (const item of asArray(output)) {
        const { content, call_id, name, arguments: text, result } = asObject(item);
        for (const part of asArray(content)) said.text += asObject(part).text ?? asObject(part).refusal ?? '';
        if (call_id !== undefined) call(call_id, [call_id, name, text]);
        if (result !== undefined) said.text += result;
      }
      said.end += status ?? '';
    }
  }
  said.calls = [...calls.values()];
  return said;
}

/** Members that may be absent or null by the definitions of their shapes, with what they hold. */
const OPTIONAL: Readonly<Record<string, ReadonlySet<string>>> = {
  chat: new Set([
    'function_call',
    'choices',
    'delta',
    'content',
    'refusal',
    'tool_calls',
    'arguments',
    'function',
    'finish_reason',
    'index',
    'id',
    'name',
    'type',
    'usage',
  ]),
  gemini: new Set([
    'candidates',
    'content',
    'parts',
    'text',
    'functionCall',
    'inlineData',
    'args',
    'finishReason',
    'id',
    'mimeType',
    'data',
    'thought',
    'promptFeedback',
    'blockReason',
  ]),
  cohere: new Set(['content', 'tool_calls']),
  messages: new Set(['stop_reason', 'text']),
  converse: new Set(['text', 'toolUse', 'citationsContent', 'content', 'start']),
  responses: new Set(['arguments', 'call_id', 'content', 'reason', 'status', 'incomplete_details', 'response']),
};
/** Lists of which one may be less. */
const LISTS = new Set(['choices', 'tool_calls', 'candidates', 'parts', 'content', 'output']);

const isOptional = (name: string, at: Path): boolean => {
  const last = at.at(-1);
  if (typeof last === 'number') return LISTS.has(String(at.at(-2)));
  return OPTIONAL[name.split('-')[0] ?? '']?.has(String(last)) === true;
};

interface Fault {
  readonly at: string;
  readonly became: string;
  readonly told: string;
}

/** Everything one damaged answer may not be. */
function faultOf(
  one: Case,
  caller: Caller,
  streamed: boolean,
  told: Told,
  before: Said,
  to: JsonValue | undefined,
  at: Path,
): string | null {
  if (told.outcome !== 'ok') {
    if (streamed && told.status === 200 && !/"error"|response\.failed/.test(told.text))
      return 'failed without an error';
    return told.status === 200 || told.status >= 400 ? null : `failed with ${told.status}`;
  }
  const said = saidIn(caller, streamed, told.text);
  if (JSON.stringify(said) === JSON.stringify(before)) return null;
  const nothing = to === undefined || to === null || (Array.isArray(to) && to.length === 0);
  if (nothing && isOptional(one.name, at)) return null;
  return `${JSON.stringify(before)} became ${JSON.stringify(said)}`;
}

/** Events of InvokeModel are passed as the model writes them. */
const SHOWN = CASES.filter(({ name }) => !/^invoke|-(?:cut|error|failed)$/.test(name));

describe.each(SHOWN.map((one) => [one.name, one] as const))('%s', (_name, one) => {
  const { answer, stream, type, way, callers, native } = one;
  for (const caller of callers.filter((served) => !native.includes(served))) {
    if (answer !== null)
      it(`is never half an answer to ${caller}`, () => {
        const relayed = new Relayed(way(caller, false));
        const whole = parseExact(answer.toString());
        const before = saidIn(caller, false, relayed.answer([answer], JSON_TYPE).text);
        const faults: Fault[] = [];
        for (const at of placesIn(whole))
          for (const to of wrongFor(valueAt(whole, at), at)) {
            const bytes = Buffer.from(JSON.stringify(changed(whole, at, to)));
            const told = relayed.answer([bytes], JSON_TYPE);
            const fault = faultOf(one, caller, false, told, before, to, at);
            if (fault !== null)
              faults.push({ at: at.join('.'), became: JSON.stringify(to)?.slice(0, 40) ?? 'absent', told: fault });
          }
        expect(faults).toEqual([]);
      });
    if (stream === null) continue;
    it(`is never half a stream to ${caller}`, () => {
      const relayed = new Relayed(way(caller, true));
      const events = upstreamEvents(one);
      const before = saidIn(caller, true, relayed.answer([stream], type).text);
      const faults: Fault[] = [];
      events.forEach((event, i) => {
        if (event.data === null) return;
        for (const at of placesIn(event.data))
          for (const to of wrongFor(valueAt(event.data, at), at)) {
            const damaged = changed(event.data, at, to);
            const bytes = events.map((other, j) => (i === j ? event.with(damaged) : other.bytes));
            const told = relayed.answer(bytes, type);
            const fault = faultOf(one, caller, true, told, before, to, at);
            if (fault !== null)
              faults.push({
                at: `${i}: ${at.join('.')}`,
                became: JSON.stringify(to)?.slice(0, 40) ?? 'absent',
                told: fault,
              });
          }
      });
      expect(faults).toEqual([]);
    });
  }
});

interface UpstreamEvent {
  readonly bytes: Buffer;
  /** Null for comments and end markers. */
  readonly data: JsonObject | null;
  readonly with: (data: JsonValue) => Buffer;
}

function upstreamEvents({ stream, type, frames }: Case): UpstreamEvent[] {
  if (type === AWS)
    return frames.map(([name, data]) => ({
      bytes: awsFrame(name, data),
      data,
      with: (other) => awsFrame(name, other as JsonObject),
    }));
  return new SseSplitter().push(stream ?? Buffer.alloc(0)).map((bytes) => {
    const event = parseEvent(bytes);
    const data = event === null || event.data === '[DONE]' ? null : (parseExact(event.data) as JsonObject);
    const name = event?.event == null ? '' : `event: ${event.event}\n`;
    return { bytes, data, with: (other) => Buffer.from(`${name}data: ${JSON.stringify(other)}\n\n`) };
  });
}

/** Bytes as a socket gives them. */
function asReceived(bytes: Buffer): Buffer[] {
  const size = 65_536;
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size));
}

describe('answers beyond any measure', () => {
  const texts = CASES.filter(
    ({ name, stream }) => /^(?:chat-only|messages|gemini|responses)-text$/.test(name) && stream !== null,
  );
  const ways = texts.flatMap((one) =>
    one.callers.filter((caller) => !one.native.includes(caller)).map((caller) => [one.name, caller, one] as const),
  );

  it.each(ways)(
    '%s to %s: brackets within brackets, and events of megabytes, fail clearly',
    (_name, caller, { way, answer, stream }) => {
      const [unary, streaming] = [new Relayed(way(caller, false)), new Relayed(way(caller, true))];
      const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
      const bodies = [
        deep,
        `{"choices":${deep}}`,
        `{"type":"message_start","message":${deep},"usage":${deep}}`,
        '',
        'null',
        '"x"',
        '[]',
        '{',
        '{}',
      ];
      for (const body of bodies) {
        expect(unary.answer([Buffer.from(body)], JSON_TYPE)).toMatchObject({ status: 502, outcome: 'failed' });
        const told = streaming.answer([Buffer.from(`data: ${body}\n\n`)], SSE);
        expect([body.slice(0, 40), told.outcome]).toEqual([body.slice(0, 40), 'failed']);
      }
      // One long text is no fault; one that no event can be that long is.
      const long = (size: number): Buffer => Buffer.from(String(stream).replace('Grü', `Grü${'x'.repeat(size)}`));
      const whole = streaming.answer(asReceived(long(1_000_000)), SSE);
      expect([whole.outcome, saidIn(caller, true, whole.text).text.length > 1_000_000]).toEqual(['ok', true]);
      expect(streaming.answer(asReceived(long(9_000_000)), SSE).outcome).toBe('failed');
      // A larger one goes to a thread, whose answer comes after this relay is looked at.
      expect(
        unary.answer([Buffer.from(String(answer).replace('Grü', `Grü${'x'.repeat(100_000)}`))], JSON_TYPE).outcome,
      ).toBe('ok');
    },
  );
});
