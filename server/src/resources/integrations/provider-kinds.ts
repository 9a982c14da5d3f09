/** `GET /provider-kinds`: which settings an account of each base provider takes. The same for every organisation. */
import { z } from 'zod';
import { accountKind, storableProviders } from '../../providers/accounts.ts';
import { action } from '../resource.ts';
import { describedFields } from './configurations.ts';
import { LEVELS } from './rules.ts';

const plainField = z.object({
  name: z.string().describe('As in `configurations` of an integration.'),
  required: z.boolean(),
  secret: z.boolean().describe('Stored sealed, and answered as `masked_<name>`.'),
  address: z.boolean().describe('Says where calls go.'),
  schema: z.record(z.string(), z.unknown()).describe('JSON Schema of its content.'),
});

const field = plainField.extend({
  ways: z
    .array(z.object({ value: z.string(), needs_key: z.boolean(), fields: z.array(plainField) }))
    .nullable()
    .describe(
      'Ways of signing in: the field takes one of these values, which brings its own fields. Null: it is no such choice.',
    ),
});

const kind = z.object({
  id: z.string().describe('As in `ai_provider_id` of an integration.'),
  needs_key: z.boolean().describe('Whether an account needs `key`, unless a way of signing in says otherwise.'),
  fields: z.array(field),
  object: z.literal('provider-kind'),
});

const kinds = () =>
  storableProviders().map((id) => ({
    id,
    needs_key: accountKind(id)?.needsKey ?? true,
    fields: describedFields(id),
    object: 'provider-kind' as const,
  }));

/** Made with the first call: it never changes while the process runs. */
const made: { list?: ReturnType<typeof kinds> } = {};

export const providerKinds = action({
  id: 'integrations.kinds',
  method: 'GET',
  path: '/provider-kinds',
  summary: 'List the kinds of accounts',
  description: 'Each base provider that an integration can be made for, with the settings that its account takes.',
  tag: 'Integrations',
  auth: 'key_or_login',
  scopes: LEVELS.scopes.map((level) => `${level}.list`),
  tenant: 'organisation',
  params: null,
  query: z.strictObject({}),
  body: null,
  response: z.object({ object: z.literal('list'), total: z.int(), data: z.array(kind) }),
  writes: false,
  audit: null,
  run: async () => {
    made.list ??= kinds();
    return { object: 'list' as const, total: made.list.length, data: made.list };
  },
});
