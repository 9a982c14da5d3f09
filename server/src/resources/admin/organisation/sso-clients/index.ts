/** Registrations of an organisation at identity providers (OpenID Connect). */
import { z } from 'zod';
import { endSessions } from '../../../../auth/session-rows.ts';
import { SluiceError } from '../../../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../../../kernel/id.ts';
import { Secret } from '../../../../kernel/secret.ts';
import type { GroupMapping, Row } from '../../../../store/schema.ts';
import type { SealPlace } from '../../../../store/vault.ts';
import { maskOf, name, secretText, slug, text, toIso } from '../../../body-fields.ts';
import { actorId, findWorkspace, type Patch, refuse, unknownReference } from '../../../common.ts';
import { defineResource } from '../../../define.ts';
import { organisationTenantFields, reference } from '../../../fields.ts';
import type { Call } from '../../../resource.ts';
import { Service, withServices } from '../../../services.ts';
import { resourceSpec } from '../../../spec.ts';
import { checkGives, checkGivesIn } from '../../give.ts';
import { type OrganisationRole, rankOf } from '../../rank.ts';

type SsoClient = Row<'sso_clients'>;

/** What saving a client asks of the way to identity providers. */
export interface IssuerChecks {
  /** Reads the metadata of an issuer now. Null when it can be used, else what is wrong with it; never rejects. */
  discover(organisationId: string, issuer: string): Promise<string | null>;
}

export const ISSUERS = new Service<IssuerChecks>('way to identity providers');

const MAX_CLIENTS = 20;
const MAX_KEYS = 10;
const MAX_MAPPINGS = 200;
const MAX_TENANTS = 100;
const WELL_KNOWN = '/.well-known/openid-configuration';
const NOT_CHECKED = 'The metadata of the issuer was not read yet.';
/** Microsoft's issuers of every tenant of the world. */
const EVERY_TENANT =
  /^https:\/\/login\.(?:microsoftonline\.(?:com|us)|partner\.microsoftonline\.cn)\/(?:common|organizations|consumers)\//i;
const METHODS = ['client_secret_basic', 'client_secret_post', 'private_key_jwt'] as const;
const SCOPES = ['openid', 'profile', 'email', 'offline_access'];
/** A change of one of these changes whose word a sign-in rests on. */
const TRUST = ['issuer', 'client_id', 'provider_jwks', 'email_verified_claim', 'allowed_tenants'] as const;

const type = z.literal('oidc', {
  error: 'must be "oidc". SAML is not offered: a bridge such as Keycloak or Dex turns SAML into OpenID Connect',
});
const ascii = (most: number) =>
  text(most, 1).regex(/^[\x21-\x7e]+$/, 'must consist of visible ASCII characters, without spaces');
const keySet = z.strictObject({ keys: z.array(z.record(z.string(), z.unknown())).min(1).max(MAX_KEYS) });
const groupMapping = z.union([
  z.strictObject({
    group: text(255, 1),
    role: z.enum(['admin', 'member'], { error: 'must be admin or member: no group makes an owner' }),
  }),
  z.strictObject({
    group: text(255, 1),
    workspace_id: reference,
    workspace_role: z.enum(['admin', 'manager', 'member']),
  }),
]);

