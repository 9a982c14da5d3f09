/** The console's calls to its own server. Same origin, cookie sign-in, the session's CSRF token on every write. */
import type { ConsoleAcceptance, ConsoleInvite, ConsoleRecord, ConsoleSession, Operations } from '../../types/api.ts';

export type {
  ConsoleAcceptance as Acceptance,
  ConsoleInvite as Invite,
  ConsoleRecord as RequestRecord,
  ConsoleSession as Session,
} from '../../types/api.ts';

export interface ChatRequest {
  model: string;
  messages: readonly unknown[];
  stream: true;
  stream_options: { include_usage: true };
  /** Further parameters, as the caller has written them. */
  [parameter: string]: unknown;
}

/** What the server says of a refusal beside its message. */
export interface Refusal {
  /** Code of the API: `AB03`. */
  readonly code?: string;
  /** Dotted path of the field at fault. */
  readonly param?: string | null;
  /** All problems, where there are several. */
  readonly problems?: readonly { readonly param: string | null; readonly message: string }[];
  readonly requestId?: string | null;
  /** Seconds. */
  readonly retryAfter?: number | null;
}

/** An answer that is not a success, or none at all (`status` 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly refusal: Refusal;
  constructor(status: number, message: string, refusal: Refusal = {}) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.refusal = refusal;
  }
}

/** An alert of a usage-limits policy. */
export type LimitAlert = Operations['GET /v1/policies/usage-limits/{id}/alerts']['answer']['data'][number] & {
  /** Name of the policy; its id where it has none. */
  policy: string;
};

/** `GET /v1/api-keys`: a call of the API, which the published document describes. */
export type Operation = keyof Operations;

