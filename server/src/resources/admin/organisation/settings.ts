/** The settings of an organisation: `GET` and `PUT /admin/organisation/settings`. */
import { z } from 'zod';
import type { Principal } from '../../../auth/principal.ts';
import {
  isOpenToWorkspaces,
  OVERRIDE_CATEGORIES,
  type SECURITY_DEFAULTS,
  SECURITY_KEYS,
  securityOf,
} from '../../../auth/security-settings.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import type { Row } from '../../../store/schema.ts';
import { refuse } from '../../common.ts';
import { emptyAnswer } from '../../define.ts';
import { tenantFields } from '../../fields.ts';
import { singleton } from '../../kinds/singleton.ts';
import type { AnyAction, Call } from '../../resource.ts';
import { Service, type Work, withServices } from '../../services.ts';
import { alertSettingsAnswer, followAlertSettings, presentAlerts, storedAlerts } from '../../settings/alerts.ts';
import { authSettingsAnswer, presentAuth, storedAuth } from '../../settings/auth.ts';
import { EXPORT_FIELDS, type OrganisationSettings, organisationSettings } from '../../settings/schema.ts';
import { part } from '../../settings/section.ts';
import {
  COPIED_CATEGORIES,
  checkUserKeySettings,
  copied,
  deniedExportFields,
  mergeSettings,
  metadataSchemaOf,
} from '../../settings/settings.ts';

/** What a caller sees: every setting, the value that holds where the organisation has set none. */
const answer = z.object({
  object: z.literal('organisation-settings'),
  organisation_id: z.string(),
  user_api_key_auto_create: z.boolean(),
  default_workspace_user_api_key_auto_create: z.boolean(),
  group_based_user_provisioning: z.boolean(),
  user_api_key_auto_create_scopes: z.array(z.string()).nullable(),
  user_api_key_rotation_period: z.number().nullable().describe('Days.'),
  user_api_key_ttl: z.number(),
  user_api_key_max_ttl: z.number(),
  user_api_key_count: z.number(),
  user_key_metadata: z.union([z.literal(0), z.literal(1)]),
  user_key_metadata_override: z.union([z.literal(0), z.literal(1)]),
  debug_log: z.union([z.literal(0), z.literal(1)]),
  debug_log_sample: z.number(),
  bodies_days: z.number().nullable(),
  security_settings: z.object(
    Object.fromEntries(SECURITY_KEYS.map((key) => [key, z.boolean()])) as Record<
      keyof typeof SECURITY_DEFAULTS,
      z.ZodBoolean
    >,
  ),
  workspace_overrides: z.object(
    Object.fromEntries(OVERRIDE_CATEGORIES.map((key) => [key, z.boolean()])) as Record<
      (typeof OVERRIDE_CATEGORIES)[number],
      z.ZodBoolean
    >,
  ),
  session_settings: z.object({ max_session_ttl: z.number().nullable() }),
  auth_settings: authSettingsAnswer,
  export_settings: z.object({ deniedFields: z.array(z.enum(EXPORT_FIELDS)) }),
  data_plane_security_settings: z.object({ block_inline_config: z.boolean() }),
  metadata_schemas: z.object({
    api_key: z.record(z.string(), z.unknown()).nullable(),
    workspace: z.record(z.string(), z.unknown()).nullable(),
  }),
  ai_gateway_url: z.string().nullable(),
  mcp_gateway_url: z.string().nullable(),
  cache_max_age: z.number().nullable(),
  alerts: alertSettingsAnswer,
});

