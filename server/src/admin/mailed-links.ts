/**
 * Sign-in links by mail. The answer is made before anything is looked up, so body, status and time are the same whether
 * or not a user has the address.
 */
import type { FastifyRequest } from 'fastify';
import { mayUseLinks } from '../auth/auth-settings.ts';
import { LINK_TTL_MS, linkUrl, newLink } from '../auth/console-session.ts';
import { systemTenant } from '../auth/tenant.ts';
import { clientAddress } from '../http/client-address.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import type { Random } from '../kernel/random.ts';
import { appendAudit } from '../resources/audit-logs/chain.ts';
import { toIso } from '../resources/body-fields.ts';
import type { Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Macs } from '../store/vault.ts';
import { consoleEntry } from './audit.ts';
import type { LimitedMails } from './mails.ts';

export interface MailedLinksDeps {
  readonly tables: Pick<Tables, 'systemRead' | 'write'>;
  /** Signs the audit log. */
  readonly vault: Macs;
  readonly clock: Clock;
  readonly log: Log;
  readonly random: Random;
  /** Links begin with it; never with what a request names as its host. */
  readonly publicUrl: () => string;
  /** Null: no mail server is configured. */
  readonly mails: LimitedMails | null;
}

/** Look-ups begin at some moment within this time: the next answers of this process tell nothing about them. */
const SPREAD_MS = 1_000;
/** Look-ups that wait at once, of all callers together; a caller has as many as `LimitedMails` admits. */
const MOST = 1_000;
/** Organisations that one mail has links for. */
const MOST_ORGANISATIONS = 20;

/** Who asks for a link. */
interface Asked {
  /** Digest of the login cookie of the browser, in which alone the link works. */
  readonly browser: string;
  /** Null: all that know the address. */
  readonly organisationId?: string | null;
}

interface Asking {
  readonly request: FastifyRequest;
  readonly clientIp: string;
  readonly browser: string;
  readonly organisationId: string | null;
}

type Place = { readonly user: Row<'users'>; readonly organisation: string };

/**
 * The name of an organisation as words alone: its owner chose it, and mail programs make a link of `evil.example`,
 * `https://…` and `a@b`. A name without a letter or digit is the slug.
 */
function plainName({ name, slug }: Row<'organisations'>): string {
  const words = name
    .replace(/[\p{C}\p{Z}\p{P}]+/gu, (marks) => (/^(?:[-'’]|,? | ?& ?)$/.test(marks) ? marks : ' '))
    .trim();
  return /[\p{L}\p{N}]/u.test(words) ? words : slug;
}

export class MailedLinks {
  readonly #deps: MailedLinksDeps;
  #waiting = 0;

  constructor(deps: MailedLinksDeps) {
    this.#deps = deps;
  }

  get available(): boolean {
    return this.#deps.mails !== null;
  }

  /**
   * Mails a link to each active user with this address, one mail for all organisations. Resolves before it looks for
   * them. Throws 404 without a mail server and 429 past the limits of `LimitedMails`.
   */
  async ask(email: string, request: FastifyRequest, { browser, organisationId = null }: Asked): Promise<void> {
    const { mails, clock, log, random } = this.#deps;
    if (mails === null) {
      const advice = 'Ask an administrator for a sign-in link, or make one with: npm run sluice -- console-link';
      throw new SluiceError('not_found', `This Sluice has no mail server. ${advice}`);
    }
    // Read now: the connection may be closed when the link is made.
    const clientIp = clientAddress(request.raw);
    await mails.admitStranger(clientIp, email);
    if (this.#waiting >= MOST) throw new SluiceError('unavailable', 'Too many links are being made. Try again.');
    this.#waiting += 1;
    clock.after(random() * SPREAD_MS, () => {
      this.#send(mails, email, { request, clientIp, browser, organisationId })
        .catch((error: unknown) => log.error('a sign-in link could not be mailed', { error: String(error) }))
        .finally(() => {
          this.#waiting -= 1;
        });
    });
  }

  async #send(mails: LimitedMails, email: string, asking: Asking): Promise<void> {
    const links: string[] = [];
    const places = await this.#placesOf(email, asking.organisationId);
    for (const { user, organisation } of places) {
      const url = await this.#link(user, asking);
      if (url === null) continue;
      links.push(places.length > 1 ? `${organisation}:\n${url}` : url);
    }
    if (links.length === 0) return;
    const each = links.length > 1 ? 'Each link works' : 'The link works';
    const where = 'in the browser that asked for it';
    const text = [
      'Somebody asked for a link that signs you in to Sluice. Open it in the same browser:',
      ...links,
      `${each} once, for ${LINK_TTL_MS / 60_000} minutes, ${where}. If you did not ask for it, do nothing.\n`,
    ].join('\n\n');
    mails.post({ to: email, subject: 'Sign in to Sluice', text });
  }

  /** Active users with this address who may sign in by a link, in organisations that are not suspended. */
  async #placesOf(email: string, only: string | null): Promise<Place[]> {
    return this.#deps.tables.systemRead(async (tx) => {
      const users = await tx.list('users', {
        where: { email, status: 'active', ...(only === null ? {} : { organisation_id: only }) },
        orderBy: [['created_at', 'asc']],
        limit: MOST_ORGANISATIONS,
      });
      const places: Place[] = [];
      for (const user of users) {
        const organisation = await tx.find('organisations', { id: user.organisation_id, status: 'active' });
        if (organisation && mayUseLinks(organisation, user.role)) {
          places.push({ user, organisation: plainName(organisation) });
        }
      }
      return places;
    });
  }

  /** Null for a user who was removed or got another address since: a link must not go to an address of before. */
  async #link(user: Row<'users'>, { request, clientIp, browser }: Asking): Promise<string | null> {
    const { tables, vault, clock, publicUrl } = this.#deps;
    const { organisation_id: organisationId } = user;
    const { token, row } = newLink(user, clock.now(), browser);
    return tables.write(
      systemTenant(organisationId),
      async (tx) => {
        if (!(await tx.find('users', { id: user.id, email: user.email, status: 'active' }))) return null;
        await tx.insert('console_sessions', row);
        const after = { user_id: user.id, expires_at: toIso(row.expires_at) };
        const deed = { request, clientIp, action: 'create', resource: 'console-sessions' } as const;
        const whose = { organisationId, userId: null, resourceId: user.id, change: { before: null, after } };
        await appendAudit(tx, vault, consoleEntry({ clock, vault }, { ...deed, ...whose }));
        return linkUrl(publicUrl(), token);
      },
      { queue: organisationId },
    );
  }
}
