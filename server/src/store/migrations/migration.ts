/** The forms in which a column is stored, by engine: see `schema.ts`. */
export interface Types {
  readonly engine: 'sqlite' | 'postgres';
  readonly text: string;
  readonly int: string;
  readonly bool: string;
  /** A whole-number primary key that the store assigns, rising. */
  readonly sequence: string;
  /** What follows the closing bracket of CREATE TABLE. */
  readonly options: string;
}

/**
 * Text compares by code point on both engines: SQLite's BINARY and PostgreSQL's "C". STRICT makes SQLite refuse a value
 * of the wrong type, as PostgreSQL does.
 */
export const TYPES: Record<Types['engine'], Types> = {
  sqlite: {
    engine: 'sqlite',
    text: 'TEXT',
    int: 'INTEGER',
    bool: 'INTEGER',
    sequence: 'INTEGER PRIMARY KEY AUTOINCREMENT',
    options: ' STRICT',
  },
  postgres: {
    engine: 'postgres',
    text: 'TEXT COLLATE "C"',
    int: 'BIGINT',
    bool: 'SMALLINT',
    sequence: 'BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY',
    options: '',
  },
};

/**
 * One step of the schema. Once released it never changes: the runner compares the checksum of its statements with the
 * one it stored. A correction is a further migration at the end of the list.
 */
export interface Migration {
  /** File name without extension: `0001-start`. */
  readonly name: string;
  readonly statements: (types: Types) => readonly string[];
}
