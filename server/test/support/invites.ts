/** Organisations that invite, and the console where invites are accepted. */
import { afterAll, beforeAll, expect } from 'vitest';
import { registerConsole } from '../../src/admin/console.ts';
import { Invitations } from '../../src/admin/invitations.ts';
import { MailedLinks } from '../../src/admin/mailed-links.ts';
import { ConsoleSessions } from '../../src/auth/console-session.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { type CreatedOrganisation, createOrganisation } from '../../src/resources/organisations.ts';
import type { Row } from '../../src/store/schema.ts';
import { type AdminHarness, type Answer, emptyTables, plainVault, startAdmin } from './admin.ts';
import { PUBLIC_URL } from './people.ts';

export const LINK = /^https:\/\/sluice\.example\/console\/invite#([0-9A-Za-z]{43})$/;
export const NAMES = { first_name: 'Ada', last_name: 'Lovelace' };
export let api: AdminHarness;
export let sessions: ConsoleSessions;
let counter = 0;

/** A console of its own: it counts failed attempts for itself. */
const openConsole = async () => {
  const { createApp } = await import('../../src/http/app.ts');
  const { KnownPaths } = await import('../../src/http/known-paths.ts');
  const app = createApp({
    clock: systemClock,
    express: new Map(),
    headerAliases: [],
    trustedProxies: [],
    paths: new KnownPaths(() => ''),
    refuse: (_request, response) => response.destroy(),
    draining: () => false,
  });
  const { tables } = api;
  await registerConsole(app, {
    audit: { clock: systemClock, vault: plainVault },
    sessions,
    invitations: new Invitations({ tables, vault: plainVault, clock: systemClock, sessions }),
    addresses: { tables, vault: plainVault, clock: systemClock, mails: null },
    oauth: () => Promise.reject(new Error('no OAuth server')),
    mailedLinks: new MailedLinks({
      tables,
      vault: plainVault,
      clock: systemClock,
      log: silentLog,
      random: () => 0,
      publicUrl: () => PUBLIC_URL,
      mails: null,
    }),
    log: silentLog,
    records: { ofTrace: async () => [] },
    publicUrl: () => PUBLIC_URL,
    dist: '/nonexistent',
    tryRequest: () => undefined,
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const send = async (path: string, body: unknown, headers: Record<string, string> = { origin: PUBLIC_URL }) => {
    const answer = await fetch(`${url}/console/api/invite${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    const text = await answer.text();
    return { status: answer.status, headers: answer.headers, text, body: JSON.parse(text) } satisfies Answer;
  };
  return {
    look: (token: string, headers?: Record<string, string>) => send('', { token }, headers),
    accept: (token: string, names: object = NAMES, headers?: Record<string, string>) =>
      send('/acceptance', { token, ...names }, headers),
    close: () => app.close(),
  };
};
export const withConsole = async (run: (console: Awaited<ReturnType<typeof openConsole>>) => Promise<void>) => {
  const opened = await openConsole();
  try {
    await run(opened);
  } finally {
    await opened.close();
  }
};

export const organisation = (): Promise<CreatedOrganisation> => {
  const name = `Org${++counter}`;
  const owner = { email: `owner@${name.toLowerCase()}.example`, first_name: 'First', last_name: 'Owner' };
  return api.tables.systemWrite((tx) =>
    createOrganisation(tx, { name, owner, blockInlineConfig: true, clock: systemClock }),
  );
};
export const address = () => `guest${++counter}@x.example`;
export const invite = (org: CreatedOrganisation, body: object = {}, key: string | null = org.admin_api_key) =>
  api.call('POST', '/v1/admin/users/invites', {
    key,
    body: { email: address(), role: 'member', workspaces: [], ...body },
  });
export const tokenOf = (link: string) => LINK.exec(link)?.[1] ?? '';
export const invited = async (org: CreatedOrganisation, body: object = {}) => {
  const made = await invite(org, body);
  expect(made.status, made.text).toBe(200);
  return { id: made.body.id as string, token: tokenOf(made.body.invite_link) };
};
export const at = (org: CreatedOrganisation) => ({
  get: (path: string) => api.call('GET', `/v1/admin/users/invites${path}`, { key: org.admin_api_key }),
  del: (id: string) => api.call('DELETE', `/v1/admin/users/invites/${id}`, { key: org.admin_api_key }),
  resend: (id: string) => api.call('POST', `/v1/admin/users/invites/${id}/resend`, { key: org.admin_api_key }),
});
export const patch = (id: string, row: Partial<Row<'invites'>>) =>
  api.tables.systemWrite((tx) => tx.update('invites', { id }, row));
export const expire = (id: string) => patch(id, { expires_at: systemClock.now() - 1 });

/** Starts the administration on the engine. */
export function useInvites(engine: 'sqlite' | 'postgres'): void {
  beforeAll(async () => {
    const tables = await emptyTables(engine);
    sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
    api = await startAdmin(tables, { admin: { sessions } });
  });
  afterAll(() => api.close());
}
