import pg from 'pg';
import { SluiceError } from '../../kernel/errors.ts';
import type { Log } from '../../kernel/log.ts';
import type { Execute, Failure, Result } from '../sql/engine.ts';

const INT8 = 20;
const CONNECT_MS = 5_000;
const STATEMENT_MS = 15_000;
const LOCK_MS = 10_000;
/** The server ends a session that sits in a transaction without a statement; the caller has forgotten it. */
const IDLE_IN_TRANSACTION_MS = 30_000;

/** An int8 as a number; BIGINT columns hold values within 2^53, everything else is an error and never rounded. */
function parseInt8(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new Error('a stored whole number is beyond 2^53');
  return value;
}

const parser = ((oid: number, format?: 'text' | 'binary') =>
  oid === INT8 && format !== 'binary'
    ? parseInt8
    : pg.types.getTypeParser(oid, format as 'text')) as typeof pg.types.getTypeParser;

/** An error of PostgreSQL or of the connection to it. `code` is the SQLSTATE, or Node's error code, or empty. */
export class PostgresFailure extends Error {
  readonly code: string;
  /** Name of the constraint or unique index that was violated, or empty. */
  readonly constraint: string;

  constructor(cause: unknown) {
    const known = (typeof cause === 'object' && cause !== null ? cause : {}) as Record<string, unknown>;
    // Node gives one error per address of a name that could not be reached, and no message for the whole.
    const first = Array.isArray(known.errors) ? (known.errors[0] as Error | undefined) : undefined;
    super(String(known.message || first?.message || cause), { cause });
    this.name = 'PostgresFailure';
    this.code = typeof known.code === 'string' ? known.code : '';
    this.constraint = typeof known.constraint === 'string' ? known.constraint : '';
  }
}

export function connectionOptions(url: string): pg.ClientConfig {
  return {
    connectionString: url,
    application_name: 'sluice',
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    connectionTimeoutMillis: CONNECT_MS,
    types: { getTypeParser: parser },
  };
}

export function openPool(url: string, max: number, log: Log): pg.Pool {
  const pool = new pg.Pool({
    ...connectionOptions(url),
    max,
    idleTimeoutMillis: 60_000,
    statement_timeout: STATEMENT_MS,
    lock_timeout: LOCK_MS,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
    // Statements that are given together travel together: see `alone`. One at a time it changes nothing.
    pipeline: true,
    // A server that answers nothing at all, not even its own statement timeout.
    query_timeout: STATEMENT_MS + 5_000,
  });
  const lost = (error: Error) => log.warn('a connection to PostgreSQL was lost', { error: error.message });
  // Without a listener on each client an error between two statements would end the process.
  pool.on('connect', (client) => {
    client.on('error', lost);
  });
  pool.on('error', () => undefined);
  return pool;
}

/** Runs one statement on a pool or client, or throws PostgresFailure. */
export async function send(
  on: { query(config: pg.QueryConfig): Promise<pg.QueryResult> },
  query: pg.QueryConfig,
): Promise<Result> {
  try {
    const result = await on.query(query);
    return { rows: result.rows as Result['rows'], affected: result.rowCount ?? 0 };
  } catch (error) {
    throw new PostgresFailure(error);
  }
}

/** As against Node's codes, of which `EPIPE` has five letters too. */
const SQLSTATE = /^[0-9FHPX][0-9A-Z]{4}$/;

/** Serialisation failure and deadlock: the same transaction can succeed when it runs again. */
const AGAIN = new Set(['40001', '40P01']);

/** Thrown inside `transaction`'s caller when the transaction should run again. */
export class RunAgain extends Error {
  override readonly name = 'RunAgain';
}

/**
 * One transaction on a connection of the pool. A connection on which anything unexpected happened is closed and not used
 * again. Throws RunAgain when PostgreSQL refused the transaction for what ran beside it, whatever `run` made of that.
 *
 * @param timeoutMs how long this side waits for one statement, when not as long as for others
 */
