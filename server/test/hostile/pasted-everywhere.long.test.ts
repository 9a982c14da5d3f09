/**
 * A credential in every place of every route: parts of paths, queries, headers, members of bodies and their names. The
 * routes are those of the OpenAPI document, so that a new one is among them.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLogger } from '../../src/telemetry/logger.ts';
import { startServer, type TestServer } from '../support/server.ts';

interface Form {
  readonly text: string;
  readonly core: string;
}

/** By form; what must not be repeated is `core`. */
const FORMS: readonly Form[] = [
  {
    text: 'slc_wks_0A1b2C3d4E5f_0A1b2C3d4E5f6G7h8I9jKlMnOpQrStUvWxYz0123456_0A1b2C',
    core: '0A1b2C3d4E5f6G7h8I9jKlMnOpQrStUvWxYz0123456',
  },
  { text: 'sk-proj-0a1b2c3d4e5f6g7h8i9jklmnopqr', core: '0a1b2c3d4e5f6g7h8i9jklmnopqr' },
  { text: 'gsk_9Z8y7X6w5V4u3T2s1R0qPoNmLkJiHgFe', core: '9Z8y7X6w5V4u3T2s1R0qPoNmLkJiHgFe' },
  { text: 'Bearer 7f3d1c9ab2e84d56a0917c33', core: '7f3d1c9ab2e84d56a0917c33' },
  { text: 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmVkLWJ5LW5vLW9uZQ', core: 'c2lnbmVkLWJ5LW5vLW9uZQ' },
  { text: 'AKIA7QWERTYUIOPASDFG', core: '7QWERTYUIOPASDFG' },
];
/** A trace has such an id, and so may an object: only refusals leave it out. */
const BARE: Form = { text: 'fedcba98765432100123456789abcdef', core: 'fedcba98765432100123456789abcdef' };

type Schema = Record<string, unknown>;
interface Operation {
  readonly parameters?: readonly Schema[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { schema?: Schema; example?: unknown }>> };
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

interface Call {
  readonly at: string;
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

let server: TestServer;
let document: Document;
const lines: string[] = [];

beforeAll(async () => {
  document = JSON.parse(await readFile(new URL('../../../docs/openapi.json', import.meta.url), 'utf8')) as Document;
  const log = createLogger({ level: 'debug', format: 'json', write: (line) => lines.push(line) });
  server = await startServer({}, { writeAccess: (text) => lines.push(text) }, log);
});
afterAll(() => server?.stop());

/** A schema or parameter without its reference. */
function followed(given: Schema): Schema {
  const { $ref } = given;
  if (typeof $ref !== 'string') return given;
  return followed(
    $ref
      .slice(2)
      .split('/')
      .reduce((at: unknown, name) => (at as Schema)[name], document) as Schema,
  );
}

/** A value that fits, as far as it goes. */
function sample(given: Schema, depth = 0): unknown {
  const schema = followed(given);
  for (const known of [schema.const, schema.default, (schema.enum as unknown[] | undefined)?.[0]]) {
    if (known !== undefined) return known;
  }
  const [branch] = (schema.anyOf ?? schema.oneOf ?? []) as Schema[];
  if (branch !== undefined) return sample(branch, depth + 1);
  switch (schema.type) {
    case 'array':
      return depth > 4 || schema.items === undefined ? [] : [sample(schema.items as Schema, depth + 1)];
    case 'integer':
    case 'number':
      return schema.minimum ?? 1;
    case 'boolean':
      return true;
    case 'string':
      return 'made';
    default:
      if (depth > 4) return {};
      return Object.fromEntries(
        Object.entries((schema.properties ?? {}) as Record<string, Schema>).map(([name, one]) => [
          name,
          sample(one, depth + 1),
        ]),
      );
  }
}

/** The value with something else in each of its places, and with a member of an unknown name. */
function* replaced(value: unknown, put: string, path = ''): Generator<[string, unknown]> {
  yield [`${path} itself`, put];
  if (typeof value !== 'object' || value === null) return;
  if (!Array.isArray(value)) yield [`${path}.*`, { ...value, [put]: put }];
  for (const [name, one] of Object.entries(value)) {
    for (const [at, other] of replaced(one, put, `${path}.${name}`)) {
      yield [
        at,
        Array.isArray(value) ? value.map((item) => (item === one ? other : item)) : { ...value, [name]: other },
      ];
    }
  }
}

function* callsOf(
  path: string,
  method: string,
  operation: Operation,
  form: () => Form,
): Generator<Call & { form: Form }> {
  const parameters = (operation.parameters ?? []).map(followed);
  const at = (place: string) => `${method.toUpperCase()} ${path} ${place}`;
  const plain = path.replace(/\{\w+\}/g, 'made');
  const [type = 'application/json', content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  const whole = content === undefined ? undefined : (content.example ?? sample(content.schema ?? {}));
  const written = (value: unknown): string =>
    type === 'application/x-www-form-urlencoded'
      ? new URLSearchParams(value as Record<string, string>).toString()
      : JSON.stringify(value);
  const given = whole === undefined ? {} : { body: written(whole) };
  const headers: Record<string, string> = whole === undefined ? {} : { 'content-type': type };
  const call = (one: Form, place: string, more: Partial<Call>): Call & { form: Form } => ({
    at: at(place),
    method: method.toUpperCase(),
    url: plain,
    headers,
    ...given,
    ...more,
    form: one,
  });

  for (const [, name = ''] of path.matchAll(/\{(\w+)\}/g)) {
    const one = form();
    const url = path.replace(`{${name}}`, encodeURIComponent(one.text)).replace(/\{\w+\}/g, 'made');
    yield call(one, `path ${name}`, { url });
  }
  for (const { name } of [...parameters.filter((one) => one.in === 'query'), { name: null }]) {
    const one = form();
    const text = encodeURIComponent(one.text);
    yield call(one, `query ${name ?? '*'}`, {
      url: `${plain}?${name === null ? `${text}=${text}` : `${name}=${text}`}`,
    });
  }
  const ours = ['accept', 'content-type', 'idempotency-key', 'x-gateway-config', 'x-gateway-trace-id', 'if-match'];
  const named = parameters.filter((one) => one.in === 'header').map((one) => String(one.name).toLowerCase());
  for (const name of new Set([...ours, ...named])) {
    const one = form();
    yield call(one, `header ${name}`, { headers: { ...headers, [name]: one.text } });
  }
  if (whole === undefined) return;
  const one = form();
  yield call(one, 'body that is no JSON', { body: `{"${one.text}": ${one.text}` });
  const places = [...replaced(whole, '\u0000')].slice(1);
  for (let i = 0; i < places.length; i++) {
    const one = form();
    const [place, value] = [...replaced(whole, one.text)][i + 1] as [string, unknown];
    yield call(one, `body ${place}`, { body: written(value) });
  }
}

/** Without an end, or the end of what the others call with. */
const LEFT_OUT = /\/logs\/tail|\/auth\/logout|\/console/;

describe('a credential that is pasted anywhere', () => {
  it('is in no refusal, no line of the log, no record and no row of the audit log', async () => {
    const { admin_api_key: all, workspace_api_key: mine, operator_api_key: operator } = server.first;
    const repeated: string[] = [];
    let n = 0;
    let refused = 0;
    const form = () => FORMS[n++ % (FORMS.length + 1)] ?? BARE;
    const send = async (call: Call, key: string) => {
      const answer = await fetch(server.url + call.url, {
        method: call.method,
        redirect: 'manual',
        headers: { 'x-gateway-provider': '@sandbox', 'x-gateway-api-key': key, ...call.headers },
        ...(call.body === undefined || call.method === 'GET' ? {} : { body: call.body }),
      });
      return { status: answer.status, text: JSON.stringify([...answer.headers]) + (await answer.text()) };
    };
    for (const [path, operations] of Object.entries(document.paths)) {
      if (LEFT_OUT.test(path)) continue;
      for (const [method, operation] of Object.entries(operations)) {
        for (const call of callsOf(path, method, operation, form)) {
          for (const key of path.includes('/operator/') ? [operator] : [mine, all]) {
            const { status, text } = await send(call, key);
            if (status >= 400) {
              refused++;
              const own = call.form === BARE && call.at.endsWith('-trace-id');
              if (!own && text.includes(call.form.core))
                repeated.push(`${call.at}: ${text.slice(text.indexOf(call.form.core) - 150).slice(0, 300)}`);
            }
            if (status !== 401 && status !== 403) break;
          }
        }
      }
    }
    expect(refused).toBeGreaterThan(2_000);
    expect.soft(repeated).toEqual([]);
    const kept = lines.filter((line) => FORMS.some(({ core }) => line.includes(core)));
    expect.soft(kept.slice(0, 20)).toEqual([]);
    const records = JSON.stringify(await server.records());
    expect.soft(FORMS.filter(({ core }) => records.includes(core))).toEqual([]);
    const shown: string[] = [];
    for (let page = 0; ; page++) {
      const { body } = await server.admin(
        'GET',
        `/audit-logs?start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z&page_size=100&current_page=${page}`,
      );
      const rows = (body.records ?? body.data) as object[];
      for (const row of rows) {
        // The slug of a workspace that was made is of its name, in small letters and with dashes.
        const text = JSON.stringify(row).replace(/ws-(?:bearer|slc)-[a-z\d-]+/g, '');
        if (FORMS.some(({ core }) => text.includes(core))) shown.push(text.slice(0, 600));
      }
      if (rows.length < 100) break;
    }
    expect.soft(shown).toEqual([]);
  }, 900_000);
});
