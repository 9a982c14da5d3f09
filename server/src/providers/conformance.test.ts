import { describe, expect, it } from 'vitest';
import {
  contextOf,
  fixturesOf,
  objectOf,
  type RequestCase,
  runAnswer,
  runEvents,
  runRequest,
  TEST_KEY,
} from '../../test/support/provider-fixtures.ts';
import { isObject, type JsonObject } from '../kernel/json.ts';
import { deepFreeze } from '../operations/convert/testing.ts';
import { OPERATIONS, type OperationId } from '../operations/operation.ts';
import { eachField } from './account.ts';
import { PROVIDERS, providerById } from './catalog.ts';

/** Providers that answer in the process have no wire and are tested in their own folder. */
const REMOTE = [...PROVIDERS.values()].filter((provider) => provider.local === undefined);

/** What JSON makes of a value: raw numbers become digits, absent keys disappear. */
const wire = (value: unknown): string => JSON.stringify(value, null, 2);

describe.each(REMOTE.map((provider) => [provider.id, provider] as const))('%s', (_id, provider) => {
  const cases = fixturesOf(provider.id);
  const has = (operation: string, kind: string): boolean =>
    cases.some((one) => one.operation === operation && one.name.split('-')[0] === kind);

  it('has a fixture of a request for every operation it serves, and of an answer and stream wherever it changes them', () => {
    const missing = new Set<string>();
    for (const table of Object.values(provider.allBindings ?? { all: provider.bindings })) {
      for (const [operation, binding] of Object.entries(table)) {
        if (!has(operation, 'request')) missing.add(`${operation}.request`);
        if (binding.response !== undefined && !has(operation, 'answer')) missing.add(`${operation}.answer`);
        if (binding.stream !== undefined && !has(operation, 'stream')) missing.add(`${operation}.stream`);
      }
    }
    expect([...missing]).toEqual([]);
  });

  it('has a fixture of a request for every binding that a model may lead to', () => {
    const missing: string[] = [];
    for (const [name, table] of Object.entries(provider.allBindings ?? {})) {
      for (const operation of Object.keys(table) as OperationId[]) {
        const found = cases.some((one) => {
          const { body, settings } = one.name.startsWith('request') ? objectOf(one.in) : {};
          const model = isObject(body) ? String(body.model) : '';
          const credentials = { key: null, settings: isObject(settings) ? settings : {} };
          const led = provider.bindingsOf?.(model, credentials) ?? provider.bindings;
          return one.operation === operation && led[operation] === table[operation];
        });
        if (!found) missing.push(`${name}: ${operation}.request`);
      }
    }
    expect(missing).toEqual([]);
  });

  it.each(
    cases.filter(({ name }) => name.startsWith('request')).map((one) => [`${one.operation}.${one.name}`, one] as const),
  )('sends %s as its fixture says, twice the same, and never changes what it was given', (_name, one) => {
    const given = deepFreeze(objectOf(one.in)) as RequestCase;
    const first = wire(runRequest(provider, one.operation, given));
    expect(JSON.parse(first)).toEqual(JSON.parse(one.out));
    expect(wire(runRequest(provider, one.operation, given))).toBe(first);
  });

  it.each(
    cases.filter(({ name }) => name.startsWith('answer')).map((one) => [`${one.operation}.${one.name}`, one] as const),
  )('answers %s as its fixture says, twice the same, and never changes what it was given', (_name, one) => {
    const { asked, answer } = deepFreeze(objectOf(one.in));
    const run = (): string =>
      wire(runAnswer(provider, one.operation, answer as JsonObject, isObject(asked) ? asked : undefined));
    expect(JSON.parse(run())).toEqual(JSON.parse(one.out));
    expect(run()).toBe(run());
  });

  it.each(
    cases.filter(({ name }) => name.startsWith('stream')).map((one) => [`${one.operation}.${one.name}`, one] as const),
  )('streams %s as its fixture says, wherever the bytes are split', (_name, one) => {
    const bytes = Buffer.from(one.in);
    expect(runEvents(provider, one.operation, [bytes])).toBe(one.out);
    for (let at = 1; at < bytes.length; at++) {
      const split = runEvents(provider, one.operation, [bytes.subarray(0, at), bytes.subarray(at)]);
      if (split !== one.out) expect({ at, split }).toEqual({ at, split: one.out });
    }
    const single = Array.from(bytes, (_, i) => bytes.subarray(i, i + 1));
    expect(runEvents(provider, one.operation, single)).toBe(one.out);
  });

  it('leaves a request alone that holds none of the texts it reacts to', () => {
    const body: JsonObject = deepFreeze({ unrelated: [{ deep: true }] });
    for (const [operation, binding] of Object.entries(provider.bindings)) {
      if (binding.request === undefined || binding.requestTouches === undefined) continue;
      expect(binding.request(body, contextOf(operation as OperationId, { body }))).toBe(body);
    }
  });

  it('names its settings as headers can, and asks for none that accounts cannot hold', () => {
    for (const [name, field] of eachField(provider.account.fields)) {
      expect(name).toMatch(/^[a-z][a-z0-9_]*$/);
      expect([name, field.required === true && field.stored === false]).toEqual([name, false]);
    }
  });

  it('is reached over https, with its version path and no trailing slash, or only at a custom host', () => {
    const url = provider.baseUrl({ key: null, settings: {} });
    if (url === null) expect(provider.needsKey).toBe(false);
    else expect(new URL(url).href.replace(/\/$/, '')).toBe(url);
    expect(url ?? 'https:').toMatch(/^https:/);
  });

  it('sends the key in one header only, and none without a key', () => {
    const context = contextOf('models', {});
    const headers: string[] = [];
    provider.authorize(headers, context);
    expect(headers.length % 2).toBe(0);
    expect(headers.filter((text) => text.includes(TEST_KEY))).toHaveLength(1);
    expect(headers.filter((_, i) => i % 2 === 0)).toEqual(
      headers.filter((_, i) => i % 2 === 0).map((n) => n.toLowerCase()),
    );
    const bare: string[] = [];
    provider.authorize(bare, { ...context, credentials: { key: null, settings: {} } });
    expect(bare.some((text) => ['authorization', 'x-api-key'].includes(text))).toBe(false);
  });
});

it('knows providers by id and by alias, and nothing else', () => {
  for (const provider of PROVIDERS.values()) expect(providerById(provider.id)).toBe(provider);
  expect(providerById('x-ai')?.id).toBe('xai');
  expect(providerById('')).toBeUndefined();
  expect(providerById('constructor')).toBeUndefined();
});

it('refuses dot segments in passed-through paths', () => {
  const openai = providerById('openai');
  const path = (rest: string): string | undefined =>
    openai?.bindings.proxy?.path(contextOf('proxy', { pathParams: { '*': rest } }));
  expect(path('assistants/a b')).toBe('/assistants/a%20b');
  expect(path('models/ft:gpt@x')).toBe('/models/ft:gpt@x');
  for (const rest of ['..', '../admin', 'a/./b', 'a/../../b']) expect(() => path(rest)).toThrow();
});

it('keeps a path parameter in one segment', () => {
  const openai = providerById('openai');
  const path = openai?.bindings.model?.path(contextOf('model', { pathParams: { model: 'org/../x?y#z' } }));
  expect(path).toBe('/models/org%2F..%2Fx%3Fy%23z');
  expect(OPERATIONS.model.path).toBe('/models/:model');
});
