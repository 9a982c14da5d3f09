/** A whole server whose users sign in through providers on loopback, and the browsers that they use. */
import { startServer, type TestServer } from './server.ts';

export interface SsoWorld extends TestServer {
  /** Registers a client at a provider; answers its id. */
  client(body: Record<string, unknown>): Promise<string>;
  change(id: string, body: Record<string, unknown>): Promise<void>;
  browser(address?: string): Browser;
  /** Rows of the audit log about sign-ins, newest first, as they are stored. */
  audited(): Promise<{ type: string; userId: string | null; status: number; after: Record<string, unknown> }[]>;
  user(email: string): Promise<Record<string, unknown> | undefined>;
}

export interface Answer {
  readonly status: number;
  readonly location: string | null;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  readonly body: any;
}

/** A browser: it keeps its cookies and follows no redirect by itself. */
export interface Browser {
  readonly cookies: Map<string, string>;
  send(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** Begins a sign-in; answers the address at the provider. */
  login(body?: Record<string, unknown>): Promise<string>;
  /** Opens an address of this Sluice, as a provider sends it there. */
  open(url: string): Promise<Answer>;
  /** The user who is signed in; null for none. */
  self(): Promise<Record<string, unknown> | null>;
}

export const EMAIL = 'ada@acme.example';
let addresses = 0;

/** Trusts everything on loopback. The domain of `EMAIL` is the organisation's. */
export async function startSsoWorld(env: Record<string, string> = {}): Promise<SsoWorld> {
  const server = await startServer({
    SLUICE_TRUSTED_HOSTS: '127.0.0.1',
    SLUICE_TRUSTED_PROXIES: '127.0.0.1',
    ...env,
  });
  await save(server, 'PUT', '/admin/organisation/settings', {
    auth_settings: { allowed_domains: [{ domain: 'acme.example', allow_subdomains: true }] },
  });
  return { ...server, ...worldOf(server) };
}

async function save(server: TestServer, method: string, path: string, body: unknown) {
  const answer = await server.admin(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}

/** What else can be asked of a server. */
export function worldOf(server: TestServer): Omit<SsoWorld, keyof TestServer> {
  return {
    client: async (body) => {
      const given = { name: 'Provider', client_secret: 'secret', ...body };
      return String((await save(server, 'POST', '/admin/organisation/sso-clients', given)).id);
    },
    change: async (id, body) => void (await save(server, 'PUT', `/admin/organisation/sso-clients/${id}`, body)),
    browser: (address) => browserOf(server.url, address),
    audited: async () => {
      const range = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z&page_size=100';
      const { body } = await server.admin('GET', `/audit-logs?${range}`);
      const rows = body.records as Record<string, unknown>[];
      return rows
        .filter(({ resource_type: type }) => String(type).startsWith('auth.'))
        .map((row) => ({
          type: String(row.resource_type),
          userId: row.user_id as string | null,
          status: Number(row.response_status_code),
          after: (typeof row.after === 'string' ? JSON.parse(row.after) : (row.after ?? {})) as Record<string, unknown>,
        }));
    },
    user: async (email) => {
      const { body } = await server.admin('GET', `/admin/users?email=${encodeURIComponent(email)}`);
      return (body.data as Record<string, unknown>[])[0];
    },
  };
}

/** @param address of the client, as a trusted proxy tells it: failures of one address are throttled */
export function browserOf(url: string, address = `10.1.${addresses >> 8}.${addresses++ & 255}`): Browser {
  const cookies = new Map<string, string>();
  const send: Browser['send'] = async (method, path, body, headers = {}) => {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await fetch(path.startsWith('http') ? path : `${url}${path}`, {
      method,
      redirect: 'manual',
      headers: {
        'x-forwarded-for': address,
        ...(cookie === '' ? {} : { cookie }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    for (const text of answer.headers.getSetCookie()) {
      const [pair = ''] = text.split(';', 1);
      const at = pair.indexOf('=');
      if (/max-age=0/i.test(text)) cookies.delete(pair.slice(0, at));
      else cookies.set(pair.slice(0, at), pair.slice(at + 1));
    }
    const text = await answer.text();
    const json = answer.headers.get('content-type')?.includes('json') === true;
    const location = answer.headers.get('location');
    return {
      status: answer.status,
      location,
      headers: answer.headers,
      body: json && text !== '' ? JSON.parse(text) : text,
    };
  };
  return {
    cookies,
    send,
    login: async (body = { email: EMAIL }) => {
      const answer = await send('POST', '/v2/auth/login', body);
      if (answer.status !== 200) throw new Error(`login: ${answer.status} ${JSON.stringify(answer.body)}`);
      return String(answer.body.url);
    },
    open: (address) => send('GET', address),
    self: async () => {
      const answer = await send('GET', '/v1/auth/self');
      return answer.status === 200 ? answer.body.user : null;
    },
  };
}
