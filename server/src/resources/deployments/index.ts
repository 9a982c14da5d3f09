/** Deployments: gateways that are registered with an organisation. */
import { z } from 'zod';
import { mintKey } from '../../auth/key-format.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import { actorId, type Patch, refuse } from '../common.ts';
import { defineResource } from '../define.ts';
import { queryBoolean } from '../fields.ts';
import type { Call } from '../resource.ts';
import { resourceSpec } from '../spec.ts';
import { ping, verifyPing } from './ping.ts';
import {
  checkOthers,
  countActive,
  type Deployment,
  listWhere,
  presentDetail,
  presentItem,
  settingsAfter,
  takeDefault,
} from './rules.ts';
import {
  type CreateBody,
  createBody,
  created,
  detail,
  filters,
  item,
  type UpdateBody,
  updateBody,
  updated,
} from './schema.ts';

const MAX_SLUG = 50;

async function create(call: Call<unknown, unknown, CreateBody>) {
  const { body, tx, clock, tenant, principal } = call;
  const active = await countActive(tx);
  const settings = await settingsAfter(call, body.auth_settings ?? {}, true);
  // Its random tail stays.
  const slug = body.slug ?? slugify(body.name).slice(-MAX_SLUG);
  if ((await tx.count('deployments', { where: { slug, status: 'active' } })) > 0) {
    throw new SluiceError('conflict', `slug is taken: the organisation has a deployment named ${slug}.`, {
      param: 'slug',
    });
  }
  const isDefault = active === 0 || body.is_default === 1;
  if (isDefault) await takeDefault(call, null);
  const minted = mintKey('dep');
  const now = clock.now();
  const row: Deployment = {
    id: uuidv7(clock),
    organisation_id: tenant.organisationId,
    slug,
    name: body.name,
    type: body.type,
    status: 'active',
    is_default: isDefault,
    connection_status: 'unknown',
    source_type: principal.kind === 'user' ? 'manual' : 'api',
    tags: body.tags ?? null,
    auth_settings: settings,
    deployment_config: body.deployment_config ?? null,
    client_auth_id: minted.publicId,
    client_auth_digest: minted.digest,
    ping_digest: null,
    last_synced_at: null,
    last_resynced_at: null,
    created_by: actorId(principal),
    created_at: now,
    last_updated_at: now,
  };
  return {
    row,
    answer: {
      id: row.id,
      organisation_id: row.organisation_id,
      client_auth: minted.key,
      credentials: { username: slug, password: minted.key },
      object: 'deployment' as const,
    },
  };
}

async function update(call: Call<unknown, unknown, UpdateBody>, row: Deployment) {
  const { body } = call;
  const patch: Patch<'deployments'> = {};
  if (body.name !== undefined) patch.name = body.name;
  if (body.type !== undefined) patch.type = body.type;
  if (body.status !== undefined) patch.status = body.status;
  if (body.tags !== undefined) patch.tags = body.tags;
  if (body.deployment_config !== undefined) patch.deployment_config = body.deployment_config;
  if (body.is_default === 0) await checkOthers(call.tx, row);
  if (body.is_default === 1) await takeDefault(call, row.id);
  if (body.is_default !== undefined) patch.is_default = body.is_default === 1;
  if (body.auth_settings !== undefined) {
    patch.auth_settings = await settingsAfter(
      call,
      body.auth_settings,
      body.override_existing === true,
      row.auth_settings,
    );
    // What the last ping found was found elsewhere.
    if (patch.auth_settings.gateway_base_url !== row.auth_settings.gateway_base_url)
      patch.connection_status = 'unknown';
  }
  if (body.rotate_auth !== true) return { patch, answer: {} };
  const minted = mintKey('dep');
  patch.client_auth_id = minted.publicId;
  patch.client_auth_digest = minted.digest;
  return { patch, answer: { client_auth: minted.key } };
}

const spec = resourceSpec({
  name: 'deployments',
  tag: 'Deployments',
  table: 'deployments',
  path: '/deployments',
  param: 'id',
  self: ({ principal }) => {
    if (principal.kind === 'deployment' && principal.keyId !== null) return principal.keyId;
    throw refuse('id', 'may be "self" with the client_auth of a deployment only; name its id or slug');
  },
  scopes: ['deployments'],
  tenant: 'organisation',
  object: 'deployment',
  archives: true,
  visible: ({ principal }) => (principal.kind === 'deployment' ? { where: { id: principal.keyId ?? '' } } : {}),
  list: {
    query: filters,
    lists: ['workspace_slug'],
    where: listWhere,
    anyOf: ({ query }) => {
      const { search } = query;
      if (search === undefined || search === '') return undefined;
      return [{ name: { contains: search } }, { slug: { contains: search } }];
    },
    defaultPageSize: 100,
    maxPageSize: 1000,
    item,
    present: presentItem,
  },
  get: {
    query: z.object({
      include_credentials: queryBoolean.optional().describe('Adds `credentials`, whose password is masked.'),
    }),
  },
  detail,
  present: presentDetail,
  create: { body: createBody, response: created, secretAnswer: true, run: create },
  update: { body: updateBody, response: updated, run: update },
  remove: {},
});

export const deployments = defineResource({ ...spec, actions: [ping(spec), verifyPing(spec)] });
