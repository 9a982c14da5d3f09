import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/json.ts';
import { MAX_WEIGHT, parseExact } from '../../src/kernel/json-exact.ts';
import { OPERATIONS, type OperationId } from '../../src/operations/operation.ts';
import { bindingFor } from '../../src/providers/binding.ts';
import { PROVIDERS } from '../../src/providers/catalog.ts';
import type { CallContext } from '../../src/providers/provider.ts';
import { slowness } from '../support/cost.ts';

/** Milliseconds of CPU of the heaviest body that may be, beside reading and writing its text. Few bodies weigh a tenth of that. */
const BAR = 60;
const RUNS = 3;

const cpu = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
};

/** As many of a value as may be, less some room for what is around them. */
function list(value: string): string {
  const bare = value.replace(/"[^"]*"/g, '');
  const count = (what: RegExp) => bare.match(what)?.length ?? 0;
  const weight = 1 + count(/,/g) + 4 * count(/[[{]/g) + 12 * count(/:/g);
  return `[${Array(Math.floor((MAX_WEIGHT - 1000) / weight))
    .fill(value)
    .join(',')}]`;
}
const turn = '{"role":"user","content":"Hi"}';
const part = '{"type":"text","text":"Hi"}';
const call = '{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}';

/** Bodies as heavy as may be, by what they have much of. */
const REQUESTS: Readonly<Record<string, string>> = {
  'unknown members': `{"model":"m","messages":[${turn}],"input":"Hi","x":${list('[]')}}`,
  turns: `{"model":"m","max_tokens":9,"messages":${list(turn)}}`,
  parts: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":${list(part)}}]}`,
  calls: `{"model":"m","max_tokens":9,"messages":[${turn},{"role":"assistant","content":null,"tool_calls":${list(call)}},${turn}]}`,
  texts: `{"model":"m","input":${list('""')},"query":"q","documents":["d"]}`,
  documents: `{"model":"m","query":"q","documents":${list('"d"')}}`,
  items: `{"model":"m","input":${list(turn)}}`,
};
const ANSWERS: Readonly<Record<string, string>> = {
  'unknown members': `{"id":"c","model":"m","x":${list('[]')}}`,
  choices: `{"id":"c","model":"m","choices":${list('{"index":0,"message":{"content":"a"},"finish_reason":"stop"}')}}`,
  content: `{"id":"c","model":"m","role":"assistant","stop_reason":"end_turn","content":${list(part)}}`,
  output: `{"id":"c","model":"m","status":"completed","output":${list('{"type":"message","content":[]}')}}`,
  candidates: `{"candidates":${list('{"content":{"parts":[]}}')}}`,
  data: `{"data":${list('{"id":"m"}')}}`,
  models: `{"models":${list('{"name":"m"}')}}`,
  floats: `{"data":[{"embedding":${list('0.1')}}],"embeddings":[]}`,
};

const contextOf = (operation: OperationId): CallContext => ({
  operation,
  model: 'm',
  stream: false,
  credentials: { key: null, settings: {} },
  pathParams: { model: 'm' },
  header: () => undefined,
  strict: true,
  now: () => 0,
});

function cost(text: string, work: (body: JsonObject) => unknown): number {
  let best = Number.POSITIVE_INFINITY;
  for (let run = 0; run < RUNS && best >= BAR; run++) {
    const body = parseExact(text) as JsonObject;
    const start = cpu();
    try {
      work(body);
    } catch {
      // A refusal is an end too.
    }
    const ms = cpu() - start;
    best = Math.min(best, ms < BAR ? ms : ms / slowness());
  }
  return best;
}

describe.each([...PROVIDERS])('%s', (_id, provider) => {
  it('transforms the heaviest bodies, answers and events in a short turn', () => {
    const slow: Record<string, number> = {};
    const note = (title: string, ms: number) => {
      if (ms >= BAR) slow[title] = Math.round(ms);
    };
    for (const id of Object.keys(OPERATIONS) as OperationId[]) {
      const bound = bindingFor(provider, id);
      if (bound === null) continue;
      const context = contextOf(id);
      for (const [what, text] of Object.entries(REQUESTS))
        if (bound.request !== undefined)
          note(
            `${id} request: ${what}`,
            cost(text, (body) => bound.request?.(body, context)),
          );
      for (const [what, text] of Object.entries(ANSWERS))
        if (bound.response !== undefined)
          note(
            `${id} answer: ${what}`,
            cost(text, (body) => bound.response?.(body, { ...context, body: {} })),
          );
    }
    expect(slow).toEqual({});
  });
});
