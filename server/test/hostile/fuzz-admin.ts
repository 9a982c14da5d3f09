/**
 * Hostile input for every administration operation: bodies made from the
 * operation's own schema and then damaged, queries and path parameters. Whatever comes, the answer is below 500 and a
 * refusal has the error body. Short form in `admin-fuzz.long.test.ts`; the long one:
 *
 *     node server/test/hostile/fuzz-admin.ts [cases=100000] [seed]
 */
import { parseArgs } from 'node:util';
import fc from 'fast-check';
import { Client } from 'undici';
import { z } from 'zod';
import { operatorActions } from '../../src/admin/operator.ts';
import type { AdminRow } from '../../src/admin/route.ts';
import { isObject, type JsonObject, type JsonValue } from '../../src/kernel/json.ts';
import { ACTIONS } from '../../src/resources/catalog.ts';
import { CUSTOM_LOGS } from '../../src/resources/logs/insert.ts';
import { KEPT_LOGS } from '../../src/resources/logs/reach.ts';
import { Services } from '../../src/resources/services.ts';
import type { AdminHarness } from '../support/admin.ts';
import { forgottenLogs } from '../support/log-rows.ts';
import { NaiveLogStore } from '../support/naive-log-store.ts';

/** Stands for a number that JavaScript cannot write; replaced in the text. */
const RAW = '\u2063raw:';

export const TEXTS: readonly string[] = [
  '',
  ' ',
  '\u0000',
  'a\u0000b',
  '\ud800',
  'x\udfff',
  '\u202e\u200b\ufeff',
  'İı',
  'e\u0301',
  '😀'.repeat(256),
  'x'.repeat(256),
  'x'.repeat(70_000),
  '=1+1',
  "' OR 1=1 --",
  '{{7*7}}',
  '%00',
  '../../etc/passwd',
  '__proto__',
  'constructor',
  'toString',
  '(a+)+$',
  '[',
  'null',
  'true',
  '10',
  '-1',
  '1e999',
  '2027-02-30T00:00:00Z',
  '0000-01-01T00:00:00Z',
  '9999-12-31T23:59:59.999999999Z',
  '2027-01-01T00:00:00+99:99',
  '2027-01-01',
  'file:///etc/passwd',
  'http://169.254.169.254/',
  'https://example.com/v1',
  '@sandbox/echo',
  'slc_wks_000000000000_0000000000000000000000000000000000000000000_000000',
  'Xk*******S4',
];

const PATH_TEXTS = TEXTS.filter((text) => text.length < 300);

const NUMBERS: readonly (number | string)[] = [
  0,
  -0,
  -1,
  1,
  0.1,
  1.5,
  255,
  365,
  366,
  1_799_999,
  1e12,
  1e12 + 1,
  1e15,
  2 ** 31,
  2 ** 53,
  1e21,
  1e308,
  5e-324,
  `${RAW}1e999`,
  `${RAW}-1e999`,
  `${RAW}9007199254740993`,
  `${RAW}0.1000000000000000055511151231257827`,
  `${RAW}${'9'.repeat(60)}`,
  `${RAW}${'9'.repeat(70)}`,
];

export const hostile: fc.Arbitrary<JsonValue> = fc.oneof(
  fc.constantFrom(...TEXTS),
  fc.constantFrom(...NUMBERS),
  fc.constantFrom<JsonValue>(null, true, false, [], {}, [[]], [null], { '': '' }),
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.double() as fc.Arbitrary<JsonValue>,
  fc.jsonValue() as fc.Arbitrary<JsonValue>,
);

/**
 * One of the names that exist by now: objects made on the way join the pool, so that updates and deletes meet something.
 * The price is that a seed alone does not replay a run; a failure names its request in full.
 */
const named = (names: readonly string[]): fc.Arbitrary<string> =>
  fc.nat(1_000).map((at) => names[at % Math.max(1, names.length)] ?? 'x');

/** Values that fit a JSON schema, mostly: names that exist are among them, so that rules behind the schema are met. */
function fitting(schema: JsonValue | undefined, names: readonly string[]): fc.Arbitrary<JsonValue> {
  if (!isObject(schema)) return fc.jsonValue() as fc.Arbitrary<JsonValue>;
  if ('const' in schema) return fc.constant(schema.const as JsonValue);
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum);
  const branches = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(branches)) return fc.oneof(...branches.map((branch) => fitting(branch, names)));
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  const low = typeof schema.minimum === 'number' ? schema.minimum : 0;
  const high = typeof schema.maximum === 'number' ? schema.maximum : 1_000;
  switch (type) {
    case 'object':
      return fittingObject(schema, names);
    case 'array':
      return fc.array(fitting(schema.items, names), { maxLength: 3 });
    case 'integer':
      return fc.integer({ min: Math.max(low, -(2 ** 31)), max: Math.min(high, 2 ** 31 - 1) });
    case 'number':
      return fc.double({ min: low, max: high, noNaN: true });
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    case 'string':
      return fittingText(schema, names);
    default:
      return fc.oneof(fc.jsonValue() as fc.Arbitrary<JsonValue>, named(names));
  }
}

