import { describe, expect, it } from 'vitest';
import { lookupsOf, matches, parseFilter, parsePath } from './filter.ts';

/** The user of RFC 7643 §8.2, shortened, and what Sluice adds. */
const ADA = {
  id: '2819c223-7f76-453a-919d-413861904646',
  externalId: 'Ada-01',
  userName: 'bjensen@example.com',
  displayName: 'Babs Jensen',
  title: 'Vice President',
  userType: 'Employee',
  name: { formatted: 'Ms. Barbara J Jensen, III', familyName: "O'Malley", givenName: 'Barbara' },
  active: true,
  emails: [
    { value: 'bjensen@example.com', type: 'work', primary: true },
    { value: 'babs@jensen.org', type: 'home' },
  ],
  roles: [{ value: 'admin', primary: true }],
  groups: [{ value: 'e9e30dba-f08f-4109-8486-d5c6a331660a', display: 'Tour Guides' }],
  meta: { resourceType: 'User', created: '2010-01-23T04:56:22.000Z', lastModified: '2011-05-13T04:42:34.000Z' },
};
const CORE = 'urn:ietf:params:scim:schemas:core:2.0:User:';

describe('a filter finds what RFC 7644 says', () => {
  it.each<[string, boolean]>([
    // The examples of §3.4.2.2.
    ['userName eq "bjensen@example.com"', true],
    [`name.familyName co "O'Malley"`, true],
    ['userName sw "B"', true],
    [`${CORE}userName sw "B"`, true],
    ['title pr', true],
    ['meta.lastModified gt "2011-05-13T04:42:34Z"', false],
    ['meta.lastModified ge "2011-05-13T04:42:34Z"', true],
    ['meta.lastModified lt "2011-05-13T04:42:34Z"', false],
    ['meta.lastModified le "2011-05-13T04:42:34Z"', true],
    ['title pr and userType eq "Employee"', true],
    ['title pr or userType eq "Intern"', true],
    ['schemas eq "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"', false],
    ['userType eq "Employee" and (emails co "example.com" or emails.value co "example.org")', true],
    ['userType ne "Employee" and not (emails co "example.com" or emails.value co "example.org")', false],
    ['userType eq "Employee" and (emails.type eq "work")', true],
    ['userType eq "Employee" and emails[type eq "work" and value co "@example.com"]', true],
    ['emails[type eq "work" and value co "@example.com"] or ims[type eq "xmpp" and value co "@foo.com"]', true],
    // Case.
    ['USERNAME EQ "BJENSEN@EXAMPLE.COM"', true],
    ['displayname eq "babs jensen"', true],
    ['externalId eq "Ada-01"', true],
    ['externalId eq "ada-01"', false],
    ['id eq "2819C223-7F76-453A-919D-413861904646"', false],
    ['groups.value eq "e9e30dba-f08f-4109-8486-d5c6a331660a"', true],
    ['groups eq "e9e30dba-f08f-4109-8486-d5c6a331660a"', true],
    ['userName Sw "b" AND NOT (active eq false)', true],
    // Each operator.
    ['userName ew "example.com"', true],
    ['userName ew "example.org"', false],
    ['userName ne "x"', true],
    ['nickName ne "x"', true],
    ['userName gt "a"', true],
    ['userName gt "c"', false],
    ['userName ge "bjensen@example.com"', true],
    ['userName lt "c"', true],
    ['userName le "a"', false],
    ['nickName pr', false],
    ['nickName eq null', true],
    ['userName eq null', false],
    ['userName ne null', true],
    ['name pr', true],
    ['emails pr', true],
    ['photos pr', false],
    // Booleans, also as texts.
    ['active eq true', true],
    ['active eq "True"', true],
    ['active eq false', false],
    ['active eq "False"', false],
    ['active ne false', true],
    ['roles[primary eq "True"].value eq "admin"', true],
    ['emails[primary eq true].type eq "home"', false],
    // The same element must meet both.
    ['emails[type eq "home" and value co "example.com"]', false],
    ['emails[type eq "work"].value eq "bjensen@example.com"', true],
    ['emails[type eq "home"].value eq "bjensen@example.com"', false],
    ['emails[type eq "work" or type eq "other"].value sw "BJ"', true],
    ['emails[not (type eq "work")].value eq "babs@jensen.org"', true],
    // not > and > or.
    ['userName eq "x" and active eq true or title pr', true],
    ['title pr or active eq true and userName eq "x"', true],
    ['(title pr or active eq true) and userName eq "x"', false],
    ['not (title pr) or active eq true', true],
    ['not (title pr or active eq true)', false],
    // Nothing of a text is a wildcard.
    ['userName eq "%"', false],
    ['userName co "%"', false],
    ['userName sw "_jensen"', false],
    ['userName co "*"', false],
    ['displayName eq "Babs\\u0020Jensen"', true],
    // Schemas that Sluice does not have.
    ['urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department eq "x"', false],
    ['urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department ne "x"', true],
    ['urn:x:y pr', false],
    ['userName eq 5', false],
    ['meta.resourceType eq "user"', true],
    ['emails.display eq "x"', false],
  ])('%s: %s', (text, found) => {
    expect(matches(parseFilter(text), ADA)).toBe(found);
  });

  it.each([
    '',
    '   ',
    'userName',
    'userName eq',
    'userName eq value',
    "userName eq 'x'",
    'userName eq "x',
    'userName eq "x" and',
    'userName eq "x" or or active pr',
    'and userName pr',
    'userName is "x"',
    'userName eq "x" userName pr',
    '(userName pr',
    'userName pr)',
    '()',
    'not userName pr',
    'not (userName pr',
    'emails[type eq "work"',
    'emails[]',
    'emails type eq "work"]',
    'emails[type eq "work"].',
    'emails[type eq "work"].value',
    'user..name pr',
    'a.b.c pr',
    '.userName pr',
    '1name pr',
    '"userName" eq "x"',
    'userName co 5',
    'userName sw true',
    'userName ew null',
    'active gt true',
    'active ge "x"',
    'userName lt null',
    'emails.primary gt 1',
    'meta.created gt "yesterday"',
    'meta.created eq 5',
    'userName eq "\\x"',
    'userName eq "a\nb"',
    'userName eq +5',
    'userName eq 1e',
    'userName eq 0x10',
    '__proto__ pr',
    '__proto__.x eq "y"',
    'constructor.prototype pr',
    'name.__proto__ pr',
    'name.constructor pr',
    'PROTOTYPE pr',
    'emails[__proto__ pr]',
    'emails[type eq "work"].__proto__ eq "x"',
    'urn:a:constructor.prototype.x pr',
    `userName eq "${'a'.repeat(4_000)}"`,
    `${'('.repeat(21)}title pr${')'.repeat(21)}`,
    '('.repeat(2_000),
    Array.from({ length: 101 }, () => 'a pr').join(' or '),
  ])('%s is refused as invalidFilter', (text) => {
    expect(() => parseFilter(text)).toThrow(expect.objectContaining({ name: 'ScimError', reason: 'invalidFilter' }));
  });

  it('of 100 conditions and 20 levels is read', () => {
    expect(matches(parseFilter(Array.from({ length: 100 }, () => 'nick pr').join(' or ')), ADA)).toBe(false);
    expect(matches(parseFilter(`${'('.repeat(20)}title pr${')'.repeat(20)}`), ADA)).toBe(true);
  });

  it('may name everything that objects share, and finds nothing of it', () => {
    for (const name of ['toString', 'valueOf', 'hasOwnProperty']) {
      expect(matches(parseFilter(`${name} pr`), ADA)).toBe(false);
    }
  });
});

