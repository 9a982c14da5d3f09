/** The OpenAPI 3.1 document, generated from the same rows that the handler serves. */

import { z } from 'zod';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import type { AnyAction } from '../resources/resource.ts';
import { CONSOLE_ACTIONS, type ConsoleAction } from './console-actions.ts';
import { ADMIN_ERRORS } from './errors.ts';
import { takesIdempotencyKey } from './idempotency.ts';
import { Components, pascal, shareParameters, titled } from './openapi-components.ts';
import { operatorActions } from './operator.ts';
import { JSON_OK, statusOf } from './respond.ts';
import { type AdminRow, expandAll, pathsOf } from './route.ts';
import { SIGN_IN_ACTIONS, type SignInAction } from './sign-in.ts';

const DESCRIPTION = [
  'An AI gateway with its own control plane.',
  'The version is that of Sluice; the administration paths follow version 2.0.0 of the interface description.',
  'Every administration path answers under `/v1` and, with the same shapes, under `/v2`; this document lists `/v1`.',
  'Errors have one body, `{error: {code, message, param, type}}`, and carry the header `x-gateway-request-id`.',
].join(' ');

const SECURITY_SCHEMES: JsonObject = {
  apiKey: {
    type: 'apiKey',
    in: 'header',
    name: 'x-gateway-api-key',
    description: 'An organisation-service, workspace-service or workspace-user key.',
  },
  bearer: { type: 'http', scheme: 'bearer', description: 'The same key, where x-gateway-api-key is absent.' },
  operatorKey: {
    type: 'apiKey',
    in: 'header',
    name: 'x-gateway-api-key',
    description: 'The operator key of the installation (`slc_opr_…`).',
  },
  signInToken: {
    type: 'http',
    scheme: 'bearer',
    description: 'The `auth_token` of a sign-in (`slc_sat_…`).',
  },
  scimToken: {
    type: 'http',
    scheme: 'bearer',
    description: 'A SCIM token (`slc_scm_…`). It opens SCIM of its organisation, and nothing else.',
  },
  session: {
    type: 'apiKey',
    in: 'cookie',
    name: 'sluice_session',
    description: 'Console sign-in; writes also need the x-csrf-token header.',
  },
};

const ERROR: JsonObject = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['code', 'message', 'param', 'type'],
      properties: {
        code: { type: ['string', 'null'], examples: [ADMIN_ERRORS.validation.code] },
        message: { type: 'string' },
        param: { type: ['string', 'null'], description: 'Dotted path of the field at fault.' },
        type: { type: 'string', enum: [ADMIN_ERRORS.validation.type, ADMIN_ERRORS.internal.type] },
      },
    },
    errors: {
      type: 'array',
      description: 'All that is wrong with the request, the problem of `error` first; absent where it is the only one.',
      items: {
        type: 'object',
        required: ['param', 'message'],
        properties: { param: { type: ['string', 'null'] }, message: { type: 'string' } },
      },
    },
  },
};

const HEADERS: JsonObject = {
  RequestId: { schema: { type: 'string' } },
  IdempotencyReplayed: { schema: { type: 'string', enum: ['true'] } },
};
const REQUEST_ID: JsonObject = { $ref: '#/components/headers/RequestId' };

const PROBLEMS = {
  '400': ['Invalid', 'The request breaks a rule of this document (`AB01`).'],
  '401': ['Unauthenticated', 'No or no valid credential (`AB05`).'],
  '403': ['Forbidden', 'The credential lacks a scope or a right (`AB03`).'],
  '404': ['NotFound', 'The object does not exist or is not visible (`AB08`), or a named one does not (`AB02`).'],
  '409': ['Conflict', 'It exists already, or is still used (`AB07`).'],
  '413': ['TooLarge', 'The body is larger than 1 MB (`AB01`).'],
  '429': ['TooManyRequests', 'Own rate limit of the API (`AB06`); see Retry-After.'],
  '500': ['Failed', 'Unexpected failure (`AB04`).'],
  '503': ['Unavailable', 'The store cannot be reached (`AB04`); see Retry-After.'],
} as const;

