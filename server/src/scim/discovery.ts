/** What a directory asks before it begins (RFC 7644 §4, RFC 7643 §5 to §7): what is supported, and the schemas. */
import type { JsonObject } from '../kernel/json.ts';
import type { ScimCall } from './call.ts';
import { ScimError } from './errors.ts';
import { listResponse, MAX_RESULTS } from './page.ts';
import { GROUP_SCHEMA, USER_SCHEMA } from './resource.ts';

const SCHEMAS = 'urn:ietf:params:scim:schemas:core:2.0';

export function serviceProviderConfig(base: string): JsonObject {
  return {
    schemas: [`${SCHEMAS}:ServiceProviderConfig`],
    patch: { supported: true },
    bulk: { supported: false, maxOperations: 0, maxPayloadSize: 0 },
    filter: { supported: true, maxResults: MAX_RESULTS },
    changePassword: { supported: false },
    sort: { supported: false },
    etag: { supported: true },
    authenticationSchemes: [
      {
        type: 'oauthbearertoken',
        name: 'Bearer token',
        description: 'A SCIM token of the organisation (POST /v1/scim/tokens) in the Authorization header.',
        specUri: 'https://www.rfc-editor.org/info/rfc6750',
        primary: true,
      },
    ],
    meta: { resourceType: 'ServiceProviderConfig', location: `${base}/ServiceProviderConfig` },
  };
}

const TYPES = [
  { name: 'User', endpoint: '/Users', description: 'A user of the organisation', schema: USER_SCHEMA },
  { name: 'Group', endpoint: '/Groups', description: 'A group of users', schema: GROUP_SCHEMA },
] as const;

const typeOf = (type: (typeof TYPES)[number], base: string): JsonObject => ({
  schemas: [`${SCHEMAS}:ResourceType`],
  id: type.name,
  ...type,
  schemaExtensions: [],
  meta: { resourceType: 'ResourceType', location: `${base}/ResourceTypes/${type.name}` },
});

/** @param name null for all of them */
export function resourceTypes(base: string, name: string | null): JsonObject {
  return oneOrAll(
    TYPES.map((type) => [type.name, typeOf(type, base)]),
    name,
  );
}

/** @param urn null for all of them */
export function schemas(
  { base, membersByUser }: Pick<ScimCall, 'base' | 'membersByUser'>,
  urn: string | null,
): JsonObject {
  const [user, group] = [userOf(membersByUser), groupOf(membersByUser)];
  return oneOrAll(
    [
      [USER_SCHEMA, schemaOf(USER_SCHEMA, 'User', 'A user of the organisation', user, base)],
      [GROUP_SCHEMA, schemaOf(GROUP_SCHEMA, 'Group', 'A group of users', group, base)],
    ],
    urn,
  );
}

function oneOrAll(list: readonly (readonly [string, JsonObject])[], name: string | null): JsonObject {
  const all = list.map(([, one]) => one);
  if (name === null) return listResponse(all.length, 1, all);
  const found = list.find(([known]) => known.toLowerCase() === name.toLowerCase());
  if (found === undefined) throw new ScimError('noResource', 'There is no such schema or resource type.');
  return found[1];
}

const schemaOf = (
  id: string,
  name: string,
  description: string,
  attributes: JsonObject[],
  base: string,
): JsonObject => ({
  schemas: [`${SCHEMAS}:Schema`],
  id,
  name,
  description,
  attributes,
  meta: { resourceType: 'Schema', location: `${base}/Schemas/${id}` },
});

function attribute(name: string, description: string, more: JsonObject = {}): JsonObject {
  return {
    name,
    type: 'string',
    multiValued: false,
    description,
    required: false,
    caseExact: false,
    mutability: 'readWrite',
    returned: 'default',
    uniqueness: 'none',
    ...more,
  };
}

const complex = (subAttributes: JsonObject[], multiValued: boolean): JsonObject => ({
  type: 'complex',
  multiValued,
  subAttributes,
});
const values = (value: string) => [
  attribute('value', value),
  attribute('display', 'A name for people.'),
  attribute('type', 'A label, such as work.'),
  attribute('primary', 'True for one element at most.', { type: 'boolean' }),
];
const reference = (of: string) =>
  attribute('$ref', `The address of the ${of}.`, { type: 'reference', referenceTypes: [of] });
const READ_ONLY = { mutability: 'readOnly' };

const userOf = (writesGroups: boolean): JsonObject[] => [
  attribute('userName', 'The e-mail address by which the user is known.', { required: true, uniqueness: 'server' }),
  attribute('name', 'The parts of the name.', {
    ...complex(
      [
        attribute('formatted', 'The whole name.'),
        attribute('givenName', 'The first name.'),
        attribute('familyName', 'The last name.'),
        attribute('middleName', 'The middle name.'),
        attribute('honorificPrefix', 'A title before the name.'),
        attribute('honorificSuffix', 'A title behind the name.'),
      ],
      false,
    ),
  }),
  attribute('displayName', 'The name for people.'),
  attribute('active', 'False: the user cannot sign in, and has no keys and no memberships.', { type: 'boolean' }),
  attribute('emails', 'E-mail addresses, for information.', complex(values('An e-mail address.'), true)),
  attribute('roles', 'The role in the organisation: admin or member.', complex(values('admin or member.'), true)),
  attribute('groups', 'The groups of the user.', {
    ...complex(
      [
        attribute('value', 'The id of the group.', writesGroups ? {} : READ_ONLY),
        reference('Group'),
        attribute('display', 'The name of the group.', READ_ONLY),
      ],
      true,
    ),
    ...(writesGroups ? {} : READ_ONLY),
  }),
];

const groupOf = (readsMembers: boolean): JsonObject[] => [
  attribute('displayName', 'The name of the group.', { required: true, uniqueness: 'server' }),
  attribute('members', 'The users of the group.', {
    ...complex(
      [
        attribute('value', 'The id of the user.', { mutability: 'immutable' }),
        reference('User'),
        attribute('display', 'The address of the user.', READ_ONLY),
        attribute('type', 'User.', { mutability: 'immutable', canonicalValues: ['User'] }),
      ],
      true,
    ),
    ...(readsMembers ? READ_ONLY : {}),
  }),
];
