/** Configs and their versions. */
import { z } from 'zod';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import type { JsonValue } from '../../kernel/json.ts';
import { itemsOf, MAX_ITEMS } from '../../kernel/json-items.ts';
import { JsonScanError, scanJson } from '../../kernel/json-scan.ts';
import { quotedName } from '../../kernel/quoted.ts';
import { atOnce, type Steps } from '../../kernel/turns.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { flagOf, name, toIso } from '../body-fields.ts';
import { actorId, type Patch, refuse, refuseIssues, requireWorkspace } from '../common.ts';
import { defineResource, referredTo } from '../define.ts';
import { queryBoolean, tenantFields } from '../fields.ts';
import { isNameOf, missingGuardrails } from '../guardrails/rules.ts';
import { formatPath } from '../issues.ts';
import { currentVersion } from '../kinds/versions.ts';
import { notFound } from '../look-up.ts';
import { type Reference, type ReferredTo, refuseWhileReferredTo } from '../references.ts';
import type { Call } from '../resource.ts';
import { resourceSpec } from '../spec.ts';
import { type ConfigWarning, lintConfig } from './lint.ts';
import { type Config, guardrailSlugs, providerSlugs, readConfig } from './schema.ts';
import { maskConfig, openConfig, sealConfig } from './secrets.ts';
import { describeConfig } from './structure.ts';

const configInput = z
  .union([
    z.record(z.string(), z.unknown()).meta(describeConfig()),
    z.string().describe('The same object as JSON text.'),
  ])
  .meta({ title: 'ConfigContent' })
  .describe('The config object, its keys in snake case or camel case.');

const createBody = z.strictObject({
  ...tenantFields,
  name,
  config: configInput,
  isDefault: z.union([z.literal(0), z.literal(1)]).optional(),
});

const updateBody = z.strictObject({
  ...tenantFields,
  name: name.optional(),
  config: configInput.optional(),
  status: z.enum(['active', 'archived']).optional(),
});

const item = z.object({
  id: z.string(),
  name: z.string(),
  slug: z.string(),
  organisation_id: z.string(),
  workspace_id: z.string(),
  is_default: z.union([z.literal(0), z.literal(1)]),
  status: z.enum(['active', 'archived']),
  owner_id: z.string(),
  updated_by: z.string().nullable(),
  created_at: z.string(),
  last_updated_at: z.string(),
  object: z.literal('config'),
});

const warnings = z
  .array(z.object({ param: z.string(), message: z.string() }))
  .optional()
  .describe('What the config may not mean as it stands, 100 at most; absent where nothing is conspicuous.');

const detail = item.extend({
  config: z
    .record(z.string(), z.unknown())
    .describe(
      'Raw provider credentials are shown as `masked_<name>`, values of `headers` and `credentials` of checks as masks. A check that is sent back with its masks keeps its secrets.',
    ),
  format: z.literal('json'),
  type: z.literal('ORG_CONFIG'),
  version_id: z.string(),
  warnings,
});

const created = z.object({
  id: z.string(),
  slug: z.string(),
  version_id: z.string(),
  object: z.literal('config'),
  warnings,
});
const updated = z.object({ version_id: z.string(), warnings });

type CreateBody = z.output<typeof createBody>;
type UpdateBody = z.output<typeof updateBody>;

function presentRow(row: Row<'configs'>) {
  return {
    id: row.id,
    name: row.name,
    slug: row.slug,
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    is_default: flagOf(row.is_default),
    status: row.status,
    owner_id: row.owner_id,
    updated_by: row.updated_by,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    object: 'config' as const,
  };
}

/** More are cut: an answer stays small whatever the config is. */
const MAX_WARNINGS = 100;

/** The answer's warnings, 100 at most; nothing where there are none. */
async function warningsOf(
  tx: TenantTx,
  workspaceId: string,
  config: Config,
): Promise<{ warnings?: readonly ConfigWarning[] }> {
  const found = [...lintConfig(config), ...(await unknownProviders(tx, workspaceId, config))];
  return found.length === 0 ? {} : { warnings: found.slice(0, MAX_WARNINGS) };
}

/** A statement takes a bounded number of values. */
const SLUGS_AT_ONCE = 1_000;

