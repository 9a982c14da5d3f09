import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import { openJournal } from './journal.ts';
import { type Shipper, type ShipTarget, startShipper } from './shipper.ts';

/**
 * Ships in the background what processes left behind whose number is not in use any more. Closing it ends the shipping
 * and waits for the insert that runs; what is left then stays for the next start.
 */
export function adoptJournals(
  spool: string,
  names: RegExp,
  parts: { readonly workers: number; readonly sink: ShipTarget; readonly clock: Clock; readonly log: Log },
): Closable {
  const { workers, sink, clock, log } = parts;
  let closed = false;
  let shipping: Shipper | null = null;

  async function adopt(dir: string): Promise<void> {
    const journal = await openJournal({ dir, clock, log });
    try {
      shipping = startShipper({ dir, journal, sink, clock, log });
      if (closed) return;
      await shipping.drain();
    } finally {
      await shipping?.close();
      shipping = null;
      await journal.close();
    }
  }

  async function run(): Promise<void> {
    for (const name of await readdir(spool)) {
      const index = Number(names.exec(name)?.[1] ?? 1);
      if (closed) return;
      if (index > workers) await adopt(join(spool, name));
    }
  }

  const done = run().catch((error: unknown) => {
    if (closed) return;
    log.error('records of an earlier worker could not be shipped yet; the next start tries again', {
      error: String(error),
    });
  });
  return {
    async close() {
      closed = true;
      await shipping?.close();
      await done;
    },
  };
}
