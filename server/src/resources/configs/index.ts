/** Configs and their versions. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import type { JsonValue } from '../../kernel/json.ts';
import { itemsOf, MAX_ITEMS } from '../../kernel/json-items.ts';
import { JsonScanError, scanJson } from '../../kernel/json-scan.ts';
import { quotedName } from '../../kernel/quoted.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { actorId, type Patch, refuse, refuseIssues, requireWorkspace } from '../common.ts';
import { changedColumns, defineResource, findRow, listOf, notFound, pageFields, pageOf } from '../define.ts';
import { queryBoolean, tenantFields } from '../fields.ts';
import { isNameOf, missingGuardrails } from '../guardrails/rules.ts';
import { formatPath } from '../issues.ts';
import { NO_REFERENCES, type ReferencePorts } from '../ports.ts';
import type { FindReferences, Reference } from '../references.ts';
import type { AnyAction, Call } from '../resource.ts';
import { name, toIso } from '../shapes.ts';
import { type ConfigWarning, lintConfig } from './lint.ts';
import { type Config, guardrailSlugs, parseConfig, providerSlugs } from './schema.ts';
import { maskConfig, openConfig, sealConfig } from './secrets.ts';
import { describeConfig } from './structure.ts';

const configInput = z
  .union([
    z.record(z.string(), z.unknown()).meta(describeConfig()),
    z.string().describe('The same object as JSON text.'),
  ])
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

const detail = item.extend({
  config: z
    .record(z.string(), z.unknown())
    .describe(
      'Raw provider credentials are shown as `masked_<name>`, values of `headers` and `credentials` of checks as masks. A check that is sent back with its masks keeps its secrets.',
    ),
  format: z.literal('json'),
  type: z.literal('ORG_CONFIG'),
  version_id: z.string(),
});

const warnings = z
  .array(z.object({ param: z.string(), message: z.string() }))
  .optional()
  .describe('What the config may not mean as it stands; absent where nothing is conspicuous.');
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
type PathCall<B = unknown> = Call<Record<string, unknown>, Record<string, unknown>, B>;

const target = { table: 'configs', param: 'slug', archives: true } as const;

function presentRow(row: Row<'configs'>) {
  return {
    id: row.id,
    name: row.name,
    slug: row.slug,
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    is_default: row.is_default ? 1 : 0,
    status: row.status,
    owner_id: row.owner_id,
    updated_by: row.updated_by,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    object: 'config',
  };
}

/** The answer's warnings; nothing where there are none. */
async function warned(
  tx: TenantTx,
  workspaceId: string,
  config: Config,
): Promise<{ warnings?: readonly ConfigWarning[] }> {
  const found = [...lintConfig(config), ...(await unknownProviders(tx, workspaceId, config))];
  return found.length === 0 ? {} : { warnings: found };
}

/** A provider that is named and not there is no fault: it may be added after its config. */
async function unknownProviders(tx: TenantTx, workspaceId: string, config: Config): Promise<ConfigWarning[]> {
  const named = providerSlugs(config);
  if (named.length === 0) return [];
  const where = {
    workspace_id: workspaceId,
    status: { not: 'archived' },
    slug: { in: [...new Set(named.map(({ slug }) => slug))] },
  } as const;
  const known = new Set<string>();
  for (const table of ['providers', 'virtual_keys'] as const)
    for (const row of await tx.list(table, { where })) known.add(row.slug);
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
    format: 'json',
    type: 'ORG_CONFIG',
    version_id: version.id,
  };
}

