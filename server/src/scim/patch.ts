/**
 * PATCH of SCIM (RFC 7644 §3.5.2), pure: operations over a user, and what operations say of a group. It reads the forms that
 * Entra and Okta send beside those of the standard. All or nothing: what throws has changed nothing that is kept.
 */
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import type { ScimValue } from '../store/schema.ts';
import {
  attributesOf,
  booleanOf,
  checkId,
  elementOf,
  elementsOf,
  partOf,
  partsOf,
  setPart,
  specOf,
  textOf,
  type UserDocument,
} from './attributes.ts';
import { ScimError } from './errors.ts';
import { type Filter, matches, memberOf, type PatchPath, parsePath } from './filter.ts';

const MAX_OPERATIONS = 1_000;

interface Operation {
  readonly op: 'add' | 'remove' | 'replace';
  readonly path: PatchPath | null;
  /** Undefined: none was sent. Null is the same. */
  readonly value: JsonValue | undefined;
}

/** The operations of a body. Throws `invalidSyntax`, `invalidPath` and `noTarget`. */
export function operationsOf(body: JsonObject): readonly Operation[] {
  const list = memberOf(body, 'operations');
  const good = Array.isArray(list) && list.length >= 1;
  if (!good) throw new ScimError('invalidSyntax', 'The body needs Operations, a list of one operation or more.');
  if (list.length > MAX_OPERATIONS) {
    throw new ScimError(
      'tooMany',
      `The body has more than ${MAX_OPERATIONS} operations: send them in several requests.`,
    );
  }
  return list.map((one, index) => operationOf(one, index));
}

function operationOf(one: JsonValue, index: number): Operation {
  const place = `Operations[${index}]`;
  if (!isObject(one)) throw new ScimError('invalidSyntax', `${place} must be an object.`);
  const given = memberOf(one, 'op');
  const op = typeof given === 'string' ? given.toLowerCase() : '';
  if (op !== 'add' && op !== 'remove' && op !== 'replace') {
    throw new ScimError('invalidSyntax', `${place}.op must be add, remove or replace.`);
  }
  const path = memberOf(one, 'path') ?? null;
  if (path !== null && typeof path !== 'string') throw new ScimError('invalidPath', `${place}.path must be a text.`);
  const value = memberOf(one, 'value') ?? undefined;
  if (path === null || path === '') {
    if (op === 'remove') throw new ScimError('noTarget', `${place} removes, so it needs a path.`);
    if (!isObject(value)) throw new ScimError('invalidValue', `${place} has no path, so its value must be an object.`);
    return { op, path: null, value };
  }
  if (op !== 'remove' && value === undefined) throw new ScimError('invalidValue', `${place} needs a value.`);
  return { op, path: parsePath(path), value };
}

/** An operation without a path says several things: each attribute of its value is one. */
function* steps(
  operations: readonly Operation[],
): Generator<{ op: Operation['op']; path: PatchPath; value: JsonValue | undefined; whole: boolean }> {
  for (const { op, path, value } of operations) {
    if (path !== null) yield { op, path, value, whole: false };
    else if (isObject(value)) {
      for (const [attribute, given] of attributesOf(value)) {
        yield {
          op: given === null ? 'remove' : op,
          path: { attribute, filter: null },
          value: given ?? undefined,
          whole: true,
        };
      }
    }
  }
}

/**
 * The user after the operations; `document` stays as it is. Its `groups` can be written where it has any list of them.
 * Throws what RFC 7644 names for each fault.
 */
