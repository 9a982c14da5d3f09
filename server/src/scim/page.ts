/** Lists of resources: what a query asks for, and the parts of a resource that an answer has (RFC 7644 §3.4.2). */
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { ScimError } from './errors.ts';
import { type AttributePath, type Filter, memberOf, parseAttribute, parseFilter } from './filter.ts';

export const MAX_RESULTS = 200;
const DEFAULT_RESULTS = 100;
const LIST = 'urn:ietf:params:scim:api:messages:2.0:ListResponse';
/** Of `attributes` and `excludedAttributes`. */
const MAX_NAMES = 100;

/** Which attributes an answer has. */
export interface Projection {
  readonly mode: 'all' | 'only' | 'without';
  readonly names: readonly AttributePath[];
}

export interface ListQuery {
  readonly filter: Filter | null;
  /** From 1. */
  readonly startIndex: number;
  readonly count: number;
  readonly projection: Projection;
}

/** What is asked in a query or, by `.search`, in a body. Names that SCIM does not have are ignored. */
export function listQueryOf(asked: Readonly<Record<string, JsonValue | undefined>>): ListQuery {
  const filter = memberOf(asked, 'filter') ?? null;
  if (filter !== null && typeof filter !== 'string') throw new ScimError('invalidFilter', 'The filter must be a text.');
  return {
    filter: filter === null || filter === '' ? null : parseFilter(filter),
    startIndex: Math.max(1, wholeNumber(asked, 'startIndex', 1)),
    count: Math.min(MAX_RESULTS, Math.max(0, wholeNumber(asked, 'count', DEFAULT_RESULTS))),
    projection: projectionOf(asked),
  };
}

function wholeNumber(asked: Readonly<Record<string, JsonValue | undefined>>, name: string, absent: number): number {
  const given = memberOf(asked, name.toLowerCase());
  if (given === undefined || given === null || given === '') return absent;
  const value = typeof given === 'number' || /^[+-]?\d{1,15}$/.test(String(given)) ? Number(given) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw new ScimError('invalidValue', `${name} must be a whole number.`);
  return value;
}

/** Throws 400 where both lists are given. */
export function projectionOf(asked: Readonly<Record<string, JsonValue | undefined>>): Projection {
  const only = namesOf(memberOf(asked, 'attributes'));
  const without = namesOf(memberOf(asked, 'excludedattributes'));
  if (only.length > 0 && without.length > 0) {
    throw new ScimError('invalidValue', 'Ask for attributes or for excludedAttributes, not for both.');
  }
  if (only.length > 0) return { mode: 'only', names: only };
  return without.length > 0 ? { mode: 'without', names: without } : { mode: 'all', names: [] };
}

function namesOf(given: JsonValue | undefined): AttributePath[] {
  const list = typeof given === 'string' ? given.split(',') : Array.isArray(given) ? given : [];
  if (list.length > MAX_NAMES) throw new ScimError('tooMany', `More than ${MAX_NAMES} attributes are named.`);
  return list.flatMap((name) => (typeof name === 'string' && name.trim() !== '' ? [parseAttribute(name.trim())] : []));
}

/** Whether an answer has an attribute at all, named in lower case. */
export function shows({ mode, names }: Projection, name: string): boolean {
  if (mode === 'all') return true;
  const named = names.some((one) => one.name === name && (mode === 'only' || one.sub === null));
  return named === (mode === 'only');
}

/** The resource without what was not asked for. `id` and `schemas` always stay. */
export function project(resource: JsonObject, { mode, names }: Projection): JsonObject {
  if (mode === 'all') return resource;
  const out: JsonObject = {};
  for (const [name, value] of Object.entries(resource)) {
    const key = name.toLowerCase();
    const named = names.filter((one) => one.name === key && !one.foreign);
    const whole = named.some(({ sub }) => sub === null);
    if (key === 'id' || key === 'schemas') out[name] = value;
    else if (whole || named.length === 0) {
      if (whole === (mode === 'only')) out[name] = value;
    } else {
      out[name] = partsOf(value, new Set(named.map(({ sub }) => sub)), mode === 'only');
    }
  }
  return out;
}

function partsOf(value: JsonValue | undefined, subs: ReadonlySet<string | null>, kept: boolean): JsonValue | undefined {
  if (Array.isArray(value)) return value.map((one) => partsOf(one, subs, kept) ?? null);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => subs.has(name.toLowerCase()) === kept));
}

/** A ListResponse. */
export function listResponse(total: number, startIndex: number, resources: readonly JsonObject[]): JsonObject {
  return {
    schemas: [LIST],
    totalResults: total,
    startIndex,
    itemsPerPage: resources.length,
    Resources: [...resources],
  };
}

/** Lists of ids that are short enough for one statement. */
export function chunksOf<T>(list: readonly T[], size = 1_000): T[][] {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, n) => list.slice(n * size, (n + 1) * size));
}
