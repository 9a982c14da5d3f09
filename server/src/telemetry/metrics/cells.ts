/** The cells that numbers are added to, and the bound on how many of them a process has. */
import { definitionOf, FAMILY_NAMES, type FamilyDefinition, type FamilyName } from './families.ts';

/** Series of one process: lines of its answer. */
export const MAX_SERIES = 10_000;
/** Of them, for cells with the name of a model or a workspace; the rest is left to labels that come from short tables. */
const MAX_OPEN_SERIES = 8_000;
/** What a label says in place of a value that it does not have room for, or does not know. */
export const OTHER = 'other';

/** Labels whose values others choose, within bounds. */
const OPEN_LABELS: ReadonlySet<string> = new Set(['gen_ai_request_model', 'model', 'workspace']);

/** One combination of label values. A counter is one number; a histogram the counts of its buckets, +Inf, then the sum. */
export interface Cell {
  readonly labels: readonly string[];
  readonly values: Float64Array;
}

/** A tree by label values, four levels deep; unused levels have the empty text. */
type Level<T> = Map<string, T>;
type Values = [string, string, string, string];
type Tree = Level<Level<Level<Level<Float64Array>>>>;

export class Family {
  readonly name: FamilyName;
  readonly definition: FamilyDefinition;
  readonly labels: readonly string[];
  /** In the order in which they were made. */
  readonly cells: Cell[] = [];
  /** Lines of one cell. */
  readonly lines: number;
  readonly #tree: Tree = new Map();
  readonly #open: readonly boolean[];
  readonly #room: Room;
  /** Where everything goes that has no room; one of the cells once it was used. */
  readonly #rest: Cell;

  constructor(name: FamilyName, workspaces: boolean, room: Room) {
    this.name = name;
    this.definition = definitionOf(name);
    const { labels, byWorkspace, buckets } = this.definition;
    this.labels = workspaces && byWorkspace === true ? [...labels, 'workspace'] : labels;
    this.#open = this.labels.map((label) => OPEN_LABELS.has(label));
    this.#room = room;
    // Beside its buckets a histogram has +Inf, its sum and its count.
    this.lines = buckets === undefined ? 1 : buckets.length + 3;
    this.#rest = this.#cell(this.labels.map(() => OTHER));
    room.reserve(this.lines);
  }

  /** The numbers of these label values, in the order of `labels`. Allocates only where they are new. */
  at(a = '', b = '', c = '', d = ''): Float64Array {
    return this.#find(a, b, c, d) ?? this.#make(a, b, c, d);
  }

  add(amount: number, a = '', b = '', c = '', d = ''): void {
    const values = this.at(a, b, c, d);
    values[0] = (values[0] ?? 0) + amount;
  }

  observe(value: number, a = '', b = '', c = '', d = ''): void {
    const values = this.at(a, b, c, d);
    const bounds = this.definition.buckets ?? [];
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket += 1;
    values[bucket] = (values[bucket] ?? 0) + 1;
    const sum = bounds.length + 1;
    values[sum] = (values[sum] ?? 0) + value;
  }

  #make(...given: Values): Float64Array {
    const isOpen = this.#open.some((open, i) => open && given[i] !== OTHER && given[i] !== '');
    const made = this.#tryMake(given, isOpen);
    if (made !== null) return made;
    // Others may have chosen these values: what has no room is not remembered either.
    this.#room.overflowed += 1;
    const closed = given.map((value, i) => (this.#open[i] === true && value !== '' ? OTHER : value)) as Values;
    const [a, b, c, d] = closed;
    const kept = isOpen ? (this.#find(a, b, c, d) ?? this.#tryMake(closed, false)) : null;
    return kept ?? this.#onlyRest();
  }

  #tryMake(given: Values, isOpen: boolean): Float64Array | null {
    const labels = given.slice(0, this.labels.length);
    if (labels.every((label) => label === OTHER)) return this.#onlyRest();
    return this.#room.take(this.lines, isOpen) ? this.#keep(given, this.#cell(labels)) : null;
  }

  #onlyRest(): Float64Array {
    const [a = '', b = '', c = '', d = ''] = this.#rest.labels;
    return this.#find(a, b, c, d) ?? this.#keep([a, b, c, d], this.#rest);
  }

  #find(a: string, b: string, c: string, d: string): Float64Array | undefined {
    return this.#tree.get(a)?.get(b)?.get(c)?.get(d);
  }

  #cell(labels: readonly string[]): Cell {
    const { buckets } = this.definition;
    return { labels, values: new Float64Array(buckets === undefined ? 1 : buckets.length + 2) };
  }

  #keep([a, b, c, d]: Values, cell: Cell): Float64Array {
    const second = within(this.#tree, a, () => new Map<string, Level<Level<Float64Array>>>());
    const third = within(second, b, () => new Map<string, Level<Float64Array>>());
    within(third, c, () => new Map<string, Float64Array>()).set(d, cell.values);
    this.cells.push(cell);
    return cell.values;
  }
}

function within<T>(level: Level<T>, key: string, make: () => T): T {
  let found = level.get(key);
  if (found === undefined) {
    found = make();
    level.set(key, found);
  }
  return found;
}

/** How many series a process has. */
class Room {
  series = 0;
  overflowed = 0;

  reserve(lines: number): void {
    this.series += lines;
  }

  take(lines: number, open: boolean): boolean {
    if (this.series + lines > (open ? MAX_OPEN_SERIES : MAX_SERIES)) return false;
    this.series += lines;
    return true;
  }
}

/** All families of one process. */
export class Cells {
  readonly #room = new Room();
  readonly #families: ReadonlyMap<FamilyName, Family>;

  /** @param workspaces whether some families have a label for the workspace */
  constructor(workspaces: boolean) {
    this.#families = new Map(FAMILY_NAMES.map((name) => [name, new Family(name, workspaces, this.#room)]));
  }

  family(name: FamilyName): Family {
    const found = this.#families.get(name);
    if (found === undefined) throw new Error(`no family ${name}`);
    return found;
  }

  /** In the order of the table. */
  families(): Iterable<Family> {
    return this.#families.values();
  }

  /** Lines that there are or that are reserved; never above `MAX_SERIES`. */
  get series(): number {
    return this.#room.series;
  }

  /** Observations that found no room. */
  get overflowed(): number {
    return this.#room.overflowed;
  }
}
