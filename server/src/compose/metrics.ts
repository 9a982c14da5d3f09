/** `/metrics`: where its numbers come from, and where it is served. */
import { registerMetrics, sendMetrics } from '../admin/metrics.ts';
import type { Exporter } from '../exporter/exporter.ts';
import { LOOPBACK, listenOnLoopback } from '../http/loopback-listener.ts';
import type { DestinationState } from '../telemetry/log-destination.ts';
import { Exposed } from '../telemetry/metrics/exposed.ts';
import type { FamilyValues } from '../telemetry/metrics/family-values.ts';
import { Lag } from '../telemetry/metrics/lag.ts';
import { workerMetrics } from '../telemetry/metrics/workers.ts';
import type { Common } from './common.ts';
import type { Gateway } from './data-plane.ts';
import type { Front } from './front.ts';
import type { Kept } from './runtime.ts';
import type { Spools } from './spools.ts';

interface Parts {
  readonly spools: Spools;
  readonly kept: Kept;
  readonly front: Front;
  readonly gateway: Gateway;
  /** Null in all processes but one. */
  readonly exporter: Exporter | null;
}

/** Registers the route; `listen` opens the own listener, if there is to be one, and answers its address; `families` reads the numbers of all processes. */
export function openMetrics(
  common: Common,
  parts: Parts,
): { listen(): Promise<string | null>; families(): Promise<readonly FamilyValues[]> } {
  const { config, clock, log, lifecycle, metrics, worker } = common;
  const { front, kept } = parts;
  readNumbers(common, parts);
  const families =
    worker.primary === null ? async () => metrics.families() : workerMetrics(worker.primary, metrics, clock);
  const exposed = new Exposed(families, clock);
  registerMetrics(front.app, { metrics: exposed, authenticator: kept.authenticator, clock, log });
  return {
    families,
    async listen() {
      if (config.metricsPort === null) return null;
      const listener = await listenOnLoopback(config.metricsPort, '/metrics', clock, (request, response) => {
        exposed.answer(request.headers.accept).then(
          (answer) => sendMetrics(response, answer),
          (error: unknown) => {
            response.writeHead(503, { 'content-type': 'text/plain' });
            response.end(`${(error as Error).message}\n`);
          },
        );
      });
      lifecycle.own('metrics', listener);
      front.alsoListens(listener.address);
      return `http://${LOOPBACK}:${listener.address.port}/metrics`;
    },
  };
}

/** Numbers that are read when somebody asks. */
function readNumbers({ clock, lifecycle, metrics }: Common, { spools, front, gateway, exporter }: Parts): void {
  const { journal, recorder, logs, bodyJournal } = spools;
  const lag = lifecycle.own('lag', new Lag(clock));
  metrics.read('sluice_inflight', () => gateway.services.inFlight.count);
  metrics.read('sluice_eventloop_lag_seconds', () => lag.eventLoop());
  metrics.read('sluice_journal_bytes', () => journal.depth());
  metrics.read('sluice_records_dropped_total', () => journal.dropped + recorder.givenUp);
  metrics.read('sluice_body_journal_bytes', () => bodyJournal.depth());
  metrics.read('sluice_body_frames_dropped_total', () => bodyJournal.dropped);
  metrics.read('sluice_log_lag_seconds', () => logs.journal.lag / 1_000);
  metrics.read('sluice_log_gap_records', () => logs.own?.gaps ?? 0);
  metrics.read('sluice_keeper_restarts_total', () => logs.own?.restarts ?? 0);
  metrics.read('sluice_connections', () => front.connections);
  const destinations = (of: (state: DestinationState) => number) =>
    (exporter?.destinations ?? []).reduce((sum, state) => sum + of(state), 0);
  metrics.read('sluice_destination_delivered_total', () => destinations(({ delivered }) => delivered));
  metrics.read('sluice_destination_failed_total', () => destinations(({ failed }) => failed));
  metrics.read('sluice_destination_lost_total', () => destinations(({ lost }) => lost));
  metrics.read('sluice_destination_waiting', () => destinations(({ waiting }) => waiting));
  metrics.read(
    'sluice_destination_lag_seconds',
    () => Math.max(0, ...(exporter?.destinations ?? []).map(({ lagMs }) => lagMs)) / 1_000,
  );
  metrics.read('sluice_destination_failing', () => destinations(({ error }) => Number(error !== null)));
  const started = (clock.now() - process.uptime() * 1_000) / 1_000;
  metrics.read('process_start_time_seconds', () => started);
  metrics.read('process_resident_memory_bytes', () => process.memoryUsage.rss());
  metrics.read('process_cpu_seconds_total', () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000_000;
  });
}
