/** A server with a directory's token, and the directory's requests. */
import { migratedDatabase } from '../support/postgres.ts';
import { startServer, type TestServer } from '../support/server.ts';

export interface Told {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  readonly body: any;
  readonly text: string;
}

export interface Sending {
  readonly token?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as it is. */
  readonly raw?: string;
  /** Path of the base; that of the organisation when absent. */
  readonly base?: string;
}

export interface Directory {
  readonly server: TestServer;
  readonly organisationId: string;
  readonly token: string;
  /** Path of the base. */
  readonly base: string;
  send(method: string, path: string, body?: unknown, sending?: Sending): Promise<Told>;
  /** A user that is made, and its id. */
  user(userName: string, more?: object): Promise<string>;
  group(displayName: string, members?: readonly string[]): Promise<string>;
}

export async function openDirectory(
  engine: 'sqlite' | 'postgres',
  env: Record<string, string> = {},
): Promise<Directory> {
  if (engine === 'postgres') env.SLUICE_DATABASE_URL = await migratedDatabase();
  return directoryOf(await startServer(env));
}

export async function directoryOf(server: TestServer): Promise<Directory> {
  const made = await server.admin('POST', '/scim/tokens', { name: 'directory' });
  if (made.status !== 200) throw new Error(`no SCIM token: ${JSON.stringify(made)}`);
  const token = String(made.body.token);
  const organisationId = server.first.organisation_id;
  const base = `/v1/scim/${organisationId}`;
  const send: Directory['send'] = async (method, path, body, sending = {}) => {
    const { token: own = token, headers = {}, raw, base: at = base } = sending;
    const sent = raw ?? (body === undefined ? undefined : JSON.stringify(body));
    const answer = await fetch(`${server.url}${at}${path}`, {
      method,
      headers: {
        ...(own === null ? {} : { authorization: `Bearer ${own}` }),
        ...(sent === undefined ? {} : { 'content-type': 'application/scim+json' }),
        ...headers,
      },
      ...(sent === undefined ? {} : { body: sent }),
    });
    const text = await answer.text();
    return { status: answer.status, headers: answer.headers, text, body: text === '' ? null : JSON.parse(text) };
  };
  const idOf = ({ status, body, text }: Told) => {
    if (status !== 201 && status !== 200) throw new Error(`not made: ${text}`);
    return String(body.id);
  };
  return {
    server,
    organisationId,
    token,
    base,
    send,
    user: async (userName, more = {}) =>
      idOf(await send('POST', '/Users', { schemas: [USER], userName, active: true, ...more })),
    group: async (displayName, members = []) =>
      idOf(
        await send('POST', '/Groups', { schemas: [GROUP], displayName, members: members.map((value) => ({ value })) }),
      ),
  };
}

export const USER = 'urn:ietf:params:scim:schemas:core:2.0:User';
export const GROUP = 'urn:ietf:params:scim:schemas:core:2.0:Group';
export const ENTERPRISE = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User';
const PATCH = 'urn:ietf:params:scim:api:messages:2.0:PatchOp';

/** The body of a PATCH. */
export const patch = (...Operations: object[]) => ({ schemas: [PATCH], Operations });
export const filterOf = (text: string) => `?filter=${encodeURIComponent(text)}`;