function configsResource(ports: ReferencePorts): AnyAction[] {
  /** The checked config of a body. Throws 400 with `param: config.<path>`. */
  async function readConfig(
    call: Call<never, never, never> | Call,
    workspaceId: string,
    input: unknown,
  ): Promise<Config> {
    const parsed = parseConfig(typeof input === 'string' ? parseText(input) : input, {
      checkHost: call.checkHost,
      saved: true,
    });
    if (!parsed.ok) throw refuseIssues('config', parsed.issues);
    await checkGuardrails(call, workspaceId, parsed.config);
    return parsed.config;
  }

  /**
   * Guardrails must exist when a config is saved, or brought back. Slugs of providers and virtual keys may not: they are
   * looked up at request time, so a config can be prepared before its accounts and survives their replacement.
   */
  async function checkGuardrails(call: Call<never, never, never> | Call, workspaceId: string, config: Config) {
    const named = guardrailSlugs(config);
    if (named.length === 0) return;
    const slugs = [...new Set(named.map((one) => one.slug))];
    const missing = new Set(await ports.missingGuardrails(call.tx, workspaceId, slugs));
    const first = named.find((one) => missing.has(one.slug));
    if (first)
      throw refuse(
        formatPath(first.path, 'config'),
        'names no active guardrail of this workspace or its organisation with the target llm; GET /v1/guardrails lists them',
      );
  }

  async function insertVersion(
    call: Call<never, never, never> | Call,
    row: Pick<Row<'configs'>, 'id' | 'version_id' | 'organisation_id'>,
    number: number,
    config: Config,
    former: Row<'config_versions'> | null,
  ): Promise<Row<'config_versions'>['config']> {
    const sealed = await sealConfig(call.vault, call.tenant, row.version_id, config, former);
    await call.tx.insert('config_versions', {
      id: row.version_id,
      organisation_id: row.organisation_id,
      config_id: row.id,
      number,
      config: sealed,
      created_by: actorId(call.principal),
      created_at: call.clock.now(),
    });
    return sealed;
  }

  /** A further version of a config, which the caller makes the current one; answers its id. */
  async function addVersion(
    call: Call<never, never, never> | Call,
    row: Row<'configs'>,
    config: Config,
  ): Promise<string> {
    const [last] = await call.tx.list('config_versions', {
      where: { config_id: row.id },
      orderBy: [['number', 'desc']],
      limit: 1,
    });
    const next = { ...row, version_id: uuidv7(call.clock) };
    const former = (await call.tx.find('config_versions', { id: row.version_id })) ?? null;
    const sealed = await insertVersion(call, next, (last?.number ?? 0) + 1, config, former);
    call.audited(row.id, { before: { config: former?.config ?? null }, after: { config: sealed } });
    return next.version_id;
  }

  const create: AnyAction = {
    id: 'configs.create',
    method: 'POST',
    path: '/configs',
    summary: 'Create a config',
    description: 'Returns the slug that requests name in `x-gateway-config`. Guardrails named in it must exist.',
    example: {
      body: {
        name: 'Chat with retries',
        config: { provider: '@openai-prod', retry: { attempts: 3 }, cache: { mode: 'simple', max_age: 3600 } },
      },
    },
    tag: 'Configs',
    auth: 'key_or_login',
    scopes: ['configs.create'],
    tenant: 'workspace',
    params: null,
    query: null,
    body: createBody,
    response: created,
    writes: true,
    audit: { action: 'create', resource: 'configs' },
    run: async (call: PathCall<CreateBody>) => {
      const workspaceId = requireWorkspace(call);
      const config = await readConfig(call, workspaceId, call.body.config);
      const now = call.clock.now();
      const row: Row<'configs'> = {
        id: uuidv7(call.clock),
        organisation_id: call.tenant.organisationId,
        workspace_id: workspaceId,
        slug: slugify(call.body.name, 'pc-'),
        name: call.body.name,
        is_default: call.body.isDefault === 1,
        status: 'active',
        owner_id: actorId(call.principal),
        updated_by: null,
        version_id: uuidv7(call.clock),
        created_at: now,
        last_updated_at: now,
      };
      if (row.is_default) {
        await call.tx.update('configs', { workspace_id: workspaceId, is_default: true }, { is_default: false });
      }
      await call.tx.insert('configs', row);
      const sealed = await insertVersion(call, row, 1, config, null);
      call.audited(row.id, { before: null, after: { ...row, config: sealed }, table: 'configs' });
      call.tx.changed({ workspaceId, topic: 'configs', entityId: row.id });
      return {
        id: row.id,
        slug: row.slug,
        version_id: row.version_id,
        object: 'config',
        ...(await warned(call.tx, workspaceId, config)),
      };
    },
  };

  const update: AnyAction = {
    id: 'configs.update',
    method: 'PUT',
    path: '/configs/:slug',
    summary: 'Update a config',
    description: 'A config in the body replaces the old one in full and becomes a new version.',
    tag: 'Configs',
    auth: 'key_or_login',
    scopes: ['configs.update'],
    tenant: 'workspace_optional',
    params: z.strictObject({ slug: z.string() }),
    query: z.strictObject({ ...tenantFields }),
    body: updateBody,
    response: updated,
    writes: true,
    audit: { action: 'update', resource: 'configs' },
    run: async (call: PathCall<UpdateBody>) => {
      const { body } = call;
      // An archived config is gone for every caller, except for the one call that brings it back.
      const row = await findRow({ ...target, archives: false }, call, 'update');
      if (row.status === 'archived' && body.status !== 'active') throw notFound();
      if (body.status === 'archived') await refuseWhileUsed(call, row);
      if (row.status === 'archived' && body.config === undefined) {
        const version = await call.tx.find('config_versions', { id: row.version_id });
        if (version) await checkGuardrails(call, row.workspace_id, version.config as Config);
      }
      let saved: Config | null = null;
      const patch: Patch<'configs'> = { updated_by: actorId(call.principal), last_updated_at: call.clock.now() };
      if (body.name !== undefined) patch.name = body.name;
      if (body.status !== undefined) patch.status = body.status;
      if (body.config !== undefined) {
        saved = await readConfig(call, row.workspace_id, body.config);
        patch.version_id = await addVersion(call, row, saved);
      }
      call.audited(row.id, changedColumns('configs', row, patch));
      await call.tx.update('configs', { id: row.id }, patch);
      call.tx.changed({ workspaceId: row.workspace_id, topic: 'configs', entityId: row.id });
      return {
        version_id: patch.version_id ?? row.version_id,
        ...(saved === null ? {} : await warned(call.tx, row.workspace_id, saved)),
      };
    },
  };

  const versions: AnyAction = {
    id: 'configs.versions',
    method: 'GET',
    path: '/configs/:slug/versions',
    summary: 'List the versions of a config, newest first',
    tag: 'Configs',
    auth: 'key_or_login',
    scopes: ['configs.read'],
    tenant: 'workspace_optional',
    params: z.strictObject({ slug: z.string() }),
    query: z.strictObject({ ...tenantFields, ...pageFields(100) }),
    body: null,
    response: listOf(detail),
    writes: false,
    audit: null,
    run: async (call: PathCall) => {
      const row = await findRow(target, call, 'read');
      const page = pageOf(call.query, 50);
      const where = { config_id: row.id };
      const total = await call.tx.count('config_versions', { where });
      const rows = await call.tx.list('config_versions', { where, orderBy: [['number', 'desc']], ...page });
      const data = await Promise.all(rows.map((version) => presentOld(row, version)));
      return { object: 'list', total, data };
    },
  };

  const version: AnyAction = {
    id: 'configs.version',
    method: 'GET',
    path: '/configs/:slug/versions/:versionId',
    summary: 'Get one version of a config',
    tag: 'Configs',
    auth: 'key_or_login',
    scopes: ['configs.read'],
    tenant: 'workspace_optional',
    params: z.strictObject({ slug: z.string(), versionId: z.string() }),
    query: z.strictObject({ ...tenantFields }),
    body: null,
    response: detail,
    writes: false,
    audit: null,
    run: async (call: PathCall) => {
      const row = await findRow(target, call, 'read');
      return presentOld(row, await findVersion(call, row));
    },
  };

  const restore: AnyAction = {
    id: 'configs.restore',
    method: 'POST',
    path: '/configs/:slug/versions/:versionId/restore',
    summary: 'Make a former version of a config the current one',
    description:
      'Its content becomes a new version, so no version is lost. Everything it names must still exist. Its credentials come along.',
    tag: 'Configs',
    auth: 'key_or_login',
    scopes: ['configs.update'],
    tenant: 'workspace_optional',
    params: z.strictObject({ slug: z.string(), versionId: z.string() }),
    query: z.strictObject({ ...tenantFields }),
    body: null,
    response: updated,
    writes: true,
    audit: { action: 'update', resource: 'configs' },
    run: async (call: PathCall) => {
      const row = await findRow({ ...target, archives: false }, call, 'update');
      if (row.status === 'archived') throw notFound();
      const former = await findVersion(call, row);
      const opened = await openConfig(call.vault, call.tenant, former.id, former.config);
      // The rules may have become stricter since it was saved.
      const config = await readConfig(call, row.workspace_id, opened);
      const patch: Patch<'configs'> = {
        version_id: await addVersion(call, row, config),
        updated_by: actorId(call.principal),
        last_updated_at: call.clock.now(),
      };
      call.audited(row.id, changedColumns('configs', row, patch));
      await call.tx.update('configs', { id: row.id }, patch);
      call.tx.changed({ workspaceId: row.workspace_id, topic: 'configs', entityId: row.id });
      return { version_id: patch.version_id, ...(await warned(call.tx, row.workspace_id, config)) };
    },
  };

  return defineResource<'configs', never, never>({
    name: 'configs',
    tag: 'Configs',
    table: 'configs',
    path: '/configs',
    param: 'slug',
    scopes: ['configs'],
    tenant: 'workspace_optional',
    object: 'config',
    archives: true,
    list: {
      query: z.object({ return_last_used: queryBoolean.optional() }),
      defaultPageSize: 50,
      maxPageSize: 100,
      item,
    },
    detail,
    present: async (row, call, full) => {
      if (!full) return presentRow(row);
      const current = await call.tx.find('config_versions', { id: row.version_id });
      if (!current) throw new SluiceError('internal', 'The config has no current version.', { detail: row.id });
      return presentVersion(row, current);
    },
    create: null,
    update: null,
    remove: { check: refuseWhileUsed },
    actions: [create, update, versions, version, restore],
  });
}

