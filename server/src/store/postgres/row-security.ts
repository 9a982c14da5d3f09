/**
 * Row-level security: the filter of tenant isolation inside the database. It knows nothing of
 * the statements that are built. A transaction says at its start whose it is (`sluice.organisation`, `sluice.workspace`,
 * until its end only, so that poolers in transaction mode pass nothing on), and the policies of each table, made from
 * SCHEMA, show it no other row. Where nothing was said there are no rows.
 *
 * Superusers and roles with BYPASSRLS are above policies. For them tenant transactions change to a role that does not
 * and cannot log in; where it cannot be made, `rowSecurity` is `bypassed`.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import type { MigrationTx } from '../migrations/run.ts';
import type { OrganisationPatch, RowSecurity } from '../ports.ts';
import { SCHEMA, SHARED_TABLES, type Table } from '../schema.ts';
import { misuse } from '../sql/columns.ts';
import type { Scope } from '../sql/engine.ts';
import { send } from './client.ts';

/** Stands for every organisation (system code), and for every workspace of one. */
const ALL = '*';

/** Begins the transactions of system code. */
export const SYSTEM_SCOPE = `SET LOCAL sluice.organisation = '${ALL}'`;

export interface Policy {
  readonly name: string;
  readonly command: 'ALL' | 'SELECT' | 'INSERT' | 'UPDATE';
  /** SQL condition of rows that are seen and of rows that are written. */
  readonly condition: string;
}

export interface TableRules {
  readonly table: string;
  readonly policies: readonly Policy[];
  /** What the role of tenants may do, as privileges of GRANT. */
  readonly grants: readonly string[];
}

// In brackets with SELECT they are read once per statement; bare, once per row, which a count of 2,000 rows feels.
// A setting that was local to an earlier transaction is not absent but empty.
const ORGANISATION = `(SELECT nullif(current_setting('sluice.organisation', true), ''))`;
const WORKSPACE = `(SELECT nullif(current_setting('sluice.workspace', true), ''))`;

const SYSTEM: Policy = { name: 'sluice_system', command: 'ALL', condition: `${ORGANISATION} = '${ALL}'` };
const OF_ORGANISATION = `organisation_id = ${ORGANISATION}`;
/**
 * Statements carry the tenant themselves, so that nearly all rows they find pass the policy. The planner does not know that
 * the two conditions are one: it would expect a thousandth, and read and sort all of an organisation for one page of a list.
 * Of a CASE it expects half.
 */
const likely = (condition: string): string => `CASE WHEN ${condition} THEN true ELSE false END`;
const IN_ORGANISATION = likely(OF_ORGANISATION);
const IN_WORKSPACE = likely(`${OF_ORGANISATION} AND (${WORKSPACE} = '${ALL}' OR workspace_id = ${WORKSPACE})`);

const tenant = (command: Policy['command'], condition: string): Policy => ({
  name: `sluice_tenant_${command.toLowerCase()}`,
  command,
  condition,
});

/** What `updateOrganisation` may change. */
const OWN_COLUMNS: readonly (keyof OrganisationPatch)[] = ['name', 'settings', 'last_updated_at'];

/** Installation-wide tables of which a tenant has a part. The others are out of its reach. */
const OF_TENANTS: Readonly<Record<string, Omit<TableRules, 'table'>>> = {
  organisations: {
    policies: [
      tenant('SELECT', `id = ${ORGANISATION}`),
      tenant('UPDATE', `id = ${ORGANISATION} AND ${WORKSPACE} = '${ALL}'`),
    ],
    grants: ['SELECT', `UPDATE (${OWN_COLUMNS.join(', ')})`],
  },
  changes: { policies: [tenant('INSERT', IN_ORGANISATION)], grants: ['INSERT'] },
};

function rulesOf(name: string, table: Table): TableRules {
  if (table.tenant !== 'organisation') {
    const own = OF_TENANTS[name];
    return { table: name, policies: [SYSTEM, ...(own?.policies ?? [])], grants: own?.grants ?? [] };
  }
  const policies = [SYSTEM, tenant('ALL', table.columns.workspace_id ? IN_WORKSPACE : IN_ORGANISATION)];
  if (SHARED_TABLES.has(name)) policies.push(tenant('SELECT', likely(`${OF_ORGANISATION} AND workspace_id IS NULL`)));
  return { table: name, policies, grants: ['SELECT', 'INSERT', 'UPDATE', 'DELETE'] };
}

/** Of the control tables: one entry for each table of SCHEMA. */
export const CONTROL_RULES: readonly TableRules[] = Object.entries(SCHEMA as unknown as Record<string, Table>).map(
  ([name, table]) => rulesOf(name, table),
);

/** Marks a policy with what it was made from: PostgreSQL rewrites its condition in its own words. */
const markOf = ({ command, condition }: Policy): string =>
  createHash('sha256').update(`${command} ${condition}`).digest('hex').slice(0, 16);