export function patchUser(document: UserDocument, operations: readonly Operation[], id: string): UserDocument {
  const user: UserDocument = {
    ...document,
    ...(document.name === undefined ? {} : { name: { ...document.name } }),
    ...(document.emails === undefined ? {} : { emails: document.emails.map((one) => ({ ...one })) }),
    ...(document.roles === undefined ? {} : { roles: document.roles.map((one) => ({ ...one })) }),
  };
  for (const { op, path, value, whole } of steps(operations)) {
    const { attribute, filter } = path;
    const { name, kind } = specOf(attribute);
    if (kind === 'ignored') continue;
    const fixed = kind === 'groups' && user.groups === undefined;
    if (kind === 'id' || kind === 'read_only' || fixed) {
      // Okta sends the id beside what it changes.
      if (!whole) throw new ScimError('mutability', `The attribute ${name} is read-only.`);
      if (kind === 'id') checkId(value ?? null, id);
      continue;
    }
    if (kind === 'values' || kind === 'groups') {
      const list = name as 'emails' | 'roles' | 'groups';
      const before = user[list];
      const after = patchValues(name, before ?? [], { op, sub: attribute.sub, filter, value });
      if (before !== undefined || after.length > 0) user[list] = after;
      continue;
    }
    if (filter !== null)
      throw new ScimError('invalidPath', `The attribute ${name} is no list: its path takes no filter.`);
    if (kind === 'parts') {
      user.name = patchParts(user.name ?? {}, { op, sub: attribute.sub, value });
    } else if (attribute.sub !== null) {
      throw new ScimError('invalidPath', `The attribute ${name} has no parts.`);
    } else if (op === 'remove') {
      if (name === 'userName')
        throw new ScimError('mutability', 'The attribute userName is required: it cannot be removed.');
      // A user stays as active as it was.
      if (kind !== 'boolean') delete user[name as 'externalId' | 'displayName'];
    } else if (kind === 'boolean') {
      user.active = booleanOf(name, value ?? null);
    } else {
      user[name as 'userName' | 'externalId' | 'displayName'] = textOf(name, value ?? null);
    }
  }
  return user;
}

interface Step {
  readonly op: Operation['op'];
  readonly sub: string | null;
  readonly value: JsonValue | undefined;
}

function patchParts(parts: { [part: string]: string }, { op, sub, value }: Step): { [part: string]: string } {
  if (sub === null) return op === 'remove' ? {} : { ...parts, ...partsOf('name', value ?? null) };
  const part = partOf('parts', sub);
  if (part === null) return parts;
  const { [part]: _before, ...others } = parts;
  return op === 'remove' ? others : { ...parts, [part]: textOf(`name.${part}`, value ?? null) };
}

function patchValues(
  name: string,
  list: readonly ScimValue[],
  { op, sub, filter, value }: Step & { readonly filter: Filter | null },
): ScimValue[] {
  if (filter === null && sub === null) return patchList(name, list, op, value);
  const chosen = list.filter((one) => filter === null || isChosen(name, filter, one));
  const part = sub === null ? null : partOf('values', sub);
  if (sub !== null && part === null) return [...list];
  if (op === 'remove') {
    if (part === null) return list.filter((one) => !chosen.includes(one));
    return list.map((one) => {
      if (!chosen.includes(one)) return one;
      const { [part as 'value']: _gone, ...rest } = one;
      return rest;
    });
  }
  if (chosen.length === 0) {
    if (op === 'replace') {
      throw new ScimError('noTarget', `No element of ${name} meets the filter of the path.`);
    }
    // Entra adds by a filter that says what the new element is.
    const made: ScimValue = filter === null ? {} : impliedBy(filter);
    if (part === null) Object.assign(made, elementOf(name, value ?? null));
    else setPart(made, name, part, value ?? null);
    return onePrimary([...list, made], made);
  }
  const after = list.map((one) => {
    if (!chosen.includes(one)) return one;
    if (part === null) return { ...(op === 'add' ? one : {}), ...elementOf(name, value ?? null) };
    const changed = { ...one };
    setPart(changed, name, part, value ?? null);
    return changed;
  });
  const primary = after.find((one, index) => one !== list[index] && one.primary === true);
  return primary === undefined ? after : onePrimary(after, primary);
}

const isChosen = (name: string, filter: Filter, one: ScimValue): boolean => matches(filter, { ...one }, name);

/** A list as a whole. */
function patchList(
  name: string,
  list: readonly ScimValue[],
  op: Step['op'],
  value: JsonValue | undefined,
): ScimValue[] {
  if (op === 'remove') {
    if (value === undefined) return [];
    // Entra names what it removes; an empty list names nothing.
    const named = new Set(elementsOf(name, value).map((one) => one.value));
    return list.filter((one) => !named.has(one.value));
  }
  const given = elementsOf(name, value ?? null);
  if (op === 'replace') return given;
  const after = [...list];
  for (const one of given) {
    const text = JSON.stringify(one);
    if (!after.some((other) => JSON.stringify(other) === text)) after.push(one);
  }
  const primary = given.find((one) => one.primary === true);
  return primary === undefined ? after : onePrimary(after, primary);
}