function fittingText(schema: JsonObject, names: readonly string[]): fc.Arbitrary<JsonValue> {
  const plain = fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/);
  if (schema.format === 'date-time') {
    return fc.date({ noInvalidDate: true, min: new Date(0), max: new Date(4e12) }).map((date) => date.toISOString());
  }
  if (schema.format === 'email') return plain.map((name) => `${name}@example.com`);
  if (schema.format === 'uuid') return fc.oneof(fc.uuid(), named(names));
  return fc.oneof(
    plain,
    named(names),
    fc.constantFrom('completions.write', 'openai', 'sandbox', 'https://example.com', 'default.notNull'),
  );
}

function fittingObject(schema: JsonObject, names: readonly string[]): fc.Arbitrary<JsonValue> {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = Object.entries(properties).map(([name, property]) => {
    const value = fitting(property, names);
    return [
      name,
      required.has(name)
        ? value
        : fc.oneof({ weight: 3, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: value }),
    ] as const;
  });
  const own = fc.record(Object.fromEntries(fields)) as fc.Arbitrary<JsonObject>;
  if (!isObject(schema.additionalProperties)) return own;
  const more = fc.dictionary(fc.string({ maxLength: 12 }), fitting(schema.additionalProperties, names), {
    maxKeys: 3,
  });
  return fc.tuple(own, more).map(([a, b]) => ({ ...b, ...a }));
}

/** Every place in a value where something can be put instead. */
function places(value: JsonValue, found: ((put: JsonValue) => void)[] = []): ((put: JsonValue) => void)[] {
  if (typeof value !== 'object' || value === null) return found;
  const holder = value as Record<string, JsonValue>;
  for (const key of Object.keys(holder)) {
    found.push((put) => {
      holder[key] = put;
    });
    places(holder[key] as JsonValue, found);
  }
  if (!Array.isArray(value)) {
    found.push((put) => {
      holder[typeof put === 'string' ? put.slice(0, 80) : 'extra'] = put;
    });
  }
  return found;
}

export type Damage = readonly (readonly [number, JsonValue])[];

export function damaged(value: JsonValue, damage: Damage): string {
  const copy = structuredClone(value);
  for (const [at, put] of damage) {
    const all = places(copy);
    all[at % Math.max(1, all.length)]?.(structuredClone(put));
  }
  return (JSON.stringify(copy) ?? '{}').replace(new RegExp(`"${RAW}([^"]*)"`, 'g'), '$1');
}

interface Case {
  readonly operation: string;
  readonly path: string;
  readonly query: string;
  readonly body: Buffer | null;
}

function caseOf(row: AdminRow, names: readonly string[]): fc.Arbitrary<Case> {
  const parameters = row.params === null ? {} : (schemaOf(row.params).properties as JsonObject);
  const path = fc.record(
    Object.fromEntries(
      Object.entries(parameters).map(([name, schema]) => {
        const fit = isObject(schema) && schema.enum ? (fitting(schema, names) as fc.Arbitrary<string>) : named(names);
        return [
          name,
          fc.oneof({ weight: 6, arbitrary: fit }, { weight: 1, arbitrary: fc.constantFrom(...PATH_TEXTS) }),
        ];
      }),
    ),
  );
  const url = path.map((values) =>
    row.path.replace(/:(\w+)/g, (_m, name: string) => encoded(values[name] ?? '') || 'x'),
  );
  const declared = row.query === null ? [] : Object.keys(schemaOf(row.query).properties ?? {});
  const pair = fc.tuple(
    declared.length === 0
      ? fc.string({ maxLength: 8 })
      : fc.oneof(fc.constantFrom(...declared), fc.string({ maxLength: 8 })),
    fc.oneof(fc.nat(200).map(String), named(names), fc.constantFrom(...TEXTS), fc.string({ maxLength: 20 })),
  );
  const query = fc
    .array(pair, { maxLength: 3 })
    .map((pairs) => pairs.map(([name, value]) => `${encoded(name)}=${encoded(value.slice(0, 300))}`).join('&'));
  const damage = fc.oneof(fc.constant([]), fc.array(fc.tuple(fc.nat(10_000), hostile), { minLength: 1, maxLength: 2 }));
  const flips = fc.oneof(
    { weight: 12, arbitrary: fc.constant(null) },
    { weight: 1, arbitrary: fc.tuple(fc.nat(), fc.nat(255)) },
  );
  const body =
    row.body === null
      ? fc.constant(null)
      : fc.tuple(fitting(schemaOf(row.body), names), damage, flips).map(([value, changes, flip]) => {
          const bytes = Buffer.from(damaged(value, changes));
          if (flip) bytes[flip[0] % bytes.length] = flip[1];
          return bytes;
        });
  // A query is mostly fit, so that bodies get past it.
  return fc.record({
    operation: fc.constant(row.id),
    path: url,
    query: row.body === null ? query : fc.constant(''),
    body,
  });
}

