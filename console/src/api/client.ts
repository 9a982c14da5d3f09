/** The console's calls to its own server. Same origin, cookie sign-in, the session's CSRF token on every write. */

export interface Session {
  user: { id: string; email: string; first_name: string; last_name: string; role: string };
  organisation: { id: string; name: string };
  workspaces: { id: string; slug: string; name: string }[];
  base_url: string;
  csrf_token: string;
  expires_at: string;
}

/** What an invite offers. Times are ISO 8601. */
export interface Invite {
  organisation: { name: string };
  email: string;
  role: string;
  workspaces: { slug: string; name: string; role: string }[];
  expires_at: string;
}

/** A key is whole in this answer and never again. */
export interface Acceptance {
  session: Session;
  api_keys: { id: string; key: string; workspace: { id: string; slug: string; name: string } }[];
}

/** What the gateway stored about a request. Money in micro-dollars, durations in milliseconds. */
export interface RequestRecord {
  id: string;
  trace_id: string;
  status: number;
  outcome: string;
  provider: string | null;
  model_answered: string | null;
  cost_micros: number | null;
  latency_ms: number;
  ttft_ms: number | null;
  attempts: number;
}

export interface ChatRequest {
  model: string;
  messages: { role: 'user' | 'system'; content: string }[];
  stream: true;
  stream_options: { include_usage: true };
}

/** An answer that is not a success, or none at all (`status` 0). */
export class ApiError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
  }
}

/** What the alerts of a usage-limits policy say. Times are ISO 8601. */
export interface LimitAlert {
  id: string;
  alert: 'threshold' | 'exhausted' | 'unpriced';
  value_key: string | null;
  recipient: string | null;
  status: 'waiting' | 'delivered' | 'failed' | 'no_recipients';
  created_at: string;
  /** Name of the policy; its id where it has none. */
  policy: string;
}

/** `path` is below `/console/api/`, or begins with a slash. */
async function call(method: string, path: string, init: { body?: unknown; csrf?: string; signal?: AbortSignal } = {}) {
  const headers: Record<string, string> = {};
  if (init.body !== undefined) headers['content-type'] = 'application/json';
  if (init.csrf !== undefined) headers['x-csrf-token'] = init.csrf;
  try {
    return await fetch(path.startsWith('/') ? path : `/console/api/${path}`, {
      method,
      headers,
      body: init.body === undefined ? undefined : JSON.stringify(init.body),
      signal: init.signal,
      credentials: 'same-origin',
      redirect: 'error',
      cache: 'no-store',
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'Sluice does not answer. Is it still running?');
  }
}

async function json<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  throw new ApiError(response.status, describeError(await response.text()).message ?? `HTTP ${response.status}`);
}

/** Who is signed in, or null. */
export async function getSession(): Promise<Session | null> {
  const response = await call('GET', 'session');
  return response.status === 401 ? null : json<Session>(response);
}

/** Whether the sign-in page can mail links. */
export async function mailsLinks(): Promise<boolean> {
  return (await json<{ mailed_links: boolean }>(await call('GET', 'sign-in'))).mailed_links;
}

/** Asks for a sign-in link by mail. The answer is the same whether or not a user has the address. */
export async function mailLink(email: string): Promise<void> {
  await json(await call('POST', 'sign-in-link', { body: { email } }));
}

export async function signIn(token: string): Promise<Session> {
  return json<Session>(await call('POST', 'session', { body: { token } }));
}

export async function signOut(session: Session): Promise<void> {
  const response = await call('DELETE', 'session', { csrf: session.csrf_token });
  // 401: the session had ended already, which is what was asked for.
  if (!response.ok && response.status !== 401) await json(response);
}

/** Confirms the new address of the signed-in user and answers it. */
export async function confirmAddress(session: Session, token: string): Promise<string> {
  const response = await call('POST', 'email', { body: { token }, csrf: session.csrf_token });
  return (await json<{ email: string }>(response)).email;
}

/** Asks for another address of the signed-in user: Sluice mails a link to it. */
export async function askForAddress(session: Session, email: string): Promise<void> {
  const path = `/v1/admin/users/${session.user.id}`;
  await json(await call('PUT', path, { body: { email }, csrf: session.csrf_token }));
}

/** The newest alerts of the usage limits of a workspace: up to 20 of each of its first 100 policies. */
export async function listAlerts(workspaceId: string): Promise<LimitAlert[]> {
  const path = '/v1/policies/usage-limits';
  const where = `workspace_id=${workspaceId}`;
  const policies = await json<{ data: { id: string; name: string | null }[] }>(
    await call('GET', `${path}?${where}&page_size=100`),
  );
  const alerts: LimitAlert[] = [];
  for (const { id, name } of policies.data) {
    const page = await json<{ data: Omit<LimitAlert, 'policy'>[] }>(
      await call('GET', `${path}/${id}/alerts?${where}&page_size=20`),
    );
    alerts.push(...page.data.map((alert) => ({ ...alert, policy: name ?? id })));
  }
  return alerts.sort((a, b) => b.created_at.localeCompare(a.created_at));
}

/** What the invite of this link offers; throws when it is unknown, used, cancelled or expired. */
export async function getInvite(token: string): Promise<Invite> {
  return json<Invite>(await call('POST', 'invite', { body: { token } }));
}

/** Accepts the invite: the browser is signed in afterwards. */
export async function acceptInvite(token: string, firstName: string, lastName: string): Promise<Acceptance> {
  const body = { token, first_name: firstName, last_name: lastName };
  return json<Acceptance>(await call('POST', 'invite/acceptance', { body }));
}

/** Sends a chat completion through the data plane as the signed-in user. The answer is whatever the data plane said. */
export function tryRequest(
  session: Session,
  workspaceId: string,
  request: ChatRequest,
  signal: AbortSignal,
): Promise<Response> {
  return call('POST', 'try', { body: { workspace_id: workspaceId, request }, csrf: session.csrf_token, signal });
}

/** The stored record of a request, or null while it is on its way to the store. */
export async function getRecord(traceId: string, signal: AbortSignal): Promise<RequestRecord | null> {
  const response = await call('GET', `records/${encodeURIComponent(traceId)}`, { signal });
  return (await json<{ record: RequestRecord | null }>(response)).record;
}

/** Message, type and code from any of the gateway's error bodies; empty when the text is none of them. */
export function describeError(text: string): { message?: string; type?: string; code?: string } {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return {};
  }
  const outer = object(body);
  const inner = object(outer.error);
  const pick = (key: string) => {
    const value = inner[key] ?? outer[key];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  return { message: pick('message'), type: pick('type'), code: pick('code') };
}

function object(value: unknown): { error?: unknown; [key: string]: unknown } {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}