interface Init {
  /** Of the session; writes need it. */
  readonly csrf?: string;
  readonly signal?: AbortSignal;
  /** Gateway headers: workspace and provider of calls on the data plane. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Calls an operation. Answers whatever the server answers; throws where it does not. */
async function call<K extends Operation>(operation: K, input: Operations[K]['input'], init: Init = {}) {
  const { path = {}, query = {}, body } = input as Input;
  const [method = '', template = ''] = operation.split(' ');
  const search = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
  const url = template.replace(/\{(\w+)\}/g, (_match, name: string) => encodeURIComponent(path[name] ?? ''));
  const headers: Record<string, string> = { ...init.headers };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (init.csrf !== undefined) headers['x-csrf-token'] = init.csrf;
  try {
    return await fetch(search.size === 0 ? url : `${url}?${search}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
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

/** What every input is one of. */
interface Input {
  readonly path?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  readonly body?: unknown;
}

/** The body of a success, as the OpenAPI document of the same build describes it; throws `ApiError` for another status. */
export async function answer<K extends Operation>(
  operation: K,
  input: Operations[K]['input'],
  init?: Init,
): Promise<Operations[K]['answer']> {
  return read<K>(await call(operation, input, init));
}

async function read<K extends Operation>(response: Response): Promise<Operations[K]['answer']> {
  if (response.ok) return response.status === 204 ? undefined : await response.json();
  throw refused(response.status, await response.text(), (name) => response.headers.get(name));
}

/** The error of an answer that is not a success. */
export function refused(status: number, text: string, header: (name: string) => string | null): ApiError {
  const seconds = Number(header('retry-after') ?? Number.NaN);
  return new ApiError(status, describeError(text).message ?? `HTTP ${status}`, {
    ...refusalOf(text),
    requestId: header('x-gateway-request-id'),
    retryAfter: Number.isFinite(seconds) ? seconds : null,
  });
}

function refusalOf(text: string): Refusal {
  try {
    const { error, errors } = JSON.parse(text) as { error?: Refusal; errors?: Refusal['problems'] };
    return { code: error?.code, param: error?.param, problems: errors };
  } catch {
    return {};
  }
}

/** The stream of an operation that answers with server-sent events; throws as `answer` does. */
export async function stream<K extends Operation>(operation: K, input: Operations[K]['input'], init?: Init) {
  const response = await call(operation, input, init);
  if (!response.ok || response.body === null) await read(response);
  return response.body;
}

/** Who is signed in, or null. */
export async function getSession(): Promise<ConsoleSession | null> {
  const response = await call('GET /console/api/session', {});
  return response.status === 401 ? null : read<'GET /console/api/session'>(response);
}

/** What the sign-in page offers beside links that somebody hands over. */
export async function waysToSignIn(): Promise<{ mailedLinks: boolean; passkeys: boolean }> {
  const { mailed_links: mailedLinks, passkeys } = await answer('GET /console/api/sign-in', {});
  return { mailedLinks, passkeys };
}

/** What is an object of JSON, as the types of operations have those. */
const asJson = ({
  response,
  clientExtensionResults,
}: {
  response: { clientDataJSON: string };
  clientExtensionResults: object;
}) => ({
  response: { ...response },
  clientExtensionResults: { ...clientExtensionResults },
});

/** A passkey of the signed-in user. */
export type Passkey = Operations['GET /v2/auth/passkeys']['answer']['data'][number];

export async function listPasskeys(): Promise<Passkey[]> {
  return (await answer('GET /v2/auth/passkeys', {})).data;
}

/** Has the browser make a passkey. Throws what the browser throws where its user does not want one. */
export async function addPasskey(session: ConsoleSession, name: string): Promise<void> {
  const init = { csrf: session.csrf_token };
  const { options } = await answer('POST /v2/auth/passkeys/options', { body: {} }, init);
  const { startRegistration } = await import('@simplewebauthn/browser');
  const optionsJSON = options as unknown as Parameters<typeof startRegistration>[0]['optionsJSON'];
  const response = await startRegistration({ optionsJSON });
  await answer('POST /v2/auth/passkeys', { body: { name, response: { ...response, ...asJson(response) } } }, init);
}

export async function deletePasskey(session: ConsoleSession, id: string): Promise<void> {
  await answer('DELETE /v2/auth/passkeys', { query: { id } }, { csrf: session.csrf_token });
}

export type Approval = Operations['GET /v1/oauth/approvals']['answer']['data'][number];

/** The programs that the user has let in. */
export async function listApprovals(): Promise<Approval[]> {
  return (await answer('GET /v1/oauth/approvals', {})).data;
}

export async function endApproval(session: ConsoleSession, id: string): Promise<void> {
  await answer('DELETE /v1/oauth/approvals/{approvalId}', { path: { approvalId: id } }, { csrf: session.csrf_token });
}

/** Signs in with a passkey of this browser. */
export async function signInWithPasskey(): Promise<ConsoleSession> {
  const { options } = await answer('POST /v2/auth/passkey-login/options', { body: {} });
  const { startAuthentication } = await import('@simplewebauthn/browser');
  const optionsJSON = options as unknown as Parameters<typeof startAuthentication>[0]['optionsJSON'];
  const response = await startAuthentication({ optionsJSON });
  await answer('POST /v2/auth/passkey-login', { body: { response: { ...response, ...asJson(response) } } });
  return answer('GET /console/api/session', {});
}

/**
 * The address at the identity provider of this e-mail address to go to; null where a link was mailed instead. Throws
 * `ApiError` where there is neither.
 */
export async function beginAtProvider(email: string): Promise<string | null> {
  const begun = await answer('POST /v2/auth/login', { body: { email } });
  return 'url' in begun ? String(begun.url) : null;
}

/** Asks for a sign-in link by mail. The answer is the same whether or not a user has the address. */
export async function mailLink(email: string): Promise<void> {
  await answer('POST /console/api/sign-in-link', { body: { email } });
}

export async function signIn(token: string): Promise<ConsoleSession> {
  return answer('POST /console/api/session', { body: { token } });
}

export async function signOut(session: ConsoleSession): Promise<void> {
  const response = await call('DELETE /console/api/session', {}, { csrf: session.csrf_token });
  // 401: the session had ended already, which is what was asked for.
  if (response.status !== 401) await read(response);
}

/** Confirms the new address of the signed-in user and answers it. */
export async function confirmAddress(session: ConsoleSession, token: string): Promise<string> {
  return (await answer('POST /console/api/email', { body: { token } }, { csrf: session.csrf_token })).email;
}

/** Asks for another address of the signed-in user: Sluice mails a link to it. */
export async function askForAddress(session: ConsoleSession, email: string): Promise<void> {
  const path = { userId: session.user.id };
  await answer('PUT /v1/admin/users/{userId}', { path, body: { email } }, { csrf: session.csrf_token });
}

/** The newest alerts of the usage limits of a workspace: up to 20 of each of its first 100 policies. */
export async function listAlerts(workspaceId: string): Promise<LimitAlert[]> {
  const query = { workspace_id: workspaceId };
  const policies = await answer('GET /v1/policies/usage-limits', { query: { ...query, page_size: 100 } });
  const alerts: LimitAlert[] = [];
  for (const { id, name } of policies.data) {
    const page = await answer('GET /v1/policies/usage-limits/{id}/alerts', {
      path: { id },
      query: { ...query, page_size: 20 },
    });
    alerts.push(...page.data.map((alert) => ({ ...alert, policy: name ?? id })));
  }
  return alerts.sort((a, b) => b.created_at.localeCompare(a.created_at));
}

/** What the invite of this link offers; throws when it is unknown, used, cancelled or expired. */
export async function getInvite(token: string): Promise<ConsoleInvite> {
  return answer('POST /console/api/invite', { body: { token } });
}

/** Accepts the invite: the browser is signed in afterwards. */
export async function acceptInvite(token: string, firstName: string, lastName: string): Promise<ConsoleAcceptance> {
  const body = { token, first_name: firstName, last_name: lastName };
  return answer('POST /console/api/invite/acceptance', { body });
}

/** Sends a chat completion through the data plane as the signed-in user. The answer is whatever the data plane said. */
export function tryRequest(
  session: ConsoleSession,
  workspaceId: string,
  request: ChatRequest,
  signal: AbortSignal,
): Promise<Response> {
  const body = { workspace_id: workspaceId, request: { ...request } };
  return call('POST /console/api/try', { body }, { csrf: session.csrf_token, signal });
}

/** The stored record of a request, or null while it is on its way to the store. */
export async function getRecord(traceId: string, signal: AbortSignal): Promise<ConsoleRecord | null> {
  return (await answer('GET /console/api/records/{traceId}', { path: { traceId } }, { signal })).record;
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