/**
 * One role per database. A role that all databases of a server share would let one installation's account read the
 * tables of another.
 */
const ROLE = `'sluice_tenant_' || (SELECT oid FROM pg_database WHERE datname = current_database())`;

/** The account, and whether it may become the role of tenants. */
const ACCOUNT = `SELECT me.rolsuper, me.rolsuper OR me.rolbypassrls AS above, ${ROLE} AS role, it.oid IS NOT NULL AS made,
  coalesce(NOT it.rolsuper AND NOT it.rolbypassrls AND (me.rolsuper OR pg_has_role(me.oid, it.oid,
    CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)), false) AS usable
FROM pg_roles me LEFT JOIN pg_roles it ON it.rolname = ${ROLE}
WHERE me.rolname = current_user`;

const UNIQUE = `SELECT c.relname AS name, (SELECT json_agg(a.attname ORDER BY k.n)
  FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum) AS columns
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indisunique AND c.relnamespace = current_schema()::regnamespace`;

/** Of existing tables: their present policies. */
const PRESENT = `SELECT c.relname AS name, c.relrowsecurity AND c.relforcerowsecurity AS forced,
  pg_has_role(current_user, c.relowner, 'USAGE') AS own, pg_get_userbyid(c.relowner) AS owner, current_user AS account,
  coalesce((SELECT json_object_agg(p.polname, coalesce(obj_description(p.oid, 'pg_policy'), ''))
    FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname LIKE 'sluice\\_%'), '{}') AS policies
FROM pg_class c
WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace AND c.relname = ANY ('{%s}')`;

/**
 * Makes row-level security and the role of tenants what `rules` say, and touches nothing that is so already: changing a
 * table waits for every transaction on it, and needs its owner.
 *
 * @returns the tables that were changed. Throws `internal` when an account that does not own them would have to.
 */
export async function applyRowSecurity(tx: MigrationTx, rules: readonly TableRules[]): Promise<readonly string[]> {
  const rows = await tx.rows(PRESENT.replace('%s', rules.map(({ table }) => table).join(',')));
  const present = new Map(rows.map((row) => [row.name as string, row]));
  const changed: string[] = [];
  for (const { table, policies } of rules) {
    const now = present.get(table);
    if (now === undefined) continue;
    const marks = now.policies as Record<string, string>;
    const wanted = new Map(policies.map((policy) => [policy.name, policy]));
    const stale = Object.keys(marks).filter((name) => !wanted.has(name));
    const missing = policies.filter((policy) => marks[policy.name] !== markOf(policy));
    if (now.forced === true && stale.length === 0 && missing.length === 0) continue;
    if (now.own !== true) throw notOwner(String(now.account), String(now.owner));
    changed.push(table);
    await tx.execute(`ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`);
    for (const name of [...stale, ...missing.map((policy) => policy.name)]) {
      await tx.execute(`DROP POLICY IF EXISTS "${name}" ON ${table}`);
    }
    for (const policy of missing) {
      const { name, command, condition } = policy;
      const using = command === 'INSERT' ? '' : ` USING (${condition})`;
      const check = command === 'SELECT' ? '' : ` WITH CHECK (${condition})`;
      await tx.execute(`CREATE POLICY ${name} ON ${table} FOR ${command} TO PUBLIC${using}${check}`);
      await tx.execute(`COMMENT ON POLICY ${name} ON ${table} IS '${markOf(policy)}'`);
    }
  }
  await grantRole(tx, rules, present);
  return changed;
}

/** Tables of this schema whose owner the account is not, and whether it may make new ones. */
const RIGHTS = `SELECT current_user AS account, current_schema() AS schema,
  coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS creates,
  (SELECT min(pg_get_userbyid(c.relowner)) FROM pg_class c
    WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace AND c.relname = ANY ('{%s}')
      AND NOT pg_has_role(current_user, c.relowner, 'USAGE')) AS owner`;

/** Throws `internal` when the account may not change the tables, with the account that may and what to do. */
export async function checkRights(tx: MigrationTx, rules: readonly TableRules[]): Promise<void> {
  const [row] = await tx.rows(RIGHTS.replace('%s', rules.map(({ table }) => table).join(',')));
  const account = String(row?.account);
  const owner = row?.owner;
  if (typeof owner === 'string') throw notOwner(account, owner);
  if (row?.creates === true) return;
  const where = row?.schema == null ? 'a schema of the database' : `the schema ${String(row.schema)}`;
  throw refused(
    `The PostgreSQL account "${account}" may not make tables in ${where}. Start this version once with an account that may, or run: GRANT USAGE, CREATE ON SCHEMA ${String(row?.schema ?? 'public')} TO "${account}".`,
  );
}

const refused = (message: string) => new SluiceError('internal', message, { detail: message });

