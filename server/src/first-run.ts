import { open, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { createLink, linkUrl } from './auth/console-session.ts';
import type { Clock } from './kernel/clock.ts';
import { uuidv7 } from './kernel/id.ts';
import { createOperatorKey, createOrganisation } from './resources/organisations.ts';
import type { Tables } from './store/ports.ts';

/** What the first start of an installation made, as in `first-run.json`; the keys are in clear and shown once. */
export interface FirstRun {
  readonly base_url: string;
  readonly organisation_id: string;
  readonly workspace_id: string;
  readonly workspace_slug: string;
  readonly user_id: string;
  readonly admin_api_key: string;
  readonly workspace_api_key: string;
  readonly operator_api_key: string;
  /** One-time sign-in link; null where the console is not built. */
  readonly console_url: string | null;
}

/**
 * On an empty store makes one organisation with its owner, workspace, keys and the sandbox provider. All in one
 * transaction, guarded by a row in `meta`, so that of several nodes starting at once one does it. Null when there is
 * something already.
 */
export async function firstRun(options: {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly dataDir: string;
  readonly publicUrl: string;
  readonly blockInlineConfig: boolean;
  /** Whether there is a console to sign in to. */
  readonly console: boolean;
}): Promise<FirstRun | null> {
  const { tables, clock } = options;
  const made = await tables.systemWrite(async (tx) => {
    if ((await tx.count('meta', { where: { key: 'first_run' } })) > 0) return null;
    if ((await tx.count('organisations')) > 0) return null;
    await tx.insert('meta', { key: 'first_run', value: String(clock.now()) });
    const organisation = await createOrganisation(tx, {
      clock,
      name: 'My organisation',
      owner: { email: 'owner@localhost.invalid', first_name: 'First', last_name: 'Owner' },
      blockInlineConfig: options.blockInlineConfig,
      debugLog: 1,
    });
    return { organisation, operatorKey: await createOperatorKey(tx, clock) };
  });
  if (made === null) return null;
  const { organisation, operatorKey } = made;
  const link = options.console
    ? await createLink(tables, clock, { id: organisation.user_id, organisation_id: organisation.organisation_id })
    : null;
  const first: FirstRun = {
    base_url: `${options.publicUrl}/v1`,
    organisation_id: organisation.organisation_id,
    workspace_id: organisation.workspace_id,
    workspace_slug: organisation.workspace_slug,
    user_id: organisation.user_id,
    admin_api_key: organisation.admin_api_key,
    workspace_api_key: organisation.workspace_api_key,
    operator_api_key: operatorKey,
    console_url: link === null ? null : linkUrl(options.publicUrl, link.token),
  };
  await writePrivate(join(options.dataDir, 'first-run.json'), `${JSON.stringify(first, null, 2)}\n`, uuidv7(clock));
  return first;
}

/** Whole or not at all, readable by the owner only from its first byte. */
async function writePrivate(path: string, text: string, unique: string): Promise<void> {
  const temporary = `${path}.${unique}`;
  const file = await open(temporary, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
}
