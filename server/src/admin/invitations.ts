/** Accepting invites in the console: what the holder of a link sees, and how they come in. */
import type { FastifyRequest } from 'fastify';
import { mayUseLinks } from '../auth/auth-settings.ts';
import { type ConsoleSession, type ConsoleSessions, createLink } from '../auth/console-session.ts';
import { systemTenant } from '../auth/tenant.ts';
import { Throttle } from '../auth/throttle.ts';
import { clientAddress } from '../http/client-address.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { type Accepted, acceptInvite, findInvite, type OfferedInvite } from '../resources/admin/invites/accept.ts';
import { appendAudit } from '../resources/audit-logs/chain.ts';
import type { Tables } from '../store/ports.ts';
import type { Macs } from '../store/vault.ts';
import { consoleEntry } from './audit.ts';

export interface InvitationsDeps {
  readonly tables: Tables;
  /** Signs the audit log. */
  readonly vault: Macs;
  readonly clock: Clock;
  readonly sessions: Pick<ConsoleSessions, 'exchange'>;
}

/** What the holder of a link sends. */
export interface Acceptance {
  readonly token: string;
  readonly first_name: string;
  readonly last_name: string;
}

const TOO_MANY = 'Too many failed attempts. Wait before you open another invite.';

const viaProvider = () =>
  new SluiceError('forbidden', 'In this organisation users come in through an identity provider. Sign in there.');

/** One per process: it counts the failed attempts of each address. */
export class Invitations {
  readonly #deps: InvitationsDeps;
  readonly #failures: Throttle;

  constructor(deps: InvitationsDeps) {
    this.#deps = deps;
    this.#failures = new Throttle(deps.clock);
  }

  /** What the link offers; see `findInvite` for what it throws. */
  async look(token: string, address: string): Promise<OfferedInvite> {
    return this.#failures.watch(address, TOO_MANY, () => this.#deps.tables.systemRead((tx) => findInvite(tx, token)));
  }

  /** Accepts the invite and signs its new user in. */
  async accept(
    body: Acceptance,
    request: FastifyRequest,
  ): Promise<{ readonly accepted: Accepted; readonly token: string; readonly session: ConsoleSession }> {
    const { tables, vault, clock, sessions } = this.#deps;
    const accepted = await this.#failures.watch(clientAddress(request.raw), TOO_MANY, async () => {
      const { invite } = await tables.systemRead((tx) => findInvite(tx, body.token));
      return tables.write(
        systemTenant(invite.organisation_id),
        async (tx) => {
          const { token, first_name: firstName, last_name: lastName } = body;
          const done = await acceptInvite(tx, clock, { token, firstName, lastName });
          // Nothing of it stands: the invite waits for the first sign-in through the provider.
          if (!mayUseLinks(await tx.organisation(), done.user.role)) throw viaProvider();
          const { user } = done;
          const entry = consoleEntry(
            { clock, vault },
            {
              request,
              organisationId: user.organisation_id,
              userId: user.id,
              action: 'update',
              resource: 'invites',
              resourceId: done.inviteId,
              body: { first_name: firstName, last_name: lastName },
              change: { before: null, after: user, table: 'users' },
            },
          );
          await appendAudit(tx, vault, entry);
          return done;
        },
        { queue: invite.organisation_id },
      );
    });
    const browser = { cookie: request.headers.cookie, userAgent: request.headers['user-agent'] };
    const link = await createLink(tables, clock, accepted.user);
    return { accepted, ...(await sessions.exchange(link.token, browser)) };
  }
}