const IDEMPOTENCY_KEY: JsonObject = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  schema: { type: 'string', minLength: 1, maxLength: 255, pattern: '^[!-~]+$' },
  description:
    'A value you choose, new for each operation. Sluice then carries the request out once: sent again within 24 hours it ' +
    'gets the first answer, with `idempotency-replayed: true`. An answer that shows a secret is repeated for 10 minutes, ' +
    'afterwards the answer is 409. Another request under the same key is 400. Refused requests do not use the key up.',
};

/**
 * The whole document, of the product version `version`. `extraPaths` are complete path items of routes that are not rows, such as the data plane's; the
 * operator's rows are always part of it. The same input gives the same text.
 */
export function buildOpenApi(actions: readonly AnyAction[], version: string, extraPaths: JsonObject = {}): JsonObject {
  const rows: AdminRow[] = [...actions, ...operatorActions(async () => ({}))];
  const components = new Components();
  const paths: Record<string, JsonObject> = {};
  for (const [path, item] of Object.entries(extraPaths)) {
    const shown = components.schema(item, 'output');
    if (isObject(shown)) paths[path] = shown;
  }
  for (const row of rows) {
    const method = row.method.toLowerCase();
    const add = (path: string, id: string) => {
      const key = templateOf(path);
      paths[key] = { ...paths[key], [method]: { ...operation(row, components), operationId: id } };
    };
    add(pathsOf(row)[0], row.id);
    for (const [index, alias] of (row.aliases ?? []).entries()) add(alias, `${row.id}.alias${index + 1}`);
  }
  for (const row of SIGN_IN_ACTIONS) {
    const path = `/v2${row.path}`;
    paths[path] = { ...paths[path], [row.method.toLowerCase()]: signInOperation(row, components) };
  }
  const parameters = shareParameters(paths);
  const tags = [...new Set(Object.values(paths).flatMap(tagsOf))].sort().map((name) => ({ name, ...tagText(name) }));
  return {
    openapi: '3.1.0',
    info: { title: 'Sluice', version, description: DESCRIPTION, license: { name: 'Apache-2.0' } },
    servers: [{ url: '/', description: 'This gateway; `base_url` is its `/v1`.' }],
    tags,
    paths: Object.fromEntries(Object.entries(paths).sort(([a], [b]) => (a < b ? -1 : 1))),
    components: {
      securitySchemes: SECURITY_SCHEMES,
      schemas: { Error: ERROR, ...components.schemas },
      parameters: { IdempotencyKey: IDEMPOTENCY_KEY, ...parameters },
      headers: HEADERS,
      responses: Object.fromEntries(
        Object.values(PROBLEMS).map(([name, description]) => [
          name,
          {
            description,
            headers: { 'x-gateway-request-id': REQUEST_ID },
            content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
          },
        ]),
      ),
    },
  };
}

/**
 * The calls that only the console makes, as the paths and schemas of an OpenAPI document. The types of the console are made of
 * it; it is part of no document that is served.
 */
export function consoleDocument(): JsonObject {
  const components = new Components();
  const paths: Record<string, JsonObject> = {};
  for (const row of CONSOLE_ACTIONS) {
    const path = templateOf(row.path);
    paths[path] = { ...paths[path], [row.method.toLowerCase()]: consoleOperation(row, components) };
  }
  return { paths, components: { schemas: components.schemas } };
}

