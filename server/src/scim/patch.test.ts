/**
 * The forms of PATCH that directories send, over one user and one group. The manners of Entra and Okta were written by hand
 * after their public documentation; no traffic of theirs was recorded.
 */
import { describe, expect, it } from 'vitest';
import { userDocumentOf } from './attributes.ts';
import { operationsOf, patchGroup, patchUser } from './patch.ts';

const ID = '2819c223-7f76-453a-919d-413861904646';
const ENTERPRISE = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User';
const CORE = 'urn:ietf:params:scim:schemas:core:2.0:User';
const WORK = { value: 'ada@example.com', type: 'work', primary: true };
const HOME = { value: 'ada@home.example', type: 'home' };
const ADA = {
  userName: 'ada@example.com',
  externalId: 'x-1',
  displayName: 'Ada',
  name: { givenName: 'Ada', familyName: 'Lovelace' },
  active: true,
  emails: [WORK, HOME],
  roles: [{ value: 'member', primary: true }],
};

const after = (...operations: unknown[]) =>
  patchUser(ADA, operationsOf({ Operations: operations } as never), ID) as Record<string, unknown>;

describe('operations on a user', () => {
  const { externalId: _e, ...noExternal } = ADA;
  it.each<[string, object | object[], object]>([
    [
      'Entra without its flag deactivates',
      { op: 'Replace', path: 'active', value: 'False' },
      { ...ADA, active: false },
    ],
    ['and activates', { op: 'Replace', path: 'active', value: 'True' }, ADA],
    ['Entra with its flag', { op: 'replace', path: 'active', value: false }, { ...ADA, active: false }],
    ['Okta deactivates', { op: 'replace', value: { active: false } }, { ...ADA, active: false }],
    ['a boolean as text without a path', { op: 'Add', value: { Active: 'false' } }, { ...ADA, active: false }],
    [
      'Entra with its flag: dotted names and URNs inside the value',
      {
        op: 'replace',
        value: {
          displayName: 'A. L.',
          'name.givenName': 'Augusta',
          [`${ENTERPRISE}:department`]: 'Engines',
          [`${CORE}:active`]: false,
        },
      },
      { ...ADA, displayName: 'A. L.', name: { givenName: 'Augusta', familyName: 'Lovelace' }, active: false },
    ],
    [
      'an attribute by its URN',
      { op: 'replace', path: `${CORE}:displayName`, value: 'B' },
      { ...ADA, displayName: 'B' },
    ],
    [
      'a part of the name',
      { op: 'Replace', path: 'name.familyName', value: 'King' },
      { ...ADA, name: { givenName: 'Ada', familyName: 'King' } },
    ],
    [
      'parts of the name',
      { op: 'replace', path: 'name', value: { familyName: 'King' } },
      { ...ADA, name: { givenName: 'Ada', familyName: 'King' } },
    ],
    [
      'parts in any case',
      { op: 'add', path: 'NAME', value: { FAMILYNAME: 'King' } },
      { ...ADA, name: { givenName: 'Ada', familyName: 'King' } },
    ],
    ['a part that goes', { op: 'remove', path: 'name.givenName' }, { ...ADA, name: { familyName: 'Lovelace' } }],
    ['the name that goes', { op: 'Remove', path: 'name' }, { ...ADA, name: {} }],
    ['a part that Sluice does not keep', { op: 'add', path: 'name.nickName', value: 'A' }, ADA],
    ['an externalId that goes', { op: 'remove', path: 'externalId' }, noExternal],
    ['null is absent', { op: 'replace', value: { externalId: null } }, noExternal],
    [
      'a new userName',
      { op: 'replace', path: 'userName', value: 'al@example.com' },
      { ...ADA, userName: 'al@example.com' },
    ],
    [
      'Entra: the address of an element',
      { op: 'Replace', path: 'emails[type eq "work"].value', value: 'al@example.com' },
      { ...ADA, emails: [{ ...WORK, value: 'al@example.com' }, HOME] },
    ],
    [
      'Entra: add where no element is',
      { op: 'Add', path: 'emails[type eq "other"].value', value: 'al@example.com' },
      { ...ADA, emails: [WORK, HOME, { type: 'other', value: 'al@example.com' }] },
    ],
    [
      'add with two conditions makes both',
      { op: 'add', path: 'emails[type eq "other" and primary eq false].value', value: 'x@y.z' },
      { ...ADA, emails: [WORK, HOME, { type: 'other', primary: false, value: 'x@y.z' }] },
    ],
    [
      'Entra: a role',
      { op: 'Add', path: 'roles[primary eq "True"].value', value: 'admin' },
      { ...ADA, roles: [{ value: 'admin', primary: true }] },
    ],
    [
      'Entra: a role as JSON in a text',
      { op: 'Add', path: 'roles', value: [{ value: '{"id":"1","value":"admin"}', primary: 'True' }] },
      {
        ...ADA,
        roles: [
          { value: 'member', primary: false },
          { value: '{"id":"1","value":"admin"}', primary: true },
        ],
      },
    ],
    ['an element that goes', { op: 'remove', path: 'emails[type eq "home"]' }, { ...ADA, emails: [WORK] }],
    ['one that is not there goes, too', { op: 'remove', path: 'emails[type eq "x"]' }, ADA],
    [
      'a part of an element goes',
      { op: 'remove', path: 'emails[type eq "home"].type' },
      { ...ADA, emails: [WORK, { value: HOME.value }] },
    ],
    ['all go', { op: 'remove', path: 'emails' }, { ...ADA, emails: [] }],
    [
      'those that are named go',
      { op: 'Remove', path: 'emails', value: [{ value: HOME.value }] },
      { ...ADA, emails: [WORK] },
    ],
    ['an empty list names nobody', { op: 'remove', path: 'emails', value: [] }, ADA],
    ['a whole list', { op: 'replace', path: 'emails', value: [HOME] }, { ...ADA, emails: [HOME] }],
    ['one element for a list', { op: 'replace', path: 'emails', value: HOME }, { ...ADA, emails: [HOME] }],
    [
      'a text for an element',
      { op: 'replace', path: 'roles', value: 'admin' },
      { ...ADA, roles: [{ value: 'admin' }] },
    ],
    ['an element that is there is not added again', { op: 'add', path: 'emails', value: [HOME] }, ADA],
    [
      'a whole element',
      { op: 'replace', path: 'emails[type eq "home"]', value: { value: 'n@h.example', type: 'home' } },
      { ...ADA, emails: [WORK, { value: 'n@h.example', type: 'home' }] },
    ],
    [
      'a new primary takes the place of the old one',
      { op: 'add', path: 'emails', value: [{ value: 'n@h.example', primary: true }] },
      { ...ADA, emails: [{ ...WORK, primary: false }, HOME, { value: 'n@h.example', primary: true }] },
    ],
    [
      'also where an element becomes it',
      { op: 'replace', path: 'emails[type eq "home"].primary', value: true },
      {
        ...ADA,
        emails: [
          { ...WORK, primary: false },
          { ...HOME, primary: true },
        ],
      },
    ],
    [
      'a part of all elements',
      { op: 'replace', path: 'emails.display', value: 'A' },
      {
        ...ADA,
        emails: [
          { ...WORK, display: 'A' },
          { ...HOME, display: 'A' },
        ],
      },
    ],
    ['an extension is ignored', { op: 'Add', path: `${ENTERPRISE}:manager`, value: 'x' }, ADA],
    ['so is an extension as an object', { op: 'add', value: { [ENTERPRISE]: { department: 'x' } } }, ADA],
    ['so are other attributes', { op: 'Add', path: 'title', value: 'Countess' }, ADA],
    ['so are their elements', { op: 'Add', path: 'phoneNumbers[type eq "work"].value', value: '1' }, ADA],
    ['so is a password', { op: 'replace', value: { password: 'secret' } }, ADA],
    [
      'read-only attributes beside others are ignored',
      { op: 'replace', value: { id: ID, meta: {}, groups: [], schemas: [CORE], displayName: 'B' } },
      { ...ADA, displayName: 'B' },
    ],
    ['an id in other case is the same', { op: 'replace', value: { id: ID.toUpperCase() } }, ADA],
    ['to remove active changes nothing', { op: 'remove', path: 'active' }, ADA],
    [
      'several operations come in their order',
      [
        { op: 'replace', path: 'displayName', value: 'B' },
        { op: 'replace', path: 'displayName', value: 'C' },
        { op: 'remove', path: 'emails[type eq "home"]' },
        { op: 'add', path: 'emails', value: { value: 'c@d.e' } },
      ],
      { ...ADA, displayName: 'C', emails: [WORK, { value: 'c@d.e' }] },
    ],
  ])('%s', (_title, operations, expected) => {
    const before = structuredClone(ADA);
    expect(after(...[operations].flat())).toEqual(expected);
    expect(ADA).toEqual(before);
  });

  it.each<[string, unknown]>([
    ['invalidSyntax', { op: 'move', path: 'active', value: true }],
    ['invalidSyntax', { path: 'active', value: true }],
    ['invalidSyntax', { op: 5, path: 'active' }],
    ['invalidSyntax', 'replace'],
    ['invalidSyntax', null],
    ['noTarget', { op: 'remove' }],
    ['noTarget', { op: 'remove', value: { active: true } }],
    ['noTarget', { op: 'replace', path: 'emails[type eq "x"].value', value: 'a' }],
    ['noTarget', { op: 'replace', path: 'emails[type eq "x"]', value: { value: 'a' } }],
    ['invalidPath', { op: 'replace', path: 'emails[', value: 'a' }],
    ['invalidPath', { op: 'replace', path: 5, value: 'a' }],
    ['invalidPath', { op: 'replace', path: '__proto__.x', value: 'a' }],
    ['invalidPath', { op: 'add', path: 'constructor.prototype.x', value: 'a' }],
    ['invalidPath', { op: 'add', path: 'name.__proto__', value: 'a' }],
    ['invalidPath', { op: 'add', path: 'emails[type eq "work"].constructor', value: 'a' }],
    ['invalidPath', { op: 'add', path: 'active[value eq true]', value: 'a' }],
    ['invalidPath', { op: 'add', path: 'name[givenName eq "Ada"]', value: {} }],
    ['invalidPath', { op: 'add', path: 'userName.x', value: 'a' }],
    ['mutability', { op: 'replace', path: 'id', value: 'x' }],
    ['mutability', { op: 'replace', value: { id: 'x' } }],
    ['mutability', { op: 'add', path: 'meta.version', value: 'x' }],
    ['mutability', { op: 'add', path: 'groups', value: [] }],
    ['mutability', { op: 'remove', path: 'userName' }],
    ['invalidValue', { op: 'replace', path: 'active', value: 'maybe' }],
    ['invalidValue', { op: 'replace', path: 'active', value: 1 }],
    ['invalidValue', { op: 'replace', value: { active: [] } }],
    ['invalidValue', { op: 'replace', value: 'x' }],
    ['invalidValue', { op: 'replace', path: 'displayName' }],
    ['invalidValue', { op: 'replace', path: 'displayName', value: 5 }],
    ['invalidValue', { op: 'replace', path: 'displayName', value: 'x'.repeat(1_025) }],
    ['invalidValue', { op: 'replace', path: 'name', value: 'x' }],
    ['invalidValue', { op: 'replace', path: 'name.givenName', value: {} }],
    ['invalidValue', { op: 'add', path: 'emails', value: [5] }],
    ['invalidValue', { op: 'add', path: 'emails', value: [{ value: 5 }] }],
    ['invalidValue', { op: 'add', path: 'emails', value: [{ primary: 'maybe' }] }],
    [
      'invalidValue',
      {
        op: 'replace',
        path: 'emails',
        value: [
          { value: 'a', primary: true },
          { value: 'b', primary: true },
        ],
      },
    ],
  ])('%s: %j', (reason, operation) => {
    expect(() => after(operation)).toThrow(expect.objectContaining({ name: 'ScimError', reason }));
  });

  it('are 1 to 1,000, in a list', () => {
    const one = { op: 'replace', path: 'active', value: true };
    expect(operationsOf({ Operations: Array.from({ length: 1_000 }, () => one) })).toHaveLength(1_000);
    expect(operationsOf({ operations: [one] })).toHaveLength(1);
    const reasonOf = (body: object) => {
      try {
        return operationsOf(body as never).length;
      } catch (error) {
        return (error as { reason: string }).reason;
      }
    };
    expect(reasonOf({ Operations: Array.from({ length: 1_001 }, () => one) })).toBe('tooMany');
    for (const body of [{}, { Operations: [] }, { Operations: one }, { Operations: null }]) {
      expect(reasonOf(body)).toBe('invalidSyntax');
    }
  });

  it('write nothing that all objects share', () => {
    const names = ['__proto__', 'constructor', 'prototype', 'constructor.prototype.polluted', '__proto__.polluted'];
    for (const name of names) {
      const value = JSON.parse(`{${JSON.stringify(name)}: {"polluted": true}}`);
      expect(after({ op: 'add', value })).toEqual(ADA);
      expect(userDocumentOf(value, null, true)).toEqual({});
    }
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });
});

