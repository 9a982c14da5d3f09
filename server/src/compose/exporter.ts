/** The process that sends telemetry: one for all that share the data directory. */
import { join } from 'node:path';
import { certificateVariables } from '../config.ts';
import { Exporter } from '../exporter/exporter.ts';
import { removeOutgoing } from '../exporter/spool.ts';
import type { Common } from './common.ts';

/** Starts it where the settings name a collector; else what waited for one is removed. */
export async function openExporter({ config, clock, log, lifecycle, worker, version }: Common): Promise<void> {
  const { otlp, dataDir } = config;
  if (worker.index !== 1) return;
  const spool = join(dataDir, 'spool');
  if (otlp === null) return removeOutgoing(spool);
  const settings = {
    spool,
    dir: join(spool, 'telemetry'),
    maxBytes: config.telemetrySpool,
    resource: { 'service.version': version, ...otlp.resource },
    version,
    traces: {
      url: otlp.traces,
      headers: JSON.parse(otlp.headers.reveal()) as Record<string, string>,
      protocol: otlp.protocol,
      conventions: otlp.latestConventions ? ('latest' as const) : ('v1.41' as const),
      sampler: otlp.sampler,
      ratio: otlp.ratio,
    },
  };
  const exporter = new Exporter({ settings, environment: certificateVariables(), clock, log });
  lifecycle.own('telemetry', exporter);
}