function consoleOperation({ id, summary, params, body, answer }: ConsoleAction, components: Components): JsonObject {
  const content = (schema: z.ZodType, title: string, io: 'input' | 'output'): JsonObject => ({
    content: { 'application/json': { schema: components.schema(titled(title, schemaOf(schema, io)), io) } },
  });
  const status = answer.as === 'json' ? answer.status : answer.as === 'nothing' ? 204 : 200;
  return {
    operationId: id,
    summary,
    parameters: parametersOf(params, 'path'),
    ...(body === null ? {} : { requestBody: { required: true, ...content(body, `${pascal(id)}Body`, 'input') } }),
    responses: {
      [status]: answer.as === 'json' ? content(answer.schema, `${pascal(id)}Answer`, 'output') : {},
    },
  };
}

function signInOperation(row: SignInAction, components: Components): JsonObject {
  const { id, summary, description, auth, query, body, response } = row;
  const content = (schema: z.ZodType, title: string, io: 'input' | 'output'): JsonObject => ({
    content: { 'application/json': { schema: components.schema(titled(title, schemaOf(schema, io)), io) } },
  });
  const refused = ['400', '401', '403', '404', '413', '429', '500', '503'] as const;
  return {
    tags: ['Sign-in'],
    operationId: id,
    summary,
    description,
    security: auth === 'public' ? [] : [{ session: [] }, { signInToken: [] }],
    parameters: parametersOf(query, 'query'),
    ...(body === null ? {} : { requestBody: { required: true, ...content(body, `${pascal(id)}Body`, 'input') } }),
    responses: {
      '200': {
        description: 'Done.',
        headers: { 'x-gateway-request-id': REQUEST_ID },
        ...content(response, `${pascal(id)}Answer`, 'output'),
      },
      ...Object.fromEntries(
        refused.map((status) => [status, { $ref: `#/components/responses/${PROBLEMS[status][0]}` }]),
      ),
    },
  };
}

const templateOf = (path: string): string => path.replace(/:(\w+)/g, '{$1}');

function tagsOf(item: JsonObject): JsonValue[] {
  return Object.values(item).flatMap((each) => (isObject(each) && Array.isArray(each.tags) ? each.tags : []));
}

function operation(row: AdminRow, components: Components): JsonObject {
  const body = row.body === null ? null : schemaOf(row.body, 'input');
  const content: JsonObject = body === null ? {} : { schema: components.schema(titled(bodyName(row), body), 'input') };
  if (row.example?.body !== undefined) content.example = row.example.body as JsonValue;
  const once = takesIdempotencyKey(row);
  const required = isObject(body) && Array.isArray(body.required) && body.required.length > 0;
  return {
    tags: [row.tag],
    summary: row.summary,
    description: describe(row),
    security: securityOf(row),
    ...(row.scopes.length > 0 ? { 'x-scopes': scopeNames(row) } : {}),
    parameters: [
      ...parametersOf(row.params, 'path'),
      ...parametersOf(row.query, 'query'),
      ...(once ? [{ $ref: '#/components/parameters/IdempotencyKey' }] : []),
    ],
    ...(body === null ? {} : { requestBody: { required, content: { [bodyType(row)]: content } } }),
    responses: {
      [statusOf(row.answers)]: {
        description: 'Done.',
        headers: {
          'x-gateway-request-id': REQUEST_ID,
          ...(once ? { 'idempotency-replayed': { $ref: '#/components/headers/IdempotencyReplayed' } } : {}),
          ...(row.answers?.as === 'redirect' ? { location: { schema: { type: 'string', format: 'uri' } } } : {}),
        },
        ...contentOf(row, components),
      },
      ...problemsOf(row),
    },
  };
}

const bodyType = (row: AdminRow) => (row.takes === 'form' ? 'application/x-www-form-urlencoded' : 'application/json');

/** The body of a successful answer; nothing of one that has none. */
function contentOf(row: AdminRow, components: Components): JsonObject {
  const { as } = row.answers ?? JSON_OK;
  if (as === 'nothing' || as === 'redirect') return {};
  if (as === 'events') return { content: { 'text/event-stream': { schema: eventsOf(row, components) } } };
  const content: JsonObject = { schema: components.schema(answerOf(row), 'output') };
  if (row.example?.response !== undefined) content.example = row.example.response as JsonValue;
  const type = row.answers?.as === 'text' ? row.answers.contentType.split(';', 1)[0] : 'application/json';
  return { content: { [type ?? '']: content } };
}

