import { z } from 'zod';
import { SluiceError } from '../kernel/errors.ts';
import { nearest } from '../kernel/nearest.ts';
import { furtherIssues, type Issue, issuesOf, problemsOf, sentenceOf } from '../resources/issues.ts';

const MAX_NAMES = 20;

/** Parses with one clear message: the field at fault and what is allowed there. Throws `validation`. */
export function validate<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = issuesOf(result.error).map((issue) => ({ ...issue, message: withNames(schema, issue) }));
  const [first, ...more] = issues;
  const path = first?.path ?? '';
  throw new SluiceError('validation', sentenceOf(path, first?.message ?? 'is not valid') + furtherIssues(more), {
    param: path === '' ? null : path,
    ...(more.length === 0 ? {} : { problems: problemsOf(issues) }),
  });
}

/** For an unknown key at the top, the error lists the known ones. */
function withNames(schema: z.ZodType, { path, message }: Issue): string {
  if (message !== 'is not a known key' || path.includes('.') || !(schema instanceof z.ZodObject)) return message;
  const names = Object.keys(schema.shape);
  const meant = nearest(path, names);
  if (names.length > 0 && names.length <= MAX_NAMES) return `${message}; known are ${names.join(', ')}`;
  return meant === null ? message : `${message}; did you mean ${meant}?`;
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
