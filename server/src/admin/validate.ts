import { z } from 'zod';
import { SluiceError } from '../kernel/errors.ts';
import { furtherIssues, issuesOf } from '../resources/issues.ts';

const MAX_NAMES = 20;

/** Parses with one clear message: the field at fault and what is allowed there. Throws `validation`. */
export function validate<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue, ...more] = issuesOf(result.error);
  const path = issue?.path ?? '';
  let message = `${path === '' ? 'The request' : path} ${issue?.message ?? 'is not valid'}`;
  if (issue?.message === 'is not a known key' && !path.includes('.') && schema instanceof z.ZodObject) {
    const names = Object.keys(schema.shape);
    if (names.length > 0 && names.length <= MAX_NAMES) message += `; known are ${names.join(', ')}`;
  }
  if (!/[.!?]$/.test(message)) message += '.';
  message += furtherIssues(more);
  throw new SluiceError('validation', message, { param: path === '' ? null : path });
}

/**
 * Query or body without the path parameters that they repeat with the same value (`workspaceId`, `workspace_id` or
 * `workspace-id`), as some clients do: it says nothing new. Another value, or a name that the schema knows, is left for the schema to judge.
 */
export function withoutRepeated<T extends Readonly<Record<string, unknown>>>(
  schema: z.ZodType | null,
  input: T,
  params: unknown,
): T {
  const known = schema instanceof z.ZodObject ? schema.shape : {};
  const repeated = new Set<string>();
  for (const [param, value] of Object.entries((params ?? {}) as Record<string, unknown>)) {
    const parted = (mark: string) => param.replace(/[A-Z]/g, (letter) => mark + letter.toLowerCase());
    for (const name of [param, parted('_'), parted('-')]) {
      if (Object.hasOwn(input, name) && input[name] === value && !Object.hasOwn(known, name)) repeated.add(name);
    }
  }
  if (repeated.size === 0) return input;
  return Object.fromEntries(Object.entries(input).filter(([name]) => !repeated.has(name))) as T;
}