const A = '00000000-0000-7000-8000-00000000000a';
const B = '00000000-0000-7000-8000-00000000000b';

describe('operations on a group', () => {
  const said = (...operations: unknown[]) => {
    const { add, remove, ...rest } = patchGroup(operationsOf({ Operations: operations } as never), ID);
    return { ...rest, add: [...add], remove: [...remove] };
  };
  const nothing = { clear: false, add: [], remove: [] };
  it.each<[string, object | object[], object]>([
    ['Entra adds', { op: 'Add', path: 'members', value: [{ $ref: null, value: A }] }, { ...nothing, add: [A] }],
    ['ids in any case', { op: 'add', path: 'members', value: [{ value: A.toUpperCase() }] }, { ...nothing, add: [A] }],
    ['bare ids', { op: 'add', path: 'members', value: [A, B] }, { ...nothing, add: [A, B] }],
    ['one member', { op: 'add', path: 'members', value: { value: A } }, { ...nothing, add: [A] }],
    ['without a path', { op: 'add', value: { members: [{ value: A }] } }, { ...nothing, add: [A] }],
    [
      'Entra without its flag removes those that it names',
      { op: 'Remove', path: 'members', value: [{ value: A }] },
      { ...nothing, remove: [A] },
    ],
    ['and one', { op: 'Remove', path: 'members', value: { value: A } }, { ...nothing, remove: [A] }],
    ['Okta removes one', { op: 'remove', path: `members[value eq "${A}"]` }, { ...nothing, remove: [A] }],
    [
      'and several',
      { op: 'remove', path: `members[value eq "${A}" or value eq "${B}"]` },
      { ...nothing, remove: [A, B] },
    ],
    ['all go without a value', { op: 'remove', path: 'members' }, { ...nothing, clear: true }],
    ['an empty list removes nobody', { op: 'remove', path: 'members', value: [] }, nothing],
    [
      'Okta pushes the whole list',
      { op: 'replace', path: 'members', value: [{ value: A }, { value: B }] },
      { clear: true, add: [A, B], remove: [] },
    ],
    ['an empty whole list', { op: 'replace', path: 'members', value: [] }, { ...nothing, clear: true }],
    ['Okta renames', { op: 'replace', value: { id: ID, displayName: 'New' } }, { ...nothing, displayName: 'New' }],
    ['Entra renames', { op: 'Replace', path: 'displayName', value: 'New' }, { ...nothing, displayName: 'New' }],
    ['an externalId', { op: 'add', path: 'externalId', value: 'x' }, { ...nothing, externalId: 'x' }],
    ['that goes', { op: 'remove', path: 'externalId' }, { ...nothing, externalId: null }],
    ['other attributes are ignored', { op: 'replace', value: { description: 'x', meta: {}, 'urn:x:y': 5 } }, nothing],
    [
      'the last word on a member counts',
      [
        { op: 'add', path: 'members', value: [A, B] },
        { op: 'remove', path: `members[value eq "${A}"]` },
      ],
      { ...nothing, add: [B], remove: [A] },
    ],
    [
      'also the other way round',
      [
        { op: 'remove', path: 'members', value: [A] },
        { op: 'add', path: 'members', value: [A] },
      ],
      { ...nothing, add: [A] },
    ],
    [
      'what was added before the list goes with the old',
      [
        { op: 'add', path: 'members', value: [A] },
        { op: 'replace', path: 'members', value: [B] },
      ],
      { clear: true, add: [B], remove: [] },
    ],
    [
      'a name of a schema',
      { op: 'add', path: 'urn:ietf:params:scim:schemas:core:2.0:Group:members', value: [A] },
      { ...nothing, add: [A] },
    ],
  ])('%s', (_title, operations, expected) => {
    expect(said(...[operations].flat())).toEqual(expected);
  });

  it.each<[string, unknown]>([
    ['noTarget', { op: 'remove' }],
    ['noTarget', { op: 'replace', path: `members[value eq "${A}"].value`, value: B }],
    ['invalidFilter', { op: 'remove', path: 'members[display eq "x"]' }],
    ['invalidFilter', { op: 'remove', path: 'members[not (value eq "x")]' }],
    ['invalidPath', { op: 'remove', path: 'members[value eq "x"' }],
    ['invalidValue', { op: 'add', path: 'members', value: [5] }],
    ['invalidValue', { op: 'add', path: 'members', value: [{ $ref: 'x' }] }],
    ['invalidValue', { op: 'replace', path: 'members', value: null }],
    ['mutability', { op: 'replace', path: 'id', value: 'x' }],
    ['mutability', { op: 'replace', value: { id: 'x' } }],
    ['mutability', { op: 'remove', path: 'displayName' }],
    ['mutability', { op: 'add', path: 'meta', value: {} }],
  ])('%s: %j', (reason, operation) => {
    expect(() => said(operation)).toThrow(expect.objectContaining({ name: 'ScimError', reason }));
  });
});