/** A new primary element takes the place of the old one (RFC 7644 §3.5.2). */
function onePrimary(list: readonly ScimValue[], primary: ScimValue): ScimValue[] {
  if (primary.primary !== true) return [...list];
  return list.map((one) => (one !== primary && one.primary === true ? { ...one, primary: false } : one));
}

/** What an element has that meets a filter of equalities. */
function impliedBy(filter: Filter): ScimValue {
  const element: ScimValue = {};
  const terms = filter.is === 'and' ? filter.of : [filter];
  for (const term of terms) {
    if (term.is !== 'term' || term.operator !== 'eq' || term.value === null || term.path.sub !== null) continue;
    const part = partOf('values', term.path.name);
    if (part !== null)
      setPart(element, 'value', part, typeof term.value === 'number' ? String(term.value) : term.value);
  }
  return element;
}

/** What operations make of a group. Members are ids as they were sent. */
export interface GroupPatch {
  readonly displayName?: string;
  /** Null: it is removed. */
  readonly externalId?: string | null;
  /** All members of before go. */
  readonly clear: boolean;
  readonly add: ReadonlySet<string>;
  readonly remove: ReadonlySet<string>;
}

/** Folds operations into one change, whose size is that of the request and not of the group. */
export function patchGroup(operations: readonly Operation[], id: string): GroupPatch {
  let displayName: string | undefined;
  let externalId: string | null | undefined;
  let clear = false;
  const add = new Set<string>();
  const remove = new Set<string>();
  const enter = (member: string) => {
    add.add(member);
    remove.delete(member);
  };
  const leave = (member: string) => {
    remove.add(member);
    add.delete(member);
  };
  const empty = () => {
    clear = true;
    add.clear();
    remove.clear();
  };
  for (const { op, path, value, whole } of steps(operations)) {
    const { attribute, filter } = path;
    const name = attribute.foreign ? '' : attribute.name;
    if (name === 'id' || name === 'meta') {
      if (!whole) throw new ScimError('mutability', `The attribute ${name} is read-only.`);
      if (name === 'id') checkId(value ?? null, id);
    } else if (name === 'displayname') {
      if (op === 'remove')
        throw new ScimError('mutability', 'The attribute displayName is required: it cannot be removed.');
      displayName = textOf('displayName', value ?? null);
    } else if (name === 'externalid') {
      externalId = op === 'remove' ? null : textOf('externalId', value ?? null);
    } else if (name === 'members') {
      if (attribute.sub !== null && attribute.sub !== 'value') continue;
      if (filter !== null) {
        if (op !== 'remove') {
          throw new ScimError(
            'noTarget',
            'Members are added and removed: what a filter finds of them cannot be changed.',
          );
        }
        for (const member of idsIn(filter)) leave(member);
      } else if (op === 'remove') {
        if (value === undefined) empty();
        else for (const member of memberIds(value)) leave(member);
      } else {
        if (op === 'replace') empty();
        for (const member of memberIds(value ?? null)) enter(member);
      }
    }
  }
  return {
    ...(displayName === undefined ? {} : { displayName }),
    ...(externalId === undefined ? {} : { externalId }),
    clear,
    add,
    remove,
  };
}

/** Ids of members that were sent: elements with a value, or bare ids; one of them or a list. Throws `invalidValue`. */
export function memberIds(value: JsonValue): string[] {
  return (Array.isArray(value) ? value : [value]).map((one) => {
    const id = isObject(one) ? memberOf(one, 'value') : one;
    if (typeof id === 'string') return id.toLowerCase();
    throw new ScimError('invalidValue', 'Each member needs a value, the id of a user.');
  });
}

/** The ids that a filter on members names. */
function idsIn(filter: Filter): string[] {
  if (filter.is === 'or') return filter.of.flatMap(idsIn);
  if (
    filter.is === 'term' &&
    filter.path.name === 'value' &&
    filter.operator === 'eq' &&
    typeof filter.value === 'string'
  ) {
    return [filter.value.toLowerCase()];
  }
  throw new ScimError('invalidFilter', 'A filter on members must be of the form value eq "<id of a user>".');
}