/** The events of an answer, whose form is that of the turns they are made in. */
function eventsOf(row: AdminRow, components: Components): JsonObject {
  const { properties } = schemaOf(row.response, 'output');
  const events = isObject(properties) && isObject(properties.events) ? properties.events.items : undefined;
  return components.schema(titled(`${pascal(row.id)}Event`, isObject(events) ? events : {}), 'output') as JsonObject;
}

const VERBS: Readonly<Record<string, readonly [body: string, answer: string]>> = {
  list: ['', 'List'],
  create: ['Create', 'Created'],
  read: ['', ''],
  update: ['Update', 'Updated'],
  delete: ['Delete', 'Deleted'],
};

/** Names of the body and of the answer: by the noun of a resource and the verb, by the operation otherwise. */
function namesOf(row: AdminRow): readonly [body: string, answer: string] {
  const verb = VERBS[row.id.slice(row.id.lastIndexOf('.') + 1)];
  if (row.component === undefined || verb === undefined) return [`${pascal(row.id)}Body`, `${pascal(row.id)}Answer`];
  return [row.component + verb[0], row.component + verb[1]];
}

const bodyName = (row: AdminRow): string => namesOf(row)[0];

/** The schema of an answer, under its name; in a list the items have one too. */
function answerOf(row: AdminRow): JsonObject {
  const [, name] = namesOf(row);
  const schema = schemaOf(row.response, 'output');
  if (isObject(schema.properties) && Object.keys(schema.properties).length === 0) return titled('Empty', schema);
  const data = isObject(schema.properties) ? schema.properties.data : undefined;
  if (!isObject(data) || !isObject(data.items) || !isObject(data.items.properties)) return titled(name, schema);
  const item = titled(`${row.component ?? name.replace(/Answer$/, '')}Item`, data.items);
  return titled(name, {
    ...schema,
    properties: { ...(schema.properties as JsonObject), data: { ...data, items: item } },
  });
}

const scopeNames = (row: AdminRow): string[] => row.scopes.flatMap((scope) => expandAll(scope, row.params));

function describe(row: AdminRow): string {
  const scopes = scopeNames(row).map((scope) => `\`${scope}\``);
  const needs =
    scopes.length === 0 ? '' : `Needs ${scopes.length > 1 ? 'one of the scopes' : 'the scope'} ${scopes.join(', ')}.`;
  return [row.description ?? '', needs].filter(Boolean).join('\n\n');
}

function securityOf(row: AdminRow): JsonValue[] {
  if (row.auth === 'operator') return [{ operatorKey: [] }];
  const keys: JsonValue[] = row.auth === 'login' ? [] : [{ apiKey: [] }, { bearer: [] }];
  return row.auth === 'key' ? keys : [...keys, { session: [] }, { signInToken: [] }];
}

function problemsOf(row: AdminRow): JsonObject {
  const names: (keyof typeof PROBLEMS)[] = ['400', '401', '403', '429', '500', '503'];
  if (row.path.includes(':') || row.tenant !== 'none') names.push('404');
  if (row.writes) names.push('409');
  if (row.body !== null) names.push('413');
  return Object.fromEntries(
    names.sort().map((status) => [status, { $ref: `#/components/responses/${PROBLEMS[status][0]}` }]),
  );
}

function parametersOf(schema: z.ZodType | null, place: 'path' | 'query'): JsonValue[] {
  if (schema === null) return [];
  const { properties, required } = schemaOf(schema, 'input') as { properties?: JsonObject; required?: JsonValue[] };
  return Object.entries(properties ?? {}).map(([name, property]) => {
    const { description, ...rest } = isObject(property) ? property : {};
    return {
      name,
      in: place,
      required: place === 'path' || (required ?? []).includes(name),
      ...(description === undefined ? {} : { description }),
      schema: rest,
    };
  });
}

