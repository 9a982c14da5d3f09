/** Secret references, by which accounts name secrets that stay in a secret manager. */
import { SluiceError } from '../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import { Secret } from '../../kernel/secret.ts';
import { toIso } from '../body-fields.ts';
import { actorId, findWorkspace, hasTags, type Patch, readTagsFilter, refuse, unknownReference } from '../common.ts';
import { defineResource, emptyAnswer, itemAction, referredTo } from '../define.ts';
import type { Call } from '../resource.ts';
import { afterCommit } from '../services.ts';
import { resourceSpec } from '../spec.ts';
import { checkAuth, maskAuth, openAuth, placeOf, sealAuth } from './auth-config.ts';
import { pick } from './content.ts';
import type { SecretReference } from './find.ts';
import { SECRET_MANAGERS } from './manager.ts';
import { MANAGERS } from './managers.ts';
import { createBody, detail, filters, item, saved, tested, type UpdateBody, updateBody } from './schema.ts';

/** Active references of one organisation. */
const MAX_REFERENCES = 5000;
/** References that a filter on tags looks at: they are compared here, inside JSON. */
const MAX_TAGGED = 1000;
/** Users that a refusal names. */
const NAMED = 5;
/** The length of a shorter secret would say too much of it. */
const LENGTH_SAID = 32;

function presentItem(row: SecretReference) {
  return {
    id: row.id,
    organisation_id: row.organisation_id,
    name: row.name,
    slug: row.slug,
    description: row.description,
    manager_type: row.manager_type,
    secret_path: row.secret_path,
    secret_key: row.secret_key,
    allow_all_workspaces: row.allowed_workspaces === null,
    tags: row.tags,
    status: 'ACTIVE' as const,
    created_by: row.created_by,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    object: 'secret-reference' as const,
  };
}

async function presentDetail(row: SecretReference, call: Call) {
  const allowed = row.allowed_workspaces;
  const places =
    allowed === null ? [] : await call.tx.list('workspaces', { where: { id: { in: allowed }, status: 'active' } });
  return {
    ...presentItem(row),
    auth_config: await maskAuth(call.vault, call.tenant, row),
    ...(allowed === null ? {} : { allowed_workspaces: places.map(({ slug }) => slug).sort() }),
  };
}

function checkPath(type: SecretReference['manager_type'], path: string): string {
  const { path: form, pathForm } = MANAGERS[type];
  const plain = type === 'hashicorp_vault' ? path.replace(/^\/?(?:v1\/)?/, '') : path;
  if (!form.test(plain)) throw refuse('secret_path', `must be ${pathForm}`);
  return plain;
}

/** Who may use it after a change: ids, or null for all. */
async function allowedAfter(
  call: Pick<Call, 'tx'>,
  {
    allow_all_workspaces: all,
    allowed_workspaces: names,
  }: Pick<UpdateBody, 'allow_all_workspaces' | 'allowed_workspaces'>,
  before: string[] | null,
): Promise<string[] | null> {
  if (names !== undefined) {
    if (all === true) throw refuse('allowed_workspaces', 'cannot be combined with allow_all_workspaces: true');
    const ids = new Set<string>();
    for (const [index, name] of names.entries()) {
      const workspace = await findWorkspace(call.tx, name);
      if (!workspace) throw unknownReference(`allowed_workspaces[${index}]`, 'workspace');
      ids.add(workspace.id);
    }
    return [...ids];
  }
  if (all === true) return null;
  return all === false ? (before ?? []) : before;
}