const optional = {
  client_secret: secretText.nullable().optional(),
  token_endpoint_auth_method: z
    .enum(METHODS)
    .optional()
    .describe('Default client_secret_basic; private_key_jwt where `jwks` is given.'),
  jwks: keySet
    .nullable()
    .optional()
    .describe(
      'Private keys for private_key_jwt: the first one signs, all are published at `jwks_uri`. Never answered.',
    ),
  provider_jwks: keySet
    .nullable()
    .optional()
    .describe('Public keys of the provider, where Sluice cannot reach its own key set.'),
  scopes: z
    .array(text(255, 1).regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, 'must be the name of a scope'))
    .min(1)
    .max(50)
    .refine((scopes) => scopes.includes('openid'), 'must contain openid')
    .optional()
    .describe('Default openid, profile, email, offline_access. Sluice uses no refresh token: offline_access can go.'),
  is_default: z.boolean().optional().describe('The one that a sign-in takes which names none.'),
  email_verified_claim: text(255, 1)
    .nullable()
    .optional()
    .describe('Claim that says the address is verified, where the provider has no email_verified: xms_edov of Entra.'),
  allowed_tenants: z
    .array(text(255, 1))
    .min(1)
    .max(MAX_TENANTS)
    .nullable()
    .optional()
    .describe('Values of the claim tid (Entra) or hd (Google), one of which a token must have.'),
  group_claim: text(255, 1)
    .optional()
    .describe('Default groups. A claim inside others is a JSON pointer, such as /realm_access/roles.'),
  group_mappings: z.array(groupMapping).max(MAX_MAPPINGS).optional(),
  status: z.enum(['active', 'disabled']).optional(),
};

const issuer = text(2048, 1).describe('As the provider writes it, with or without a slash at its end.');

const createBody = z.strictObject({
  ...organisationTenantFields,
  name,
  slug: slug.optional().describe('Made of the name when it is left out.'),
  type: type.default('oidc'),
  issuer,
  client_id: ascii(1024),
  ...optional,
});

const updateBody = z
  .strictObject({
    name: name.optional(),
    type: type.optional(),
    issuer: issuer.optional(),
    client_id: ascii(1024).optional(),
    ...optional,
  })
  .refine((body) => Object.values(body).some((value) => value !== undefined), {
    error: 'must change at least one field',
  });

type Given = Omit<z.output<typeof updateBody>, 'type'>;

const discovery = z
  .object({ ok: z.boolean(), problem: z.string().nullable() })
  .describe('Whether the metadata of the issuer could be read when this was saved.');

const saved = z.object({ id: z.string(), slug: z.string(), discovery, object: z.literal('sso-client') });

const fields = {
  object: z.literal('sso-client'),
  id: z.string(),
  organisation_id: z.string(),
  slug: z.string(),
  name: z.string(),
  type: z.literal('oidc'),
  issuer: z.string(),
  client_id: z.string(),
  token_endpoint_auth_method: z.enum(METHODS),
  is_default: z.boolean(),
  status: z.enum(['active', 'disabled']),
  created_at: z.string(),
  last_updated_at: z.string(),
};

const shownKey = z.record(z.string(), z.string());
const item = z.object(fields);
const detail = z.object({
  ...fields,
  masked_client_secret: z.string().nullable(),
  provider_jwks: z.object({ keys: z.array(shownKey) }).nullable(),
  scopes: z.array(z.string()),
  email_verified_claim: z.string().nullable(),
  allowed_tenants: z.array(z.string()).nullable(),
  group_claim: z.string(),
  group_mappings: z.array(
    z.object({
      group: z.string(),
      role: z.enum(['admin', 'member']).optional(),
      workspace_id: z.string().optional(),
      workspace_role: z.enum(['admin', 'manager', 'member']).optional(),
    }),
  ),
  redirect_uri: z.string().describe('To be registered at the provider.'),
  jwks_uri: z.string().nullable().describe('The public halves of `jwks`.'),
  backchannel_logout_uri: z.string().describe('To be registered at the provider, where it has back-channel logout.'),
  vouched_role: z
    .enum(['owner', 'admin', 'member'])
    .describe('Users above this role cannot sign in here: who last changed issuer, keys or tenants has it.'),
  discovery,
  created_by: z.string(),
});

/** Where providers send browsers back to. */
export const redirectUri = (publicUrl: string): string => `${publicUrl}/v2/auth/callback`;

const place = (column: 'client_secret' | 'jwks', row: string): SealPlace => ({ table: 'sso_clients', column, row });

const presentDiscovery = (problem: string | null) => ({ ok: problem === null, problem });

function presentItem(row: SsoClient) {
  return {
    object: 'sso-client' as const,
    id: row.id,
    organisation_id: row.organisation_id,
    slug: row.slug,
    name: row.name,
    type: row.type,
    issuer: row.issuer,
    client_id: row.client_id,
    token_endpoint_auth_method: row.token_endpoint_auth_method,
    is_default: row.is_default,
    status: row.status === 'active' ? ('active' as const) : ('disabled' as const),
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
  };
}

