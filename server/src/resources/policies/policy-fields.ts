/**
 * What usage-limits and rate-limits policies share: conditions and groups of a body, and which keys each kind of policy
 * knows.
 */
import { z } from 'zod';
import { OPERATIONS } from '../../operations/operation.ts';
import type { PolicyCondition, PolicyGroup } from '../../store/schema.ts';
import { text } from '../body-fields.ts';
import { refuse } from '../common.ts';
import { isUuid } from '../fields.ts';

/** More of these would only be a mistake; they bound what a request can cost. */
const MAX_CONDITIONS = 20;
const MAX_VALUES = 100;
const MAX_GROUPS = 10;
const MAX_METADATA_NAME = 128;

const oneOrMore = z.union([text(512, 1), z.array(text(512, 1)).min(1).max(MAX_VALUES)]);

export const conditions = z
  .array(
    z
      .strictObject({
        key: text(160, 1).describe('The part of the request to compare: `api_key`, `model`, `metadata.<name>` …'),
        value: oneOrMore.optional().describe('One of these must be the value; `*` matches everything.'),
        excludes: oneOrMore.optional().describe('None of these may be the value.'),
      })
      .refine((condition) => condition.value !== undefined || condition.excludes !== undefined, {
        path: ['value'],
        message: 'is required where excludes is not given',
      }),
  )
  .min(1)
  .max(MAX_CONDITIONS);

export const groupBy = z
  .array(z.strictObject({ key: text(160, 1) }))
  .min(1)
  .max(MAX_GROUPS);

export const conditionsAnswer = z.array(
  z.object({
    key: z.string(),
    value: z.union([z.string(), z.array(z.string())]).optional(),
    excludes: z.union([z.string(), z.array(z.string())]).optional(),
  }),
);

export const groupByAnswer = z.array(z.object({ key: z.string() }));

/** A field that is fixed when the policy is made. */
export const unchangeable = z
  .never({ error: 'cannot be changed: archive this policy and create another one' })
  .optional()
  .describe('Cannot be changed.');

/** An update that changes nothing is a mistake. */
export function atLeastOne<T extends z.ZodType<Record<string, unknown>>>(body: T): T {
  return body.refine((fields) => Object.values(fields).some((field) => field !== undefined), {
    message: 'must name at least one field to change',
  }) as T;
}

/** `usage`: usage-limits policies. `llm`, `mcp_tools`: targets of rate-limits policies. */
export type PolicyKind = 'usage' | 'llm' | 'mcp_tools';

const EVERYWHERE = ['api_key', 'workspace_id'];
const LLM = [...EVERYWHERE, 'virtual_key', 'provider', 'config', 'prompt', 'model'];
const KEYS: Readonly<Record<PolicyKind, ReadonlySet<string>>> = {
  usage: new Set([...LLM, 'organisation_id']),
  llm: new Set([...LLM, 'endpoint_type']),
  mcp_tools: new Set([...EVERYWHERE, 'mcp_server', 'mcp_tool']),
};

/** Request types, with those that no route has yet. */
const ENDPOINT_TYPES: ReadonlySet<string> = new Set([
  ...Object.values(OPERATIONS).map((operation) => operation.requestType),
  'realtime',
]);

/** Throws 400 for a key that the kind does not know, for one given twice and for a value that could never match. */
export function checkConditions(kind: PolicyKind, all: readonly PolicyCondition[]): void {
  checkKeys(kind, all, 'conditions');
  for (const [index, condition] of all.entries()) {
    for (const field of ['value', 'excludes'] as const) {
      const given = condition[field];
      if (given === undefined) continue;
      for (const [place, value] of [given].flat().entries()) {
        const fault = value === '*' ? null : faultOf(condition.key, value);
        const param = `conditions[${index}].${field}${Array.isArray(given) ? `[${place}]` : ''}`;
        if (fault !== null) throw refuse(param, fault);
      }
    }
  }
}

export function checkGroups(kind: PolicyKind, all: readonly PolicyGroup[]): void {
  checkKeys(kind, all, 'group_by');
}

function checkKeys(kind: PolicyKind, all: readonly { readonly key: string }[], field: string): void {
  const seen = new Set<string>();
  for (const [index, { key }] of all.entries()) {
    const param = `${field}[${index}].key`;
    const name = key.startsWith('metadata.') ? key.slice('metadata.'.length) : null;
    if (name === null ? !KEYS[kind].has(key) : name === '' || name.length > MAX_METADATA_NAME) {
      throw refuse(param, `must be one of ${[...KEYS[kind]].join(', ')} or metadata.<name>`);
    }
    if (seen.has(key)) throw refuse(param, `is given twice: ${key}`);
    seen.add(key);
  }
}

function faultOf(key: string, value: string): string | null {
  if (key === 'api_key' || key === 'organisation_id') return isUuid(value) ? null : 'must be a UUID or *';
  if (key === 'endpoint_type' && !ENDPOINT_TYPES.has(value)) {
    return `must be * or one of ${[...ENDPOINT_TYPES].join(', ')}`;
  }
  if (key === 'model' && !/^(?:@[^*/]+\/(?:\*|[^*]+)|[^@*][^*]*)$/.test(value)) {
    return 'must be @provider/model, @provider/*, a model name, or *';
  }
  return null;
}
