/** SCIM in the OpenAPI document. Its objects are those of RFC 7643. */
import type { JsonObject } from '../kernel/json.ts';

const PATH = '/v1/scim/{organisationId}';

const QUERY = ['filter', 'startIndex', 'count', 'attributes', 'excludedAttributes'] as const;
const TEXTS: Readonly<Record<(typeof QUERY)[number], string>> = {
  filter:
    'A filter of RFC 7644 §3.4.2.2, of at most 4,000 characters and 100 conditions: `userName eq "ada@example.com"`.',
  startIndex: 'The first resource of the page, from 1.',
  count: 'The resources of the page: 100 when absent, at most 200.',
  attributes: 'The attributes of the answer, with commas between them; id and schemas are always there.',
  excludedAttributes: 'Attributes that the answer leaves out: `members` of large groups.',
};

const MEDIA = 'application/scim+json';
const FORM: JsonObject = { type: 'object' };
const content: JsonObject = { [MEDIA]: { schema: FORM } };

const parameter = (name: string, where: 'path' | 'query', description: string): JsonObject => ({
  name,
  in: where,
  required: where === 'path',
  schema: { type: 'string' },
  description,
});
const asked = (names: readonly (typeof QUERY)[number][]) => names.map((name) => parameter(name, 'query', TEXTS[name]));

function operation(
  id: string,
  summary: string,
  more: { parameters?: JsonObject[]; body?: boolean; made?: boolean; empty?: boolean },
): JsonObject {
  const { parameters = [], body = false, made = false, empty = false } = more;
  const done: JsonObject = empty
    ? { '204': { description: 'Done.' } }
    : { '200': { description: made ? 'It was there already.' : 'Done.', content } };
  return {
    operationId: `scim.${id}`,
    tags: ['SCIM protocol'],
    summary,
    security: [{ scimToken: [] }],
    parameters: [parameter('organisationId', 'path', 'The organisation of the token.'), ...parameters],
    ...(body ? { requestBody: { required: true, content } } : {}),
    responses: {
      ...(made ? { '201': { description: 'Made.', content } } : {}),
      ...done,
      default: { description: 'An error of RFC 7644 §3.12: `{schemas, status, scimType?, detail}`.', content },
    },
  };
}

/** Paths of the protocol, as a directory finds them. */
export function scimPaths(): JsonObject {
  const out: JsonObject = {};
  const id = parameter('id', 'path', 'The id that Sluice gave.');
  const shown = asked(['attributes', 'excludedAttributes']);
  for (const [name, one, many] of [
    ['Users', 'user', 'users'],
    ['Groups', 'group', 'groups'],
  ] as const) {
    out[`${PATH}/${name}`] = {
      get: operation(`${many}.list`, `List or find ${many}`, { parameters: asked(QUERY) }),
      post: operation(`${many}.create`, `Make a ${one}, or find the one of this name`, { body: true, made: true }),
    };
    out[`${PATH}/${name}/.search`] = {
      post: operation(`${many}.search`, `List or find ${many} by a body`, { body: true }),
    };
    out[`${PATH}/${name}/{id}`] = {
      get: operation(`${many}.read`, `Read a ${one}`, { parameters: [id, ...shown] }),
      put: operation(`${many}.replace`, `Replace a ${one}`, { parameters: [id], body: true }),
      patch: operation(`${many}.update`, `Change a ${one}`, { parameters: [id], body: true, empty: one === 'group' }),
      delete: operation(`${many}.delete`, `Delete a ${one}`, { parameters: [id], empty: true }),
    };
  }
  const discovered = [
    ['ServiceProviderConfig', 'Read what SCIM supports here'],
    ['ResourceTypes', 'List the kinds of resources'],
    ['Schemas', 'List the schemas'],
  ] as const;
  for (const [name, summary] of discovered)
    out[`${PATH}/${name}`] = { get: operation(name.toLowerCase(), summary, {}) };
  return out;
}
