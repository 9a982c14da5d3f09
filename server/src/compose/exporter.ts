/** The process that sends telemetry: one for all that share the data directory. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { certificateVariables } from '../config.ts';
import { Exporter } from '../exporter/exporter.ts';
import type { CollectorSettings } from '../exporter/messages.ts';
import { removeOutgoing } from '../exporter/spool.ts';
import { LogDestinations } from '../jobs/log-destinations.ts';
import type { WrittenFile } from '../keeper/exports.ts';
import type { DestinationHost } from '../telemetry/log-destination.ts';
import type { FamilyValues } from '../telemetry/metrics/family-values.ts';
import type { Common } from './common.ts';
import type { Front } from './front.ts';
import type { Kept } from './runtime.ts';
import type { Spools } from './spools.ts';
import type { Stores } from './stores.ts';

const DAY_MS = 86_400_000;

/** It starts where the settings name a collector, and with the first log destination. Null in all processes but one. */
export async function openExporter(common: Common): Promise<Exporter | null> {
  const { config, clock, log, lifecycle, worker, version } = common;
  const { otlp, dataDir } = config;
  if (worker.index !== 1) return null;
  const spool = join(dataDir, 'spool');
  const collector = (url: string | null | undefined): CollectorSettings | null =>
    otlp === null || url == null
      ? null
      : {
          url,
          headers: JSON.parse(otlp.headers.reveal()) as Record<string, string>,
          protocol: otlp.protocol,
          conventions: otlp.latestConventions ? 'latest' : 'v1.41',
        };
  const traces = collector(otlp?.traces);
  const settings = {
    spool,
    dir: join(spool, 'telemetry'),
    maxBytes: config.telemetrySpool,
    reserveBytes: config.diskReserve,
    resource: { 'service.version': version, ...otlp?.resource },
    version,
    traces: traces === null || otlp === null ? null : { ...traces, sampler: otlp.sampler, ratio: otlp.ratio },
    metrics: collector(otlp?.metrics),
    destinations: { trustedHosts: config.trustedHosts, keepMs: config.logDays * DAY_MS },
  };
  // Other processes need no segments any more: the room of what waited is given back.
  const onStop = () => removeOutgoing(spool);
  return lifecycle.own(
    'telemetry',
    new Exporter({ settings, environment: certificateVariables(), clock, log, onStop }),
  );
}

interface FedParts {
  readonly stores: Stores;
  readonly spools: Spools;
  readonly kept: Kept;
  readonly front: Front;
  readonly exporter: Exporter | null;
}

/** Made by the keeper of this machine. */
export async function parquetOf({ logs }: Pick<Spools, 'logs'>, ...asked: Parameters<DestinationHost['parquet']>) {
  return ((await logs.keeper.ask('ofLines', ...asked)) as WrittenFile).path;
}

/** Feeds the log destinations of tenants with the records of this machine, in the process that has its keeper. Null in the others. */
export async function feedDestinations(common: Common, parts: FedParts): Promise<LogDestinations | null> {
  const { config, clock, log, lifecycle } = common;
  const { stores, spools, kept, front, exporter } = parts;
  if (exporter === null) return null;
  const { tables, vault, nodeId } = stores;
  const feeder = new LogDestinations({
    tables,
    vault,
    nodeId,
    shared: spools.logs.shared,
    process: {
      feed: (plans, host) => exporter.setDestinations({ plans, host, listeners: front.listeners() }),
      states: async () => (await exporter.state())?.destinations?.states ?? null,
    },
    records: spools.logs.keeper,
    bodies: spools.logs.bodies,
    parquet: (...asked) => parquetOf(spools, ...asked),
    days: { logs: config.logDays, bodies: config.bodiesDays },
    origin: () => front.publicUrl().replace(/\/+$/, ''),
    clock,
    log,
  });
  lifecycle.own('log destinations', feeder);
  kept.follow((change) => feeder.changed(change));
  await feeder.start();
  const spool = join(config.dataDir, 'spool');
  // Those that were deleted while nothing ran.
  if (!exporter.active) await rm(join(spool, 'telemetry', 'destinations'), { recursive: true, force: true });
  if (!exporter.active || (config.otlp?.traces == null && feeder.count === 0)) await removeOutgoing(spool);
  return feeder;
}

/** Hands the numbers of all processes to it, from time to time and at the end. */
export function pushMetrics(
  { config, clock, log, lifecycle }: Common,
  exporter: Exporter | null,
  families: () => Promise<readonly FamilyValues[]>,
): void {
  const { otlp } = config;
  if (exporter === null || otlp === null || otlp.metrics === null) return;
  const push = async () => {
    try {
      await exporter.push(await families());
    } catch (error) {
      log.warn('metrics could not be read for the collector', { error: String(error) });
    }
  };
  const state: { cancel(): void } = { cancel: () => undefined };
  const again = () => {
    state.cancel = clock.after(otlp.metricsEveryMs, () => void push().then(again));
  };
  again();
  lifecycle.own('metrics of telemetry', {
    async close() {
      state.cancel();
      state.cancel = () => undefined;
      await push();
    },
  });
}
