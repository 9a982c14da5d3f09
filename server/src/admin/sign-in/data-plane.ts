/** Sign-ins on the data plane: whose they are, in which workspace the user works, and what a key beside a cookie means. */
import type { IncomingMessage } from 'node:http';
import type { ConsoleSessions } from '../../auth/console-session.ts';
import type { Principal } from '../../auth/principal.ts';
import { tenantOf } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { findWorkspace } from '../../resources/common.ts';
import type { Tables } from '../../store/ports.ts';
import { differentCallers, findSignIn, isSame } from '../sign-in.ts';

const HEADER = 'x-gateway-workspace';
const PARAMETER = 'workspace_id';

export interface DataPlaneSignIns {
  readonly tables: Pick<Tables, 'read'>;
  readonly sessions: Pick<ConsoleSessions, 'authenticate' | 'find' | 'findBearer' | 'cookies' | 'inWorkspace'>;
}

/** As `SignIns.find` of the gateway. */
export async function findUser(
  { tables, sessions }: DataPlaneSignIns,
  incoming: IncomingMessage,
  token: string | null,
): Promise<Principal | null> {
  const session = await findSignIn(sessions, token, requestOf(incoming));
  if (session === null) return null;
  const { principal } = session;
  const named = takeName(incoming);
  if (named === null) return sessions.inWorkspace(principal, await onlyWorkspace(tables, principal));
  const found = await tables.read(tenantOf(principal, null), (tx) => findWorkspace(tx, named.name));
  // One answer for what there is not and what is not the user's.
  return sessions.inWorkspace(principal, found?.id ?? named.name, named.param);
}

/** As `SignIns.check` of the gateway. */
export async function checkCookie(
  { sessions }: Pick<DataPlaneSignIns, 'sessions'>,
  incoming: IncomingMessage,
  token: string,
  principal: Principal,
): Promise<void> {
  const session = await findSignIn(sessions, token, requestOf(incoming), false);
  if (session !== null && !isSame(principal, session.principal)) throw differentCallers();
}

const requestOf = (raw: IncomingMessage) => ({ headers: raw.headers, method: raw.method ?? '', raw });

interface Named {
  readonly name: string;
  readonly param: string;
}

/** The workspace that the request names; the query loses it, which no operation and no provider expects there. */
function takeName(incoming: IncomingMessage): Named | null {
  const header = incoming.headers[HEADER];
  const name = typeof header === 'string' && header !== '' ? header : null;
  const url = incoming.url ?? '';
  const at = url.indexOf('?');
  const parts = at < 0 ? [] : url.slice(at + 1).split('&');
  const own = parts.filter(isOwn);
  const names = new Set(own.map((part) => new URLSearchParams(part).get(PARAMETER) ?? ''));
  if (own.length > 0) {
    const rest = parts.filter((part) => !isOwn(part));
    incoming.url = url.slice(0, at) + (rest.length === 0 ? '' : `?${rest.join('&')}`);
  }
  if (name !== null) names.add(name);
  const [first, second] = names;
  if (second !== undefined) {
    throw new SluiceError(
      'validation',
      `Name one workspace: ${HEADER} and ${PARAMETER} differ, or one was sent twice.`,
      {
        param: PARAMETER,
      },
    );
  }
  return first === undefined ? null : { name: first, param: name === null ? PARAMETER : HEADER };
}

const isOwn = (part: string): boolean => new URLSearchParams(part).has(PARAMETER);

/** Id of the one workspace that the user may work in. */
async function onlyWorkspace(tables: Pick<Tables, 'read'>, principal: Principal): Promise<string> {
  const [only, another] = await tables.read(tenantOf(principal, null), async (tx) => {
    const status = 'active' as const;
    const two = { orderBy: [['id', 'asc']], limit: 2 } as const;
    if (principal.role !== 'member') return tx.list('workspaces', { where: { status }, ...two });
    const joined = await tx.list('workspace_members', { where: { user_id: principal.userId ?? '', status } });
    if (joined.length === 0) return [];
    const id = { in: joined.map((member) => member.workspace_id) };
    return tx.list('workspaces', { where: { id, status }, ...two });
  });
  if (only === undefined) {
    throw new SluiceError('forbidden', 'You belong to no workspace. Ask an administrator to add you to one.');
  }
  if (another !== undefined) {
    throw new SluiceError(
      'validation',
      `You have several workspaces: name one in the header ${HEADER}, by its id or slug. GET /v1/auth/self lists them.`,
      { param: HEADER },
    );
  }
  return only.id;
}
