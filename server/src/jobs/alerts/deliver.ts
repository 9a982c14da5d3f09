/**
 * Brings alerts to their webhooks and mail addresses. A delivery is a row: it is tried at `next_at`, and each try first
 * writes down that it is made, so a node that is killed only delays it. An alert that was sent and could not be noted is sent again
 * under the same webhook-id.
 *
 * Recipients are worked on side by side, the alerts of one recipient one after another, and an organisation may hold only a
 * part of the places: a recipient that does not answer costs others one place for ten seconds.
 */
import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import { cryptoRandom, type Random } from '../../kernel/random.ts';
import { type Mail, type Mailer, MailFailure } from '../../mail/mailer.ts';
import type { Tables, Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { Macs } from '../../store/vault.ts';
import { type BackOff, backOff } from '../back-off.ts';
import { startLeader } from '../leader.ts';
import { pause } from '../pause.ts';
import { type AlertEvent, alertMail } from './event.ts';
import { signedHeaders } from './signature.ts';
import { type TrafficEvent, trafficMail } from './traffic-event.ts';

type Delivery = Row<'alert_deliveries'>;
type Channel = Delivery['channel'];

/** Sends one POST and answers the status; rejects with a SluiceError that says why there is none. */
export type PostWebhook = (call: {
  readonly organisationId: string;
  readonly url: string;
  /** Flat `[name, value, …]`. */
  readonly headers: readonly string[];
  readonly body: string;
  readonly signal: AbortSignal;
}) => Promise<number>;

export interface DeliverOptions {
  readonly tables: Tables;
  readonly clock: Clock;
  readonly log: Log;
  /** Webhook secrets are derived with it. */
  readonly macs: Macs;
  /** A stored address of a webhook, opened. */
  readonly open: (organisationId: string, stored: string) => Promise<string>;
  /** Null: no mail server is configured. */
  readonly mailer: Mailer | null;
  readonly post: PostWebhook;
  readonly random?: Random;
}

/** 10 s, 30 s, 90 s … 1 h: with eight tries about two hours. */
const RETRY: BackOff = { first: 10_000, most: 3_600_000, factor: 3 };
export const MAX_TRIES = 8;
/** Recipients at the same time, and how many of them one organisation may have. */
const PLACES: Readonly<Record<Channel, { readonly all: number; readonly each: number }>> = {
  webhook: { all: 16, each: 4 },
  email: { all: 4, each: 2 },
};
const EVERY_MS = 2_000;
/** How long rows stay with whoever took them; longer than any try lasts. */
const HOLD_MS = 60_000;
/** What has no place now is looked at again after this. */
const LATER_MS = 5_000;
const PAGE = 200;
const MAX_ERROR = 300;
const DAY_MS = 86_400_000;
/** Finished deliveries, and alerts that were raised, are kept this long. */
const KEEP_MS = 30 * DAY_MS;
/** Old deliveries of one transaction: others write between two of them. */
const OLD_PAGE = 500;
const CLEAN_MS = 60 * 60_000;

/** What came of a try: it arrived, or why not. */
type Outcome = { readonly error: null } | { readonly error: string; readonly permanent: boolean };

export function startAlertDeliveries(options: DeliverOptions & { readonly node: string }): Closable {
  const { tables, clock, log, node } = options;
  return startLeader({
    tables,
    clock,
    log,
    node,
    name: 'alert-deliveries',
    everyMs: 10_000,
    lead: async (signal) => {
      // A channel that fails (the store is away) ends both, or the leader would be one of half its work.
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
      const serve = async (channel: Channel) => {
        try {
          await serveChannel(options, channel, either);
        } finally {
          failed.abort();
        }
      };
      await Promise.all([serve('webhook'), serve('email')]);
    },
  });
}

async function serveChannel(options: DeliverOptions, channel: Channel, signal: AbortSignal): Promise<void> {
  const { tables, clock } = options;
  const lanes = new Lanes(options, channel, signal);
  let cleanedAt = Number.NEGATIVE_INFINITY;
  try {
    while (!signal.aborted) {
      await lanes.fill();
      if (channel === 'webhook' && clock.monotonic() - cleanedAt >= CLEAN_MS) {
        await removeOld(tables);
        cleanedAt = clock.monotonic();
      }
      await Promise.race([pause(clock, EVERY_MS, signal), lanes.nextFree()]);
    }
  } finally {
    await lanes.idle();
  }
}

/**
 * Removes what was finished long ago, in the order of its age and in steps. A condition on `next_at` would lead SQLite to
 * read all that was ever delivered.
 */
export async function removeOld(tables: Tables): Promise<void> {
  for (let after = -1; ; ) {
    const page = await tables.systemWrite(async (tx) => {
      const before = (await tx.now()) - KEEP_MS;
      const old = await tx.list('alert_deliveries', {
        where: { created_at: { gt: after, lt: before } },
        orderBy: [['created_at', 'asc']],
        limit: OLD_PAGE,
      });
      const finished = old.filter(({ next_at }) => next_at === null).map(({ id }) => id);
      if (finished.length > 0) await tx.remove('alert_deliveries', { id: { in: finished } });
      return old;
    });
    const last = page.at(-1);
    if (last === undefined || page.length < OLD_PAGE) break;
    // Those of one moment that did not fit are first in their order the next time.
    after = last.created_at;
  }
  await tables.systemWrite(async (tx) => {
    await tx.remove('usage_alerts', { done_at: { lt: (await tx.now()) - KEEP_MS } });
  });
}

/** The recipients that are worked on now, each in its own lane. */
class Lanes {
  readonly #options: DeliverOptions;
  readonly #channel: Channel;
  readonly #signal: AbortSignal;
  readonly #running = new Map<string, { readonly organisationId: string; readonly done: Promise<void> }>();
  readonly #random: Random;

  constructor(options: DeliverOptions, channel: Channel, signal: AbortSignal) {
    this.#options = options;
    this.#channel = channel;
    this.#signal = signal;
    this.#random = options.random ?? cryptoRandom;
  }

  /** Resolves when a place becomes free; never while nobody works. */
  async nextFree(): Promise<void> {
    if (this.#running.size === 0) return new Promise(() => undefined);
    await Promise.race([...this.#running.values()].map(({ done }) => done));
  }

  async idle(): Promise<void> {
    await Promise.all([...this.#running.values()].map(({ done }) => done));
  }

  /** Begins what is due and has a place. True when it began anything. */
  async fill(): Promise<boolean> {
    const { tables } = this.#options;
    const { all, each } = PLACES[this.#channel];
    if (this.#signal.aborted || this.#running.size >= all) return false;
    const channel = this.#channel;
    const { now, due } = await tables.systemRead(async (tx) => {
      const at = await tx.now();
      const where = { channel, next_at: { lte: at } };
      return { now: at, due: await tx.list('alert_deliveries', { where, orderBy: [['next_at', 'asc']], limit: PAGE }) };
    });
    const byRecipient = Map.groupBy(due, (row) => `${row.organisation_id} ${row.recipient}`);
    const over = new Set<string>();
    let began = false;
    for (const [key, rows] of byRecipient) {
      const [first] = rows;
      if (first === undefined || this.#running.size >= all) break;
      const { organisation_id: organisationId, recipient } = first;
      const held = [...this.#running.values()].filter((lane) => lane.organisationId === organisationId).length;
      // Out of the way, or a full page of them would hide what others wait for.
      const later = (which: Where<'alert_deliveries'>) =>
        due.length < PAGE ? 0 : this.#move({ organisation_id: organisationId, ...which }, now, now + LATER_MS);
      if (held >= each) {
        if (!over.has(organisationId)) await later({});
        over.add(organisationId);
        continue;
      }
      if (this.#running.has(key)) {
        await later({ recipient });
        continue;
      }
      const until = now + HOLD_MS;
      // All of this recipient's, also those behind the page.
      if ((await this.#move({ organisation_id: organisationId, recipient }, now, until)) === 0) continue;
      began = true;
      const done = this.#work(rows, until)
        .catch((error: unknown) => {
          this.#options.log.error('alerts could not be delivered; they are tried again', { error: String(error) });
        })
        .finally(() => this.#running.delete(key));
      this.#running.set(key, { organisationId, done });
    }
    return began;
  }

  /** Puts what is due now and meets `which` at `until`; how many that were. */
  #move(which: Where<'alert_deliveries'>, now: number, until: number): Promise<number> {
    const where = { ...which, channel: this.#channel, next_at: { lte: now } };
    return this.#options.tables.systemWrite((tx) => tx.update('alert_deliveries', where, { next_at: until }));
  }

  /** One recipient's alerts in order, until one fails that may be tried again. */
  async #work(rows: readonly Delivery[], until: number): Promise<void> {
    const { tables, clock } = this.#options;
    const began = clock.monotonic();
    let failed = false;
    for (const { id } of rows) {
      if (this.#signal.aborted || failed || clock.monotonic() - began > HOLD_MS / 2) break;
      const row = await tables.systemWrite(async (tx) => {
        const now = await tx.now();
        const found = await tx.find('alert_deliveries', { id, next_at: until });
        if (found === undefined) return undefined;
        const tries = found.tries + 1;
        await tx.update('alert_deliveries', { id, next_at: until }, { tries, next_at: now + HOLD_MS });
        return { ...found, tries };
      });
      if (row === undefined) continue;
      const outcome = await this.#send(row);
      if (outcome === null) return;
      await this.#note(row, outcome);
      failed = outcome.error !== null && !outcome.permanent;
    }
    // The rest is free again: soon, or a while later when the recipient does not answer.
    const [first] = rows;
    if (first === undefined) return;
    const { organisation_id, channel, recipient } = first;
    await tables.systemWrite(async (tx) => {
      const next_at = (await tx.now()) + (failed ? LATER_MS : 0);
      await tx.update('alert_deliveries', { organisation_id, channel, recipient, next_at: until }, { next_at });
    });
  }

  /** Null when it was given up because the process stops. */
  async #send(row: Delivery): Promise<Outcome | null> {
    let stop: () => void = () => undefined;
    const stopped = new Promise<null>((resolve) => {
      stop = () => resolve(null);
      this.#signal.addEventListener('abort', stop);
    });
    if (this.#signal.aborted) return null;
    try {
      return await Promise.race([row.channel === 'webhook' ? this.#webhook(row) : this.#mail(row), stopped]);
    } finally {
      this.#signal.removeEventListener('abort', stop);
    }
  }

  async #webhook(row: Delivery): Promise<Outcome> {
    const { tables, macs, post, open } = this.#options;
    const body = JSON.stringify(row.body);
    try {
      const { organisation, now } = await tables.systemRead(async (tx) => ({
        organisation: await tx.find('organisations', { id: row.organisation_id }),
        now: await tx.now(),
      }));
      if (organisation === undefined) return { error: 'The organisation is gone.', permanent: true };
      const status = await post({
        organisationId: row.organisation_id,
        url: await open(row.organisation_id, row.recipient),
        headers: [
          'content-type',
          'application/json',
          'user-agent',
          'Sluice',
          ...signedHeaders(macs, organisation, row.id, now, body),
        ],
        body,
        signal: this.#signal,
      });
      if (status >= 200 && status < 300) return { error: null };
      if (status === 410) return { error: 'Answered 410: the receiver wants no more of these.', permanent: true };
      const redirected = status >= 300 && status < 400 ? '; redirects are not followed' : '';
      return { error: `Answered ${status}${redirected}.`, permanent: false };
    } catch (error) {
      return { error: reasonOf(error), permanent: false };
    }
  }

  async #mail(row: Delivery): Promise<Outcome> {
    const { mailer } = this.#options;
    if (mailer === null) {
      return { error: 'E-mail is not configured on this installation (SLUICE_SMTP_URL).', permanent: true };
    }
    try {
      await mailer.send(mailOf(row));
      return { error: null };
    } catch (error) {
      return { error: reasonOf(error), permanent: error instanceof MailFailure && error.permanent };
    }
  }

  async #note(row: Delivery, outcome: Outcome): Promise<void> {
    const { tables, log } = this.#options;
    const { id, tries } = row;
    const over = outcome.error === null || outcome.permanent || tries >= MAX_TRIES;
    const wait = over ? 0 : backOff(RETRY, tries, this.#random);
    await tables.systemWrite(async (tx) => {
      const now = await tx.now();
      await tx.update(
        'alert_deliveries',
        { id, tries },
        {
          next_at: over ? null : now + wait,
          delivered_at: outcome.error === null ? now : null,
          last_error: outcome.error?.slice(0, MAX_ERROR) ?? null,
        },
      );
    });
    if (!over || outcome.error === null) return;
    const { organisation_id, channel, kind } = row;
    log.warn('an alert could not be delivered and is given up', {
      delivery_id: id,
      organisation_id,
      channel,
      kind,
      tries,
      error: outcome.error,
    });
  }
}

/** The body says by its type which alert it is. */
function mailOf({ body, id, recipient }: Delivery): Mail {
  const event = body as unknown as AlertEvent | TrafficEvent;
  return isTraffic(event) ? trafficMail(event, id, recipient) : alertMail(event, id, recipient);
}

const isTraffic = (event: AlertEvent | TrafficEvent): event is TrafficEvent => event.type.startsWith('traffic.');

/** One line for people: addresses and answers of receivers are not in it. */
function reasonOf(error: unknown): string {
  if (error instanceof MailFailure) return error.message;
  if (!(error instanceof SluiceError)) return 'The call failed.';
  if (error.kind === 'upstream_unreachable') return 'The receiver could not be reached.';
  return error.message;
}
