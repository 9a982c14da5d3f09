import type { z } from 'zod';
import type { Problem } from '../kernel/errors.ts';

/** One thing wrong with an input. `path` is dotted with indices in brackets (`targets[0].retry.attempts`); empty for the whole. */
export interface Issue {
  readonly path: string;
  readonly message: string;
}

/** More issues than this are cut: an answer stays small whatever the input was. */
const MAX_ISSUES = 20;

/** Of those that a message leaves out, as many are named. */
const NAMED = 5;

/** What a message about the first issue says of the others, ` (2 more problems: config.targets, config.retry)`; empty for none. */
export function furtherIssues(issues: readonly Issue[], prefix = ''): string {
  if (issues.length === 0) return '';
  const paths = issues.map(({ path }) => (path === '' || prefix === '' ? prefix + path : `${prefix}.${path}`));
  const named = paths.filter((path) => path !== '').slice(0, NAMED);
  const where = named.length === 0 ? '' : `: ${named.join(', ')}${issues.length > NAMED ? ', …' : ''}`;
  return ` (${issues.length} more ${issues.length === 1 ? 'problem' : 'problems'}${where})`;
}

/** All issues as an answer lists them. `prefix` stands before their paths. */
export function problemsOf(issues: readonly Issue[], prefix = ''): Problem[] {
  return issues.map(({ path, message }) => {
    const param = path === '' || prefix === '' ? prefix + path : `${prefix}.${path}`;
    return { param: param === '' ? null : param, message: sentenceOf(param, message) };
  });
}

/** What is wrong with a field, or with the request as a whole, as a sentence. `message` is a phrase or a sentence. */
export function sentenceOf(param: string, message: string): string {
  const subject = param === '' ? 'The request' : param;
  const text = /^[A-Z]/.test(message) ? (param === '' ? message : `${param}: ${message}`) : `${subject} ${message}`;
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** A path in the form the error contract uses. Key names come from the caller, so they are shortened and made printable. */
export function formatPath(path: readonly PropertyKey[], prefix = ''): string {
  let out = prefix;
  for (const part of path) {
    if (typeof part === 'number') out += `[${part}]`;
    else out += (out === '' ? '' : '.') + printable(String(part));
  }
  return out;
}

function printable(key: string): string {
  const clean = key.replace(/[^\x21-\x7e]/g, '?');
  return clean.length > 64 ? `${clean.slice(0, 64)}…` : clean;
}

type RawIssue = z.core.$ZodIssue;

/** The issues of a failed parse as path and message, at most 20, in the order found. */
export function issuesOf(error: Pick<z.core.$ZodError, 'issues'>, prefix = ''): Issue[] {
  const out: Issue[] = [];
  for (const issue of error.issues) {
    if (out.length >= MAX_ISSUES) break;
    collect(issue, [], prefix, out);
  }
  return out.slice(0, MAX_ISSUES);
}

function collect(issue: RawIssue, base: readonly PropertyKey[], prefix: string, out: Issue[]): void {
  const path = [...base, ...issue.path];
  if (issue.code === 'unrecognized_keys') {
    for (const key of issue.keys) out.push({ path: formatPath([...path, key], prefix), message: 'is not a known key' });
    return;
  }
  if (issue.code === 'invalid_union') {
    const branch = closestBranch(issue.errors);
    if (branch) {
      for (const inner of branch) collect(inner, path, prefix, out);
      return;
    }
  }
  out.push({ path: formatPath(path, prefix), message: describe(issue) });
}

/** The branch of a union that accepted the kind of value and failed inside it; undefined when none did. */
function closestBranch(branches: readonly (readonly RawIssue[])[]): readonly RawIssue[] | undefined {
  return branches.find(
    (issues) => issues.length > 0 && !issues.some((issue) => issue.path.length === 0 && issue.code === 'invalid_type'),
  );
}

function describe(issue: RawIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      if (issue.input === undefined && issue.message.endsWith('received undefined')) return 'is required';
      return (
        issue.message
          .replace(/^Invalid input: expected/, 'must be of type')
          .replace(', received', ', not')
          // What zod calls a record is an object to whoever writes JSON.
          .replace('of type record', 'of type object')
          .replace('of type int, not number', 'a whole number')
          .replace('of type int', 'a whole number')
      );
    case 'invalid_value':
      return `must be ${issue.values.length === 1 ? '' : 'one of '}${issue.values.map((value) => JSON.stringify(value)).join(', ')}`;
    case 'too_small':
      return `must ${bound(issue.origin, 'least', issue.minimum)}`;
    case 'too_big':
      return `must ${bound(issue.origin, 'most', issue.maximum)}`;
    case 'invalid_union':
      return 'has the wrong type';
    default:
      return issue.message;
  }
}

function bound(origin: string, side: 'least' | 'most', value: number | bigint): string {
  const counted = UNITS.get(origin);
  if (counted === undefined) return `be at ${side} ${value}`;
  return `have at ${side} ${value} ${counted}${Number(value) === 1 ? '' : 's'}`;
}

/** What the size of a value is counted in. */
const UNITS: ReadonlyMap<string, string> = new Map([
  ['string', 'character'],
  ['array', 'item'],
  ['set', 'item'],
  ['object', 'key'],
  ['record', 'key'],
  ['map', 'key'],
]);