/** A provider that is named and not there is no fault: it may be added after its config. */
async function unknownProviders(tx: TenantTx, workspaceId: string, config: Config): Promise<ConfigWarning[]> {
  const named = providerSlugs(config);
  if (named.length === 0) return [];
  const slugs = [...new Set(named.map(({ slug }) => slug))];
  const known = new Set<string>();
  for (let from = 0; from < slugs.length; from += SLUGS_AT_ONCE) {
    const slug = { in: slugs.slice(from, from + SLUGS_AT_ONCE) };
    const where = { workspace_id: workspaceId, status: { not: 'archived' }, slug } as const;
    for (const table of ['providers', 'virtual_keys'] as const)
      for (const row of await tx.list(table, { where })) known.add(row.slug);
  }
  return named
    .filter(({ slug }) => !known.has(slug))
    .map(({ slug, path }) => {
      const param = formatPath(path, 'config');
      return {
        param,
        message: `${param} names ${quotedName(`@${slug}`)}, and this workspace has no such provider or virtual key. Add it, or requests that go there are refused; GET /v1/providers lists those there are.`,
      };
    });
}

async function presentVersion(row: Row<'configs'>, version: Row<'config_versions'>) {
  return {
    ...presentRow(row),
    config: maskConfig(version.config),
    format: 'json' as const,
    type: 'ORG_CONFIG' as const,
    version_id: version.id,
  };
}

/** The checked config of a body. Throws 400 with `param: config.<path>`. */
function* checked(input: unknown, { checkHost }: Pick<Call, 'checkHost'>): Steps<Config> {
  const value = typeof input === 'string' ? yield* readText(input) : input;
  const read = yield* readConfig(value, { checkHost, saved: true });
  if (!read.ok) throw refuseIssues('config', read.issues);
  return read.config;
}

/**
 * Guardrails must exist when a config is saved, or brought back. Slugs of providers and virtual keys may not: they are
 * looked up at request time, so a config can be prepared before its accounts and survives their replacement.
 */
async function checkGuardrails(call: Call, workspaceId: string, config: Config) {
  const named = guardrailSlugs(config);
  if (named.length === 0) return;
  const slugs = [...new Set(named.map((one) => one.slug))];
  const missing = new Set(await missingGuardrails(call.tx, workspaceId, slugs));
  const first = named.find((one) => missing.has(one.slug));
  if (first)
    throw refuse(
      formatPath(first.path, 'config'),
      'names no active guardrail of this workspace or its organisation with the target llm; GET /v1/guardrails lists them',
    );
}

/** A version with this config. A mask in it keeps the secret of `former`. */
async function versionOf(call: Call, config: Config, former: Row<'config_versions'> | null) {
  const id = uuidv7(call.clock);
  return { id, config: await sealConfig(call.vault, call.tenant, id, config, former) };
}

async function create(call: Call<unknown, unknown, CreateBody>) {
  const workspaceId = requireWorkspace(call);
  const config = call.prepared as Config;
  await checkGuardrails(call, workspaceId, config);
  const now = call.clock.now();
  const id = uuidv7(call.clock);
  const version = await versionOf(call, config, null);
  const row: Row<'configs'> = {
    id,
    organisation_id: call.tenant.organisationId,
    workspace_id: workspaceId,
    slug: slugify(call.body.name, 'pc-'),
    name: call.body.name,
    is_default: call.body.isDefault === 1,
    status: 'active',
    owner_id: actorId(call.principal),
    updated_by: null,
    version_id: version.id,
    created_at: now,
    last_updated_at: now,
  };
  if (row.is_default) {
    await call.tx.update('configs', { workspace_id: workspaceId, is_default: true }, { is_default: false });
  }
  const warned = await warningsOf(call.tx, workspaceId, config);
  return { row, version, answer: { id, slug: row.slug, version_id: version.id, object: 'config' as const, ...warned } };
}

async function update(call: Call<unknown, unknown, UpdateBody>, row: Row<'configs'>) {
  const { body } = call;
  // An archived config is gone for every caller, except for the one call that brings it back.
  if (row.status === 'archived' && body.status !== 'active') throw notFound();
  if (body.status === 'archived') await refuseWhileReferredTo(call, referredTo({ table: 'configs' }, row), stillUsed);
  const former = (await call.tx.find('config_versions', { id: row.version_id })) ?? null;
  if (row.status === 'archived' && body.config === undefined && former !== null) {
    await checkGuardrails(call, row.workspace_id, former.config as Config);
  }
  const patch: Patch<'configs'> = { updated_by: actorId(call.principal), last_updated_at: call.clock.now() };
  if (body.name !== undefined) patch.name = body.name;
  if (body.status !== undefined) patch.status = body.status;
  if (body.config === undefined) return { patch, answer: { version_id: row.version_id } };
  const config = call.prepared as Config;
  await checkGuardrails(call, row.workspace_id, config);
  return saved(call, row, patch, config, former);
}

