import type { RecordDraft } from '../recorder.ts';
import { Cells } from './cells.ts';
import type { FamilyName, ReadFamily } from './families.ts';
import type { FamilyValues } from './family-values.ts';
import { RequestMetrics } from './request-metrics.ts';

export interface MetricsOptions {
  /** Ids of the providers that there are. */
  readonly providers: ReadonlySet<string>;
  /** Some families have a label for the workspace. */
  readonly workspaces: boolean;
}

/** The numbers of one process: cells that records are counted in, and numbers that are read when they are asked for. */
export class Metrics {
  readonly #cells: Cells;
  readonly #requests: RequestMetrics;
  readonly #read = new Map<ReadFamily, () => number>();

  constructor({ providers, workspaces }: MetricsOptions) {
    this.#cells = new Cells(workspaces);
    this.#requests = new RequestMetrics({ cells: this.#cells, providers, workspaces });
    this.read('sluice_metrics_overflow_total', () => this.#cells.overflowed);
    this.read('sluice_workers_answered', () => 1);
  }

  /** Counts a record; `configured` as `RequestMetrics.count` has it. */
  count(draft: RecordDraft, configured: string | null): void {
    this.#requests.count(draft, configured);
  }

  /** Counts a record that may be made again after a failure. */
  countOnce(key: string, draft: RecordDraft): void {
    this.#requests.countOnce(key, draft);
  }

  /** Says where a number comes from. A family that nobody registers is not shown. `read` must not throw. */
  read(name: ReadFamily, read: () => number): void {
    this.#read.set(name, read);
  }

  labelsOf(name: FamilyName): readonly string[] {
    return this.#cells.family(name).labels;
  }

  /** What there is to show, as it is now and as it goes on: a cell is read whole, so a histogram's count is that of its buckets. */
  families(): readonly FamilyValues[] {
    const all: FamilyValues[] = [];
    for (const { name, labels, cells, definition } of this.#cells.families()) {
      if (definition.read !== true) all.push({ name, labels, cells });
      const value = this.#read.get(name as ReadFamily)?.();
      if (value !== undefined && Number.isFinite(value)) {
        all.push({ name, labels, cells: [{ labels: [], values: [value] }] });
      }
    }
    return all;
  }
}
