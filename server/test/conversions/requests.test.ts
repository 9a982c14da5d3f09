import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { JsonObject } from '../../src/kernel/json.ts';
import { parseExact } from '../../src/kernel/json-exact.ts';
import { deepFreeze } from '../../src/operations/convert/testing.ts';
import { golden, providerOf } from './cases.ts';
import { boundOf, CALLERS, type Caller, contextFor } from './relayed.ts';

const FOLDER = join(import.meta.dirname, '__fixtures__', 'requests');

/** A provider of every shape, and models that differ in what they take. */
const TARGETS: readonly (readonly [name: string, provider: string, model: string])[] = [
  ['chat', 'chat', 'gpt-5-mini'],
  ['messages', 'anthropic', 'claude-opus-4-6'],
  ['messages-older', 'anthropic', 'claude-3-7-sonnet-20250219'],
  ['gemini', 'google', 'gemini-2.5-flash'],
  ['converse', 'bedrock', 'us.amazon.nova-pro-v1:0'],
  ['converse-claude', 'bedrock', 'us.anthropic.claude-opus-4-6-v1'],
  ['responses', 'responses', 'gpt-5-mini'],
];

function sent(caller: Caller, provider: string, asked: JsonObject): JsonObject | null {
  const way = { caller, provider: providerOf(provider), asked };
  const bound = boundOf(way);
  if (bound === null) return null;
  const context = contextFor(way);
  try {
    return { call: bound.binding.path(context), body: bound.request?.(asked, context) ?? asked };
  } catch (error) {
    if (!(error instanceof SluiceError)) throw error;
    return { refused: error.kind, param: error.param };
  }
}

describe.each(readdirSync(FOLDER))('a request with %s', (name) => {
  for (const caller of CALLERS) {
    const said = parseExact(readFileSync(join(FOLDER, name, `${caller}.json`), 'utf8')) as JsonObject;
    for (const [target, provider, model] of TARGETS) {
      const asked = deepFreeze({ model, ...said });
      const made = sent(caller, provider, asked);
      if (made === null) continue;
      it(`of ${caller} is sent to ${target} whole, or refused by the name of what is too much`, () => {
        golden(join(FOLDER, name, `${caller}.to.${target}.json`), `${JSON.stringify(made, null, 2)}\n`);
        if (made.refused !== undefined) expect(made.param).toEqual(expect.any(String));
      });
    }
  }
});
