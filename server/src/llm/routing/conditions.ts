/**
 * Queries of the conditional strategy, compiled. Several keys of a query, and several operators of a key, must
 * all hold. What a request does not have makes every operator false, also those that say what a value is not.
 */
import { decimalOf } from '../../kernel/decimal.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isQuickMatch, matchesPattern, patternProblem, patternSize } from '../../kernel/pattern.ts';

export type Primitive = string | number | boolean | null;

/** What queries see of a request. Undefined: it has no such thing. */
export interface QueryFacts {
  metadata(name: string): string | undefined;
  /** A member of a JSON body that is a primitive. */
  param(name: string): Primitive | undefined;
  /** Lower-case name. */
  header(name: string): string | undefined;
  /** Path of the request without its query. */
  readonly pathname: string;
  /** What searches have cost this request so far: sizes of programs × lengths of texts. */
  readonly searched: Searched;
}

export interface Searched {
  work: number;
}

/** Of all searches of one request: about a tenth of a second, in which nobody else is served. */
const MAX_WORK = 4_000_000;

export type Condition = (facts: QueryFacts) => boolean;

export type Read = (facts: QueryFacts) => Primitive | undefined;
type Test = (value: Primitive, facts: QueryFacts) => boolean;

/**
 * A query that `resources/configs/conditions.ts` has accepted; of any other, what is not understood is false.
 *
 * @param params gains the members of the body that it asks for
 */
export function compileQuery(query: unknown, params: Set<string>): Condition {
  if (typeof query !== 'object' || query === null || Array.isArray(query)) return never;
  return all(Object.entries(query).map(([key, value]) => compileEntry(key, value, params)));
}

const never: Condition = () => false;
const noTest: Test = () => false;

function all(conditions: readonly Condition[]): Condition {
  const [only] = conditions;
  if (only !== undefined && conditions.length === 1) return only;
  return (facts) => conditions.every((holds) => holds(facts));
}

function compileEntry(key: string, value: unknown, params: Set<string>): Condition {
  if (key === '$and' || key === '$or') {
    if (!Array.isArray(value)) return never;
    const inner = value.map((one) => compileQuery(one, params));
    return key === '$and' ? all(inner) : (facts) => inner.some((holds) => holds(facts));
  }
  const read = readerOf(key, params);
  if (read === null) return never;
  const test = testOf(value);
  return (facts) => {
    const found = read(facts);
    return found !== undefined && test(found, facts);
  };
}

/**
 * Reads what a key stands for: `metadata.<name>`, `params.<name>`, `headers.<name>` or `url.pathname`; null for another key.
 *
 * @param params gains the member of the body that it asks for
 */
export function readerOf(key: string, params: Set<string>): Read | null {
  if (key === 'url.pathname') return (facts) => facts.pathname;
  const dot = key.indexOf('.');
  const name = key.slice(dot + 1);
  switch (key.slice(0, dot)) {
    case 'metadata':
      return (facts) => facts.metadata(name);
    case 'params':
      params.add(name);
      return (facts) => facts.param(name);
    case 'headers': {
      const lower = name.toLowerCase();
      return (facts) => facts.header(lower);
    }
    default:
      return null;
  }
}

function testOf(value: unknown): Test {
  if (typeof value !== 'object' || value === null) return equals(value);
  const tests = Object.entries(value).map(([operator, operand]) => compileOperator(operator, operand));
  const [only] = tests;
  return only !== undefined && tests.length === 1 ? only : (found, facts) => tests.every((test) => test(found, facts));
}

const equals =
  (operand: unknown): Test =>
  (found) =>
    found === operand;

function compileOperator(operator: string, operand: unknown): Test {
  switch (operator) {
    case '$eq':
      return equals(operand);
    case '$ne':
      return (found) => found !== operand;
    case '$in':
      return inList(operand, true);
    case '$nin':
      return inList(operand, false);
    case '$regex':
      return matches(operand);
    case '$gt':
      return compares(operand, (a, b) => a > b);
    case '$gte':
      return compares(operand, (a, b) => a >= b);
    case '$lt':
      return compares(operand, (a, b) => a < b);
    case '$lte':
      return compares(operand, (a, b) => a <= b);
    default:
      return noTest;
  }
}

function inList(operand: unknown, wanted: boolean): Test {
  if (!Array.isArray(operand)) return noTest;
  const set = new Set<unknown>(operand);
  return (found) => set.has(found) === wanted;
}

/**
 * Case-sensitive, anywhere in the value, in linear time. A pattern that cannot be used, or a text too long for it, is no match; a
 * request in which all of them together search for too long is refused.
 */
function matches(operand: unknown): Test {
  if (typeof operand !== 'string' || patternProblem(operand) !== null) return noTest;
  const size = patternSize(operand);
  return (found, { searched }) => {
    const text = found === null ? null : String(found);
    if (text === null || !isQuickMatch(operand, text.length)) return false;
    searched.work += size * text.length;
    if (searched.work > MAX_WORK) {
      throw new SluiceError(
        'malformed_call',
        'The conditions of the config search too long in this request; use fewer or smaller $regex, or send shorter values.',
      );
    }
    return matchesPattern(operand, text) === true;
  };
}

/** Both sides as numbers; false where one is none. */
function compares(operand: unknown, holds: (a: number, b: number) => boolean): Test {
  const right = decimalOf(operand);
  return (found) => holds(decimalOf(found), right);
}