function notOwner(account: string, owner: string): SluiceError {
  return refused(
    `This version has to change tables that belong to the PostgreSQL account "${owner}", and "${account}" does not own them. Start this version once with "${owner}" in SLUICE_DATABASE_URL, then again with "${account}".`,
  );
}

/** Only an account above row-level security needs the role. What it has no right to is left out. */
async function grantRole(
  tx: MigrationTx,
  rules: readonly TableRules[],
  present: ReadonlyMap<string, Record<string, unknown>>,
): Promise<void> {
  const [account] = await tx.rows(ACCOUNT);
  if (account?.above !== true) return;
  const role = account.role as string;
  const where = account.made === true ? [] : [`CREATE ROLE ${role} NOLOGIN`];
  if (account.rolsuper !== true && account.usable !== true) where.push(`GRANT ${role} TO CURRENT_USER`);
  for (const statement of where) await attempt(tx, statement);

  const [after] = await tx.rows(ACCOUNT);
  if (after?.usable !== true) return;
  const [schema] = await tx.rows(
    `SELECT quote_ident(current_schema()) AS name, has_schema_privilege('${role}', current_schema(), 'USAGE') AS has`,
  );
  if (schema?.has !== true) await attempt(tx, `GRANT USAGE ON SCHEMA ${String(schema?.name)} TO ${role}`);
  for (const { table, grants } of rules) {
    if (grants.length === 0 || !present.has(table)) continue;
    const held = grants.map((grant) => {
      const [privilege = '', columns] = grant.split(' (');
      const test = columns === undefined ? 'has_table_privilege' : 'has_any_column_privilege';
      return `${test}('${role}', '${table}', '${privilege}')`;
    });
    const [answer] = await tx.rows(`SELECT ${held.join(' AND ')} AS has`);
    if (answer?.has !== true) await attempt(tx, `GRANT ${grants.join(', ')} ON ${table} TO ${role}`);
  }
}

/** Lets the transaction go on when the right for the statement is missing, or another database's start was first. */
async function attempt(tx: MigrationTx, statement: string): Promise<void> {
  await tx.execute(
    `DO $do$ BEGIN ${statement}; EXCEPTION WHEN insufficient_privilege OR undefined_object OR duplicate_object OR unique_violation THEN NULL; END $do$`,
  );
}

const BYPASSED =
  'the PostgreSQL account is above row-level security (SUPERUSER or BYPASSRLS) and may not create a role that is not: tenants are kept apart by Sluice alone. Use an account without these attributes, or give it CREATEROLE.';

/** What the transactions of a pool say at their start. */
export class Tenancy {
  readonly #pool: pg.Pool;
  #looking: Promise<void> | null = null;
  #above = false;
  /** The role to change to, for an account above row-level security. */
  #role: string | null = null;
  #unique: ReadonlyMap<string, readonly string[]> = new Map();

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  /** Asks the database what the account is, and what its unique indexes are. */
  look(): Promise<void> {
    const asking = Promise.all([send(this.#pool, { text: ACCOUNT }), send(this.#pool, { text: UNIQUE })]);
    const looking = asking.then(([{ rows: accounts }, { rows: indexes }]) => {
      const account = accounts[0];
      this.#above = account?.above === true;
      this.#role = this.#above && account?.usable === true ? String(account.role) : null;
      this.#unique = new Map(indexes.map(({ name, columns }) => [name as string, columns as string[]]));
    });
    this.#looking = looking;
    looking.catch(() => {
      if (this.#looking === looking) this.#looking = null;
    });
    return looking;
  }

  warn(log: Log): void {
    if (this.rowSecurity === 'bypassed') log.warn(BYPASSED);
  }

  get rowSecurity(): RowSecurity {
    return this.#above && this.#role === null ? 'bypassed' : 'enforced';
  }

  /** Columns of the unique index that refused a row: under row-level security PostgreSQL tells its name only. */
  uniqueColumns(index: string): readonly string[] {
    return this.#unique.get(index) ?? [];
  }

  /** Whether statements of system code reach every row without being let in. */
  async above(): Promise<boolean> {
    await (this.#looking ?? this.look());
    return this.#above;
  }

  /** The statements that follow BEGIN. */
  async enter(scope: Scope): Promise<string> {
    if (scope === null) return SYSTEM_SCOPE;
    await (this.#looking ?? this.look());
    const { organisationId, workspaceId } = scope;
    const role = this.#role === null ? '' : `; SET LOCAL ROLE ${this.#role}`;
    return `SET LOCAL sluice.organisation = ${literal(organisationId)}; SET LOCAL sluice.workspace = ${workspaceId === null ? `'${ALL}'` : literal(workspaceId)}${role}`;
  }
}

/** An id as text of SQL: a statement that sets something takes no parameters. An empty one sees nothing. */
function literal(id: string): string {
  if (id === ALL || id.includes('\0')) throw misuse('this is no id of a tenant');
  return pg.escapeLiteral(id);
}