/** Every setting with the value that holds, also in the audit log. */
function present(organisation: Row<'organisations'>, domains: readonly Row<'organisation_domains'>[]) {
  const { settings } = organisation;
  const or = (key: string, value: unknown) => settings[key] ?? value;
  return {
    object: 'organisation-settings',
    organisation_id: organisation.id,
    user_api_key_auto_create: or('user_api_key_auto_create', false),
    default_workspace_user_api_key_auto_create: or('default_workspace_user_api_key_auto_create', false),
    group_based_user_provisioning: or('group_based_user_provisioning', false),
    user_api_key_auto_create_scopes: or('user_api_key_auto_create_scopes', null),
    user_api_key_rotation_period: or('user_api_key_rotation_period', null),
    user_api_key_ttl: or('user_api_key_ttl', 0),
    user_api_key_max_ttl: or('user_api_key_max_ttl', 0),
    user_api_key_count: or('user_api_key_count', -1),
    user_key_metadata: or('user_key_metadata', 0),
    user_key_metadata_override: or('user_key_metadata_override', 0),
    debug_log: or('debug_log', 0),
    debug_log_sample: or('debug_log_sample', 1),
    bodies_days: or('bodies_days', null),
    security_settings: securityOf(organisation, null),
    workspace_overrides: Object.fromEntries(
      OVERRIDE_CATEGORIES.map((category) => [category, isOpenToWorkspaces(organisation, category)]),
    ),
    session_settings: { max_session_ttl: part(settings, 'session_settings').max_session_ttl ?? null },
    auth_settings: presentAuth(organisation, domains),
    export_settings: { deniedFields: deniedExportFields(organisation, null).deniedFields },
    data_plane_security_settings: { block_inline_config: settings.block_inline_config !== false },
    metadata_schemas: {
      api_key: metadataSchemaOf(organisation, 'api_key'),
      workspace: metadataSchemaOf(organisation, 'workspace'),
    },
    ai_gateway_url: or('ai_gateway_url', null),
    mcp_gateway_url: or('mcp_gateway_url', null),
    cache_max_age: or('cache_max_age', null),
    alerts: presentAlerts(settings),
  };
}

const { organisation_id } = tenantFields;
const body = organisationSettings.extend({ organisation_id });

/** What shows whose a domain is. */
export interface DomainProofs {
  /** Whether the installation has this organisation only: its owner is the operator, then. */
  isOnlyOrganisation(): Promise<boolean>;
  /** Texts of the TXT records of a name; empty when there are none, or nobody answers. */
  txt(name: string): Promise<readonly string[]>;
}

export const DOMAIN_PROOFS = new Service<DomainProofs>('way to look domains up');

/** Domains of the body that are shown to be the organisation's; `all` where nobody else is on the installation. */
async function proveDomains(call: Call<unknown, unknown, z.output<typeof body>>): Promise<Work<unknown> | null> {
  const given = call.body.auth_settings?.allowed_domains ?? [];
  if (given.length === 0 || call.service(DOMAIN_PROOFS) === null) return null;
  const rows = await call.tx.list('organisation_domains');
  const open = rows.filter((row) => row.verified_at === null && given.some(({ domain }) => domain === row.domain));
  return withServices({ proofs: DOMAIN_PROOFS }, async ({ proofs }) => {
    if (await proofs.isOnlyOrganisation()) return 'all' as const;
    const shown = open.map(async ({ domain, token }) => {
      const texts = await proofs.txt(`_sluice.${domain}`);
      return texts.includes(`sluice-verification=${token}`) ? [domain] : [];
    });
    return new Set((await Promise.all(shown)).flat());
  });
}

async function update(call: Call<unknown, unknown, z.output<typeof body>, unknown>) {
  const { tx, clock } = call;
  const before = await tx.organisation();
  const { organisation_id: _own, data_plane_security_settings: dataPlane, ...patch } = call.body;
  const alerts = await storedAlerts(call, patch.alerts, before.settings, 'alerts');
  // This one is beside the sections: it was there before there were any.
  const { block_inline_config = before.settings.block_inline_config } = dataPlane ?? {};
  const auth = await storedAuth(call, patch.auth_settings, before);
  const merged = mergeSettings(before.settings, { ...patch, ...checkUrls(call, patch), ...alerts, ...auth });
  const settings = { ...merged, block_inline_config };
  checkUserKeySettings(patch, settings);
  const after = { ...before, settings };
  checkLifted(call.principal, before, after);
  await tx.updateOrganisation({ settings, last_updated_at: clock.now() });
  await copyDown(call, before, after);
  if (alerts.alerts !== undefined) await followAlertSettings(tx, null, settings, clock.now());
  tx.changed({ workspaceId: null, topic: 'organisations', entityId: before.id });
  const domains = await tx.list('organisation_domains');
  const given = patch.auth_settings === null ? [] : patch.auth_settings?.allowed_domains;
  if (given !== undefined) {
    const { storeDomains } = await import('../../settings/domains.ts');
    await storeDomains(call, given ?? [], (call.asked as ReadonlySet<string> | 'all' | null) ?? new Set());
  }
  const now = await tx.list('organisation_domains');
  call.audit(before.id, { before: present(before, domains), after: present(after, now) });
  return {};
}

