/** `POST /v2/auth/logout`. */
import { endSessions, idTokenOf } from '../../auth/session-rows.ts';
import { tenantOf } from '../../auth/tenant.ts';
import { appendAudit } from '../../resources/audit-logs/chain.ts';
import { consoleEntry } from '../audit.ts';
import type { SignInCall } from './call.ts';
import { endSessionUrl } from './sso.ts';

type Call = SignInCall<{ readonly everywhere?: boolean | undefined }, unknown, 'signed_in'>;

export async function logout({ deps, body, session, request, reply }: Call) {
  const { sessions, tables, vault, clock, log } = deps;
  const { organisationId, userId } = session.principal;
  const everywhere = body.everywhere === true && userId !== null;
  const row = await tables.write(
    tenantOf(session.principal),
    async (tx) => {
      const ended = await tx.find('console_sessions', { digest: session.digest });
      await endSessions(tx, everywhere ? { organisationId, userId } : { organisationId, session: session.digest });
      const whose = { organisationId, userId, resourceId: userId };
      const deed = { request, action: 'delete', resource: 'auth.sign_out', body: { everywhere } } as const;
      await appendAudit(tx, vault, consoleEntry({ clock, vault }, { ...deed, ...whose }));
      return ended;
    },
    { queue: organisationId },
  );
  sessions.invalidate();
  reply.header('set-cookie', sessions.setCookie(null));
  if (row === undefined) return { object: 'logout' as const, url: null };
  const hint = await idTokenOf(vault, row).catch((error: unknown) => {
    log.warn('the ID token of a session could not be opened', { error: String(error) });
    return null;
  });
  return { object: 'logout' as const, url: await endSessionUrl(deps, row, hint) };
}
