import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { parseModel } from '../../providers/models.ts';
import type { AdapterContext } from '../../providers/training.ts';

/** Refuses what the sandbox has no meaning for, by name; null and undefined mean that it was not sent. */
export function refuseFields(fields: Readonly<Record<string, unknown>>, context: Pick<AdapterContext, 'dropParams'>) {
  for (const [name, value] of Object.entries(fields)) {
    if (value === null || value === undefined || context.dropParams.has(name)) continue;
    const text = JSON.stringify(value) ?? 'null';
    throw new SluiceError(
      'unsupported_parameter',
      `sandbox cannot express ${name} = ${text.length > 100 ? `${text.slice(0, 99)}…` : text}; leave it out`,
      { param: name },
    );
  }
}

/** A whole number that is part of a setting written as text. Undefined: not given. */
export function millisecondsOf(text: string | null | undefined, name: string, param: string): number | undefined {
  if (text === null || text === undefined) return undefined;
  if (!/^\d{1,8}$/.test(text) || Number(text) > 86_400_000) {
    throw new SluiceError('invalid_request', `${name} must be a whole number of milliseconds from 0 to 86400000.`, {
      param,
    });
  }
  return Number(text);
}

/**
 * A model name taken apart: what the sandbox answers to, without provider and `sandbox/`, and the milliseconds that the
 * parameter `name` says the work takes (`echo?train_ms=60000`).
 */
export function timedModel(model: string, name: string): { readonly base: string; readonly ms: number | undefined } {
  const { model: named } = parseModel(model);
  const text = named.startsWith('sandbox/') ? named.slice('sandbox/'.length) : named;
  const mark = text.indexOf('?');
  if (mark === -1) return { base: text, ms: undefined };
  const query = text.slice(mark + 1);
  const ms = millisecondsOf(new URLSearchParams(query).get(name), name, 'model');
  const rest = query.split('&').filter((part) => part !== '' && !part.startsWith(`${name}=`));
  return { base: rest.length === 0 ? text.slice(0, mark) : `${text.slice(0, mark)}?${rest.join('&')}`, ms };
}

/** What a job or batch would get, for a dry run: there is no URL to call. */
export const prepared = (path: string, body: JsonObject) => ({
  method: 'POST',
  url: `in-process:${path}`,
  headers: ['content-type', 'application/json'],
  body,
});