/** The version that the path names. */
async function findVersion(call: PathCall, row: Row<'configs'>): Promise<Row<'config_versions'>> {
  const id = String(call.params.versionId).toLowerCase();
  const found = /^[0-9a-f-]{36}$/.test(id)
    ? await call.tx.find('config_versions', { id, config_id: row.id })
    : undefined;
  if (!found) throw notFound();
  return found;
}

/** A version in a list: with the time and the author of that version. */
async function presentOld(row: Row<'configs'>, version: Row<'config_versions'>) {
  const shown = await presentVersion(row, version);
  return { ...shown, updated_by: version.created_by, last_updated_at: toIso(version.created_at) };
}

/** 409 while something hands this config out, as a workspace does to its users' keys: requests would lose their routing. */
async function refuseWhileUsed(call: Call<never, never, never> | Call, row: Row<'configs'>): Promise<void> {
  const [used] = await call.references({
    table: 'configs',
    id: row.id,
    slug: row.slug,
    workspaceId: row.workspace_id,
  });
  if (used === undefined) return;
  throw new SluiceError(
    'conflict',
    `This config is still used: ${used.kind} of ${used.name}. Clear it there first (defaults.user_api_key_config of the workspace).`,
  );
}

/** JSON text as strictly as a body: duplicate keys, depth and size are refused. */
function parseText(text: string): unknown {
  try {
    scanJson(Buffer.from(text), []);
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
export const configReferences: FindReferences = async (tx, to) => {
  if (to.table !== 'guardrails') return [];
  const found: Reference[] = [];
  const place = to.workspaceId === null ? {} : { workspace_id: to.workspaceId };
  for (let after = ''; ; ) {
    const where = { ...place, status: 'active', id: { gt: after } } as const;
    const rows = await tx.list('configs', { where, orderBy: [['id', 'asc']], limit: PAGE });
    const ids = rows.map((row) => row.version_id);
    const versions = await tx.list('config_versions', { where: { id: { in: ids } } });
    const naming = new Set(
      versions
        .filter(({ config }) => guardrailSlugs(config as Config).some(({ slug }) => isNameOf(slug, to)))
        .map(({ config_id }) => config_id),
    );
    for (const { id, slug } of rows) if (naming.has(id)) found.push({ kind: 'config', id, name: slug });
    const last = rows.at(-1);
    if (rows.length < PAGE || last === undefined) return found;
    after = last.id;
  }
};

export const configs: readonly AnyAction[] = configsResource({ ...NO_REFERENCES, missingGuardrails });
