import { useCallback, useEffect, useState } from 'react';
import { ApiError, type Approval, endApproval, listApprovals, type Session } from '../api/client.ts';
import { Notice } from '../components/notice.tsx';

/** The programs that the user has let in: shown and ended here. */
export function Programs({ session }: { session: Session }) {
  const [programs, setPrograms] = useState<Approval[] | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);

  const act = useCallback(async (what: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await what();
      setPrograms(await listApprovals());
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
    setBusy(false);
  }, []);

  useEffect(() => void act(async () => undefined), [act]);

  const workspaceOf = (id: string) => session.workspaces.find((one) => one.id === id)?.name ?? id;
  return (
    <section className="card" aria-labelledby="programs-heading">
      <h2 id="programs-heading">Programs with access</h2>
      {programs?.length === 0 && <p className="muted">You have let no program in.</p>}
      {programs !== null && programs.length > 0 && (
        <ul aria-labelledby="programs-heading">
          {programs.map(({ id, client_id, client_name, resource, workspace_id, created_at }) => (
            <li key={id}>
              <strong>{client_name ?? client_id}</strong> uses <code>{resource}</code> in {workspaceOf(workspace_id)}{' '}
              <span className="muted">
                since <time dateTime={created_at}>{new Date(created_at).toLocaleString()}</time>
              </span>{' '}
              <button
                type="button"
                className="button"
                disabled={busy}
                onClick={() => void act(() => endApproval(session, id))}
              >
                End access of {client_name ?? client_id}
              </button>
            </li>
          ))}
        </ul>
      )}
      {error !== null && <Notice tone="bad" title={error} />}
    </section>
  );
}
