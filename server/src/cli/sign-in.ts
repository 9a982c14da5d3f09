/** `login`, `whoami` and `logout`: a user of a Sluice server, wherever it runs, on the command line. */
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { userConfigFolder } from '../config.ts';
import { readText } from '../http/background-fetcher.ts';
import { operatorHttp } from '../http/operator-http.ts';
import { type Clock, holdFor, systemClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import type { Output } from './output.ts';
import { wordsOf } from './words.ts';

/** Where the commands keep their tokens, and their time: tests give others. */
export interface SignInParts {
  readonly folder: string;
  readonly clock: Clock;
}

interface Credentials {
  readonly server: string;
  readonly auth_token: string;
  readonly refresh_token: string;
}

const LOCAL = 'http://127.0.0.1:8787';
const GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
const CLIENT = 'sluice-cli';
const MOST_BYTES = 1_048_576;
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '[::1]', 'localhost']);

const usual = (): SignInParts => ({ folder: userConfigFolder(), clock: systemClock });
const fileIn = (folder: string): string => join(folder, 'credentials.json');

/** `login [--server URL]`: shows a code, waits until the user has compared it in a browser, and keeps the tokens. */
export async function login(args: readonly string[], output: Output, parts = usual()): Promise<void> {
  const { plain, own, settings } = wordsOf(args, ['server']);
  if (plain.length + settings.length > 0)
    throw new SluiceError('validation', 'usage: npm run sluice -- login [--server URL]');
  const server = serverOf(own.server ?? (await readCredentials(parts.folder))?.server ?? LOCAL);
  const begun = await ask(server, 'POST', '/v2/oauth/device_authorization', { client_id: CLIENT });
  if (begun.status !== 200) throw refused(server, begun);
  const { device_code, user_code, verification_uri_complete, interval } = begun.body;
  output.out(
    `Open this page and compare the code:\n\n  ${text(verification_uri_complete)}\n  ${text(user_code)}\n\nWaiting…\n`,
  );
  const tokens = await waitFor(server, text(device_code), Number(interval) || 5, parts.clock);
  const kept = { server, auth_token: text(tokens.access_token), refresh_token: text(tokens.refresh_token) };
  await writeCredentials(parts.folder, kept);
  output.out(await describe(parts.folder, kept));
}

/** `whoami`: who is signed in, and where. */
export async function whoami(args: readonly string[], output: Output, parts = usual()): Promise<void> {
  output.out(await describe(parts.folder, await signedIn(args, parts.folder, 'whoami')));
}

/** `logout`: ends the session on the server and forgets its tokens. */
export async function logout(args: readonly string[], output: Output, parts = usual()): Promise<void> {
  const credentials = await signedIn(args, parts.folder, 'logout');
  const { server } = credentials;
  // The tokens are forgotten whatever the server says; a session that it could not end lives for 12 hours at most.
  const ended = await authorised(parts.folder, credentials, 'POST', '/v2/auth/logout', {}).catch(() => null);
  await rm(fileIn(parts.folder), { force: true });
  if (ended === null || (ended.status !== 200 && ended.status !== 401))
    output.err(
      `warning: ${server} did not end the session. It ends by itself, 12 hours after its sign-in at the latest.\n`,
    );
  output.out(`Signed out of ${server}.\n`);
}

async function signedIn(args: readonly string[], folder: string, command: string): Promise<Credentials> {
  if (args.length > 0) throw new SluiceError('validation', `usage: npm run sluice -- ${command}`);
  const credentials = await readCredentials(folder);
  if (credentials === null)
    throw new SluiceError('unauthenticated', 'You are not signed in. Run: npm run sluice -- login');
  return credentials;
}

async function describe(folder: string, credentials: Credentials): Promise<string> {
  const { server } = credentials;
  const { status, body } = await authorised(folder, credentials, 'GET', '/v1/auth/self');
  if (status === 401)
    throw new SluiceError('unauthenticated', `Your sign-in at ${server} has ended. Run: npm run sluice -- login`);
  if (status !== 200) throw refused(server, { status, body });
  const user = isObject(body.user) ? text(body.user.email) : '';
  const organisation = isObject(body.organisation) ? text(body.organisation.name) : '';
  const names = Array.isArray(body.workspaces)
    ? body.workspaces.map((one) => (isObject(one) ? text(one.name) : ''))
    : [];
  return `Signed in at ${server} as ${user} of ${organisation}.\nWorkspaces: ${names.join(', ') || 'none'}\n`;
}