function presentDetail(row: SsoClient, { publicUrl }: Pick<Call, 'publicUrl'>) {
  const base = publicUrl.replace(/\/+$/, '');
  return {
    ...presentItem(row),
    masked_client_secret: row.client_secret === null ? null : maskOf(row.client_secret),
    provider_jwks: row.provider_jwks === null ? null : { keys: row.provider_jwks },
    scopes: row.scopes,
    email_verified_claim: row.email_verified_claim,
    allowed_tenants: row.allowed_tenants,
    group_claim: row.group_claim,
    group_mappings: row.group_mappings,
    redirect_uri: redirectUri(base),
    jwks_uri: row.published_keys === null ? null : `${base}/v2/auth/jwks/${row.id}`,
    backchannel_logout_uri: `${base}/v2/auth/backchannel-logout/${row.id}`,
    vouched_role: row.vouched_role,
    discovery: presentDiscovery(row.discovery_problem),
    created_by: row.created_by,
  };
}

/** People paste the address of the metadata. */
const issuerOf = (given: string): string => (given.endsWith(WELL_KNOWN) ? given.slice(0, -WELL_KNOWN.length) : given);

function checkIssuer(call: Call<unknown, unknown, unknown>, given: string, tenants: readonly string[] | null): string {
  const own = issuerOf(given);
  const url = URL.parse(own);
  if (url === null || /[?#\s\\]/.test(own)) throw refuse('issuer', 'must be an address without query and fragment');
  if (url.username !== '' || url.password !== '') throw refuse('issuer', 'must not contain a user or a password');
  const problem = call.checkHost(own, { httpsOnly: true });
  if (problem !== null) throw refuse('issuer', problem);
  if (EVERY_TENANT.test(own) && tenants === null) {
    throw refuse(
      'issuer',
      'takes tokens of every tenant of the world: name your tenant in it, or list the tenants in allowed_tenants',
    );
  }
  return own;
}

/** What the metadata of the issuer says, asked before the transaction: the provider may be slow. Nothing goes to a refused address. */
async function askIssuer(call: Call<unknown, unknown, unknown>, given: string | undefined) {
  if (given === undefined || call.service(ISSUERS) === null) return null;
  const { organisationId } = call.tenant;
  // Which tenants are meant is checked with the whole body.
  const issuer = checkIssuer(call, given, []);
  return withServices({ issuers: ISSUERS }, async ({ issuers }) => ({
    problem: await issuers.discover(organisationId, issuer),
  }));
}

const problemOf = (asked: unknown): string | null => (asked as { problem: string | null } | null)?.problem ?? null;

/** Mappings with ids of workspaces, once it is clear that the caller could give these roles to anybody by hand. */
async function readMappings(
  call: Call<unknown, unknown, unknown>,
  given: Given['group_mappings'],
): Promise<GroupMapping[]> {
  const mappings: GroupMapping[] = [];
  const given_roles = new Set<string>();
  for (const [index, mapping] of (given ?? []).entries()) {
    const param = `group_mappings[${index}]`;
    if ('role' in mapping) {
      if (!given_roles.has(mapping.role)) await checkGives(call, mapping.role, `${param}.role`);
      given_roles.add(mapping.role);
      mappings.push(mapping);
      continue;
    }
    const workspace = await findWorkspace(call.tx, mapping.workspace_id);
    if (!workspace) throw unknownReference(`${param}.workspace_id`, 'workspace');
    const { workspace_role: role } = mapping;
    await checkGivesIn(call, { workspace_id: workspace.id, role }, `${param}.workspace_role`);
    mappings.push({ ...mapping, workspace_id: workspace.id });
  }
  return mappings;
}

/** Users above this role are safe from whoever chooses the provider: choosing it is choosing who they are. */
async function vouchedRole(call: Call<unknown, unknown, unknown>): Promise<OrganisationRole> {
  const rank = await rankOf(call);
  if (rank === 'member') return 'member';
  try {
    await checkGives(call, 'admin', null);
    return rank;
  } catch (error) {
    if (error instanceof SluiceError && error.kind === 'forbidden') return 'member';
    throw error;
  }
}

/** The columns that secrets and keys come to. */
async function sealedColumns(
  call: Call<unknown, unknown, unknown>,
  id: string,
  given: Given,
): Promise<Patch<'sso_clients'>> {
  const { vault, tenant } = call;
  const patch: Patch<'sso_clients'> = {};
  if (given.client_secret !== undefined) {
    const secret = given.client_secret;
    patch.client_secret =
      secret === null ? null : await vault.seal(tenant, place('client_secret', id), new Secret(secret));
  }
  if (given.jwks !== undefined || given.provider_jwks != null) {
    const { readPrivateKeys, readProviderKeys } = await import('./keys.ts');
    if (given.jwks != null) {
      const { keys, published } = readPrivateKeys(given.jwks.keys);
      patch.jwks = await vault.seal(tenant, place('jwks', id), new Secret(JSON.stringify({ keys })));
      patch.published_keys = published;
    }
    if (given.provider_jwks != null) patch.provider_jwks = readProviderKeys(given.provider_jwks.keys);
  }
  if (given.jwks === null) Object.assign(patch, { jwks: null, published_keys: null });
  if (given.provider_jwks === null) patch.provider_jwks = null;
  return patch;
}

/** Refuses a client that could not authenticate itself. */
function checkMethod(row: Pick<SsoClient, 'token_endpoint_auth_method' | 'client_secret' | 'jwks'>): void {
  const { token_endpoint_auth_method: method } = row;
  if (method === 'private_key_jwt' && row.jwks === null) throw refuse('jwks', 'is required with private_key_jwt');
  if (method !== 'private_key_jwt' && row.client_secret === null) {
    throw refuse('client_secret', `is required with ${method}`);
  }
}

async function unsetDefault(call: Call<unknown, unknown, unknown>, except: string): Promise<void> {
  await call.tx.update('sso_clients', { is_default: true, id: { not: except } }, { is_default: false });
}

/** Ends what came in through a client, and what is on its way. */
async function endSignIns({ tx, tenant }: Call<unknown, unknown, unknown>, id: string): Promise<void> {
  await tx.remove('login_attempts', { sso_client_id: id });
  await endSessions(tx, { organisationId: tenant.organisationId, clientId: id });
}

const spec = resourceSpec({
  name: 'sso_clients',
  tag: 'SSO clients',
  table: 'sso_clients',
  path: '/admin/organisation/sso-clients',
  param: 'id',
  scopes: ['organisation_settings'],
  verbs: { list: 'read', read: 'read', create: 'update', update: 'update', delete: 'update' },
  tenant: 'organisation',
  object: 'sso-client',
  noun: 'SSO client',
  archives: true,
  list: {
    query: z.object({}),
    where: () => ({ status: { not: 'archived' as const } }),
    defaultPageSize: MAX_CLIENTS,
    maxPageSize: MAX_CLIENTS,
    item,
    present: presentItem,
  },
  detail,
  present: presentDetail,
  create: {
    description:
      'Signs the users of the organisation in through an identity provider. Register `redirect_uri` of the answer of ' +
      'GET there. A provider that cannot be reached now does not hinder saving: `discovery` says so.',
    body: createBody,
    response: saved,
    ahead: (call) => askIssuer(call, call.body.issuer),
    run: async (call) => {
      const { body, tx, clock, tenant } = call;
      const others = await tx.list('sso_clients', { where: { status: { not: 'archived' } } });
      if (others.length >= MAX_CLIENTS) {
        throw new SluiceError('forbidden', `An organisation has at most ${MAX_CLIENTS} SSO clients: delete one.`);
      }
      const own = body.slug ?? slugify(body.name);
      if (others.some((other) => other.slug === own)) {
        throw refuse('slug', `is taken: the organisation has an SSO client named ${own}`);
      }
      const id = uuidv7(clock);
      const now = clock.now();
      const tenants = body.allowed_tenants ?? null;
      const row: SsoClient = {
        id,
        organisation_id: tenant.organisationId,
        slug: own,
        name: body.name,
        type: 'oidc',
        issuer: checkIssuer(call, body.issuer, tenants),
        client_id: body.client_id,
        client_secret: null,
        token_endpoint_auth_method:
          body.token_endpoint_auth_method ?? (body.jwks == null ? 'client_secret_basic' : 'private_key_jwt'),
        jwks: null,
        published_keys: null,
        provider_jwks: null,
        scopes: body.scopes ?? SCOPES,
        is_default: body.is_default ?? false,
        email_verified_claim: body.email_verified_claim ?? null,
        allowed_tenants: tenants,
        group_claim: body.group_claim ?? 'groups',
        group_mappings: await readMappings(call, body.group_mappings),
        vouched_role: await vouchedRole(call),
        discovery_problem: call.asked === null ? NOT_CHECKED : problemOf(call.asked),
        status: body.status ?? 'active',
        created_by: actorId(call.principal),
        created_at: now,
        last_updated_at: now,
        ...(await sealedColumns(call, id, body)),
      };
      checkMethod(row);
      if (row.is_default) await unsetDefault(call, id);
      const answer = { id, slug: own, discovery: presentDiscovery(row.discovery_problem) };
      return { row, answer: { ...answer, object: 'sso-client' as const } };
    },
  },
  update: {
    description:
      'Fields that are left out stay. A change of the issuer needs the client secret anew, so that no secret goes to a new ' +
      'address by itself. With `status: disabled` its sessions end within a second.',
    body: updateBody,
    response: saved,
    ahead: (call) => askIssuer(call, call.body.issuer),
    run: async (call, row) => {
      const { body } = call;
      const patch: Patch<'sso_clients'> = await sealedColumns(call, row.id, body);
      for (const key of ['name', 'client_id', 'scopes', 'is_default', 'group_claim', 'status'] as const) {
        if (body[key] !== undefined) Object.assign(patch, { [key]: body[key] });
      }
      for (const key of ['email_verified_claim', 'allowed_tenants'] as const) {
        if (body[key] !== undefined) Object.assign(patch, { [key]: body[key] });
      }
      const tenants = body.allowed_tenants === undefined ? row.allowed_tenants : body.allowed_tenants;
      if (body.issuer !== undefined || body.allowed_tenants !== undefined) {
        patch.issuer = checkIssuer(call, body.issuer ?? row.issuer, tenants);
      }
      if (patch.issuer !== undefined && patch.issuer !== row.issuer) {
        if (row.client_secret !== null && body.client_secret === undefined) {
          throw refuse('client_secret', 'must be sent anew, because the issuer changes');
        }
        patch.discovery_problem = NOT_CHECKED;
      }
      if (call.asked !== null) patch.discovery_problem = problemOf(call.asked);
      if (body.group_mappings !== undefined) patch.group_mappings = await readMappings(call, body.group_mappings);
      const method = body.token_endpoint_auth_method ?? (body.jwks == null ? undefined : 'private_key_jwt');
      if (method !== undefined) patch.token_endpoint_auth_method = method;
      if (TRUST.some((key) => body[key] !== undefined)) patch.vouched_role = await vouchedRole(call);
      const after = { ...row, ...patch };
      checkMethod(after);
      if (body.is_default === true) await unsetDefault(call, row.id);
      if (body.status === 'disabled' || TRUST.some((key) => JSON.stringify(after[key]) !== JSON.stringify(row[key]))) {
        await endSignIns(call, row.id);
      }
      const answer = { id: row.id, slug: row.slug, discovery: presentDiscovery(after.discovery_problem) };
      return { patch, answer: { ...answer, object: 'sso-client' as const } };
    },
  },
  remove: {
    description: 'Its sessions end within a second. Users whom it signed in stay.',
    clean: (call, row) => endSignIns(call, row.id),
  },
});

export const ssoClients = defineResource(spec);
