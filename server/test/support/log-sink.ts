import { DatabaseSync } from 'node:sqlite';
import type { ShipTarget } from '../../src/store/disk/shipper.ts';
import type { JournalPosition } from '../../src/store/ports.ts';

/**
 * A sink for journal tests that keeps every line it is given, also a second time, so a test sees what the shipper really
 * did rather than what a store would forgive. In a file it survives the process like a real store.
 */
export class RecordingSink implements ShipTarget {
  readonly #database: DatabaseSync;
  /** Called before each insert; what it throws is what the insert throws. */
  before: (lines: readonly string[]) => void | Promise<void> = () => undefined;
  /** Called after each commit; what it throws looks like an answer that was lost. */
  after: () => void = () => undefined;
  inserts = 0;

  constructor(file = ':memory:') {
    this.#database = new DatabaseSync(file);
    this.#database.exec(`CREATE TABLE IF NOT EXISTS lines (line TEXT);
      CREATE TABLE IF NOT EXISTS positions (journal TEXT PRIMARY KEY, segment TEXT, offset INTEGER)`);
  }

  async insert(journal: string, bytes: Buffer, position: JournalPosition): Promise<void> {
    const lines = bytes.toString('utf8').split('\n').slice(0, -1);
    await this.before(lines);
    this.#database.exec('BEGIN');
    const insert = this.#database.prepare('INSERT INTO lines VALUES (?)');
    for (const line of lines) insert.run(line);
    this.#database
      .prepare('INSERT OR REPLACE INTO positions VALUES (?, ?, ?)')
      .run(journal, position.segment, position.offset);
    this.#database.exec('COMMIT');
    this.inserts++;
    this.after();
  }

  async position(journal: string): Promise<JournalPosition | null> {
    await this.before([]);
    const row = this.#database.prepare('SELECT segment, offset FROM positions WHERE journal = ?').get(journal);
    return row ? { segment: String(row.segment), offset: Number(row.offset) } : null;
  }

  /** Every line in the order of arrival. */
  get lines(): string[] {
    return this.#database
      .prepare('SELECT line FROM lines ORDER BY rowid')
      .all()
      .map((row) => String(row.line));
  }

  async close(): Promise<void> {
    if (this.#database.isOpen) this.#database.close();
  }
}