const spec = resourceSpec({
  name: 'secret_references',
  tag: 'Secret references',
  table: 'secret_references',
  path: '/secret-references',
  param: 'id',
  scopes: ['secret_references'],
  tenant: 'organisation',
  object: 'secret-reference',
  archives: true,
  list: {
    query: filters,
    where: async (call) => {
      const { manager_type: type, tags } = call.query;
      const where = { status: 'active' as const, ...(type === undefined ? {} : { manager_type: type }) };
      if (tags === undefined || tags === '') return where;
      const wanted = readTagsFilter(tags);
      const newest = { where, orderBy: [['created_at', 'desc']] as const, limit: MAX_TAGGED };
      const rows = await call.tx.list('secret_references', newest);
      return { ...where, id: { in: rows.filter((row) => hasTags(row.tags, wanted)).map(({ id }) => id) } };
    },
    anyOf: ({ query }) => {
      const { search } = query;
      return search === undefined ? undefined : [{ name: { contains: search } }, { slug: { contains: search } }];
    },
    defaultPageSize: 20,
    maxPageSize: 100,
    item,
    present: presentItem,
  },
  detail,
  present: presentDetail,
  create: {
    body: createBody,
    response: saved,
    run: async (call) => {
      const { body, tx, clock, tenant, vault } = call;
      const type = body.manager_type;
      const auth = checkAuth(type, body.auth_config, call.checkHost);
      const path = checkPath(type, body.secret_path);
      const slug = body.slug ?? slugify(body.name);
      if ((await tx.count('secret_references', { where: { slug, status: 'active' } })) > 0) {
        throw refuse('slug', `is taken: the organisation has a secret reference named ${slug}`);
      }
      if ((await tx.count('secret_references', { where: { status: 'active' } })) >= MAX_REFERENCES) {
        throw new SluiceError(
          'forbidden',
          `An organisation has at most ${MAX_REFERENCES} secret references: delete one.`,
        );
      }
      const id = uuidv7(clock);
      const now = clock.now();
      const row: SecretReference = {
        id,
        organisation_id: tenant.organisationId,
        slug,
        name: body.name,
        description: body.description ?? null,
        manager_type: type,
        auth_config: auth.plain,
        secret_auth_config: await sealAuth(vault, tenant, id, auth.secrets),
        secret_path: path,
        secret_key: body.secret_key || null,
        allowed_workspaces: await allowedAfter(call, body, null),
        tags: body.tags ?? null,
        status: 'active',
        created_by: actorId(call.principal),
        created_at: now,
        last_updated_at: now,
      };
      return { row, answer: { id, slug, object: 'secret-reference' as const } };
    },
  },
  update: {
    body: updateBody,
    response: emptyAnswer,
    run: async (call, row) => {
      const { body, vault, tenant } = call;
      const patch: Patch<'secret_references'> = {};
      if (body.name !== undefined) patch.name = body.name;
      if (body.description !== undefined) patch.description = body.description;
      if (body.tags !== undefined) patch.tags = body.tags;
      if (body.secret_path !== undefined) patch.secret_path = checkPath(row.manager_type, body.secret_path);
      if (body.secret_key !== undefined) patch.secret_key = body.secret_key || null;
      if (body.allow_all_workspaces !== undefined || body.allowed_workspaces !== undefined) {
        patch.allowed_workspaces = await allowedAfter(call, body, row.allowed_workspaces);
      }
      if (body.auth_config !== undefined) {
        const stored = { plain: row.auth_config, secrets: await openAuth(vault, tenant, row) };
        const auth = checkAuth(row.manager_type, body.auth_config, call.checkHost, stored);
        patch.auth_config = auth.plain;
        patch.secret_auth_config = await sealAuth(vault, tenant, row.id, auth.secrets);
      }
      return { patch, answer: {} };
    },
  },
  remove: {
    description: 'Refused while an integration, a provider or a virtual key maps a field to it.',
    check: async (call, row) => {
      const users = await call.references(referredTo(spec, row));
      if (users.length === 0) return;
      const named = users.slice(0, NAMED).map(({ kind, name }) => `${kind} ${name}`);
      const others = users.length > NAMED ? ` and ${users.length - NAMED} more` : '';
      throw new SluiceError(
        'validation',
        `Secret reference ${row.slug} is in use by ${named.join(', ')}${others}. Take it out of their secret_mappings first.`,
      );
    },
  },
});

const test = itemAction(spec, {
  name: 'test',
  method: 'POST',
  summary: 'Test a secret reference',
  description:
    'Reads the secret now, from this node, past what is cached. The answer says whether that worked, and never holds the secret.',
  verb: 'update',
  response: tested,
  audit: null,
  run: async (call, row) => {
    const place = await placeOf(call, row);
    const { slug, secret_key: key } = row;
    return afterCommit({ managers: SECRET_MANAGERS }, async ({ managers }) => {
      const answer = { ok: true, problem: null, object: 'secret-reference-test' as const };
      try {
        const content = await managers.read(place);
        // Mappings say which member they mean.
        if (key === null && 'object' in content) return answer;
        const value = pick(content, slug, key, 'string');
        const length = value instanceof Secret ? value.reveal().length : 0;
        return length < LENGTH_SAID ? answer : { ...answer, length };
      } catch (error) {
        if (!(error instanceof SluiceError)) throw error;
        return { ...answer, ok: false, problem: error.message };
      }
    });
  },
});

export const secretReferences = defineResource({ ...spec, actions: [test] });
