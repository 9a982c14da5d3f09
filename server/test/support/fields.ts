/** Every field that the administration API takes, found in its schemas: for tests that must know of a new one. */
import { z } from 'zod';
import { CHECKS } from '../../src/guardrails/checks/index.ts';
import { storableProviders } from '../../src/providers/accounts.ts';
import { ACTIONS } from '../../src/resources/catalog.ts';
import { describeConfig } from '../../src/resources/configs/structure.ts';
import { allFields } from '../../src/resources/integrations/configurations.ts';

export interface Field {
  /** Whose it is: the id of an action, `config`, `check <id>` or `account <provider>`. */
  readonly owner: string;
  /** Dotted, `[]` for items of lists and `*` for any name. */
  readonly path: string;
  /** The last part of the path that is a name. */
  readonly name: string;
  /** For settings of accounts: whether they are sealed, and whether they hold the address of a host. */
  readonly secret?: boolean;
  readonly host?: boolean;
}

type Schema = Record<string, unknown>;
const isSchema = (value: unknown): value is Schema => typeof value === 'object' && value !== null;

/** Fields that may hold a text, with their paths. */
function* texts(schema: unknown, path: string, name: string, root: unknown, depth = 0): Generator<[string, string]> {
  if (!isSchema(schema) || depth > 12) return;
  for (const part of ['anyOf', 'oneOf', 'allOf']) {
    for (const one of (schema[part] as unknown[] | undefined) ?? []) yield* texts(one, path, name, root, depth + 1);
  }
  if (schema.type === 'string' && schema.enum === undefined && schema.const === undefined) yield [path, name];
  // A schema that says nothing lets any text in.
  if (Object.keys(schema).every((key) => key === 'description') && path !== '') yield [path, name];
  for (const [key, one] of Object.entries((schema.properties ?? {}) as Schema)) {
    yield* texts(one, path === '' ? key : `${path}.${key}`, key, root, depth + 1);
  }
  if (schema.items !== undefined) yield* texts(schema.items, `${path}[]`, name, root, depth + 1);
  if (isSchema(schema.additionalProperties))
    yield* texts(schema.additionalProperties, `${path}.*`, name, root, depth + 1);
}

function* of(owner: string, schema: unknown): Generator<Field> {
  const seen = new Set<string>();
  for (const [path, name] of texts(schema, '', '', schema)) {
    if (seen.has(path)) continue;
    seen.add(path);
    yield { owner, path, name };
  }
}

const json = (schema: z.ZodType) => z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' });

/** Whether a name sounds like an address that something calls. */
export const soundsLikeAddress = (name: string): boolean => ADDRESS.test(snakeOf(name));
/** Whether a path sounds like something that lets callers in. */
export const soundsSecret = (path: string): boolean => SECRET.test(snakeOf(path));

const snakeOf = (name: string): string => name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toLowerCase();
const ADDRESS = /(?:^|_)(?:url|uri|host|endpoint|issuer|webhook)s?$/;
const SECRET = /key|token|secret|passw|credential|header|auth|signature|private|jwks|cookie|_json$/;

/** All of them; a field that several actions have is there for each. */
export function allTextFields(): Field[] {
  const out: Field[] = [];
  for (const { id, body } of ACTIONS) if (body instanceof z.ZodType) out.push(...of(id, json(body)));
  out.push(...of('config', describeConfig()));
  for (const [id, { parameters, credentials }] of CHECKS) {
    out.push(...of(`check ${id}`, json(parameters)));
    for (const field of credentials ? of(`check ${id}`, json(credentials)) : []) {
      out.push({ ...field, path: `credentials.${field.path}` });
    }
  }
  for (const id of storableProviders()) {
    for (const [name, { secret, host }] of Object.entries(allFields(id))) {
      out.push({ owner: `account ${id}`, path: name, name, secret, host });
    }
  }
  return out;
}
