/**
 * Fields of query strings, the tenant fields and identifiers. What bodies share is in `body-fields.ts`. Messages are phrases
 * without a subject; the handler puts the field's path in front.
 */
import { z } from 'zod';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export const isUuid = (value: string): boolean => UUID.test(value);

export const uuid = z
  .string()
  .regex(UUID, 'must be a UUID')
  .transform((value) => value.toLowerCase())
  .meta({ type: 'string', format: 'uuid' });

/** UUID or slug of another object; whether it exists is a rule's question. */
export const reference = z
  .string()
  .regex(/^[a-zA-Z0-9_-]{1,255}$/, 'must be an id or a slug: at most 255 letters, digits, _ and -');

export const email = z.email('must be an e-mail address').max(254);

/** The address that names a user: stored and compared in lower case. */
export const userEmail = email
  .transform((value) => value.toLowerCase())
  .meta({ type: 'string', format: 'email', maxLength: 254 });

const DAY_MS = 86_400_000;

/** The UTC midnight at or before `time`, milliseconds since the epoch. */
export const utcMidnight = (time: number): number => time - (time % DAY_MS);

/** A whole number in a query string: plain decimal digits, nothing else. */
export function queryInteger(min: number, max: number) {
  const message = `must be a whole number from ${min} to ${max}`;
  return z
    .string()
    .regex(/^[0-9]{1,15}$/, message)
    .transform(Number)
    .refine((value) => value >= min && value <= max, { message })
    .meta({ type: 'integer', minimum: min, maximum: max });
}

/** `true` or `false` in a query string. */
export const queryBoolean = z
  .enum(['true', 'false'])
  .transform((value) => value === 'true')
  .meta({ type: 'boolean' });

/** Comma-separated values in a query string, each of them `item`, at most `max` different ones. */
export function queryList<T>(item: z.ZodType<T, string>, max: number) {
  return z
    .string()
    .transform((value) => [...new Set(value.split(',').map((entry) => entry.trim()))])
    .pipe(z.array(item).max(max, `must name at most ${max} values`))
    .meta({ type: 'string', description: `Comma-separated, at most ${max} values.` });
}

/** `workspace_id` (UUID or slug) and `organisation_id`: the handler resolves them before the action runs. */
export const tenantFields = {
  workspace_id: reference.optional().describe('UUID or slug. Needed where the credential is not bound to a workspace.'),
  organisation_id: uuid.optional().describe('Taken from the credential when omitted.'),
} as const;

/** The same for what belongs to the organisation: `workspace_id` only says where the rights of a member come from. */
export const organisationTenantFields = {
  ...tenantFields,
  workspace_id: reference
    .optional()
    .describe(
      'Only users who are members of the organisation name one, to use their rights there. It filters nothing.',
    ),
} as const;
