import { Readable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonValue } from '../kernel/json.ts';
import { parseExact } from '../kernel/json-exact.ts';
import type { Batch, JobRequest } from '../operations/training.ts';
import type { AdapterAnswer, AdapterContext, AdapterRequest } from './training.ts';
import {
  cancelled,
  epochOf,
  failureOf,
  idSegment,
  integerOf,
  multiplierOf,
  Refusals,
  rateOf,
  sentObject,
  slicePage,
  unknownMethodMembers,
  urlOf,
} from './training-calls.ts';

const answer = (status: number, text: string, headers: Record<string, string> = {}): AdapterAnswer => ({
  status,
  headers,
  text: () => Promise.resolve(text),
  json: () => Promise.resolve(JSON.parse(text)),
  stream: Readable.from([]),
});

const request: AdapterRequest = { method: 'GET', url: new URL('https://up.example/x'), headers: [], body: null };
const contextOf = (given: AdapterAnswer) => ({ call: () => Promise.resolve(given) }) as unknown as AdapterContext;

describe('an answer of a provider', () => {
  it('that fails keeps status, type, code, field and the wait it asks for', async () => {
    const error = { message: 'slow down', type: 'x', param: 'p', code: null };
    const failure = await failureOf(answer(429, JSON.stringify({ error }), { 'retry-after': '7' }));
    expect(failure).toMatchObject({
      kind: 'provider_error',
      provider: { status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded' },
      param: 'p',
      message: 'slow down',
      retryAfter: 7,
    });
  });

  it.each([
    ['<html>nope</html>', '<html>nope</html>'],
    ['[{"error":{"message":"in a list"}}]', 'in a list'],
    ['<Error><Message>in XML</Message></Error>', 'in XML'],
    ['', 'The provider answered with status 500 and no message.'],
  ])('%j is read as %j', async (body, message) => {
    expect(await failureOf(answer(500, body))).toMatchObject({ provider: { status: 500 }, message });
  });

  it('that is 200 and only an error is that error; a redirect and a list are no answer', async () => {
    await expect(sentObject(contextOf(answer(200, '{"error":"no"}')), request)).rejects.toMatchObject({
      provider: { status: 502 },
    });
    await expect(sentObject(contextOf(answer(302, '')), request)).rejects.toMatchObject({ kind: 'upstream_invalid' });
    await expect(sentObject(contextOf(answer(200, '[]')), request)).rejects.toMatchObject({ kind: 'upstream_invalid' });
    const failed = '{"id":"batch-1","error":"no"}';
    expect(await sentObject(contextOf(answer(200, failed)), request)).toEqual(JSON.parse(failed));
  });
});

describe('a refused field', () => {
  it('is named with its value, whatever the value is', () => {
    const refusals = new Refusals('together-ai', { dropParams: new Set() });
    const values: JsonValue[] = [7, 'x', null, [], { a: 1 }, parseExact('12345678901234567890')];
    for (const value of values) {
      expect(() => refusals.refuse('metadata', value, 'leave it out')).toThrow(/cannot express metadata = /);
    }
  });

  it('is left out when drop_params has its path or its own name', () => {
    const path = 'method.dpo.hyperparameters.beta';
    for (const name of [path, 'beta']) new Refusals('x', { dropParams: new Set([name]) }).absent({ [path]: 1 });
    expect(() => new Refusals('x', { dropParams: new Set(['method']) }).absent({ [path]: 1 })).toThrow();
  });

  it('may be a member of method that no shape names', () => {
    const job = {
      method: 'supervised',
      body: {
        method: {
          type: 'supervised',
          dpo: {},
          supervised: { packing: true, hyperparameters: { n_epochs: 1, warmup: 2, gone: null } },
        },
        hyperparameters: { decay: 3 },
      },
    } as unknown as JobRequest;
    expect(unknownMethodMembers(job)).toEqual({
      'method.dpo': {},
      'method.supervised.packing': true,
      'method.supervised.hyperparameters.warmup': 2,
      'hyperparameters.decay': 3,
    });
  });
});

describe('numbers, times and paths', () => {
  it('a rate made of a multiplier gives the multiplier back', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1_000_000 }), fc.constantFrom(1e-5, 1e-4), (thousandths, base) => {
        const multiplier = thousandths / 1000;
        expect(multiplierOf(rateOf(multiplier, base), base)).toBe(multiplier);
      }),
    );
    expect(rateOf(3, 1e-5)).toBe(0.00003);
  });

  it('times and counts are whole numbers or nothing', () => {
    expect(epochOf('2026-01-01T00:00:00.999Z')).toBe(1_767_225_600);
    expect([epochOf('soon'), epochOf(5), epochOf(null)]).toEqual([null, null, null]);
    expect([integerOf('42'), integerOf(4.7), integerOf('4.7'), integerOf(Number.NaN)]).toEqual([42, 4, null, null]);
  });

  it('no id leaves its place in the path', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, unit: 'grapheme' }), (id) => {
        if (id === '.' || id === '..') return;
        const url = urlOf('https://up.example/v1', `/files/${idSegment(id)}/content`);
        expect(url.pathname.split('/')).toHaveLength(5);
        expect(url.search + url.hash).toBe('');
      }),
    );
    for (const id of ['', '.', '..']) expect(() => idSegment(id)).toThrow();
  });

  it('pages of a whole list follow each other without gap or overlap', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.string({ minLength: 1 })), fc.integer({ min: 1, max: 9 }), (ids, limit) => {
        const all = ids.map((id) => ({ id }));
        const seen: string[] = [];
        for (let more = true; more; ) {
          const page = slicePage(all, { after: seen.at(-1) ?? null, limit });
          seen.push(...page.data.map((one) => one.id));
          more = page.has_more;
        }
        expect(seen).toEqual(ids);
      }),
    );
  });

  it('only what had ended before cannot be cancelled', () => {
    const batch = (status: string) => ({ object: 'batch', status }) as Batch;
    for (const status of ['completed', 'failed', 'expired']) {
      expect(() => cancelled(batch(status))).toThrow('can no longer be cancelled');
    }
    for (const status of ['cancelling', 'cancelled', 'in_progress'])
      expect(cancelled(batch(status)).status).toBe(status);
  });
});