export const settings = (): AnyAction[] =>
  singleton({
    name: 'organisation.settings',
    tag: 'Organisation',
    path: '/admin/organisation/settings',
    scopes: 'organisation_settings',
    query: z.strictObject({ organisation_id }),
    resource: 'organisation_settings',
    read: {
      summary: 'Get the settings of the organisation',
      response: answer as z.ZodType,
      run: async ({ tx }) => present(await tx.organisation(), await tx.list('organisation_domains')),
    },
    update: {
      summary: 'Change the settings of the organisation',
      description:
        'Fields that are left out keep their values, also inside a section. Null restores the default; block_inline_config and ' +
        'the categories of workspace_overrides take true or false only. A change holds on every node within a second. Opening export_settings or data_plane_security_settings to the workspaces copies the ' +
        'organisation’s values to them.',
      example: {
        body: {
          session_settings: { max_session_ttl: 28_800 },
          user_api_key_rotation_period: 'monthly',
          workspace_overrides: { logs: true },
          security_settings: { membersViewLogs: false },
        },
        response: {},
      },
      body,
      response: emptyAnswer,
      ahead: proveDomains,
      run: update,
    },
  });

/**
 * What the organisation withholds from its admins they must not give back to themselves, nor through a key that they can
 * make: 403.
 */
function checkLifted({ kind, role, scopes }: Principal, before: Row<'organisations'>, after: Row<'organisations'>) {
  if (kind === 'user' ? role === 'owner' : scopes.has('logs.view')) return;
  const [was, is] = [securityOf(before, null), securityOf(after, null)];
  const lifted = (['organisationAdminsViewLogs', 'organisationAdminsViewLogMetadata'] as const).find(
    (key) => is[key] && !was[key],
  );
  if (lifted === undefined) return;
  throw new SluiceError('forbidden', `${lifted} restricts admins: only an owner may switch it on again.`, {
    param: `security_settings.${lifted}`,
  });
}

/** Gateway URLs as they are stored. Throws 400 for one that no call may go to. */
function checkUrls(
  call: Pick<Call, 'checkHost'>,
  patch: Pick<OrganisationSettings, 'ai_gateway_url' | 'mcp_gateway_url'>,
) {
  const out: Pick<OrganisationSettings, 'ai_gateway_url' | 'mcp_gateway_url'> = {};
  for (const key of ['ai_gateway_url', 'mcp_gateway_url'] as const) {
    const url = patch[key];
    if (url == null) continue;
    const problem = call.checkHost(url);
    if (problem !== null) throw refuse(key, problem);
    const base = url.replace(/\/{1,64}$/, '').replace(/\/v1$/, '');
    out[key] = key === 'ai_gateway_url' ? `${base}/v1` : base;
  }
  return out;
}

/** Gives the workspaces the organisation's values of the categories that were just opened to them. */
async function copyDown(call: Pick<Call, 'tx' | 'clock'>, before: Row<'organisations'>, after: Row<'organisations'>) {
  const opened = COPIED_CATEGORIES.filter(
    (category) => isOpenToWorkspaces(after, category) && !isOpenToWorkspaces(before, category),
  );
  if (opened.length === 0) return;
  for (const workspace of await call.tx.list('workspaces')) {
    const security = copied(after, workspace.security_settings, opened);
    if (JSON.stringify(security) === JSON.stringify(workspace.security_settings)) continue;
    const patch = { security_settings: security, last_updated_at: call.clock.now() };
    await call.tx.update('workspaces', { id: workspace.id }, patch);
  }
}
