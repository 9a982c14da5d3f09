/**
 * Schemas that an organisation sets for the metadata of its API keys and workspaces: the part of JSON Schema
 * draft-07 that speaks of an object of strings. A schema is checked whole when it is saved, so that applying it cannot fail.
 */
import { z } from 'zod';
import { matchesPattern, patternProblem, patternSize } from '../../kernel/pattern.ts';
import { codePoints, MAX_DEFAULT_KEYS, text } from '../body-fields.ts';
import { refuse } from '../common.ts';

const MAX_PROPERTIES = 64;
/** Of all patterns together: a tenant's schema runs on every write of a key, on a thread that all tenants share. */
const MAX_PATTERNS_SIZE = 1_000;
/** A metadata value. */
const MAX_VALUE = 128;

const name = text(128, 1);
const note = text(1024);

const property = z.strictObject({
  type: z.literal('string'),
  title: note.optional(),
  description: note.optional(),
  default: text(MAX_VALUE).optional(),
  enum: z.array(text(MAX_VALUE)).min(1).max(100).optional(),
  const: text(MAX_VALUE).optional(),
  minLength: z.int().min(0).max(MAX_VALUE).optional(),
  maxLength: z.int().min(0).max(MAX_VALUE).optional(),
  pattern: z.string().optional().describe('RE2 syntax, at most 512 characters.'),
  examples: z.array(text(MAX_VALUE)).max(20).optional(),
});

type Property = z.infer<typeof property>;

/** The first thing that is wrong with a property by itself: field and phrase. */
function faultOf(value: Property): readonly [string, string] | null {
  const problem = value.pattern === undefined ? null : patternProblem(value.pattern);
  if (problem !== null) return ['pattern', problem];
  if ((value.minLength ?? 0) > (value.maxLength ?? MAX_VALUE)) return ['minLength', 'must not exceed maxLength'];
  // A default that the property itself refuses would refuse every key.
  const wrong = value.default === undefined ? null : problemOf(value, value.default);
  return wrong === null ? null : ['default', wrong];
}

/** The `metadata_schemas.*` of the organisation's settings. */
export const metadataSchema = z
  .strictObject({
    $schema: z.enum(['http://json-schema.org/draft-07/schema#', 'http://json-schema.org/draft-07/schema']).optional(),
    $id: text(255).optional(),
    title: note.optional(),
    description: note.optional(),
    type: z.literal('object'),
    properties: z.record(name, property).optional(),
    required: z.array(name).max(MAX_PROPERTIES).optional(),
    additionalProperties: z.literal(true).default(true).describe('Further metadata is always allowed.'),
  })
  .superRefine((value, context) => {
    const issue = (path: (string | number)[], message: string) => context.addIssue({ code: 'custom', path, message });
    const rules = Object.entries(value.properties ?? {});
    // How many there are is judged first: a pattern must be compiled to be judged.
    if (rules.length > MAX_PROPERTIES) return issue(['properties'], `must have at most ${MAX_PROPERTIES} keys`);
    let size = 0;
    for (const [key, rule] of rules) {
      const fault = faultOf(rule);
      if (fault !== null) return issue(['properties', key, fault[0]], fault[1]);
      if (rule.pattern !== undefined) size += patternSize(rule.pattern);
      if (size <= MAX_PATTERNS_SIZE) continue;
      return issue(['properties', key, 'pattern'], 'is too much beside the other patterns: use simpler or fewer ones');
    }
    const { required = [] } = value;
    for (const [index, entry] of required.entries()) {
      if (required.indexOf(entry) !== index) issue(['required', index], 'repeats a name');
    }
  });

export type MetadataSchema = z.infer<typeof metadataSchema>;

export type Metadata = Record<string, string>;

/** What is wrong with a value, as a phrase. Lengths count code points, as JSON Schema does. */
function problemOf(rule: Property, value: string): string | null {
  const { minLength = 0, maxLength = MAX_VALUE } = rule;
  const length = codePoints(value);
  if (rule.enum !== undefined && !rule.enum.includes(value)) return `must be one of ${rule.enum.join(', ')}`;
  if (rule.const !== undefined && value !== rule.const) return `must be ${rule.const}`;
  if (length < minLength) return `must have at least ${minLength} characters`;
  if (length > maxLength) return `must have at most ${maxLength} characters`;
  if (rule.pattern === undefined) return null;
  const found = matchesPattern(rule.pattern, value);
  if (found === null) return 'is too long to be checked against its pattern';
  return found ? null : `must match the pattern ${rule.pattern}`;
}

/**
 * Metadata with the schema's defaults filled in, as it is to be stored. Without a schema it comes back as it is.
 * Throws 400 that names the entry (`defaults.metadata.team`) when a required one is missing or a value breaks its rule;
 * 400 that names the metadata when the defaults make it too large.
 *
 * @param path where the caller's body holds the metadata
 */
export function applyMetadataSchema<M extends Readonly<Metadata> | null | undefined>(
  schema: MetadataSchema | null,
  metadata: M,
  path = 'defaults.metadata',
): M | Metadata {
  if (schema === null) return metadata;
  const out = new Map<string, string>(Object.entries(metadata ?? {}));
  const properties = Object.entries(schema.properties ?? {});
  for (const [key, rule] of properties) {
    if (!out.has(key) && rule.default !== undefined) out.set(key, rule.default);
  }
  for (const key of schema.required ?? []) {
    if (!out.has(key)) throw refuse(`${path}.${key}`, 'is required by the metadata schema of the organisation');
  }
  for (const [key, rule] of properties) {
    const value = out.get(key);
    const problem = value === undefined ? null : problemOf(rule, value);
    if (problem !== null) throw refuse(`${path}.${key}`, `${problem}, says the metadata schema of the organisation`);
  }
  const filled = out.size > Object.keys(metadata ?? {}).length;
  if (filled && out.size > MAX_DEFAULT_KEYS) {
    const phrase = `has ${out.size} keys with the defaults of the organisation's metadata schema; at most ${MAX_DEFAULT_KEYS} are allowed`;
    throw refuse(path, phrase);
  }
  // Nothing was given and nothing is filled in: what was absent stays absent.
  return out.size === 0 ? metadata : Object.fromEntries(out);
}
