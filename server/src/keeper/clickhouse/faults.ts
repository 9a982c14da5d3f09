/** Why ClickHouse does not serve, as one line that says what to do. No line has the password. */

/** The oldest version whose statements and checks of batches are what is sent here. */
const OLDEST = [24, 8] as const;

/** Where a server is, as lines name it. */
export interface Place {
  /** `logs.example:8443` */
  readonly host: string;
  readonly database: string;
  readonly user: string;
}

/** Of the server's own number of an error. */
const BY_CODE: Readonly<Record<string, (place: Place) => string>> = {
  '81': ({ database }) =>
    `It has no database ${JSON.stringify(database)}: create it there, or correct SLUICE_LOGS_URL.`,
  '192': refusedUser,
  '193': refusedUser,
  '194': refusedUser,
  '516': refusedUser,
  '497': ({ database, user }) =>
    `The user ${JSON.stringify(user)} lacks rights: it needs SELECT, INSERT, CREATE TABLE, ALTER and SHOW on ${database}.*, and SELECT on system.parts.`,
  '164': ({ user }) => `The user ${JSON.stringify(user)} may only read: give it another settings profile.`,
};

function refusedUser({ user }: Place): string {
  return `It refused the user ${JSON.stringify(user)} or its password: correct SLUICE_LOGS_URL.`;
}

/** Whether a server of this version will do; null: it will. */
export function tooOld(version: string): string | null {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [least, leastMinor] = OLDEST;
  if (major > least || (major === least && minor >= leastMinor)) return null;
  return `Its version ${version.slice(0, 20)} is too old: upgrade it to ${OLDEST.join('.')} or later.`;
}

const MOST_LETTERS = 200;

/** What the server or the way to it says. */
export function reasonOf(error: unknown, place: Place): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  const known = typeof code === 'string' ? BY_CODE[code] : undefined;
  if (known !== undefined) return known(place);
  if (isAnswer(error)) {
    const said = String(message).replace(/\s+/g, ' ').slice(0, MOST_LETTERS);
    return `It refused a statement (${code}): ${said}`;
  }
  if (typeof code === 'string' && /CERT|SELF_SIGNED|ISSUER|SSL|EPROTO/.test(code)) {
    return `Its certificate is not trusted (${code}): set NODE_EXTRA_CA_CERTS, or write clickhouse:// for a server without TLS.`;
  }
  const why = typeof code === 'string' ? code : 'no answer in time';
  return `It cannot be reached (${why.slice(0, 60)}): check that it runs and that SLUICE_LOGS_URL is right.`;
}

/** Too slow, too much memory, too many at once. */
const BUSY = new Set(['159', '160', '202', '241', '394']);

/** `busy`: this statement, now. `refused`: this statement, always. `away`: every statement. */
export function faultOf(error: unknown): 'busy' | 'refused' | 'away' {
  if (!isAnswer(error)) return 'away';
  const code = String((error as { code?: unknown }).code);
  if (BUSY.has(code)) return 'busy';
  return Object.hasOwn(BY_CODE, code) ? 'away' : 'refused';
}

/** Whether the server itself answered with an error: its errors have numbers. */
function isAnswer(error: unknown): boolean {
  return error instanceof Error && 'code' in error && /^\d+$/.test(String(error.code));
}
