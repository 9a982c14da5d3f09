/** Mails that go out beside requests: an answer never waits for the mail server. */
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { type Mail, type Mailer, MailFailure } from './mailer.ts';

export type Letter = Omit<Mail, 'id'>;

export interface Outbox extends Closable {
  /** Queues a mail; a failure is logged. */
  post(letter: Letter): void;
}

/** Mails under way at once, those between two tries included; more are not taken. */
const MOST = 500;
const AT_ONCE = 4;
/** Waits between the tries of a mail that the server could not take yet. */
const WAITS_MS = [10_000, 60_000];

/** @param mailer not owned: close it after this */
export function openOutbox({ mailer, clock, log }: { mailer: Mailer; clock: Clock; log: Log }): Outbox {
  const due: { readonly mail: Mail; readonly tries: number }[] = [];
  const waits = new Set<() => void>();
  let sending = 0;
  let closed = false;
  const send = async (mail: Mail, tries: number) => {
    try {
      await mailer.send(mail);
    } catch (error) {
      const wait = error instanceof MailFailure && error.permanent ? undefined : WAITS_MS[tries];
      log.warn(wait === undefined ? 'a mail could not be sent' : 'a mail could not be sent yet; it is tried again', {
        mail: mail.id,
        error: String(error),
      });
      if (wait === undefined || closed) return;
      const cancel = clock.after(wait, () => {
        waits.delete(cancel);
        due.push({ mail, tries: tries + 1 });
        next();
      });
      waits.add(cancel);
    }
  };
  const next = () => {
    while (!closed && sending < AT_ONCE) {
      const one = due.shift();
      if (one === undefined) return;
      sending += 1;
      void send(one.mail, one.tries).finally(() => {
        sending -= 1;
        next();
      });
    }
  };
  return {
    post(letter) {
      if (due.length + waits.size + sending >= MOST) {
        log.error('a mail was not sent: too many wait for the mail server', {});
        return;
      }
      due.push({ mail: { id: uuidv7(clock), ...letter }, tries: 0 });
      next();
    },
    async close() {
      closed = true;
      for (const cancel of waits) cancel();
    },
  };
}
