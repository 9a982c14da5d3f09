import type { Types } from './migration.ts';

const part = ' ON DELETE CASCADE';

/**
 * The words migrations are written in. `%s` in a column's type stands for its name. Every reference between tenant tables
 * carries `organisation_id`, so a reference to another organisation's object cannot be stored.
 *
 * Released migrations are compared by checksum: what these functions print must never change.
 */
export function ddl(types: Types) {
  const { text, int, bool, options } = types;
  const required = (kind: string) => `${kind} NOT NULL`;
  const T = required(text);
  const I = required(int);
  const B = `${required(bool)} CHECK (%s IN (0, 1))`;
  return {
    T,
    I,
    B,
    audit: { created_at: I, last_updated_at: I },
    inOrganisation: 'UNIQUE (organisation_id, id)',
    organisation: 'FOREIGN KEY (organisation_id) REFERENCES organisations (id)',
    /** What is a part of its parent goes with it. */
    part,
    table(name: string, columns: Record<string, string>, ...constraints: string[]): string {
      const lines = Object.entries(columns).map(([column, type]) => `${column} ${type.replace('%s', column)}`);
      return `CREATE TABLE ${name} (\n  ${[...lines, ...constraints].join(',\n  ')}\n)${options}`;
    },
    one: (...values: string[]) => `${T} CHECK (%s IN (${values.map((value) => `'${value}'`).join(', ')}))`,
    refers: (column: string, parent: string, whole = '') =>
      `FOREIGN KEY (organisation_id, ${column}) REFERENCES ${parent} (organisation_id, id)${whole}`,
    index: (name: string, on: string) => `CREATE INDEX ${name} ON ${on}`,
    unique: (name: string, on: string) => `CREATE UNIQUE INDEX ${name} ON ${on}`,
  };
}