export async function transaction<T>(
  pool: pg.Pool,
  begin: string,
  run: (execute: Execute) => Promise<T>,
  timeoutMs?: number,
): Promise<T> {
  const client = await pool.connect().catch((error: unknown) => {
    throw new PostgresFailure(error);
  });
  const patience = timeoutMs === undefined ? undefined : { query_timeout: timeoutMs };
  let broken = false;
  let again = false;
  let ended = false;
  let last: Promise<unknown> = Promise.resolve();
  const note = (error: unknown) => {
    if (!(error instanceof PostgresFailure)) return;
    if (AGAIN.has(error.code)) again = true;
    else if (!SQLSTATE.test(error.code)) broken = true;
  };
  // A client runs one statement at a time; those that a caller starts together wait here.
  const execute: Execute = (text, parameters) => {
    if (ended) return Promise.reject(new Error('the transaction has ended'));
    const result = last.then(() => send(client, { text, values: parameters as unknown[], ...patience }));
    last = result.catch(note);
    return result;
  };
  try {
    await send(client, { text: begin });
    const result = await run(execute);
    ended = true;
    await last;
    await send(client, { text: 'COMMIT' });
    return result;
  } catch (error) {
    ended = true;
    note(error);
    await last;
    if (!broken) {
      await send(client, { text: 'ROLLBACK' }).catch(() => {
        broken = true;
      });
    }
    throw again ? new RunAgain('serialisation failure', { cause: error }) : error;
  } finally {
    client.release(broken);
  }
}

/**
 * One reading statement in a separate transaction, all in one round trip. Only for reading: when `begin` fails, the
 * statement has already been sent.
 */
export async function alone(pool: pg.Pool, begin: string, statement: pg.QueryConfig): Promise<Result> {
  const client = await pool.connect().catch((error: unknown) => {
    throw new PostgresFailure(error);
  });
  const outcomes = await Promise.allSettled([
    send(client, { text: begin }),
    send(client, statement),
    send(client, { text: 'COMMIT' }),
  ]);
  const failed = outcomes.find((outcome) => outcome.status === 'rejected');
  // The state of a connection after a failure is not worth finding out.
  client.release(failed !== undefined);
  if (failed) throw failed.reason;
  return (outcomes[1] as PromiseFulfilledResult<Result>).value;
}

/** Classes of SQLSTATE that say: not now. Connection, resources, operator intervention, system error. */
const LOST = new Set(['08', '53', '57', '58']);
const LOST_CODES = new Set(['25P03', '55P03', '25006', ...AGAIN]);

/** @param columnsOf columns of a unique index */
export function classifyPostgres(error: unknown, columnsOf: (index: string) => readonly string[] = () => []): Failure {
  if (error instanceof RunAgain) return { kind: 'unavailable' };
  if (!(error instanceof PostgresFailure)) return { kind: 'other' };
  const { code, constraint } = error;
  if (code === '23505') return { kind: 'unique', columns: columnsOf(constraint) };
  if (code === '23503' || code === '23001') return { kind: 'foreign_key', columns: [] };
  // Errors without a SQLSTATE come from the connection, not from the server.
  if (!SQLSTATE.test(code) || LOST.has(code.slice(0, 2)) || LOST_CODES.has(code)) return { kind: 'unavailable' };
  return { kind: 'other' };
}

/** What the operator can do about a PostgreSQL that cannot be used, by the class of its SQLSTATE or by the whole of it. */
const ADVICE: Readonly<Record<string, string>> = {
  '28': 'Correct user and password in SLUICE_DATABASE_URL.',
  '3D': 'Create the database, or name another one in SLUICE_DATABASE_URL.',
  '42': 'Give its user the rights that docs/guides/operations.md lists, or name another one in SLUICE_DATABASE_URL.',
};

/** The error of a start or a command whose PostgreSQL cannot be used: where it is, the cause and what to do, in one line. */
export function unusablePostgres(url: string, failure: PostgresFailure): SluiceError {
  const { code, message } = failure;
  const advice = SQLSTATE.test(code)
    ? (ADVICE[code.slice(0, 2)] ?? 'Mend that, or name another one in SLUICE_DATABASE_URL.')
    : 'Start it, or correct SLUICE_DATABASE_URL.';
  return new SluiceError(
    'unavailable',
    `The PostgreSQL at ${placeOf(url)} cannot be used: ${message.replace(/\s+/g, ' ').replace(/\.$/, '')}. ${advice}`,
    { cause: failure },
  );
}

/** Host, port and database for messages; never the password. */
export function placeOf(url: string): string {
  try {
    const { hostname, port, pathname, searchParams } = new URL(url);
    return `${hostname || searchParams.get('host') || 'localhost'}:${port || 5432}${pathname}`;
  } catch {
    return 'the given URL';
  }
}