function schemaOf(schema: z.ZodType, io: 'input' | 'output'): JsonObject {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any', reused: 'inline' });
  return tidy(rest as JsonObject, io) as JsonObject;
}

/** Drops what says nothing to a reader: bounds of a double, patterns beside a format, closed answers. */
function tidy(value: JsonValue | undefined, io: 'input' | 'output'): JsonValue {
  if (Array.isArray(value)) return value.map((item) => tidy(item, io));
  if (!isObject(value)) return value ?? null;
  const out: JsonObject = {};
  for (const [name, item] of Object.entries(value)) {
    if (name === 'pattern' && (value.format !== undefined || value.type !== 'string')) continue;
    if (name === 'enum' && value.type === 'boolean') continue;
    if ((name === 'maximum' || name === 'minimum') && Math.abs(Number(item)) === Number.MAX_SAFE_INTEGER) continue;
    // Answers may gain fields.
    if (name === 'additionalProperties' && io === 'output' && item === false) continue;
    if (name === 'propertyNames' && isObject(item) && Object.keys(item).length === 1) continue;
    out[name] = name === 'properties' && isObject(item) ? tidyAll(item, io) : tidy(item, io);
  }
  return out;
}

/** Names of properties are the document's, not keywords of JSON Schema. */
function tidyAll(properties: JsonObject, io: 'input' | 'output'): JsonObject {
  return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, tidy(schema, io)]));
}

/** What the operations of each tag are about. */
const TAG_TEXTS: Readonly<Record<string, string>> = {
  'API keys': 'Keys of organisations, workspaces and users: their scopes, limits and rotation.',
  Analytics: 'Figures over stored requests: graphs, groups and what other models would have cost.',
  'Audit logs': 'Who changed what, and when.',
  Batches: 'Many requests in one file, answered later.',
  Configs: 'Saved routing of requests: targets, fallbacks, retries, the cache and guardrails.',
  Deployments: 'Gateways that are registered with an organisation.',
  Feedback: 'What users and guardrails thought of answers.',
  Files: 'Files for batches and fine-tuning.',
  'Fine-tuning': 'Jobs that train a model on a file.',
  Guardrails: 'Checks of requests and answers, and what a failed one does.',
  Inference: 'Requests to models, in the formats of OpenAI and Anthropic.',
  Integrations: 'Provider accounts with their credentials, models and workspaces.',
  Logs: 'Records of requests, and how each was decided.',
  Operator: 'The whole installation: its health and its organisations. These calls take the operator key.',
  Organisation: 'Settings and defaults of the organisation.',
  Policies: 'Rate limits and budgets for groups of requests.',
  Providers: 'Provider accounts as one workspace uses them: the `slug` of `@slug/model`.',
  'Log destinations': 'Collectors, webhooks and buckets that requests are sent to as they come.',
  SCIM: 'Tokens of the directories that keep users and groups.',
  'SCIM protocol': 'SCIM 2.0 (RFC 7644), by which a directory keeps users and groups. These calls take a SCIM token.',
  'Secret references': 'Names for secrets that stay in a secret manager.',
  OAuth: 'Our own OAuth server, for MCP clients and the command line.',
  'SSO clients': 'Registrations at the identity providers that users of the organisation sign in with.',
  'Sign-in': 'Signing in and out, and tokens for the API and the command line.',
  Users: 'People of the organisation, their roles and invites.',
  Utilities: 'Small checks for clients.',
  'Virtual keys': 'The older form of a provider with its credential. New workspaces use integrations and providers.',
  'Workspace exclusions': 'Workspaces that default guardrails leave out.',
  Workspaces: 'Workspaces and their members.',
};

function tagText(name: JsonValue): JsonObject {
  const description = TAG_TEXTS[String(name)];
  return description === undefined ? {} : { description };
}
