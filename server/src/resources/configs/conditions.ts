import { decimalOf } from '../../kernel/decimal.ts';
import { isCredentialHeader, SIGN_IN_HEADERS } from '../../kernel/header-names.ts';
import { patternCost } from '../../kernel/pattern.ts';
import type { Issue } from '../issues.ts';
import { formatPath } from '../issues.ts';

type Path = (string | number)[];

const EQUALITY = new Set(['$eq', '$ne']);
const LISTS = new Set(['$in', '$nin']);
const ORDER = new Set(['$gt', '$gte', '$lt', '$lte']);
/** Two segments only: nothing below the first key of metadata or of the body's parameters can be asked for. */
const KEY = /^(?:metadata|params|headers)\.[^.]+$|^url\.pathname$/;

/** What is wrong with a name of something that a request has (`metadata.tier`), as a phrase; null for one that can be asked for. */
export function keyProblem(key: string): string | null {
  if (!KEY.test(key)) return 'must be "metadata.<key>", "params.<key>", "headers.<name>" or "url.pathname"';
  const name = key.startsWith('headers.') ? key.slice('headers.'.length).toLowerCase() : '';
  return isCredentialHeader(name) || SIGN_IN.has(name) ? 'names a header that holds a credential' : null;
}

const SIGN_IN: ReadonlySet<string> = new Set(SIGN_IN_HEADERS);

function isPrimitive(value: unknown): boolean {
  return value === null || ['string', 'number', 'boolean'].includes(typeof value);
}

/**
 * Checks a condition query: `metadata.<key>`, `params.<key>`, `headers.<name>` or `url.pathname` with a
 * primitive or with operators, and `$and` / `$or` over queries. An empty query is the empty conjunction: it always matches. A `$regex`
 * is never compiled here: it is matched by the linear-time engine, and one that does not compile is false.
 */
export function checkQuery(query: unknown, path: Path, issues: Issue[]): void {
  const report = (at: Path, message: string) => issues.push({ path: formatPath(at), message });
  if (typeof query !== 'object' || query === null || Array.isArray(query)) {
    report(path, 'must be an object');
    return;
  }
  for (const [key, value] of Object.entries(query)) {
    const at = [...path, key];
    if (key === '$and' || key === '$or') {
      if (!Array.isArray(value) || value.length === 0) report(at, 'must be a list of at least one query');
      else for (const [index, inner] of value.entries()) checkQuery(inner, [...at, index], issues);
    } else if (key.startsWith('$')) {
      report(at, 'is not a logical operator: use $and or $or');
    } else {
      const problem = keyProblem(key);
      if (problem !== null) report(at, problem);
      else if (!isPrimitive(value)) checkOperators(value, at, report);
    }
  }
}

function checkOperators(value: unknown, path: Path, report: (at: Path, message: string) => void): void {
  if (Array.isArray(value) || typeof value !== 'object' || value === null) {
    report(path, 'must be a primitive value or an object of operators');
    return;
  }
  const entries = Object.entries(value);
  if (entries.length === 0) report(path, 'must name at least one operator');
  for (const [operator, operand] of entries) {
    const at = [...path, operator];
    if (EQUALITY.has(operator)) {
      if (!isPrimitive(operand)) report(at, 'must be a string, number, boolean or null');
    } else if (LISTS.has(operator)) {
      if (!Array.isArray(operand) || !operand.every(isPrimitive)) report(at, 'must be a list of primitive values');
    } else if (operator === '$regex') {
      if (typeof operand !== 'string') report(at, 'must be a string');
      else if (operand.length > 512) report(at, 'must have at most 512 characters');
    } else if (ORDER.has(operator)) {
      if (!Number.isFinite(decimalOf(operand))) report(at, 'must be a number, or a text that is a decimal number');
    } else {
      report(at, 'is not an operator: use $eq, $ne, $in, $nin, $regex, $gt, $gte, $lt or $lte');
    }
  }
}

/** What the patterns of a query cost together when they are compiled (`patternCost`). */
export function patternCosts(query: unknown): number {
  if (typeof query !== 'object' || query === null) return 0;
  let sum = 0;
  for (const [key, value] of Object.entries(query)) {
    sum += key === '$regex' && typeof value === 'string' ? patternCost(value) : patternCosts(value);
  }
  return sum;
}