async function restore(call: Call, row: Row<'configs'>, former: Row<'config_versions'>) {
  if (row.status === 'archived') throw notFound();
  const opened = await openConfig(call.vault, call.tenant, former.id, former.config);
  // The rules may have become stricter since it was saved.
  const config = atOnce(checked(opened, call));
  await checkGuardrails(call, row.workspace_id, config);
  const patch = { updated_by: actorId(call.principal), last_updated_at: call.clock.now() };
  const current = (await call.tx.find('config_versions', { id: row.version_id })) ?? null;
  return saved(call, row, patch, config, current);
}

async function saved(
  call: Call,
  row: Row<'configs'>,
  patch: Partial<Row<'configs'>>,
  config: Config,
  former: Row<'config_versions'> | null,
) {
  const version = await versionOf(call, config, former);
  const warned = await warningsOf(call.tx, row.workspace_id, config);
  return { patch, version, answer: { version_id: version.id, ...warned } };
}

const spec = resourceSpec({
  name: 'configs',
  tag: 'Configs',
  table: 'configs',
  path: '/configs',
  param: 'slug',
  scopes: ['configs'],
  tenant: 'workspace_optional',
  object: 'config',
  archives: true,
  versions: {
    table: 'config_versions',
    of: 'config_id',
    routes: {
      item: detail,
      // A version in a list: with the time and the author of that version.
      present: async (row, version) => {
        const shown = await presentVersion(row, version);
        return { ...shown, updated_by: version.created_by, last_updated_at: toIso(version.created_at) };
      },
      maxPageSize: 100,
      defaultPageSize: 50,
      restored: updated,
      restoreDescription:
        'Its content becomes a new version, so no version is lost. Everything it names must still exist. Its credentials come along.',
      restore,
    },
  },
  list: {
    query: z.object({ return_last_used: queryBoolean.optional() }),
    defaultPageSize: 50,
    maxPageSize: 100,
    item,
    present: presentRow,
  },
  detail,
  present: async (row, call) => {
    const version = await currentVersion(call, 'config_versions', row);
    const warned = await warningsOf(call.tx, row.workspace_id, version.config as Config);
    return { ...(await presentVersion(row, version)), ...warned };
  },
  create: {
    description: 'Returns the slug that requests name in `x-gateway-config`. Guardrails named in it must exist.',
    example: {
      body: {
        name: 'Chat with retries',
        config: { provider: '@openai-prod', retry: { attempts: 3 }, cache: { mode: 'simple', max_age: 3600 } },
      },
    },
    tenant: 'workspace',
    body: createBody,
    response: created,
    prepare: ({ config }, given) => checked(config, given),
    run: create,
  },
  update: {
    description: 'A config in the body replaces the old one in full and becomes a new version.',
    archivedToo: true,
    body: updateBody,
    response: updated,
    prepare: function* ({ config }, given) {
      return config === undefined ? null : yield* checked(config, given);
    },
    run: update,
  },
  remove: { referred: stillUsed },
});

/** While something hands this config out, as a workspace does to its users' keys, requests would lose their routing. */
function stillUsed({ kind, name: by }: Reference): string {
  return `This config is still used: ${kind} of ${by}. Clear it there first (defaults.user_api_key_config of the workspace).`;
}

/** JSON text as strictly as a body: duplicate keys, depth and size are refused. */
function* readText(text: string): Steps<unknown> {
  try {
    scanJson(Buffer.from(text), []);
    yield;
    const value = JSON.parse(text) as JsonValue;
    if (itemsOf(value) > MAX_ITEMS) throw refuse('config', `must not have more than ${MAX_ITEMS} items in its lists`);
    return value;
  } catch (error) {
    if (error instanceof JsonScanError) {
      throw refuse('config', `${error.message.replace(/^The body/, 'The text')}.`);
    }
    throw error;
  }
}

const PAGE = 200;

/** Active configs whose current version names a guardrail. */
async function naming(tx: TenantTx, to: ReferredTo): Promise<Reference[]> {
  const found: Reference[] = [];
  const place = to.workspaceId === null ? {} : { workspace_id: to.workspaceId };
  for (let after = ''; ; ) {
    const where = { ...place, status: 'active', id: { gt: after } } as const;
    const rows = await tx.list('configs', { where, orderBy: [['id', 'asc']], limit: PAGE });
    const ids = rows.map((row) => row.version_id);
    const versions = await tx.list('config_versions', { where: { id: { in: ids } } });
    const those = new Set(
      versions
        .filter(({ config }) => guardrailSlugs(config as Config).some(({ slug }) => isNameOf(slug, to)))
        .map(({ config_id }) => config_id),
    );
    for (const { id, slug } of rows) if (those.has(id)) found.push({ kind: 'config', id, name: slug });
    const last = rows.at(-1);
    if (rows.length < PAGE || last === undefined) return found;
    after = last.id;
  }
}

export const configs = defineResource({ ...spec, refers: [{ to: 'guardrails', find: naming }] });
