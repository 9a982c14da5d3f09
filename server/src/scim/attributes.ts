/** What can be written of a user, and how what was sent is read: names in any case, booleans as texts, null as absent. */
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import type { ScimValue } from '../store/schema.ts';
import { ScimError } from './errors.ts';
import { type AttributePath, isUnsafeName, parseAttribute } from './filter.ts';

/** A user as directories write it. */
export interface UserDocument {
  userName?: string;
  externalId?: string;
  displayName?: string;
  active?: boolean;
  name?: { [part: string]: string };
  emails?: ScimValue[];
  roles?: ScimValue[];
  /** Absent where groups say who is in them: then what is sent of it means nothing. */
  groups?: ScimValue[];
}

type Kind = 'text' | 'boolean' | 'parts' | 'values' | 'groups' | 'id' | 'read_only' | 'ignored';

export interface AttributeSpec {
  /** As it is written. */
  readonly name: string;
  readonly kind: Kind;
}

const PARTS = ['formatted', 'familyName', 'givenName', 'middleName', 'honorificPrefix', 'honorificSuffix'] as const;
const VALUE_PARTS = ['value', 'type', 'display', 'primary'] as const;

const SPECS: ReadonlyMap<string, AttributeSpec> = new Map(
  (
    [
      ['userName', 'text'],
      ['externalId', 'text'],
      ['displayName', 'text'],
      ['active', 'boolean'],
      ['name', 'parts'],
      ['emails', 'values'],
      ['roles', 'values'],
      ['id', 'id'],
      ['meta', 'read_only'],
      ['groups', 'groups'],
    ] as const
  ).map(([name, kind]) => [name.toLowerCase(), { name, kind }]),
);
const IGNORED: AttributeSpec = { name: '', kind: 'ignored' };

/** What an attribute of a user is. Those that Sluice does not keep are ignored, as directories send more than anybody keeps. */
export const specOf = ({ name, foreign }: AttributePath): AttributeSpec =>
  (foreign ? undefined : SPECS.get(name)) ?? IGNORED;

/** The part of a name, or of an element of a list, as it is written; null for one that Sluice does not keep. */
export function partOf(kind: Kind, sub: string): string | null {
  const parts: readonly string[] = kind === 'parts' ? PARTS : kind === 'values' ? VALUE_PARTS : [];
  return parts.find((part) => part.toLowerCase() === sub) ?? null;
}

const MAX_TEXT = 1_024;
const MAX_VALUES = 100;
/** One user may be in many more groups than it has addresses. */
const MAX_GROUPS = 1_000;

const wrong = (name: string, must: string) => new ScimError('invalidValue', `The attribute ${name} ${must}.`);

export function textOf(name: string, value: JsonValue): string {
  if (typeof value !== 'string') throw wrong(name, 'must be a text');
  if (value.length > MAX_TEXT) throw wrong(name, `must not have more than ${MAX_TEXT} characters`);
  return value;
}

/** Directories also write booleans as texts. Throws `invalidValue`. */
export function booleanOf(name: string, value: JsonValue): boolean {
  if (typeof value === 'boolean') return value;
  const word = typeof value === 'string' ? value.toLowerCase() : '';
  if (word === 'true' || word === 'false') return word === 'true';
  throw wrong(name, 'must be true or false');
}

/** The parts of a name that Sluice keeps. */
export function partsOf(name: string, value: JsonValue): { [part: string]: string } {
  if (!isObject(value)) throw wrong(name, 'must be an object');
  const parts: { [part: string]: string } = {};
  for (const [key, given] of Object.entries(value)) {
    const part = partOf('parts', key.toLowerCase());
    if (part !== null && given != null) parts[part] = textOf(`${name}.${part}`, given);
  }
  return parts;
}

/** One element of a list; a bare text is its value. */
export function elementOf(name: string, value: JsonValue): ScimValue {
  if (typeof value === 'string') return { value: textOf(name, value) };
  if (!isObject(value)) throw wrong(name, 'must have objects as its elements');
  const element: ScimValue = {};
  for (const [key, given] of Object.entries(value)) {
    const part = partOf('values', key.toLowerCase());
    if (part === null || given == null) continue;
    setPart(element, name, part, given);
  }
  return element;
}

/** Sets one part of an element. */
export function setPart(element: ScimValue, name: string, part: string, value: JsonValue): void {
  if (part === 'primary') element.primary = booleanOf(`${name}.primary`, value);
  else if (part === 'value') element.value = roleText(name, value);
  else if (part === 'type') element.type = textOf(`${name}.type`, value);
  else element.display = textOf(`${name}.display`, value);
}

/** A role may be an object where a text is due. */
const roleText = (name: string, value: JsonValue): string =>
  textOf(`${name}.value`, name === 'roles' && isObject(value) ? (value.value ?? '') : value);

/** The elements that were sent: a list of them, or one. */
export function elementsOf(name: string, value: JsonValue): ScimValue[] {
  const list = Array.isArray(value) ? value : [value];
  const most = name === 'groups' ? MAX_GROUPS : MAX_VALUES;
  if (list.length > most) throw wrong(name, `must not have more than ${most} elements`);
  const elements = list.map((one) => elementOf(name, one));
  if (elements.filter(({ primary }) => primary === true).length > 1) throw wrong(name, 'must have one primary element');
  return elements;
}

/** Attributes of a body by the names they may be written with: dotted, with the URN of the schema, in any case. */
export function attributesOf(body: JsonObject): readonly (readonly [AttributePath, JsonValue])[] {
  return Object.entries(body).flatMap(([key, value]) => {
    if (key === 'schemas' || key.split(/[.:]/).some(isUnsafeName)) return [];
    // Sluice keeps no attribute of any other name.
    if (!/^(?:urn:[^\s[\]()"]{1,200}|[a-z][\w$-]*(?:\.\$?[a-z][\w$-]*)?)$/i.test(key)) return [];
    return [[parseAttribute(key), value ?? null] as const];
  });
}

/**
 * A whole user, as POST and PUT send it. Read-only attributes are left out, but for an `id`, which must be `id`.
 *
 * @param withGroups whether `groups` can be written
 */
export function userDocumentOf(body: JsonObject, id: string | null, withGroups: boolean): UserDocument {
  const document: UserDocument = {};
  for (const [path, value] of attributesOf(body)) {
    const { name, kind } = specOf(path);
    if (kind === 'id') checkId(value, id);
    if (value === null || kind === 'ignored' || kind === 'read_only' || kind === 'id') continue;
    if (path.sub !== null) {
      const part = kind === 'parts' ? partOf('parts', path.sub) : null;
      if (part !== null) document.name = { ...document.name, [part]: textOf(`name.${part}`, value) };
    } else if (kind === 'groups') {
      if (withGroups) document.groups = elementsOf(name, value);
    } else if (kind === 'boolean') document.active = booleanOf(name, value);
    else if (kind === 'parts') document.name = { ...document.name, ...partsOf(name, value) };
    else if (kind === 'values') document[name as 'emails' | 'roles'] = elementsOf(name, value);
    else document[name as 'userName' | 'externalId' | 'displayName'] = textOf(name, value);
  }
  return document;
}

/** An id may be sent and not changed; of a resource that is made, it is left out. Throws `mutability`. */
export function checkId(value: JsonValue, id: string | null): void {
  if (id === null || value === null) return;
  if (typeof value === 'string' && value.toLowerCase() === id) return;
  throw new ScimError('mutability', 'The attribute id cannot be changed: it is that of the path.');
}
