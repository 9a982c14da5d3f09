import { type DeliverOptions, startAlertDeliveries } from '../../src/jobs/alerts/deliver.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import type { Mailer } from '../../src/mail/mailer.ts';
import type { Tables } from '../../src/store/ports.ts';

/** Looks in a row that must find nothing under way: the leader waits for its clock. */
const STILL = 4;

/**
 * A node that delivers alerts as a whole server does, leadership included, until nothing is due any more and no call or
 * statement of it is under way; then it stops. With a clock that stands still, what is put off stays put off.
 */
export async function alertTurn(options: DeliverOptions): Promise<void> {
  let running = 0;
  const counted =
    <A extends unknown[], R>(call: (...args: A) => Promise<R>) =>
    async (...args: A): Promise<R> => {
      running += 1;
      try {
        return await call(...args);
      } finally {
        running -= 1;
      }
    };
  const { tables, mailer, post, open } = options;
  const seen = Object.assign(Object.create(tables) as Tables, {
    now: counted(() => tables.now()),
    systemRead: counted((...args: Parameters<Tables['systemRead']>) => tables.systemRead(...args)),
    systemWrite: counted((...args: Parameters<Tables['systemWrite']>) => tables.systemWrite(...args)),
  });
  const send = mailer && counted((mail: Parameters<Mailer['send']>[0]) => mailer.send(mail));
  const job = startAlertDeliveries({
    ...options,
    node: 'node',
    tables: seen,
    mailer: send && { send, close: async () => {} },
    post: counted(post),
    open: counted(open),
  });
  for (let still = 0; still < STILL; still = running === 0 ? still + 1 : 0) {
    await new Promise<void>((resolve) => systemClock.after(1, resolve));
  }
  await job.close();
}
