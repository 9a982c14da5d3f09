/** Tables and statements that may be read as a whole, each with its reason. */

/** A handful of rows however large an installation is, or one for each organisation. */
export const SMALL: ReadonlySet<string> = new Set([
  'meta',
  'leases',
  'ledger_positions',
  'log_positions',
  'log_nodes',
  'operator_keys',
  'data_keys',
  'audit_heads',
  'audit_anchors',
]);

/** Indexes of a handful of rows: what waits to be done soon. */
export const WAITING: ReadonlySet<string> = new Set(['usage_alerts_open']);

/** Part of a statement's shape (`shapeOf`), and why what it reads may grow. */
export const EXCUSES: readonly (readonly [RegExp, string])[] = [
  [/^delete from "scim_tokens" where/, 'an organisation has ten of them'],
  [/from "sso_clients" where .*"status" <> 'archived'/, 'an organisation has at most twenty of them'],
  [/from "organisation_domains" where .*1 = 1/, 'an organisation has at most fifty of them'],
  [
    /^select count\(\*\)/i,
    'a list tells how many there are in all: 0.1 µs for each, from the index alone without a search',
  ],
  [
    /from "workspaces" where .*order by "created_at" asc, "id" asc$/,
    'the answer names every workspace: owners and admins belong to all',
  ],
  [
    /from "workspaces" where .*order by "slug" asc, "id" asc$/,
    'the answer names the exempt workspaces by slug; it is read by people',
  ],
  [/from "file_totals" where /, 'the quota is of an organisation: one row for each workspace that has files'],
  [
    /from "(organisations|workspaces)" where .*"status" = 'active' and "status" <> 'archived'.* order by .?"id".* asc$/,
    'one node asks every workspace, each ten minutes, how often it wants keys to rotate',
  ],
];

/** The reason of a statement that may read more than it answers; null for one that may not. */
export function excused(shape: string): string | null {
  return EXCUSES.find(([part]) => part.test(shape))?.[1] ?? null;
}

/** A statement without its columns and its numbers of parameters. */
export function shapeOf(sql: string): string {
  return sql
    .replace(/^select "id".*? from/, 'select … from')
    .replace(/ set .* where /, ' set … where ')
    .replace(/\((\?(, )?)+\)/g, '(…)')
    .replace(/\((\$\d+(, )?)+\)/g, '(…)');
}
