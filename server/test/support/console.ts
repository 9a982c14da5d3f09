import path from 'node:path';
import Fastify, { type FastifyReply } from 'fastify';
import { type ConsoleDeps, registerConsole } from '../../src/admin/console.ts';
import { Invitations } from '../../src/admin/invitations.ts';
import { MailedLinks } from '../../src/admin/mailed-links.ts';
import { LimitedMails } from '../../src/admin/mails.ts';
import { ConsoleSessions, createLink, linkUrl } from '../../src/auth/console-session.ts';
import type { Principal } from '../../src/auth/principal.ts';
import type { Clock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { Mails } from '../../src/resources/admin/mails.ts';
import { memoryCounters } from '../../src/store/memory/counters.ts';
import type { StoredLog, Tables } from '../../src/store/ports.ts';
import { plainVault } from './admin.ts';

export const CONSOLE_DIST = path.join(import.meta.dirname, '..', '..', '..', 'console', 'dist');

/** A stored record, as far as the console reads it. */
export const recordRow = (own: Partial<StoredLog>): StoredLog => ({
  id: 'r1',
  node: 'n',
  seq: 1,
  time: 1,
  trace_id: 't1',
  status: 200,
  outcome: 'ok',
  provider: 'sandbox',
  model_answered: 'echo',
  usage: { input: 3, output: 2 },
  usage_estimated: false,
  cost_micros: 7,
  latency_ms: 12.5,
  ttft_ms: null,
  attempts: [{ provider: 'sandbox' }],
  ...own,
});

/** One organisation with an owner, a member who has joined one of its two workspaces, and nothing else. */
export interface Seeded {
  readonly organisationId: string;
  readonly owner: { id: string; organisation_id: string };
  readonly member: { id: string; organisation_id: string };
  /** `Default` and `Research`; the member has joined `Research`. */
  readonly workspaces: readonly [string, string];
}

export async function seed(tables: Pick<Tables, 'systemWrite'>, clock: Clock, name = 'Acme'): Promise<Seeded> {
  const organisationId = uuidv7(clock);
  const owner = { id: uuidv7(clock), organisation_id: organisationId };
  const member = { id: uuidv7(clock), organisation_id: organisationId };
  const workspaces = [uuidv7(clock), uuidv7(clock)] as const;
  const stamps = { created_at: clock.now(), last_updated_at: clock.now() };
  const slug = name.toLowerCase();
  await tables.systemWrite(async (tx) => {
    await tx.insert('organisations', {
      id: organisationId,
      name,
      slug,
      status: 'active',
      settings: { block_inline_config: false },
      ...stamps,
    });
    for (const [user, role] of [[owner, 'owner'] as const, [member, 'member'] as const]) {
      await tx.insert('users', {
        ...user,
        email: `${role}@${slug}.example`,
        first_name: 'Ada',
        last_name: 'Byron',
        role,
        status: 'active',
        ...stamps,
      });
    }
    for (const [index, id] of workspaces.entries()) {
      await tx.insert('workspaces', {
        id,
        organisation_id: organisationId,
        slug: ['default', 'research'][index] ?? '',
        name: ['Default', 'Research'][index] ?? '',
        icon: null,
        description: null,
        is_default: index === 0,
        status: 'active',
        defaults: null,
        settings: {},
        security_settings: {},
        creation_source: null,
        scim_source_id: null,
        last_reset_at: null,
        usage_limits: null,
        rate_limits: null,
        created_by: owner.id,
        ...stamps,
      });
    }
    await tx.insert('workspace_members', {
      organisation_id: organisationId,
      workspace_id: workspaces[1],
      user_id: member.id,
      role: 'member',
      status: 'active',
      ...stamps,
    });
  });
  return { organisationId, owner, member, workspaces };
}

export type StandIn = (reply: FastifyReply['raw'], body: Record<string, unknown>, principal: Principal) => unknown;

export interface ConsoleServer {
  readonly url: string;
  readonly sessions: ConsoleSessions;
  /** A fresh one-time link for a user. */
  link(user: { id: string; organisation_id: string }): Promise<string>;
  close(): Promise<void>;
}

/**
 * A server with nothing but the console, on a free port of loopback. `standIn` plays the data plane: it gets the raw
 * response and what the console sent. `publicUrl` defaults to the address it listens on.
 */
export async function consoleServer(options: {
  tables: Tables;
  clock: Clock;
  standIn?: StandIn;
  logs?: () => readonly StoredLog[];
  publicUrl?: string;
  dist?: string;
  /** Takes the mails; absent: no mail server is configured. */
  post?: Mails['post'];
}): Promise<ConsoleServer> {
  const { tables, clock, standIn, logs } = options;
  let url = options.publicUrl ?? '';
  const publicUrl = () => url;
  const sessions = new ConsoleSessions({ tables, clock, publicUrl });
  const counters = memoryCounters({ clock });
  const desk = { counters, local: counters, clock, log: silentLog };
  const mails = options.post === undefined ? null : new LimitedMails({ ...desk, post: options.post });
  // A browser opens connections ahead of requests; the server would wait 72 s for those at its end.
  const app = Fastify({ forceCloseConnections: true });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
  const tryRequest: ConsoleDeps['tryRequest'] = (_request, reply, principal, body) => {
    reply.hijack();
    return standIn?.(reply.raw, JSON.parse(body.toString()), principal);
  };
  await registerConsole(app, {
    audit: { clock: clock, vault: plainVault },
    sessions,
    invitations: new Invitations({ tables, vault: plainVault, clock, sessions }),
    oauth: () => Promise.reject(new Error('no OAuth server')),
    mailedLinks: new MailedLinks({
      tables,
      vault: plainVault,
      clock,
      log: silentLog,
      random: () => 0,
      publicUrl,
      mails,
    }),
    addresses: { tables, vault: plainVault, clock, mails },
    log: silentLog,
    publicUrl,
    dist: options.dist ?? CONSOLE_DIST,
    records: { ofTrace: async (_tenant, _trace, _since, limit) => (logs?.() ?? []).slice(0, limit) },
    tryRequest,
  });
  // Pages ask the administration API, which this server has not: a list without requests is a first run.
  app.get('/v1/logs', async () => ({
    object: 'list',
    data: [],
    next_cursor: null,
    complete_to: '2026-01-01T00:00:00.000Z',
  }));
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  if (url === '') url = address;
  return {
    url: address,
    sessions,
    link: async (user) => linkUrl(address, (await createLink(tables, clock, user)).token),
    close: () => app.close(),
  };
}