describe('an index is asked for what a filter names', () => {
  const indexed = new Set(['id', 'username', 'members.value']);
  it.each<[string, object[] | null]>([
    ['userName eq "A"', [{ name: 'username', value: 'A' }]],
    [`${CORE}userName eq "A"`, [{ name: 'username', value: 'A' }]],
    ['userName eq "A" and active eq true', [{ name: 'username', value: 'A' }]],
    ['active eq true and userName eq "A"', [{ name: 'username', value: 'A' }]],
    [
      'userName eq "A" or id eq "B"',
      [
        { name: 'username', value: 'A' },
        { name: 'id', value: 'B' },
      ],
    ],
    ['(userName eq "A" or id eq "B") and id eq "C"', [{ name: 'id', value: 'C' }]],
    ['id eq "g" and members eq "u"', [{ name: 'id', value: 'g' }]],
    ['members[value eq "u"]', [{ name: 'members.value', value: 'u' }]],
    ['members.value eq "u"', [{ name: 'members.value', value: 'u' }]],
    ['userName eq "A" or active eq true', null],
    ['not (userName eq "A")', null],
    ['userName ne "A"', null],
    ['userName sw "A"', null],
    ['userName eq true', null],
    ['active eq true', null],
    ['urn:x:userName eq "A"', null],
  ])('%s', (text, lookups) => {
    expect(lookupsOf(parseFilter(text), indexed)).toEqual(lookups);
  });
});

describe('the path of an operation', () => {
  const plain = (name: string, sub: string | null = null) => ({
    attribute: { name, sub, foreign: false },
    filter: null,
  });
  it.each([
    ['members', plain('members')],
    ['NAME.familyName', plain('name', 'familyname')],
    [`${CORE}userName`, plain('username')],
    [`${CORE}name.givenName`, plain('name', 'givenname')],
    ['emails[type eq "work"].value', { attribute: { name: 'emails', sub: 'value', foreign: false } }],
    ['members[value eq "a" ]', { attribute: { name: 'members', sub: null, foreign: false } }],
    [
      'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager',
      { attribute: { foreign: true }, filter: null },
    ],
    ['urn:x[type eq "work"].y', { attribute: { foreign: true } }],
  ])('%s is read', (text, path) => {
    expect(parsePath(text)).toMatchObject(path);
  });

  it.each([
    ' ',
    'members[',
    'members[]',
    'members]',
    'members[value eq "a"',
    'members[value eq "a"] value',
    'members[value eq "a"].',
    'members.value[a pr]',
    'a b',
    'a.b.c',
    '.a',
    '__proto__',
    '__proto__.x',
    'constructor.prototype.x',
    'constructor',
    'name.__proto__',
    'emails[type eq "work"].__proto__',
    'emails[constructor pr].value',
    'urn:x:__proto__.y',
  ])('%s is refused as invalidPath', (text) => {
    expect(() => parsePath(text)).toThrow(expect.objectContaining({ reason: 'invalidPath' }));
  });
});
