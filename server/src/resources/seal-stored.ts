/**
 * What older versions stored in clear and this one seals: custom headers of accounts and models, and the
 * addresses of webhooks.
 * Runs at the start, before anything is served, and once for a store. Sealed values are passed over, so a run that was
 * cut is taken up by the next start.
 */
import type { Log } from '../kernel/log.ts';
import type { SystemTx, Tables, TenantContext } from '../store/ports.ts';
import type { Row, TableName } from '../store/schema.ts';
import { isEnvelope, type Vault } from '../store/vault.ts';
import { resealConfig } from './configs/secrets.ts';
import { resealChecks } from './guardrails/secrets.ts';
import { sealModel } from './integrations/model-settings.ts';
import { type AccountPlace, openSettings, sealSettings } from './integrations/secrets.ts';
import { sealUrl } from './secret-url.ts';
import { part } from './settings/section.ts';

const DONE = 'sealed_values';
const VERSION = '3';
/** What holds such values. */
const SEALED: readonly TableName[] = [
  'integrations',
  'integration_models',
  'virtual_keys',
  'guardrail_versions',
  'config_versions',
  'usage_policies',
  'alert_deliveries',
  'organisations',
  'workspaces',
];
const PAGE = 200;

type Json = Record<string, unknown>;

/** One row to change: `apply` answers how many rows it changed, none when somebody changed the row meanwhile. */
interface Change {
  apply(tx: SystemTx): Promise<number>;
}

/** Whether a start has sealed what older versions stored in clear, and has rewritten the files that held it. */
export async function isSealed(tables: Tables): Promise<boolean> {
  return (await tables.systemRead((tx) => tx.find('meta', { key: DONE })))?.value === VERSION;
}

/** Throws SluiceError('unavailable') when a value cannot be sealed; the next start tries again. */
export async function sealStored(tables: Tables, vault: Vault, log: Log): Promise<void> {
  if (await isSealed(tables)) return;
  let sealed = 0;
  for (const walk of [
    accounts('integrations'),
    accounts('virtual_keys'),
    models,
    guardrails,
    configs,
    policies,
    deliveries,
    owners('organisations'),
    owners('workspaces'),
  ]) {
    for (let after = ''; ; ) {
      const page = await walk(tables, vault, after);
      if (page.changes.length > 0) {
        sealed += await tables.systemWrite(async (tx) => {
          let n = 0;
          for (const change of page.changes) n += await change.apply(tx);
          return n;
        });
      }
      if (page.next === null) break;
      after = page.next;
    }
  }
  // Also where nothing was sealed: an earlier start may have ended between the two.
  if (!(await tables.eraseRemoved(SEALED))) {
    log.warn('what older versions stored in clear may be in the files of the store still; the next start tries again');
    return;
  }
  await tables.systemWrite(async (tx) => {
    if ((await tx.update('meta', { key: DONE }, { value: VERSION })) === 0) {
      await tx.insert('meta', { key: DONE, value: VERSION });
    }
  });
  if (sealed > 0) log.info('values that an older version stored in clear are sealed now', { values: sealed });
}

interface Page {
  readonly changes: readonly Change[];
  /** Id of the last row that was looked at; null when there are no more. */
  readonly next: string | null;
}

type Walk = (tables: Tables, vault: Vault, after: string) => Promise<Page>;

const nextOf = (rows: readonly { readonly id: string }[]): string | null =>
  rows.length < PAGE ? null : (rows.at(-1)?.id ?? null);

const byId = (after: string) => ({ where: { id: { gt: after } }, orderBy: [['id', 'asc']] as const, limit: PAGE });
const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

/** System work acts for one organisation after the other; the vault needs its data key before a transaction. */
async function tenantOf(vault: Vault, organisationId: string): Promise<TenantContext> {
  await vault.ensureKey?.(organisationId);
  return { organisationId, workspaceId: null } as TenantContext;
}

/** Custom headers of integrations or virtual keys move from the plain settings into the sealed ones. */
function accounts(table: 'integrations' | 'virtual_keys'): Walk {
  const plainName = table === 'integrations' ? 'configurations' : 'model_config';
  const column = table === 'integrations' ? 'secret_configurations' : 'secret_model_config';
  return async (tables, vault, after) => {
    const rows = (await tables.systemRead((tx) => tx.list(table, byId(after) as never))) as unknown as (Json & {
      readonly id: string;
      readonly organisation_id: string;
    })[];
    const changes: Change[] = [];
    for (const row of rows) {
      const { custom_headers: headers, ...plain } = row[plainName] as Json;
      if (headers === undefined) continue;
      const tenant = await tenantOf(vault, row.organisation_id);
      const place = { table, column, row: row.id } as AccountPlace;
      const before = row[column] as string | null;
      const secrets = await openSettings(vault, tenant, place, before);
      const sealed = await sealSettings(vault, tenant, place, { custom_headers: headers, ...secrets });
      const { id, organisation_id } = row;
      changes.push({
        async apply(tx) {
          const now = (await tx.find(table, { id, organisation_id } as never)) as unknown as Json | undefined;
          if (!same(now?.[plainName], row[plainName]) || now?.[column] !== before) return 0;
          return tx.update(table, { id, organisation_id } as never, { [plainName]: plain, [column]: sealed } as never);
        },
      });
    }
    return { changes, next: nextOf(rows) };
  };
}