const schemaOf = (schema: z.ZodType): JsonObject =>
  z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' }) as JsonObject;

/** Percent-encodes what a request target may not hold; lone surrogates become U+FFFD. */
const encoded = (text: string): string => encodeURIComponent(text.toWellFormed());

const ERROR = z.strictObject({
  error: z.strictObject({
    code: z.string(),
    message: z.string().min(1),
    param: z.string().nullable(),
    type: z.enum(['client_error', 'server_error']),
  }),
  errors: z
    .array(z.strictObject({ param: z.string().nullable(), message: z.string().min(1) }))
    .min(2)
    .optional(),
});

/** Keeps what was made, the newest 40 beside the five fixed names. */
function remember(names: string[], made: unknown): void {
  if (!isObject(made)) return;
  for (const name of [made.id, made.slug]) if (typeof name === 'string') names.push(name);
  if (names.length > 45) names.splice(5, names.length - 45);
}

export interface FuzzResult {
  readonly cases: number;
  /** How many answers had each status. */
  readonly statuses: Readonly<Record<number, number>>;
  /** Operations that were never carried out: nothing behind their schema was tried. */
  readonly untried: readonly string[];
  /** Longest time to an answer, milliseconds. */
  readonly slowest: number;
}

/** Runs `cases` generated requests; throws with the smallest request that breaks the rule. */
export async function fuzzAdmin(admin: AdminHarness, cases: number, seed?: number): Promise<FuzzResult> {
  const rows: readonly AdminRow[] = [...ACTIONS, ...operatorActions(async () => ({}))];
  const names = [admin.a.workspace_id, admin.a.workspace_slug, admin.a.user_id, admin.a.organisation_id, 'sandbox'];
  // A suspended organisation would answer 403 to everything that follows.
  const others = [admin.b.organisation_id];
  const client = new Client(admin.url, { pipelining: 1 });
  const statuses: Record<number, number> = {};
  const carriedOut = new Set<string>();
  let slowest = 0;
  const keys = [admin.a.admin_api_key, admin.a.workspace_api_key];
  const arbitrary = fc.tuple(
    fc.oneof(...rows.map((row) => caseOf(row, row.auth === 'operator' ? others : names))),
    fc.constantFrom(...keys),
  );
  const property = fc.asyncProperty(arbitrary, async ([{ operation, path, query, body }, key]) => {
    const row = rows.find(({ id }) => id === operation);
    if (!row) throw new Error(operation);
    const started = performance.now();
    const answer = await client.request({
      method: row.method,
      path: `${row.prefixes?.[0] ?? '/v1'}${path}${query === '' ? '' : `?${query}`}`,
      headers: {
        'x-gateway-api-key': row.auth === 'operator' ? admin.operatorKey : key,
        ...(body === null ? {} : { 'content-type': 'application/json' }),
      },
      body,
    });
    const text = await answer.body.text();
    slowest = Math.max(slowest, performance.now() - started);
    const status = answer.statusCode;
    // What only a whole server has is not here; its routes say so before they do anything.
    if (status === 503 && text.includes('"message":"This node has no ')) return;
    statuses[status] = (statuses[status] ?? 0) + 1;
    if (status >= 500) throw new Error(`${row.id} answered ${status}: ${text}\n${admin.logged.slice(-3).join('\n')}`);
    if (status !== 200) ERROR.parse(JSON.parse(text));
    if (status === 200) carriedOut.add(row.id);
    if (status === 200 && row.method === 'POST' && row.auth !== 'operator') remember(names, JSON.parse(text));
  });
  try {
    await fc.assert(property, { numRuns: cases, ...(seed === undefined ? {} : { seed }), endOnFailure: true });
  } finally {
    await client.close();
  }
  const untried = rows.map((row) => row.id).filter((id) => !carriedOut.has(id));
  return { cases, statuses, untried, slowest };
}

/** What the administration under test is given: routes of requests answer from a store, empty as it is. */
export const fuzzedServices = (): Services =>
  new Services()
    .provide(KEPT_LOGS, { store: new NaiveLogStore(), days: 30, erased: async () => [] })
    .provide(CUSTOM_LOGS, forgottenLogs);

if (process.argv[1]?.endsWith('fuzz-admin.ts')) {
  const { positionals } = parseArgs({ allowPositionals: true });
  const { startAdmin } = await import('../support/admin.ts');
  const { temporaryTables } = await import('../support/tables.ts');
  const admin = await startAdmin(await temporaryTables(), { admin: { services: fuzzedServices() } });
  try {
    const result = await fuzzAdmin(
      admin,
      Number(positionals[0] ?? 100_000),
      positionals[1] ? Number(positionals[1]) : undefined,
    );
    process.stdout.write(`${JSON.stringify({ id: 'admin', ...result })}\n`);
  } finally {
    await admin.close();
  }
}