/** Calls with the auth token, and once more with the next one where it has ended. */
async function authorised(
  folder: string,
  { server, auth_token, refresh_token }: Credentials,
  method: 'GET' | 'POST',
  path: string,
  body?: object,
): Promise<Answer> {
  const first = await ask(server, method, path, body, auth_token);
  if (first.status !== 401) return first;
  const renewed = await ask(server, 'POST', '/v2/auth/refresh', { refresh_token });
  if (renewed.status !== 200) return first;
  const next = { server, auth_token: text(renewed.body.auth_token), refresh_token: text(renewed.body.refresh_token) };
  await writeCredentials(folder, next);
  return ask(server, method, path, body, next.auth_token);
}

async function waitFor(server: string, device_code: string, seconds: number, clock: Clock): Promise<JsonObject> {
  let interval = seconds;
  for (;;) {
    await new Promise<void>((resolve) => holdFor(clock, interval * 1000, resolve));
    const answer = await ask(server, 'POST', '/v2/oauth/token', { grant_type: GRANT, client_id: CLIENT, device_code });
    if (answer.status === 200) return answer.body;
    if (answer.body.error === 'slow_down') interval += 5;
    else if (answer.body.error === 'expired_token')
      throw new SluiceError('timeout', 'The code has expired. Run login again.');
    else if (answer.body.error === 'access_denied')
      throw new SluiceError('forbidden', 'The sign-in was refused in the browser.');
    else if (answer.body.error !== 'authorization_pending' && answer.status !== 429) throw refused(server, answer);
  }
}

interface Answer {
  readonly status: number;
  readonly body: JsonObject;
}

async function ask(
  server: string,
  method: 'GET' | 'POST',
  path: string,
  body?: object,
  token?: string,
): Promise<Answer> {
  const http = operatorHttp();
  try {
    const answer = await http.send({
      method,
      url: new URL(`${server}${path}`),
      headers: {
        'user-agent': CLIENT,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      body: body === undefined ? null : Buffer.from(JSON.stringify(body)),
    });
    const read = await readText(answer.body, MOST_BYTES);
    const value = read.text === '' ? {} : parseJson(read.text);
    return { status: answer.status, body: isObject(value) ? value : {} };
  } catch (error) {
    const why = error instanceof SyntaxError ? 'does not answer as a Sluice does' : 'cannot be reached';
    throw new SluiceError('unavailable', `${server} ${why}. Check the address: --server URL.`, { cause: error });
  } finally {
    await http.close();
  }
}

/** Tokens go to this address: in clear to this machine only. */
function serverOf(address: string): string {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (url !== null && url.pathname === '/' && url.search === '' && url.username === '') {
    if (url.protocol === 'https:' || (url.protocol === 'http:' && LOOPBACK.has(url.hostname))) return url.origin;
  }
  throw new SluiceError(
    'validation',
    '--server needs an https address without path, such as https://sluice.example.com.',
  );
}

async function readCredentials(folder: string): Promise<Credentials | null> {
  try {
    const value = parseJson(await readFile(fileIn(folder), 'utf8'));
    if (!isObject(value)) return null;
    return {
      server: serverOf(text(value.server)),
      auth_token: text(value.auth_token),
      refresh_token: text(value.refresh_token),
    };
  } catch {
    return null;
  }
}

/** Only its owner reads the file. It is whole or the one of before. */
async function writeCredentials(folder: string, credentials: Credentials): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const next = `${fileIn(folder)}.${process.pid}`;
  await writeFile(next, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600, flag: 'wx' });
  await rename(next, fileIn(folder));
}

function refused(server: string, { status, body }: Answer): SluiceError {
  const said = isObject(body.error) ? text(body.error.message) : text(body.error_description);
  return new SluiceError(
    'invalid_request',
    `${server} refused with ${status}${said === '' ? '' : `: ${printable(said)}`}`,
  );
}

/** What a server says is shown without what a terminal takes for commands. */
const printable = (value: string): string => value.replace(/\p{C}/gu, ' ').slice(0, 500);
const text = (value: unknown): string => (typeof value === 'string' ? printable(value) : '');
