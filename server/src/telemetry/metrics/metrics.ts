import type { Clock } from '../../kernel/clock.ts';
import type { RecordDraft } from '../recorder.ts';
import { Cells } from './cells.ts';
import type { FamilyName, ReadFamily } from './families.ts';
import { type CellValues, type FamilySnapshot, Slices } from './family-snapshot.ts';
import { RequestMetrics } from './request-metrics.ts';

export interface MetricsOptions {
  readonly clock: Clock;
  /** Ids of the providers that there are. */
  readonly providers: ReadonlySet<string>;
  /** Some families have a label for the workspace. */
  readonly workspaces: boolean;
}

/** The numbers of one process: cells that records are counted in, and numbers that are read when they are asked for. */
export class Metrics {
  readonly #cells: Cells;
  readonly #requests: RequestMetrics;
  readonly #clock: Clock;
  readonly #read = new Map<ReadFamily, () => number>();

  constructor({ clock, providers, workspaces }: MetricsOptions) {
    this.#clock = clock;
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

  /** What there is to show, in slices: the cells of a family go on counting while others are shown. */
  async snapshot(): Promise<readonly FamilySnapshot[]> {
    const slices = new Slices(this.#clock);
    const all: FamilySnapshot[] = [];
    for (const family of this.#cells.families()) {
      const { name, labels, definition } = family;
      if (definition.read !== true) {
        const cells: CellValues[] = [];
        for (const { labels, values } of family.cells) {
          // Each cell is copied whole: the count of a histogram is the sum of its buckets.
          cells.push({ labels, values: [...values] });
          if (slices.due()) await slices.next();
        }
        all.push({ name, labels, cells });
        continue;
      }
      const read = this.#read.get(name as ReadFamily);
      const value = read?.();
      if (value !== undefined && Number.isFinite(value))
        all.push({ name, labels, cells: [{ labels: [], values: [value] }] });
    }
    return all;
  }
}
