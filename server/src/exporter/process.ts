/** The process that sends telemetry. It is started by the server (`exporter.ts`) and ends with it. */
import { mkdir } from 'node:fs/promises';
import { setPriority } from 'node:os';
import type { Fetcher } from '../http/background-fetcher.ts';
import type { ListenAddress } from '../http/egress-guard.ts';
import { operatorHttp } from '../http/operator-http.ts';
import { Channel, type Message } from '../keeper/messages.ts';
import { systemClock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { DestinationHost, DestinationPlan } from '../telemetry/log-destination.ts';
import type { FamilyValues } from '../telemetry/metrics/family-values.ts';
import { type Feeds, startFeeds } from './feeds.ts';
import type { ExporterSettings, ExporterState } from './messages.ts';
import type { Period } from './otlp/metrics.ts';

const LOW_PRIORITY = 10;

function send(message: Message): void {
  if (process.connected) process.send?.(message);
}

process.once('disconnect', () => process.exit(0));
// A signal to the terminal's group is for the server, which ends this process in its time.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => undefined);
try {
  setPriority(LOW_PRIORITY);
} catch {
  // Some containers refuse it; telemetry is sent all the same.
}

let feeds: Feeds | null = null;
/** What this node listens on: nothing of a tenant is sent there. */
let listeners: readonly ListenAddress[] = [];
const host: DestinationHost = {
  terms: (id) => channel.call('terms', id) as ReturnType<DestinationHost['terms']>,
  bodies: (...asked) => channel.call('bodies', ...asked) as ReturnType<DestinationHost['bodies']>,
  past: (...asked) => channel.call('past', ...asked) as ReturnType<DestinationHost['past']>,
  parquet: (...asked) => channel.call('parquet', ...asked) as ReturnType<DestinationHost['parquet']>,
  settled: async (state) => void (await channel.call('settled', state)),
  left: (id) => channel.call('left', id) as ReturnType<DestinationHost['left']>,
  leftSettled: async (...asked) => void (await channel.call('leftSettled', ...asked)),
};

/** Calls that tenants have chosen the address of. */
async function guardedCalls(trustedHosts: readonly string[]): Promise<Fetcher> {
  const [{ createEgressGuard }, { createFetcher }] = await Promise.all([
    import('../http/egress-guard.ts'),
    import('../http/background-fetcher.ts'),
  ]);
  const egress = createEgressGuard({ trustedHosts, ownListeners: () => listeners, clock: systemClock, log });
  return createFetcher({ egress, clock: systemClock });
}

/** Numbers whose last part has not come. */
const waiting: FamilyValues[] = [];
/** Parts of a family as one. */
function joined(parts: readonly FamilyValues[]): FamilyValues[] {
  const families = new Map<string, FamilyValues>();
  for (const part of parts) {
    const cells = [...(families.get(part.name)?.cells ?? []), ...part.cells];
    families.set(part.name, { ...part, cells });
  }
  return [...families.values()];
}

const channel = new Channel(send, {
  start: async (settings: ExporterSettings): Promise<void> => {
    await mkdir(settings.dir, { recursive: true, mode: 0o700 });
    const fetcher = () => guardedCalls(settings.destinations?.trustedHosts ?? []);
    feeds = await startFeeds(settings, { http: operatorHttp(), clock: systemClock, log, tenants: { fetcher, host } });
  },
  destinations: async (plans: readonly DestinationPlan[], own: readonly ListenAddress[]): Promise<void> => {
    listeners = own;
    await feeds?.destinations(plans);
  },
  metrics: async (families: readonly FamilyValues[], last: boolean, period: Period): Promise<void> => {
    waiting.push(...families);
    if (last) await feeds?.metrics(joined(waiting.splice(0)), period);
  },
  state: (): ExporterState | null => feeds?.state ?? null,
  finish: async (): Promise<void> => feeds?.finish(),
});
const tell = (level: keyof Log) => (message: string, fields?: object) => {
  void channel.call('log', level, message, { ...fields }).catch(() => undefined);
};
const log = { debug: tell('debug'), info: tell('info'), warn: tell('warn'), error: tell('error') } as Log;
process.on('message', (message: Message) => void channel.receive(message));
send({ ready: true, why: '' });
