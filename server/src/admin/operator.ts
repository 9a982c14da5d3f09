/** Routes of whoever runs the installation (product.md, "Several organisations"). They read no organisation's content. */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { name, text, toIso } from '../resources/body-fields.ts';
import { changedColumns, emptyAnswer } from '../resources/define.ts';
import { isUuid, userEmail } from '../resources/fields.ts';
import { listOf, pageFields, pageOf } from '../resources/kinds/lists.ts';
import { notFound } from '../resources/look-up.ts';
import { createOrganisation } from '../resources/organisations.ts';
import { type AnyOperatorAction, operatorAction } from '../resources/resource.ts';
import { domain, MAX_DOMAINS } from '../resources/settings/auth.ts';
import { type AdminDeps, registerRows } from './handle.ts';

/** What this node knows of its parts: store, counters, feed, spool depth, versions. Must not reject. */
export type HealthReport = () => Promise<Readonly<Record<string, unknown>>>;

const organisationAnswer = z.object({
  object: z.literal('organisation'),
  id: z.string(),
  name: z.string(),
  slug: z.string(),
  status: z.enum(['active', 'suspended']),
  created_at: z.string(),
  last_updated_at: z.string(),
});

const createBody = z.strictObject({
  name,
  owner: z.strictObject({ email: userEmail, first_name: text(255, 1), last_name: text(255) }),
});

const updateBody = z.strictObject({
  name: name.optional(),
  status: z.enum(['active', 'suspended']).optional(),
  verified_domains: z
    .array(domain)
    .min(1)
    .max(MAX_DOMAINS)
    .refine((domains) => new Set(domains).size === domains.length, 'must not repeat a domain')
    .optional()
    .describe('Domains that are the organisation’s without a TXT record. Its other domains stay as they are.'),
});

const common = {
  tag: 'Operator',
  auth: 'operator' as const,
  scopes: [],
  tenant: 'none' as const,
  params: null,
  query: null,
  body: null,
};

const create = operatorAction({
  ...common,
  id: 'operator.organisations.create',
  method: 'POST',
  path: '/operator/organisations',
  summary: 'Create an organisation',
  description: 'With its owner, a workspace, the sandbox provider and two keys, which are shown once.',
  body: createBody,
  response: z.object({
    organisation_id: z.string(),
    workspace_id: z.string(),
    workspace_slug: z.string(),
    user_id: z.string(),
    admin_api_key: z.string(),
    workspace_api_key: z.string(),
  }),
  example: { body: { name: 'Example', owner: { email: 'ada@example.com', first_name: 'Ada', last_name: 'Lovelace' } } },
  writes: true,
  secretAnswer: true,
  audit: { action: 'create', resource: 'organisation' },
  run: async ({ body, tx, clock, audit }) => {
    const created = await createOrganisation(tx, { ...body, blockInlineConfig: true, clock });
    const after = await tx.find('organisations', { id: created.organisation_id });
    audit(created.organisation_id, { before: null, after: after ?? null, table: 'organisations' });
    return created;
  },
});

const list = operatorAction({
  ...common,
  id: 'operator.organisations.list',
  method: 'GET',
  path: '/operator/organisations',
  summary: 'List organisations',
  query: z.strictObject(pageFields(100)),
  response: listOf(organisationAnswer),
  writes: false,
  audit: null,
  run: async ({ query, tx }) => {
    const page = pageOf(query, 50);
    const total = await tx.count('organisations');
    const rows = await tx.list('organisations', { ...page, orderBy: [['created_at', 'desc']] });
    const data = rows.map((row) => ({
      object: 'organisation' as const,
      id: row.id,
      name: row.name,
      slug: row.slug,
      status: row.status,
      created_at: toIso(row.created_at),
      last_updated_at: toIso(row.last_updated_at),
    }));
    return { object: 'list' as const, total, data };
  },
});

const update = operatorAction({
  ...common,
  id: 'operator.organisations.update',
  method: 'PUT',
  path: '/operator/organisations/:id',
  summary: 'Rename, suspend or reactivate an organisation, or verify its domains',
  description:
    'Every key of a suspended organisation answers 403 within a second, on all nodes. A domain of another organisation is 409.',
  params: z.strictObject({ id: z.string() }),
  body: updateBody,
  response: emptyAnswer,
  writes: true,
  audit: { action: 'update', resource: 'organisation' },
  run: async ({ params, body, tx, clock, audit }) => {
    const id = params.id.toLowerCase();
    const row = isUuid(id) ? await tx.find('organisations', { id }) : undefined;
    if (!row) throw notFound();
    const patch = { name: body.name ?? row.name, status: body.status ?? row.status };
    const { before, after } = changedColumns('organisations', row, patch);
    const domains = body.verified_domains ?? [];
    if (domains.length === 0) audit(id, { before, after, table: 'organisations' });
    else {
      const { verifyDomains } = await import('../resources/settings/domains.ts');
      const were = await verifyDomains(tx, clock, id, domains);
      audit(id, { before: { ...before, verified_domains: were }, after: { ...after, verified_domains: domains } });
    }
    await tx.update('organisations', { id }, { ...patch, last_updated_at: clock.now() });
    tx.changed({ organisationId: id, workspaceId: null, topic: 'organisations', entityId: id });
    return {};
  },
});

const health = (report: HealthReport) =>
  operatorAction({
    ...common,
    id: 'operator.health',
    method: 'GET',
    path: '/operator/health',
    summary: 'State of this node',
    description: 'Store, counters, change feed, journal and versions. Answers also while the store is lost.',
    response: z.looseObject({ object: z.literal('health') }),
    writes: false,
    standalone: true,
    audit: null,
    run: async () => ({ object: 'health' as const, ...(await report()) }),
  });

/** The operator's rows of the administration table. */
export function operatorActions(report: HealthReport): readonly AnyOperatorAction[] {
  return [create, list, update, health(report)];
}

/** Serves the operator's rows; the same chain as every other administration route. */
export function registerOperator(app: FastifyInstance, deps: AdminDeps & { readonly health: HealthReport }): void {
  registerRows(app, operatorActions(deps.health), deps);
}