const models: Walk = async (tables, vault, after) => {
  const { integrations, rows } = await tables.systemRead(async (tx) => {
    const page = await tx.list('integrations', byId(after));
    const ids = page.map((row) => row.id);
    return {
      integrations: page,
      rows: ids.length === 0 ? [] : await tx.list('integration_models', { where: { integration_id: { in: ids } } }),
    };
  });
  const changes: Change[] = [];
  for (const row of rows) {
    const settings = row.configurations as { custom_host?: string; custom_headers?: Record<string, string> } | null;
    if (settings?.custom_headers === undefined) continue;
    const { integration_id, slug, organisation_id } = row;
    const tenant = await tenantOf(vault, organisation_id);
    const { custom_host, custom_headers } = settings;
    const sealed = await sealModel(vault, tenant, row, custom_host, { custom_headers });
    const key = { integration_id, slug, organisation_id };
    changes.push({
      async apply(tx) {
        const now = await tx.find('integration_models', key);
        if (!same(now?.configurations, row.configurations)) return 0;
        return tx.update('integration_models', key, { configurations: sealed });
      },
    });
  }
  return { changes, next: nextOf(integrations) };
};

/** Addresses of webhooks in checks, and in versions of configs whatever their checks hold. */
const guardrails: Walk = async (tables, vault, after) => {
  const rows = await tables.systemRead((tx) => tx.list('guardrail_versions', byId(after)));
  const changes: Change[] = [];
  for (const row of rows) {
    const { id, organisation_id } = row;
    const checks = await resealChecks(vault, await tenantOf(vault, organisation_id), row);
    if (checks === null) continue;
    // Versions are never changed by anybody else.
    changes.push({ apply: (tx) => tx.update('guardrail_versions', { id, organisation_id }, { checks }) });
  }
  return { changes, next: nextOf(rows) };
};

const configs: Walk = async (tables, vault, after) => {
  const rows = await tables.systemRead((tx) => tx.list('config_versions', byId(after)));
  const changes: Change[] = [];
  for (const row of rows) {
    const { id, organisation_id } = row;
    const config = await resealConfig(vault, await tenantOf(vault, organisation_id), row);
    if (config === null) continue;
    changes.push({ apply: (tx) => tx.update('config_versions', { id, organisation_id }, { config }) });
  }
  return { changes, next: nextOf(rows) };
};

const policies: Walk = async (tables, vault, after) => {
  const rows = await tables.systemRead((tx) => tx.list('usage_policies', byId(after)));
  const changes: Change[] = [];
  for (const { id, organisation_id, alert_webhook_url: url } of rows) {
    if (url === null || isEnvelope(url)) continue;
    const sealed = await sealUrl(vault, await tenantOf(vault, organisation_id), url);
    const where = { id, organisation_id, alert_webhook_url: url };
    changes.push({ apply: (tx) => tx.update('usage_policies', where, { alert_webhook_url: sealed }) });
  }
  return { changes, next: nextOf(rows) };
};

const deliveries: Walk = async (tables, vault, after) => {
  const { where, ...page } = byId(after);
  const rows = await tables.systemRead((tx) =>
    tx.list('alert_deliveries', { where: { ...where, channel: 'webhook' }, ...page }),
  );
  const changes: Change[] = [];
  for (const { id, organisation_id, recipient } of rows) {
    if (isEnvelope(recipient)) continue;
    const sealed = await sealUrl(vault, await tenantOf(vault, organisation_id), recipient);
    changes.push({ apply: (tx) => tx.update('alert_deliveries', { id, organisation_id }, { recipient: sealed }) });
  }
  return { changes, next: nextOf(rows) };
};

/** Who has settings with an address of a webhook. */
function owners(table: 'organisations' | 'workspaces'): Walk {
  return async (tables, vault, after) => {
    const rows = (await tables.systemRead((tx) => tx.list(table, byId(after) as never))) as unknown as Pick<
      Row<'workspaces'>,
      'id' | 'organisation_id' | 'settings'
    >[];
    const changes: Change[] = [];
    for (const row of rows) {
      const alerts = part(row.settings, 'alerts');
      const { webhook_url: url } = alerts;
      if (typeof url !== 'string' || isEnvelope(url)) continue;
      const organisation = table === 'organisations' ? row.id : row.organisation_id;
      const sealed = await sealUrl(vault, await tenantOf(vault, organisation), url);
      const settings = { ...row.settings, alerts: { ...alerts, webhook_url: sealed } };
      const key = table === 'organisations' ? { id: row.id } : { id: row.id, organisation_id: organisation };
      changes.push({
        async apply(tx) {
          const now = (await tx.find(table, key as never)) as unknown as Pick<typeof row, 'settings'> | undefined;
          return same(now?.settings, row.settings) ? tx.update(table, key as never, { settings } as never) : 0;
        },
      });
    }
    return { changes, next: nextOf(rows) };
  };
}
