/** The process that sends telemetry: one for all that share the data directory. */
import { join } from 'node:path';
import { certificateVariables } from '../config.ts';
import { Exporter } from '../exporter/exporter.ts';
import { removeOutgoing } from '../exporter/spool.ts';
import type { FamilyValues } from '../telemetry/metrics/family-values.ts';
import type { Common } from './common.ts';

/** Starts it where the settings name a collector; else what waited for one is removed. Null in all processes but one. */
export async function openExporter(common: Common): Promise<Exporter | null> {
  const { config, clock, log, lifecycle, worker, version } = common;
  const { otlp, dataDir } = config;
  if (worker.index !== 1) return null;
  const spool = join(dataDir, 'spool');
  if (otlp === null || otlp.traces === null) await removeOutgoing(spool);
  if (otlp === null) return null;
  const collector = (url: string) => ({
    url,
    headers: JSON.parse(otlp.headers.reveal()) as Record<string, string>,
    protocol: otlp.protocol,
    conventions: otlp.latestConventions ? ('latest' as const) : ('v1.41' as const),
  });
  const settings = {
    spool,
    dir: join(spool, 'telemetry'),
    maxBytes: config.telemetrySpool,
    reserveBytes: config.diskReserve,
    resource: { 'service.version': version, ...otlp.resource },
    version,
    traces: otlp.traces === null ? null : { ...collector(otlp.traces), sampler: otlp.sampler, ratio: otlp.ratio },
    metrics: otlp.metrics === null ? null : collector(otlp.metrics),
  };
  return lifecycle.own('telemetry', new Exporter({ settings, environment: certificateVariables(), clock, log }));
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
