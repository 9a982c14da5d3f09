import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
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

/** What a job or batch would be told, for a dry run: there is no URL to call. */
export const prepared = (path: string, body: JsonObject) => ({
  method: 'POST',
  url: `in-process:${path}`,
  headers: ['content-type', 'application/json'],
  body,
});
